package vlab

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// reaper waits for every child of PID 1: those that were started through it and the orphans that fall to it. It alone
// calls wait, so that no status is taken from under anyone.
type reaper struct {
	mu      sync.Mutex
	running map[int]chan syscall.WaitStatus       // by number, while it is ours
	started map[*exec.Cmd]chan syscall.WaitStatus // until wait has been called
}

func newReaper() *reaper {
	return &reaper{running: map[int]chan syscall.WaitStatus{}, started: map[*exec.Cmd]chan syscall.WaitStatus{}}
}

// run reaps until ctx ends.
func (r *reaper) run(ctx context.Context) {
	chld := make(chan os.Signal, 1)
	signal.Notify(chld, unix.SIGCHLD)
	defer signal.Stop(chld)
	for {
		r.reap()
		select {
		case <-ctx.Done():
			return
		case <-chld:
		}
	}
}

// reap holds the lock, as start does: a child that ends at once is registered before it is waited for.
func (r *reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if ch, ok := r.running[pid]; ok {
			delete(r.running, pid)
			ch <- ws // has room
		}
	}
}

// start starts cmd, whose standard streams must be files. wait must be called for it.
func (r *reaper) start(cmd *exec.Cmd) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	ch := make(chan syscall.WaitStatus, 1)
	r.running[cmd.Process.Pid], r.started[cmd] = ch, ch
	return nil
}

// wait gives the status of a command that start started; once per command. The process's handle is left to the
// garbage collector: Release would change the number that others may still send signals to.
func (r *reaper) wait(cmd *exec.Cmd) (syscall.WaitStatus, error) {
	r.mu.Lock()
	ch, ok := r.started[cmd]
	delete(r.started, cmd)
	r.mu.Unlock()
	if !ok {
		return 0, os.ErrProcessDone
	}
	return <-ch, nil
}
