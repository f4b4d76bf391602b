package softnic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/engine"
)

// loop owns the engine and the sockets. run is its one goroutine, on a locked thread; others hand it functions.
type loop struct {
	c      Config
	nic    *engine.NIC
	fd     int         // UDP 4791
	ring   *packetRing // what is received from; nil: fd
	wake   int         // eventfd
	start  time.Time
	rx     *batch
	tx     *batch
	txFrom [batchSize]*source // socket of each message in tx that is yet to be sent
	txAt   [batchSize]int     // its place in tx
	out    [batchSize]mmsghdr
	late   latenessHistogram
	io     IOStats
	drops  uint32    // as the socket last reported
	rdcc   *rdccPort // nil: none

	mu      sync.Mutex
	queue   []func(now time.Duration)
	stopped bool
	done    chan struct{}
}

// IOStats counts what the loop asked of the kernel.
type IOStats struct {
	Syscalls uint64 `json:"syscalls"`
	Wakeups  uint64 `json:"wakeups"`
	WallNS   int64  `json:"wall_ns"`
}

// source is the sending socket of one queue pair.
type source struct{ fd int }

func newLoop(c Config, nic *engine.NIC, mtu int) (*loop, error) {
	l := &loop{c: c, nic: nic, fd: -1, wake: -1, start: time.Now(), done: make(chan struct{})}
	var err error
	if l.fd, err = openSocket(c.IP.Addr(), 4791, c.Priority); err != nil {
		return nil, fmt.Errorf("UDP %v:4791: %w", c.IP.Addr(), err)
	}
	if l.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		unix.Close(l.fd)
		return nil, os.NewSyscallError("eventfd", err)
	}
	if err := l.chooseReceiver(); err != nil {
		unix.Close(l.fd)
		unix.Close(l.wake)
		return nil, err
	}
	l.rx, l.tx = newBatch(mtu), newBatch(mtu)
	return l, nil
}

// enoughBuffer is how much of a UDP receive buffer makes a packet ring unnecessary.
const enoughBuffer = socketBuffer / 2

// chooseReceiver opens the packet ring where the configuration wants it, or where the UDP socket's buffer stayed small
// and the ring may be opened.
func (l *loop) chooseReceiver() (err error) {
	want := l.c.Receive
	if size, err := unix.GetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_RCVBUF); want == "auto" && err == nil && size >= enoughBuffer {
		want = "udp"
	}
	if want == "udp" {
		return nil
	}
	if l.ring, err = openPacketRing(l.c.Netdev, l.c.IP.Addr(), l.c.MTU); err == nil {
		err = deafen(l.fd)
	}
	if err != nil && l.ring != nil {
		l.ring.close()
		l.ring = nil
	}
	if err != nil && want == "auto" {
		return nil
	}
	return err
}

// receiver names what packets are received from.
func (l *loop) receiver() string {
	if l.ring != nil {
		return "packet"
	}
	return "udp"
}

func (l *loop) now() time.Duration { return time.Since(l.start) }

// post hands f to the loop and does not wait. It reports false when the loop has ended; then f will not run.
func (l *loop) post(f func(now time.Duration)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return false
	}
	l.queue = append(l.queue, f)
	if len(l.queue) == 1 {
		_, _ = unix.Write(l.wake, wakeOne[:])
	}
	return true
}

// do runs f on the loop and waits for its end.
func (l *loop) do(f func(now time.Duration)) error {
	ran := make(chan struct{})
	if !l.post(func(now time.Duration) { f(now); close(ran) }) {
		return errStopped
	}
	select {
	case <-ran:
		return nil
	case <-l.done:
		select {
		case <-ran:
			return nil
		default:
			return errStopped
		}
	}
}

// wakeOne is the count 1 for an eventfd, whatever the byte order: any value but 0 and all ones wakes.
var wakeOne = [8]byte{0: 1, 7: 1}

var errStopped = errors.New("NIC has stopped")

