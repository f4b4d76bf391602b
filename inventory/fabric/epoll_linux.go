package fabric

import (
	"fmt"
	"log/slog"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// newDriver takes the wanted way to move frames, or the best that works.
func newDriver(cfg *Config, targets []target, pool *Pool, epoch time.Time, log *slog.Logger) (driver, error) {
	want, ports := cfg.IO, len(cfg.Ports)
	taps := false
	for _, t := range targets[:ports] {
		taps = taps || t.kind == KindTAP
	}
	kind := IOReadWrite
	if !taps {
		kind = IOPacket
	}
	switch {
	case want == IOUring, want == IOAuto && taps:
		d, err := newUringDriver(targets, ports, pool, epoch, cfg.Quantum)
		if err == nil {
			return d, nil
		}
		if want == IOUring {
			return nil, err
		}
		log.Info("falling back to read and write", "reason", err)
	case want != IOAuto && want != kind:
		return nil, fmt.Errorf("io %q does not fit these ports: %s does", want, kind)
	}
	return newEpollDriver(kind, targets, ports, pool, epoch)
}

// readBudget bounds how many frames are read from one port in a row.
const readBudget = 64

// epollDriver reads and writes TAP devices one frame a call and packet sockets in batches, all nonblocking.
type epollDriver struct {
	st      ioStats
	targets []target
	ports   int
	pool    *Pool
	epoch   time.Time
	ep      int
	waker   *waker
	ready   [64]unix.EpollEvent
	read    *Packet  // an empty buffer kept for the next TAP frame
	batches []*batch // per target; nil for TAP devices
	rx      *batch
	noWait2 bool // kernel before 5.11: no epoll_pwait2
}

func newEpollDriver(kind IO, targets []target, ports int, pool *Pool, epoch time.Time) (*epollDriver, error) {
	d := &epollDriver{epoch: epoch, targets: targets, ports: ports, pool: pool, batches: make([]*batch, len(targets)), ep: -1}
	d.st = ioStats{kind: kind, targets: make([]targetStats, len(targets)), portsUp: ports}
	var err error
	if d.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if d.waker, err = newWaker(true); err != nil {
		d.close()
		return nil, err
	}
	if err := d.control(unix.EPOLL_CTL_ADD, -1, d.waker.fd); err != nil {
		d.close()
		return nil, err
	}
	for i, t := range targets {
		if err := prepare(t); err != nil {
			d.close()
			return nil, err
		}
		if err := unix.SetNonblock(t.fd, true); err != nil {
			d.close()
			return nil, fmt.Errorf("fd %d: set nonblocking: %w", t.fd, err)
		}
		if t.kind == KindPacket {
			d.batches[i] = newBatch()
			if d.rx == nil {
				d.rx = newBatch()
			}
		}
		if i < ports {
			if err := d.control(unix.EPOLL_CTL_ADD, i, t.fd); err != nil {
				d.close()
				return nil, err
			}
		}
	}
	return d, nil
}

// prepare sets what a packet socket needs: it shall not read back what the fabric itself sends, and it shall hold the
// bursts that come in while the fabric does not run.
func prepare(t target) error {
	if t.kind != KindPacket {
		return nil
	}
	const packetQdiscBypass, packetIgnoreOutgoing = 20, 23 // linux/if_packet.h
	if err := unix.SetsockoptInt(t.fd, unix.SOL_PACKET, packetIgnoreOutgoing, 1); err != nil {
		return fmt.Errorf("fd %d: PACKET_IGNORE_OUTGOING: %w (is it a packet socket?)", t.fd, err)
	}
	// Not for speed alone: while an interface has no carrier its queueing discipline swallows frames and reports success.
	if err := unix.SetsockoptInt(t.fd, unix.SOL_PACKET, packetQdiscBypass, 1); err != nil {
		return fmt.Errorf("fd %d: PACKET_QDISC_BYPASS: %w", t.fd, err)
	}
	const buffer = 8 << 20
	if unix.SetsockoptInt(t.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer) != nil {
		_ = unix.SetsockoptInt(t.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer)
	}
	if unix.SetsockoptInt(t.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, buffer) != nil {
		_ = unix.SetsockoptInt(t.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, buffer)
	}
	return nil
}

func (d *epollDriver) control(op, index, fd int) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(index)}
	if err := unix.EpollCtl(d.ep, op, fd, &ev); err != nil {
		return fmt.Errorf("fd %d: epoll_ctl: %w", fd, err)
	}
	return nil
}

