package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pcmlab/pcmlab/experiments"
)

// detachedAs is set in the environment of the process that goes on in the background: the id that was promised.
const detachedAs = "PCMLAB_DETACHED_AS"

// detachTimeout is how long the process in the background may take to say that it is there.
const detachTimeout = 30 * time.Second

// detached is what --detach prints.
type detached struct {
	Schema string `json:"schema"` // pcmlab/detached/v1
	Run    string `json:"run"`
	Dir    string `json:"dir"`
	Log    string `json:"log"`
	PID    int    `json:"pid"`
}

// detach starts this command again in a session of its own. All that can be wrong with its input has been seen already.
func (e *env) detach(ctx context.Context, o *runOptions, j *job) error {
	if err := os.MkdirAll(j.dir, 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(j.dir, experiments.LogFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	from, err := log.Seek(0, 2)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), detachedAs+"="+filepath.Base(j.dir))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	if err := waitForStatus(ctx, j.dir, cmd.Process.Pid, exited); err != nil {
		if data, rerr := os.ReadFile(log.Name()); rerr == nil && int64(len(data)) > from {
			err = fmt.Errorf("%w\n%s", err, bytes.TrimSpace(data[from:]))
		}
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return &codedError{exit.ExitCode(), err}
		}
		return err
	}
	d := detached{"pcmlab/detached/v1", filepath.Base(j.dir), j.dir, log.Name(), cmd.Process.Pid}
	if o.output == "json" {
		return writeJSON(e.stdout, d)
	}
	_, err = fmt.Fprintf(e.stdout, "run     %s\nfolder  %s\nlog     %s\nfollow  pcmlab status %[1]s%[4]s\nend     pcmlab stop %[1]s%[4]s\n", d.Run, relative(d.Dir), relative(d.Log), outFlag(o.out))
	return err
}

// outFlag is what a command must be given to find the folder; "" for the default.
func outFlag(out string) string {
	if out == "runs" {
		return ""
	}
	return " --out " + out
}

// waitForStatus returns when the process says that it is there, or has ended already.
func waitForStatus(ctx context.Context, dir string, pid int, exited <-chan error) error {
	deadline := time.NewTimer(detachTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if s, err := experiments.LoadStatus(dir); err == nil && s.Process.PID == pid {
			return nil
		}
		select {
		case err := <-exited:
			if err == nil || finishedIn(dir) {
				return nil // quicker than this look
			}
			return fmt.Errorf("the run in the background ended at once: %w", err)
		case <-deadline.C:
			return fmt.Errorf("the run in the background (process %d) says nothing for %v; see %s", pid, detachTimeout, filepath.Join(dir, experiments.LogFile))
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func finishedIn(dir string) bool {
	return experiments.IsRun(dir) || experiments.IsSweepDir(dir)
}
