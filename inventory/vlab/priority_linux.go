package vlab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// What is hardware in a real lab goes before everything else on a machine, so that a busy machine delays the software
// on the hosts rather than their wires: nice values of the fabric and of the NIC daemons.
const (
	fabricNice = -19
	nicNice    = -15
)

// startUrgent starts cmd, in a session of its own, with a nice value below that of its parent. Without the right to do
// so it starts all the same, at the ordinary value.
//
// The nice value alone would do little: where autogroups are on (sched(7)), as they are by default, it only counts
// among the processes of one session, and sessions share the processors by a nice value of their own.
func startUrgent(cmd *exec.Cmd, nice int, start func(*exec.Cmd) error) (urgent bool, err error) {
	if cmd.SysProcAttr == nil || !cmd.SysProcAttr.Setsid {
		return false, errors.New("an urgent process needs a session of its own")
	}
	// The value belongs to a thread and is inherited by what the thread starts.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := getNice()
	if err == nil && unix.Setpriority(unix.PRIO_PROCESS, 0, nice) == nil {
		urgent = true
		defer unix.Setpriority(unix.PRIO_PROCESS, 0, before)
	}
	if err := start(cmd); err != nil {
		return false, err
	}
	if urgent {
		path := fmt.Sprintf("/proc/%d/autogroup", cmd.Process.Pid)
		if err := os.WriteFile(path, fmt.Appendf(nil, "%d", nice), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			urgent = false
		}
	}
	return urgent, nil
}

// getNice is the calling thread's; the system call gives 20 minus it, so that it is never negative.
func getNice() (int, error) {
	v, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	return 20 - v, err
}
