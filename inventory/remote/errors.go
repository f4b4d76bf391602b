package remote

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is the class of an error; commands map it to an exit code.
type Kind int

// Classes of errors. Usage is a mistake in the lab file, ssh_config or the call; Infrastructure is a host, path or
// tool that does not do its part; Permission is a key, sudo or file mode that does not allow it.
const (
	Infrastructure Kind = iota
	Usage
	Permission
)

func (k Kind) String() string {
	switch k {
	case Usage:
		return "usage"
	case Permission:
		return "permission"
	case Infrastructure:
	}
	return "infrastructure"
}

// Error is what went wrong on one host in one step.
type Error struct {
	Host string // name in the lab file
	Step string // "connect", "start ib_write_bw server for h1"
	Kind Kind
	Fix  string // what to do about it, often a command line; "" when it is not known
	Err  error
}

// Error reads as a path: host, step, cause, fix.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Host != "" {
		fmt.Fprintf(&b, "host %s: ", e.Host)
	}
	if e.Step != "" {
		fmt.Fprintf(&b, "%s: ", e.Step)
	}
	b.WriteString(e.Err.Error())
	if e.Fix != "" {
		fmt.Fprintf(&b, " (%s)", e.Fix)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Sentinels for callers that branch.
var (
	// ErrDeadline says that a command's deadline passed.
	ErrDeadline = errors.New("deadline passed")
	// ErrLost says that the connection to a running command was lost and did not come back.
	ErrLost = errors.New("connection lost")
	// ErrNeedSudo says that sudo -n refused.
	ErrNeedSudo = errors.New("NEED_SUDO")
	// ErrClosed says that the host has been closed.
	ErrClosed = errors.New("host closed")
	// ErrNotStarted says that a command could not be executed at all.
	ErrNotStarted = errors.New("not started")
)

// wrap puts host and step around an error that has none yet. A step that is known already stays.
func wrap(host, step string, err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		c := *e
		if c.Host == "" {
			c.Host = host
		}
		switch {
		case c.Step == "":
			c.Step = step
		case step != "" && c.Step != step:
			c.Step = step + ": " + c.Step
		}
		return &c
	}
	return &Error{Host: host, Step: step, Err: err}
}

// fault is an Error that gets its host and step from wrap.
func fault(k Kind, fix, format string, args ...any) *Error {
	return &Error{Kind: k, Fix: fix, Err: fmt.Errorf(format, args...)}
}
