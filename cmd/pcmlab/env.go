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

func asCoded(err error, target **codedError) bool { return errors.As(err, target) }

// excerpter is an error that can show the lines of the file it complains about.
type excerpter interface{ Excerpt() string }

// describe is the text of an error for people: with "pcmlab:" in front where the error does not begin with a place
// in a file, and with the offending lines where the error knows them.
func describe(err error) string {
	var ex excerpter
	if errors.As(err, &ex) {
		return strings.TrimRight(ex.Excerpt(), "\n")
	}
	return "pcmlab: " + err.Error()
}