// run drives the NIC until ctx ends. Each round takes what has arrived, sends what is due, and sleeps until the next
// deadline; rounds are bounded, so that acknowledgements and CNPs never wait for long behind data.
func (l *loop) run(ctx context.Context) error {
	// The thread's timer slack is changed, so it ends with the goroutine: no UnlockOSThread.
	runtime.LockOSThread()
	defer l.end()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("timer slack: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { l.post(func(time.Duration) {}) })
	defer stop()

	from := l.fd
	if l.ring != nil {
		from = l.ring.fd
	}
	w := newWaiter(from, l.wake)
	r := ready{socket: true, wake: true}
	var target time.Duration // what the last sleep was for; 0: nothing timed
	for {
		now := l.now()
		l.io.Wakeups++
		if target > 0 && now >= target {
			l.late.add(now - target)
		}
		if r.wake {
			l.commands(now)
		}
		if ctx.Err() != nil {
			return nil
		}
		full := false
		if r.socket {
			n, err := l.receive(now)
			if err != nil {
				return err
			}
			full = n == batchSize
		}
		fullRDCC, err := l.credit(r.rdcc)
		if err != nil {
			return err
		}
		more := l.transmit()
		if l.rdcc != nil {
			l.rdcc.flush(l)
		}
		l.completions()

		target = 0
		wait := time.Duration(-1)
		if at, ok := l.deadline(); ok || more {
			t := l.now()
			// A schedule finer than the quantum is served in steps of it; the engine's virtual time keeps the rate.
			if at > 0 {
				target = max(at, now+l.c.Quantum)
			}
			wait = max(target-t, 0)
		}
		if full || fullRDCC || more {
			wait = 0
		}
		w.rdcc(l.rdccFD())
		l.io.Syscalls++
		if r, err = w.wait(wait); err != nil {
			return os.NewSyscallError("ppoll", err)
		}
		r.socket, r.rdcc = r.socket || full, r.rdcc || fullRDCC
	}
}

// credit takes what has arrived at the RDCC port and answers it, before data is sent.
func (l *loop) credit(readable bool) (more bool, err error) {
	p := l.rdcc
	if p == nil {
		return false, nil
	}
	if readable {
		if more, err = p.receive(l); err != nil {
			return false, err
		}
	}
	if p.gate == nil && l.now() >= p.until {
		unix.Close(p.fd)
		l.rdcc = nil
		return false, nil
	}
	p.flush(l)
	return more, nil
}

func (l *loop) rdccFD() int {
	if l.rdcc == nil {
		return -1
	}
	return l.rdcc.fd
}

// deadline is when there is something to do next.
func (l *loop) deadline() (time.Duration, bool) {
	at, ok := l.nic.Deadline()
	if l.rdcc != nil {
		if t, some := l.rdcc.deadline(); some && (!ok || t < at) {
			at, ok = t, true
		}
	}
	return at, ok
}

func (l *loop) commands(now time.Duration) {
	var b [8]byte
	_, _ = unix.Read(l.wake, b[:])
	l.io.Syscalls++
	l.mu.Lock()
	queue := l.queue
	l.queue = nil
	l.mu.Unlock()
	for _, f := range queue {
		f(now)
	}
}

func (l *loop) receive(now time.Duration) (int, error) {
	if l.ring != nil {
		return l.ring.recv(func(m *message) { l.take(now, m) }), nil
	}
	n, err := l.rx.recv(l.fd)
	l.io.Syscalls++
	if err != nil {
		return 0, os.NewSyscallError("recvmmsg", err)
	}
	var m message
	for i := range n {
		l.rx.message(i, &m)
		l.overflow(m.dropped)
		l.take(now, &m)
	}
	return n, nil
}

func (l *loop) take(now time.Duration, m *message) {
	l.nic.Receive(now, &engine.Header{Src: m.src, SrcPort: m.sport, TOS: m.tos, IPID: m.ipID, DF: m.df}, m.data)
}

// overflow takes over the receiver's count of packets that it had no room for.
func (l *loop) overflow(total uint32) {
	if total != 0 {
		l.nic.Counters().RxOverflow += uint64(total - l.drops)
		l.drops = total
	}
}

// snapshot copies the counters. The loop calls it.
func (l *loop) snapshot() engine.Counters {
	if l.ring != nil {
		l.overflow(l.ring.dropped())
	}
	return *l.nic.Counters()
}

// transmit sends up to a batch and reports whether more may be due at once.
func (l *loop) transmit() (more bool) {
	now := l.now()
	n := 0
	var d engine.Datagram
	for n < batchSize && l.nic.Transmit(now, l.tx.buffer(n), &d) {
		l.tx.put(n, d.Dst, roce.Port, d.TOS, d.Len)
		l.txFrom[n], l.txAt[n] = d.QP.Tag.(*attachedQP).source, n
		n++
	}
	l.send(n)
	return n == batchSize
}

// send sends the n messages of tx, each from its own socket: one system call a socket.
func (l *loop) send(n int) {
	for left := n; left > 0; {
		// Headers only point to buffers, so those of one socket can be gathered in order.
		var from *source
		k, rest := 0, 0
		for i := range left {
			if from == nil {
				from = l.txFrom[i]
			}
			if l.txFrom[i] == from {
				l.out[k] = l.tx.hdrs[l.txAt[i]]
				k++
			} else {
				l.txFrom[rest], l.txAt[rest] = l.txFrom[i], l.txAt[i]
				rest++
			}
		}
		left = rest
		for at := 0; at < k; {
			sent, err := sendmmsg(from.fd, l.out[at:k])
			l.io.Syscalls++
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				// No route, no buffer, refused by a filter: the packet is lost, as on a wire.
				l.nic.Counters().TxDiscards++
				sent = 1
			}
			at += sent
		}
	}
}

func (l *loop) completions() {
	for q := l.nic.Finished(); q != nil; q = l.nic.Finished() {
		q.Tag.(*attachedQP).collect(q)
	}
}

// end refuses further work and closes the sockets.
func (l *loop) end() {
	l.mu.Lock()
	l.stopped = true
	l.queue = nil
	unix.Close(l.wake) // post writes to it only before stopped
	l.mu.Unlock()
	l.nic.Each(func(q *engine.QP) { q.Tag.(*attachedQP).close() })
	unix.Close(l.fd)
	if l.ring != nil {
		l.ring.close()
	}
	if l.rdcc != nil {
		unix.Close(l.rdcc.fd)
	}
	close(l.done)
}
