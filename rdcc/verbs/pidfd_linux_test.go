package verbs

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func pidfd(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// gone waits until a process has ended.
func gone(f *os.File, within time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
	for end := time.Now().Add(within); time.Now().Before(end); {
		if n, err := unix.Poll(fds, 1000); err == nil && n > 0 {
			return true
		}
	}
	return false
}
