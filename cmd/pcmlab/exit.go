package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/inventory/remote"
)

// The exit codes of pcmlab. They are part of the command-line contract.
const (
	exitOK          = 0
	exitCheckFailed = 1
	exitUsage       = 2
	exitInfra       = 3
	exitData        = 4
	exitBusy        = 5
	exitInterrupted = 130
)

// exitCodes is the one table of exit codes; `pcmlab help exit-codes` prints it.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "done, and all checks hold"},
	{exitCheckFailed, "a check failed"},
	{exitUsage, "usage, playbook or inventory wrong"},
	{exitInfra, "infrastructure: SSH, a tool, a permission"},
	{exitData, "data incomplete or invalid: a cut capture, a blind tap, a run that was too noisy to judge"},
	{exitBusy, "lab busy: a host, NIC or port range is held by another run"},
	{exitInterrupted, "interrupted"},
}

// precedence says which code wins when several apply: the first one.
var precedence = []int{exitInterrupted, exitUsage, exitBusy, exitInfra, exitData, exitCheckFailed, exitOK}

// codedError carries the exit code of an error that only the command line knows how to rate.
type codedError struct {
	code int
	err  error // nil: the command has said all there is to say
}

func (e *codedError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *codedError) Unwrap() error { return e.err }

func usagef(format string, a ...any) error {
	return &codedError{exitUsage, fmt.Errorf(format, a...)}
}

// exitCode rates an error. Joined errors are rated one by one, and the code that comes first in precedence wins.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	found := map[int]bool{}
	rate(err, found)
	for _, c := range precedence {
		if found[c] && c != exitOK {
			return c
		}
	}
	return exitInfra
}

func rate(err error, found map[int]bool) {
	if several(err) {
		for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
			rate(e, found)
		}
		return
	}
	var coded *codedError
	var remoteErr *remote.Error
	switch {
	case errors.As(err, &coded):
		found[coded.code] = true
	case errors.Is(err, context.Canceled):
		found[exitInterrupted] = true
	case errors.Is(err, experiments.ErrInput):
		found[exitUsage] = true
	case errors.Is(err, experiments.ErrBusy):
		found[exitBusy] = true
	case errors.Is(err, experiments.ErrData):
		found[exitData] = true
	case errors.As(err, &remoteErr):
		found[exitInfra] = true
	default:
		found[exitInfra] = true
	}
}

// several says that err joins errors of their own, and is not one error that wraps a class and a cause ("%w: %w").
func several(err error) bool {
	return reflect.TypeOf(err) == reflect.TypeOf(errors.Join(err))
}

func printExitCodes(w io.Writer) {
	fmt.Fprintln(w, "Exit codes of pcmlab:")
	fmt.Fprintln(w)
	for _, c := range exitCodes {
		fmt.Fprintf(w, "  %3d  %s\n", c.code, c.meaning)
	}
	fmt.Fprintln(w)
	fmt.Fprintln(w, "When several apply, the first of 130, 2, 5, 3, 4, 1 is given.")
}
