package guard

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const usage = `usage: pcmlab guard --run ID --deadline D [--hold] [--grace 5s] [--silence 20s] [--stdin] [--dir D] [--env K=V]... [--restore JSON-ARGV] -- COMMAND
       pcmlab guard attach --run ID --id GUARD      join a guard's socket with standard input and output
       pcmlab guard list [--run ID]                 guards at work, and those that could not stop or restore something or went down with their host; one JSON a line
       pcmlab guard cleanup [--run ID]              stop guards and what they started; remove records
`

// Main runs what follows the word guard on the command line and returns the exit status: that of the guarded command,
// 128 plus the signal that ended it, 125 when the guard itself could not work, 2 for a wrong command line.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		switch args[0] {
		case "attach", "list", "cleanup":
			return subcommand(ctx, args[0], args[1:], stdin, stdout, stderr)
		}
	}
	cfg, err := ParseArgs(args)
	if err != nil {
		fmt.Fprintf(stderr, "%v\n%s", err, usage)
		return 2
	}
	if cfg.inner {
		if cfg.id == "" {
			fmt.Fprintln(stderr, "guard: --inner is for the guard itself")
			return 2
		}
		unix.CloseOnExec(3)
		return runInner(cfg, stdin, stdout, stderr, os.NewFile(3, "outer guard"))
	}
	in, err1 := asFile("standard input", stdin)
	out, err2 := asFile("standard output", stdout)
	errs, err3 := asFile("standard error", stderr)
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			fmt.Fprintln(stderr, err)
			return 125
		}
	}
	return runOuter(cfg, in, out, errs)
}

func subcommand(ctx context.Context, verb string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("guard "+verb, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	run, id := fs.String("run", "", ""), fs.String("id", "", "")
	if err := fs.Parse(args); err != nil {
		fmt.Fprintf(stderr, "guard %s: %v\n%s", verb, err, usage)
		return 2
	}
	if verb == "attach" {
		if err := attach(*run, *id, stdin, stdout); err != nil {
			fmt.Fprintf(stderr, "guard attach: %v\n", err)
			return 125
		}
		return 0
	}
	f := List
	if verb == "cleanup" {
		f = func(run string) ([]State, error) { return Cleanup(ctx, run) }
	}
	states, err := f(*run)
	enc := json.NewEncoder(stdout)
	for _, s := range states {
		s.Token = ""
		enc.Encode(s)
	}
	if err != nil {
		fmt.Fprintf(stderr, "guard %s: %v\n", verb, err)
		return 3
	}
	return 0
}

// attach joins stdin and stdout to a guard's socket. The owner's first frame (Attach, with the token) goes through
// stdin, so that the token is in no process list.
func attach(run, id string, stdin io.Reader, stdout io.Writer) error {
	if err := validRun(run); err != nil {
		return err
	}
	if err := validRun(id); err != nil {
		return err
	}
	dir, err := Dir()
	if err != nil {
		return err
	}
	c, err := dialIn(filepath.Join(dir, run), id+".sock")
	if err != nil {
		return fmt.Errorf("%s %s: %w", GuardGone, id, err)
	}
	defer c.Close()
	go func() {
		io.Copy(c, stdin)
		c.(*net.UnixConn).CloseWrite()
	}()
	_, err = io.Copy(stdout, c)
	return err
}

func guardAlive(r Record) bool {
	_, boot := identity()
	if r.BootID != boot {
		return false
	}
	p, err := readProc(r.PID)
	return err == nil && p.start == r.Start && !p.dead()
}

// Cleanup stops the guards of a run (all of the user's when run is empty) on this host, with all that they started,
// waits until they have ended, and removes their records. Guards that hold the caller itself are left alone. What it
// returns are the guards as it found them; those still there after 30 s, or when ctx ends, are in the error.
func Cleanup(ctx context.Context, run string) ([]State, error) {
	found, err := List(run)
	if err != nil {
		return found, err
	}
	own := ancestors()
	found = slices.DeleteFunc(found, func(s State) bool { return s.Alive && own[s.PID] })
	for _, s := range found {
		if s.Alive {
			askToEnd(s)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(pollEnding)
	defer tick.Stop()
	host, boot := identity()
	for _, s := range found {
		for s.Alive && guardAlive(s.Record) {
			select {
			case <-ctx.Done():
				return found, fmt.Errorf("guard %s of run %s (pid %d, %q) has not ended: %w", s.ID, s.Run, s.PID, s.Args, ctx.Err())
			case <-tick.C:
			}
		}
		if s.BootID != boot && s.Host != host {
			continue // another machine's, with the same home directory
		}
		os.Remove(s.Path)
		os.Remove(filepath.Join(filepath.Dir(s.Path), s.ID+".sock"))
		os.Remove(filepath.Dir(s.Path)) // when it is empty
	}
	return found, nil
}

// askToEnd asks through the guard's socket, or, where that does not answer, by a signal to the very process that
// wrote the record.
func askToEnd(s State) {
	b, _ := json.Marshal(AttachInfo{Token: s.Token, Cleanup: true})
	frame, _ := Frame{Type: Attach, Payload: b}.Append(nil)
	if c, err := dialIn(filepath.Dir(s.Path), s.ID+".sock"); err == nil {
		c.SetDeadline(time.Now().Add(2 * time.Second))
		_, werr := c.Write(frame)
		_, rerr := c.Read(make([]byte, 1)) // closed by the guard when it has understood
		c.Close()
		if werr == nil && rerr == io.EOF {
			return
		}
	}
	fd, err := unix.PidfdOpen(s.PID, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if guardAlive(s.Record) { // checked with the descriptor open: it is the same process
		unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0)
	}
}

// ancestors holds the numbers of the processes above this one.
func ancestors() map[int]bool {
	out := map[int]bool{}
	for pid := os.Getpid(); pid > 0 && !out[pid]; {
		out[pid] = true
		p, err := readProc(pid)
		if err != nil {
			break
		}
		pid = p.ppid
	}
	return out
}
