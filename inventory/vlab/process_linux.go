package vlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// identify names a running process by number and start time.
func identify(pid int) (process, error) {
	start, _, err := statOf(pid)
	if err != nil {
		return process{}, err
	}
	return process{PID: pid, Start: start}, nil
}

// statOf reads start time (field 22 of proc_pid_stat(5)) and state. The command's name may hold spaces and brackets.
func statOf(pid int) (start uint64, st byte, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return 0, 0, fmt.Errorf("/proc/%d/stat: no command in it", pid)
	}
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 {
		return 0, 0, fmt.Errorf("/proc/%d/stat: %d fields, need 22", pid, len(f)+2)
	}
	start, err = strconv.ParseUint(f[19], 10, 64)
	return start, f[0][0], err
}

// alive says whether the very process still runs. A zombie does not: its namespaces and files are gone.
func (p process) alive() bool {
	if p.PID == 0 {
		return false
	}
	start, st, err := statOf(p.PID)
	return err == nil && start == p.Start && st != 'Z' && st != 'X'
}

// kill sends sig to the very process and, with SIGKILL, waits until it has ended. A process that is gone is no error.
func (p process) kill(ctx context.Context, sig unix.Signal) error {
	if p.PID == 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(fd)
	// The descriptor pins the number now, so the start time tells whether it is still the same process.
	if !p.alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	if sig != unix.SIGKILL {
		return nil
	}
	return waitPidfd(ctx, fd, p.PID)
}

func waitPidfd(ctx context.Context, fd, pid int) error {
	for {
		// The context is looked at now and then: no descriptor tells of it.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 50)
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return os.NewSyscallError("poll", err)
		case n > 0:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("process %d: still there after SIGKILL: %w", pid, ctx.Err())
		}
	}
}

// children maps the process numbers below parent, as it sees them itself, to processes as seen here.
func children(parent int) (map[int]process, error) {
	pids, err := childrenOf(parent)
	if err != nil {
		return nil, err
	}
	out := map[int]process{}
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue // ended meanwhile
		}
		ppid, ns := 0, []string(nil)
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(line, "PPid:"); ok {
				ppid, _ = strconv.Atoi(strings.TrimSpace(v))
			} else if v, ok := strings.CutPrefix(line, "NSpid:"); ok {
				ns = strings.Fields(v)
			}
		}
		if ppid != parent || len(ns) < 2 {
			continue
		}
		p, err := identify(pid)
		if err != nil {
			continue
		}
		// NSpid lists the numbers from our namespace inwards; the second is that of the parent's namespace.
		if inner, err := strconv.Atoi(ns[1]); err == nil {
			out[inner] = p
		}
	}
	return out, nil
}

// childrenOf lists the children of all threads of pid, or, where the kernel does not tell (CONFIG_PROC_CHILDREN), all
// processes there are.
func childrenOf(pid int) ([]int, error) {
	var out []int
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // a thread that ended
		}
		for _, n := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(n); err == nil {
				out = append(out, pid)
			}
		}
	}
	if len(files) > 0 {
		return out, nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, pid)
		}
	}
	return out, nil
}

func machineBootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// waitUntil polls cond until it holds or the context ends.
func waitUntil(ctx context.Context, every time.Duration, cond func() bool) bool {
	t := time.NewTicker(every)
	defer t.Stop()
	for !cond() {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
		}
	}
	return true
}
