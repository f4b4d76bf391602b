// Package remote reaches the hosts of a lab: commands, files and guarded processes over SSH.
package remote

import (
	"context"
	"io"
	"io/fs"
	"time"
)

// Host is one machine on which commands run. SSH connections, jump hosts and binaries on the far side are its
// own business; callers see commands and files.
type Host interface {
	// Name is the host's name in the lab file.
	Name() string
	// Run runs c to its end under a guard and returns what it printed. A command that ran and failed is not an
	// error: look at Result.Code. err means that it could not be run, was lost, or passed its deadline.
	Run(ctx context.Context, c Cmd) (Result, error)
	// Start starts c under a guard and returns at once when it is running, or, with Hold, when it waits for Release.
	Start(ctx context.Context, c Cmd) (Process, error)
	// Put writes a file on the host (atomically, checked by SHA-256); Get reads one.
	Put(ctx context.Context, path string, mode fs.FileMode, r io.Reader) error
	Get(ctx context.Context, path string, w io.Writer) error
	// Binary is the path of pcmlab itself on the host, pushed on first use.
	Binary(ctx context.Context) (string, error)
	// Close ends the connection; processes still running are stopped by their guards.
	Close() error
}

// Cmd is a command on a host.
type Cmd struct {
	Args     []string // argv; quoted for the remote shell by the package. Args[0] "pcmlab" means the pushed binary
	Env      []string // KEY=VALUE
	Dir      string
	Sudo     bool          // under sudo -n
	Plain    bool          // without a guard, and nothing is pushed: for what only reads, and ends with its input or by itself
	Deadline time.Duration // for the whole command; 0 means 30 s
	Hold     bool          // Start only: exec waits for Release (a barrier across hosts)
	MaxOut   int           // bytes kept per stream in Result; 0 means 1 MiB. The stream is drained all the same
	Stdout   io.Writer     // additionally copied as it arrives; may be nil
	Stderr   io.Writer
	Stdin    io.Reader // input of the command; nil: empty
	Step     string    // what this is for, in errors: "start ib_write_bw server for h1"
	Restore  []string  // argv that the guard runs when the command ends or its owner is lost, under sudo when the command is; nil: none

	Term time.Duration // what a command that is to end has before it is killed; 0 means guard.TermWait
}

// Result is what a command left.
type Result struct {
	Code           int    // exit status; -1 when a signal ended it
	Signal         string // name of the signal, or ""
	Stdout, Stderr []byte // at most MaxOut bytes each, the last ones
	Dropped        int64  // bytes beyond MaxOut
	Started, Ended time.Time
	Host, BootID   string // hostname and boot id echoed by the guard: where it really ran
}

// Process is a running guarded command.
type Process interface {
	PID() int
	Release(ctx context.Context) error             // lets a held command exec
	Stop(ctx context.Context, signal string) error // "INT", "TERM"; after 2 s the guard sends KILL to all that is left
	Wait(ctx context.Context) (Result, error)      // may be called more than once
	Done() <-chan struct{}
}
