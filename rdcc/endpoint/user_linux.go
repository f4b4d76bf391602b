package endpoint

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Drop becomes another user for good, in all threads of the process: no supplementary groups, its group, its user, and no
// privileges that a program on disk could give back. Ports and sockets that are open stay so; what is opened afterwards is
// opened as that user. Nothing happens for the user that the process already is.
func Drop(name string) error {
	u, err := user.Lookup(name)
	if err != nil {
		if _, number := strconv.Atoi(name); number == nil {
			u, err = user.LookupId(name)
		}
		if err != nil {
			return fmt.Errorf("rdcc: user %q: %w", name, err)
		}
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("rdcc: user %q: %w", name, err)
	}
	if os.Getuid() != uid || os.Getgid() != gid {
		if os.Getuid() != 0 {
			return fmt.Errorf("rdcc: user %q: this process is user %d, and only root may become another (leave user: out, or start it as root)", name, os.Getuid())
		}
		for _, step := range []struct {
			what string
			err  func() error
		}{
			{"setgroups", func() error { return syscall.Setgroups([]int{gid}) }},
			{"setgid", func() error { return syscall.Setresgid(gid, gid, gid) }},
			{"setuid", func() error { return syscall.Setresuid(uid, uid, uid) }},
		} {
			if err := step.err(); err != nil {
				return fmt.Errorf("rdcc: user %q: %s: %w", name, step.what, err)
			}
		}
		if uid != 0 && syscall.Setuid(0) == nil {
			return fmt.Errorf("rdcc: user %q: root can be had back", name)
		}
	}
	_, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
	if errno == syscall.ENOTSUP { // a build with cgo: this thread at least, and those that it starts
		return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	if errno != 0 {
		return fmt.Errorf("rdcc: no new privileges: %w", errno)
	}
	return nil
}
