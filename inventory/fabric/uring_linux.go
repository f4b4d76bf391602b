package fabric

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/internal/ring"
)

// uringDriver moves frames with one io_uring: a multishot read per port into provided buffers, all writes of a wake-up
// in the same system call as the wait. It wants blocking descriptors.
type uringDriver struct {
	st      ioStats
	targets []target
	ports   int
	pool    *Pool
	ring    *ring.Ring
	quantum time.Duration
	arrived bool          // packets came with the last exchange
	started time.Time     // the engine's time 0
	epoch   time.Duration // the same on CLOCK_MONOTONIC
	enabled bool

	readers []reader
	writes  []write // in flight, by slot
	free    []int   // slots
	pending []int   // writes in flight per target
	stuck   []bool  // per target: has writes of an earlier submission
	waker   *waker
	woke    []byte // what the read of the waker fills
	listens bool   // that read is in flight
}

// reader is the multishot read of one port.
type reader struct {
	bufs     *ring.Buffers
	packets  []*Packet // by buffer id
	armed    bool
	paused   bool
	withheld []uint16 // buffers that the kernel does not get while the port is paused
}

type write struct {
	p  *Packet
	to int
}

// User data: the kind in the top byte, a port or slot below.
const (
	tagRead = iota + 1
	tagWrite
	tagWake
	tagCancel
	tagShift = 56
)

// uringWrites bounds the writes in flight: more than one chunk only when interfaces are down.
const uringWrites = 4 * sendChunk

// putOff bounds how long a write is left alone that the kernel did not do at once.
const putOff = 5 * time.Millisecond

// uringBufferBytes is about what one port's provided buffers take.
const uringBufferBytes = 1 << 20

func newUringDriver(targets []target, ports int, pool *Pool, epoch time.Time, quantum time.Duration) (*uringDriver, error) {
	w, err := newWaker(false)
	if err != nil {
		return nil, err
	}
	d := &uringDriver{
		quantum: quantum, started: epoch, targets: targets, ports: ports, pool: pool, waker: w, woke: make([]byte, 8),
		readers: make([]reader, ports), pending: make([]int, len(targets)), writes: make([]write, uringWrites),
		st: ioStats{kind: IOUring, targets: make([]targetStats, len(targets)), portsUp: ports},
	}
	for slot := range d.writes {
		d.free = append(d.free, slot)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		d.close()
		return nil, fmt.Errorf("clock_gettime: %w", err)
	}
	d.epoch = time.Duration(now.Nano()) - time.Since(epoch)
	if err := d.open(); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *uringDriver) open() error {
	largest := d.pool.Largest()
	size := len(largest.buf)
	d.pool.Release(largest)
	depth := 16
	for depth < 256 && 2*depth*size <= uringBufferBytes {
		depth *= 2
	}
	entries := uint32(uringWrites + 2*d.ports + 8)
	var err error
	if d.ring, err = ring.New(entries, entries+uint32(d.ports*depth)); err != nil {
		return err
	}
	fds := make([]int32, 0, len(d.targets)+1)
	for _, t := range d.targets {
		if err := prepare(t); err != nil {
			return err
		}
		if err := unix.SetNonblock(t.fd, false); err != nil {
			return fmt.Errorf("fd %d: set blocking: %w", t.fd, err)
		}
		fds = append(fds, int32(t.fd))
	}
	if err := d.ring.Files(append(fds, int32(d.waker.fd))); err != nil {
		return err
	}
	for port := range d.readers {
		r := &d.readers[port]
		if r.bufs, err = d.ring.Buffers(uint16(port), depth); err != nil {
			return err
		}
		for id := range depth {
			p := d.pool.Largest()
			r.packets = append(r.packets, p)
			r.bufs.Provide(p.buf, uint16(id))
		}
		r.withheld = make([]uint16, 0, depth)
	}
	return nil
}

func (d *uringDriver) stats() *ioStats {
	d.st.syscalls = d.ring.Syscalls
	return &d.st
}

func (d *uringDriver) wake() { d.waker.wake() }

// enable arms everything, on the engine's thread.
func (d *uringDriver) enable() error {
	if err := d.ring.Enable(); err != nil {
		return err
	}
	d.enabled = true
	for port := range d.readers {
		d.arm(port)
	}
	d.listen()
	return nil
}

func (d *uringDriver) arm(port int) {
	d.ring.ReadMultishot(port, d.readers[port].bufs, tagRead<<tagShift|uint64(port))
	d.readers[port].armed = true
}

func (d *uringDriver) listen() {
	d.ring.Read(len(d.targets), d.woke, tagWake<<tagShift)
	d.listens = true
}

// pause makes the kernel run out of buffers for the port, which ends its multishot read by itself.
func (d *uringDriver) pause(port int, paused bool) {
	r := &d.readers[port]
	r.paused = paused
	if paused || d.st.targets[port].down {
		return
	}
	for _, id := range r.withheld {
		r.bufs.Provide(r.packets[id].buf, id)
	}
	r.withheld = r.withheld[:0]
	if !r.armed {
		d.arm(port)
	}
}

func (d *uringDriver) exchange(out []Output, until time.Duration, in []arrival) ([]arrival, error) {
	if !d.enabled {
		if err := d.enable(); err != nil {
			return in, err
		}
	}
	d.stuck = d.stuck[:0]
	for _, n := range d.pending {
		d.stuck = append(d.stuck, n > 0)
	}
	submitted := d.submit(out)
	if err := d.ring.Enter(d.plan(submitted, until)); err != nil {
		return in, err
	}
	for {
		c, ok := d.ring.Next()
		if !ok {
			d.arrived = len(in) > 0
			return in, nil
		}
		index := int(c.UserData & (1<<tagShift - 1))
		switch c.UserData >> tagShift {
		case tagRead:
			in = d.complete(index, c, in)
		case tagWrite:
			d.wrote(index, c)
		case tagWake:
			d.st.woken = true
			d.listen()
		}
	}
}