func (d *epollDriver) stats() *ioStats { return &d.st }

func (d *epollDriver) wake() { d.waker.wake() }

func (d *epollDriver) close() {
	if d.read != nil {
		d.pool.Release(d.read)
		d.read = nil
	}
	if d.ep >= 0 {
		_ = unix.Close(d.ep)
		d.ep = -1
	}
	if d.waker != nil {
		d.waker.close()
	}
}

func (d *epollDriver) pause(port int, paused bool) {
	if d.st.targets[port].down {
		return
	}
	op := unix.EPOLL_CTL_ADD
	if paused {
		op = unix.EPOLL_CTL_DEL
	}
	d.st.syscalls++
	_ = d.control(op, port, d.targets[port].fd)
}

func (d *epollDriver) exchange(out []Output, until time.Duration, in []arrival) ([]arrival, error) {
	for i := range out {
		o := &out[i]
		if b := d.batches[o.To]; b != nil {
			if b.n == batchSize {
				d.flush(o.To)
			}
			b.add(o.P)
			continue
		}
		d.st.syscalls++
		_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(d.targets[o.To].fd), uintptr(unsafe.Pointer(&o.P.Data[0])), uintptr(len(o.P.Data)))
		if errno == 0 {
			d.st.targets[o.To].sent++
		} else {
			d.st.targets[o.To].failed++
		}
		d.pool.Release(o.P)
	}
	for i, b := range d.batches {
		if b != nil && b.n > 0 {
			d.flush(i)
		}
	}
	n, err := d.poll(until)
	if err != nil {
		return in, err
	}
	for i := range d.ready[:n] {
		port := int(d.ready[i].Fd)
		switch {
		case port < 0:
			var count [8]byte
			d.st.syscalls++
			_, _ = unix.Read(d.waker.fd, count[:])
			d.st.woken = true
		case d.st.targets[port].down:
		case d.batches[port] != nil:
			in = d.readPackets(port, in)
		default:
			in = d.readTAP(port, in)
		}
	}
	return in, nil
}

// poll waits for events. Its timeout is relative, but computed from the absolute schedule just before.
func (d *epollDriver) poll(until time.Duration) (int, error) {
	var wait time.Duration
	switch {
	case until == never:
		wait = -1
	case until > 0:
		wait = max(until-time.Since(d.epoch), 0)
	}
	d.st.syscalls++
	events := uintptr(unsafe.Pointer(&d.ready[0]))
	var n uintptr
	var errno unix.Errno
	switch {
	case wait == 0:
		n, _, errno = unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(d.ep), events, uintptr(len(d.ready)), 0, 0, 0)
	case wait < 0:
		n, _, errno = unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(d.ep), events, uintptr(len(d.ready)), ^uintptr(0), 0, 0)
	case d.noWait2:
		ms := (wait + time.Millisecond - 1) / time.Millisecond
		n, _, errno = unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(d.ep), events, uintptr(len(d.ready)), uintptr(ms), 0, 0)
	default:
		ts := unix.NsecToTimespec(int64(wait))
		n, _, errno = unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(d.ep), events, uintptr(len(d.ready)), uintptr(unsafe.Pointer(&ts)), 0, 0)
	}
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return 0, nil
	case unix.ENOSYS:
		d.noWait2 = true
		return 0, nil
	}
	return 0, fmt.Errorf("epoll_pwait2: %w", errno)
}

func (d *epollDriver) readTAP(port int, in []arrival) []arrival {
	for range readBudget {
		if d.read == nil {
			d.read = d.pool.Largest()
		}
		buf := d.read.buf
		d.st.syscalls++
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(d.targets[port].fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			return in
		case errno != 0 || n == 0:
			d.lose(port)
			return in
		}
		in = d.take(port, int(n), in)
	}
	return in
}

// take makes an arrival of the n bytes in d.read.
func (d *epollDriver) take(port, n int, in []arrival) []arrival {
	if n == len(d.read.buf) { // the buffer is longer than the largest frame
		d.st.targets[port].oversize++
		return in
	}
	p, taken := d.pool.Fit(d.read, n)
	if taken {
		d.read = nil
	}
	return append(in, arrival{port, p})
}

// lose takes a port out whose interface is gone.
func (d *epollDriver) lose(port int) {
	if d.st.targets[port].down {
		return
	}
	d.st.targets[port].down = true
	d.st.portsUp--
	d.st.syscalls++
	_ = unix.EpollCtl(d.ep, unix.EPOLL_CTL_DEL, d.targets[port].fd, nil)
}
