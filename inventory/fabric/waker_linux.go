package fabric

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// waker is an eventfd that ends a driver's wait from any goroutine, also after the driver has been closed.
type waker struct {
	mu sync.Mutex
	fd int // -1: closed
}

func newWaker(nonblock bool) (*waker, error) {
	flags := unix.EFD_CLOEXEC
	if nonblock {
		flags |= unix.EFD_NONBLOCK
	}
	fd, err := unix.Eventfd(0, flags)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return &waker{fd: fd}, nil
}

func (w *waker) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd >= 0 {
		one := [8]byte{1} // host order does not matter: any count wakes
		_, _ = unix.Write(w.fd, one[:])
	}
}

func (w *waker) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd >= 0 {
		_ = unix.Close(w.fd)
		w.fd = -1
	}
}