// plan says what to wait for after submitting so many writes. They complete while they are submitted; what is waited
// for is one completion more than they give. A write that the kernel puts off would take that place, and is not even
// done until then: so the wait is bounded. While packets come and go, more is likely to come soon: then the driver
// gathers for a quantum instead.
func (d *uringDriver) plan(submitted uint32, until time.Duration) ring.Wait {
	if until == atOnce {
		return ring.Wait{}
	}
	w := ring.Wait{Completions: submitted + 1}
	if submitted == 0 && d.quantum == 0 {
		if until != never {
			w.Until = d.epoch + until
		}
		return w
	}
	now := time.Since(d.started)
	if d.quantum > 0 && (submitted > 0 || d.arrived) {
		if gather := min(d.quantum, until-now); gather >= time.Microsecond {
			return ring.Wait{Completions: submitted + sendChunk, Gather: gather, Until: d.epoch + now + gather}
		}
	}
	if submitted > 0 {
		until = min(until, now+putOff)
	}
	if until != never {
		w.Until = d.epoch + max(until, 0)
	}
	return w
}

// submit prepares the writes of out. A write to an interface that is down waits for it in the kernel; until it is done,
// further frames for it are lost, so that little piles up.
func (d *uringDriver) submit(out []Output) (n uint32) {
	for i := range out {
		o := &out[i]
		if d.stuck[o.To] || len(d.free) == 0 {
			d.st.targets[o.To].failed++
			d.pool.Release(o.P)
			continue
		}
		slot := d.free[len(d.free)-1]
		d.free = d.free[:len(d.free)-1]
		d.writes[slot] = write{o.P, o.To}
		d.pending[o.To]++
		d.ring.Write(o.To, o.P.Data, tagWrite<<tagShift|uint64(slot))
		n++
	}
	return n
}

func (d *uringDriver) wrote(slot int, c ring.CQE) {
	w := &d.writes[slot]
	t := &d.st.targets[w.to]
	if c.Res >= 0 {
		t.sent++
	} else {
		t.failed++
	}
	d.pending[w.to]--
	d.pool.Release(w.p)
	w.p = nil
	d.free = append(d.free, slot)
}

// complete takes one completion of port's multishot read.
func (d *uringDriver) complete(port int, c ring.CQE, in []arrival) []arrival {
	r := &d.readers[port]
	if !c.More() {
		r.armed = false
	}
	if id, ok := c.Buffer(); ok {
		in = d.take(port, id, int(c.Res), in)
	}
	switch c.Errno() {
	case 0, unix.ENOBUFS, unix.EINTR, unix.EAGAIN:
		if c.Res == 0 && !c.More() {
			d.lose(port)
		} else if !r.armed && !r.paused {
			d.arm(port)
		}
	case unix.ENETDOWN: // a packet socket whose interface is down, or gone
		if gone(d.targets[port].fd) {
			d.lose(port)
		} else if !r.armed && !r.paused {
			d.arm(port)
		}
	default:
		d.lose(port)
	}
	return in
}

func (d *uringDriver) take(port int, id uint16, n int, in []arrival) []arrival {
	r := &d.readers[port]
	p := r.packets[id]
	switch {
	case n <= 0:
	case n == len(p.buf): // the buffer is longer than the largest frame
		d.st.targets[port].oversize++
	default:
		fit, taken := d.pool.Fit(p, n)
		in = append(in, arrival{port, fit})
		if taken {
			r.packets[id] = d.pool.Largest()
		}
	}
	if r.paused {
		r.withheld = append(r.withheld, id)
	} else {
		r.bufs.Provide(r.packets[id].buf, id)
	}
	return in
}

func (d *uringDriver) lose(port int) {
	if !d.st.targets[port].down {
		d.st.targets[port].down = true
		d.st.portsUp--
	}
}

// busy says whether the kernel may still write to this driver's memory.
func (d *uringDriver) busy() bool {
	if d.listens || len(d.free) < len(d.writes) {
		return true
	}
	for i := range d.readers {
		if d.readers[i].armed {
			return true
		}
	}
	return false
}

// close cancels what is going on and waits for its end, within a bound, so that no buffer is written after it.
func (d *uringDriver) close() {
	if d.enabled {
		d.ring.CancelAll(tagCancel << tagShift)
		deadline := time.Now().Add(time.Second)
		for d.busy() && time.Now().Before(deadline) {
			var now unix.Timespec
			if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
				break
			}
			if d.ring.Enter(ring.Wait{Completions: 1, Until: time.Duration(now.Nano()) + 100*time.Millisecond}) != nil {
				break
			}
			d.drain()
		}
		d.enabled = false
	}
	if d.ring != nil {
		d.ring.Close()
	}
	d.waker.close()
}

func (d *uringDriver) drain() {
	for {
		c, ok := d.ring.Next()
		if !ok {
			return
		}
		index := int(c.UserData & (1<<tagShift - 1))
		switch c.UserData >> tagShift {
		case tagRead:
			d.readers[index].armed = d.readers[index].armed && c.More()
		case tagWrite:
			d.wrote(index, c)
		case tagWake:
			d.listens = false
		}
	}
}
