package fabric

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ErrPortsGone ends a fabric whose ports' descriptors have all become useless: the lab was taken away under it.
var ErrPortsGone = errors.New("fabric: the interfaces of all ports are gone")

// arrival is a frame that a host has sent; whoever gets it owns p.
type arrival struct {
	port int
	p    *Packet
}

// driver moves frames between descriptors and the engine. All methods but wake are for the engine's thread.
type driver interface {
	// exchange hands over out, in order, and releases its packets, now or later. Then it waits until frames have
	// arrived, wake was called, or until has come (time since the driver's epoch; atOnce: no waiting, never: no limit),
	// and appends what arrived to in.
	exchange(out []Output, until time.Duration, in []arrival) ([]arrival, error)
	// pause stops or resumes reading of a port.
	pause(port int, paused bool)
	// wake ends a wait; from any goroutine, and remembered when there is none.
	wake()
	close()
	stats() *ioStats
}

// atOnce makes exchange look for arrivals without waiting.
const atOnce time.Duration = -1

// ioStats are the counters that a driver keeps, by target (ports, then mirrors).
type ioStats struct {
	kind     IO
	syscalls uint64
	woken    bool // wake was seen; the engine clears it
	targets  []targetStats
	portsUp  int
}

type targetStats struct {
	sent, failed, oversize, lost uint64
	down                         bool
}

// target is a descriptor with what it is.
type target struct {
	fd   int
	kind Kind
}

// sendChunk bounds how many frames are handed to the kernel between two looks at the clock, so that the lateness that
// is recorded is that of the hand-over, and arrivals are stamped while a long burst goes out.
const sendChunk = 32

// engine drives a switch on the wall clock.
type engine struct {
	cfg  Config
	log  *slog.Logger
	sw   *Switch
	pool *Pool
	io   driver

	start   time.Time
	now     time.Duration // wall time since start to which the switch has been advanced
	offset  time.Duration // wall time minus virtual time: what stalls held back
	late    histogram
	stalls  uint64
	stalled time.Duration
	paused  []bool

	stopping atomic.Bool
	requests chan func() // run by the engine's thread between two exchanges
	done     chan struct{}
}

func newEngine(cfg Config, log *slog.Logger) (*engine, error) {
	e := &engine{
		cfg: cfg, log: log, start: time.Now(), pool: NewPool(cfg.MaxFrame), paused: make([]bool, len(cfg.Ports)),
		requests: make(chan func(), 16), done: make(chan struct{}),
	}
	o := Options{
		Buffer: cfg.Buffer, Overhead: *cfg.Overhead, Pool: e.pool, Static: map[[6]byte]int{},
		Rand: rand.New(rand.NewPCG(cfg.Seed, 0x70636d6c6162)),
	}
	number := map[string]int{}
	var targets []target
	for i, p := range cfg.Ports {
		number[p.Name] = i
		o.Links = append(o.Links, p.link())
		targets = append(targets, target{p.FD, p.Kind})
		if p.MAC != "" {
			mac, err := parseMAC(p.MAC)
			if err != nil {
				return nil, fmt.Errorf("port %q: %w", p.Name, err)
			}
			o.Static[[6]byte(mac)] = i
		}
	}
	for _, m := range cfg.Mirrors {
		mirror := Mirror{Direction: m.Direction}
		for _, name := range m.Ports {
			mirror.Ports = append(mirror.Ports, number[name])
		}
		o.Mirrors = append(o.Mirrors, mirror)
		targets = append(targets, target{m.FD, m.Kind})
	}
	var err error
	if e.sw, err = New(o); err != nil {
		return nil, err
	}
	e.io, err = newDriver(&cfg, targets, e.pool, e.start, log)
	return e, err
}

// run moves packets until ctx ends (nil), every port is gone (ErrPortsGone) or the driver breaks. ready is called when
// packets flow. It has a thread of its own, which dies with it.
func (e *engine) run(ctx context.Context, ready func()) error {
	// The data path blocks in system calls all the time; it must find a free P at once when it comes back.
	old := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(max(old, runtime.NumCPU()+2))
	defer runtime.GOMAXPROCS(old)

	stop := context.AfterFunc(ctx, func() {
		e.stopping.Store(true)
		e.io.wake()
	})
	defer stop()
	var err error
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread's timer slack and priority die with it
		defer close(e.done)
		e.tuneThread()
		ready()
		err = e.loop()
		e.io.close()
	})
	wg.Wait()
	return err
}

func (e *engine) tuneThread() {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		e.log.Warn("timer slack", "error", err)
	}
	if e.cfg.Realtime {
		err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
		if err == nil {
			return
		}
		e.log.Warn("real-time scheduling of the data path", "error", err)
	}
	// A higher priority keeps the lateness down on a machine whose hosts' processes are busy; only root may.
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -10); err != nil {
		e.log.Debug("priority of the data path", "error", err)
	}
}

