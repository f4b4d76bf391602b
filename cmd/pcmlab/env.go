package main

import (
	"errors"
	"io"
	"log/slog"
	"os"
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
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		if _, isDetailed := err.(detailed); !isDetailed && strings.Contains(err.Error(), "\n") {
			var parts []string
			for _, e := range joined.Unwrap() {
				if text := describe(e); text != "" {
					parts = append(parts, text)
				}
			}
			return strings.Join(parts, "\n")
		}
	}
	var coded *codedError
	if errors.As(err, &coded) && coded.err == nil {
		return ""
	}
	var d detailed
	if errors.As(err, &d) {
		return strings.TrimRight(d.Detail(), "\n")
	}
	if text := err.Error(); strings.HasPrefix(text, "pcmlab ") { // it names the command itself
		return text
	}
	return "pcmlab: " + err.Error()
}
