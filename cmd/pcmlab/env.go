package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
)

// env is what a verb may touch of the world: its streams, what they are, and the settings.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	terminal       bool // stderr is a terminal: progress may redraw
	colour         bool
	quiet          bool
	verbose        int
	settings       *settings
	log            *slog.Logger
}

func newEnv() *env {
	return &env{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		terminal: term.IsTerminal(int(os.Stderr.Fd())),
		colour:   term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "",
		log:      slog.New(slog.DiscardHandler),
	}
}

// detailed is an error that can show the lines of the file it complains about.
type detailed interface{ Detail() string }

// describe is the text of an error for people: mistakes in files with the offending lines, everything else with
// "pcmlab:" in front.
func describe(err error) string {
	var parts []string
	for _, e := range apart(err) {
		if text := describeOne(e); text != "" && !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "\n")
}

// apart are the errors that err joins, each to be described by itself.
func apart(err error) (all []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if _, isDetailed := err.(detailed); !ok || isDetailed || !strings.Contains(err.Error(), "\n") {
		return []error{err}
	}
	for _, e := range joined.Unwrap() {
		all = append(all, apart(e)...)
	}
	return all
}

func describeOne(err error) string {
	var coded *codedError
	if errors.As(err, &coded) && coded.err == nil {
		return ""
	}
	var d detailed
	if errors.As(err, &d) {
		return strings.TrimRight(d.Detail(), "\n")
	}
	if err.Error() == context.Canceled.Error() {
		return "pcmlab: interrupted"
	}
	if text := err.Error(); strings.HasPrefix(text, "pcmlab ") { // it names the command itself
		return text
	}
	return "pcmlab: " + err.Error()
}