func (e *engine) loop() error {
	var outs []Output
	var in []arrival
	st := e.io.stats()
	for {
		now := time.Since(e.start)
		e.holdBack(now)
		e.now = now
		outs = e.sw.Advance(now-e.offset, outs[:0])
		if st.woken { // here, because the counters are those of now
			st.woken = false
			e.serve()
			if e.stopping.Load() {
				return nil
			}
		}
		rest := outs
		var err error
		for len(rest) > sendChunk {
			e.record(rest[:sendChunk], now)
			if in, err = e.io.exchange(rest[:sendChunk], atOnce, in[:0]); err != nil {
				return err
			}
			rest = rest[sendChunk:]
			now = time.Since(e.start)
			e.receive(in, now-e.offset)
		}
		e.record(rest, now)
		if in, err = e.io.exchange(rest, e.until(now), in[:0]); err != nil {
			return err
		}
		e.receive(in, time.Since(e.start)-e.offset)
		if st.portsUp == 0 {
			return ErrPortsGone
		}
	}
}

// holdBack lets virtual time run ahead by no more than the catch-up bound beyond what was due.
func (e *engine) holdBack(now time.Duration) {
	due, ok := e.sw.Deadline()
	if !ok {
		return
	}
	if late := now - e.offset - due; late > e.cfg.MaxCatchUp {
		held := late - e.cfg.MaxCatchUp
		e.offset += held
		e.stalls++
		e.stalled += held
		e.late.add(int64(late))
	}
}

// record notes how late out is handed over at time now.
func (e *engine) record(out []Output, now time.Duration) {
	virtual := now - e.offset
	for i := range out {
		if out[i].To < len(e.cfg.Ports) {
			e.late.add(int64(virtual - out[i].At))
		}
	}
}

func (e *engine) receive(in []arrival, now time.Duration) {
	limit := int64(e.cfg.IngressLimit)
	for _, a := range in {
		e.sw.Receive(a.port, now, a.p)
		if !e.paused[a.port] && e.sw.IngressBytes(a.port) > limit {
			e.paused[a.port] = true
			e.io.pause(a.port, true)
		}
	}
}

// until is the time to which the driver may sleep.
func (e *engine) until(now time.Duration) time.Duration {
	if e.io.stats().woken { // seen while a long burst went out
		return atOnce
	}
	due, ok := e.sw.Deadline()
	for port, paused := range e.paused {
		if !paused {
			continue
		}
		if e.sw.IngressBytes(port) <= int64(e.cfg.IngressLimit)/2 {
			e.paused[port] = false
			e.io.pause(port, false)
		} else if at, queued := e.sw.IngressArrival(port); queued && at < due {
			due = at
		}
	}
	if !ok {
		return never
	}
	if due += e.offset; due <= now && e.cfg.Quantum == 0 {
		return atOnce
	}
	return max(due, now+e.cfg.Quantum)
}

// do runs f on the engine's thread, between two exchanges.
func (e *engine) do(ctx context.Context, f func()) error {
	ran := make(chan struct{})
	select {
	case e.requests <- func() { f(); close(ran) }:
	case <-e.done:
		return errors.New("fabric has ended")
	case <-ctx.Done():
		return ctx.Err()
	}
	e.io.wake()
	select {
	case <-ran:
		return nil
	case <-e.done:
		return errors.New("fabric has ended")
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *engine) serve() {
	for {
		select {
		case f := <-e.requests:
			f()
		default:
			return
		}
	}
}

// counters is a snapshot; on the engine's thread.
func (e *engine) counters() Counters {
	c := Counters{Schema: CountersSchema, Name: e.cfg.Name, TimeScale: e.cfg.TimeScale, WallNS: int64(e.now)}
	e.sw.Snapshot(&c)
	st := e.io.stats()
	e.readLost(st)
	c.IO, c.Syscalls = st.kind, st.syscalls
	for i := range c.Ports {
		t, p := &st.targets[i], &c.Ports[i]
		p.Name, p.OversizePackets, p.UndeliveredPackets, p.Down = e.cfg.Ports[i].Name, t.oversize, t.failed, t.down
		if e.cfg.Ports[i].Kind == KindPacket {
			lost := t.lost
			p.RxLostPackets = &lost
		}
	}
	c.Mirrors = make([]MirrorCounters, len(e.cfg.Mirrors))
	for i := range c.Mirrors {
		t := &st.targets[len(c.Ports)+i]
		c.Mirrors[i] = MirrorCounters{Name: e.cfg.Mirrors[i].Name, Packets: t.sent, Lost: t.failed}
	}
	c.Lateness, c.Stalls, c.StallNS = e.late.summary(), e.stalls, int64(e.stalled)
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &ru) == nil {
		c.CPUNS = ru.Utime.Nano() + ru.Stime.Nano()
	}
	return c
}

// readLost adds what the kernel dropped because a port's packet socket was full; reading resets the kernel's count.
func (e *engine) readLost(st *ioStats) {
	for i, p := range e.cfg.Ports {
		if p.Kind != KindPacket {
			continue
		}
		if s, err := unix.GetsockoptTpacketStats(p.FD, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			st.targets[i].lost += uint64(s.Drops)
		}
	}
}

// resetLateness begins a new measurement of lateness and of the peaks.
func (e *engine) resetLateness() {
	e.late = histogram{}
	e.stalls, e.stalled = 0, 0
	e.sw.ResetPeaks()
}
