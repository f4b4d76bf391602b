package gate

import (
	"container/heap"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/dcqcn"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/engine"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/qp"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
	"github.com/pcmlab/pcmlab/rdcc/sender"
)

const (
	testPort = 52001
	mtu      = 4096
)

// testFabric is 25 Gbit/s and a base RTT of 8 us: propagation 4 us, two packets' serialization and a bit.
var testFabric = receiver.Fabric{LineRate: 25e9, BaseRTT: 8 * time.Microsecond, Payload: mtu, Wire: mtu + 82}

// world is NICs around one switch in virtual time: each host has a link of 1 us to it. Data and control wait in one FIFO
// before each host's link, and what finds no room in the buffer, which all share, is dropped.
type world struct {
	t       testing.TB
	hosts   []*host
	rng     *rand.Rand
	now     time.Duration
	delay   time.Duration
	rate    units.Rate
	buffer  int // of the switch
	used    int
	peak    int
	ecn     int // mark CE above; 0: never
	free    []time.Duration
	events  wires
	seq     int
	drops   int     // for want of room
	loss    float64 // of data packets
	noise   float64 // loss of control
	setup   func(*Config)
	wake    time.Duration // hosts wake at multiples of it
	tap     func(d *wire) // what hosts send, as they do
	deliver func(d *wire) // what arrives, before it is processed
}

type host struct {
	w      *world
	i      int
	ip     netip.Addr
	nic    *engine.NIC
	gate   *Gate // nil: off
	closed bool  // in good order: it refuses
	buf    [mtu + 64]byte
}

type wire struct {
	at       time.Duration
	seq      int
	from, to int
	sport    uint16
	control  bool
	tos      byte
	data     []byte
	step     int // 0: reaches the switch, 1: leaves it, 2: arrives
}

func (d *wire) size() int { return len(d.data) + engine.Overhead }

type wires []*wire

func (w wires) Len() int { return len(w) }
func (w wires) Less(i, j int) bool {
	return w[i].at < w[j].at || w[i].at == w[j].at && w[i].seq < w[j].seq
}
func (w wires) Swap(i, j int) { w[i], w[j] = w[j], w[i] }
func (w *wires) Push(x any)   { *w = append(*w, x.(*wire)) }
func (w *wires) Pop() any {
	x := (*w)[len(*w)-1]
	*w = (*w)[:len(*w)-1]
	return x
}

func ipOf(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(11 + i)}) }

// newWorld has gates on all hosts, as setup changes them.
func newWorld(t testing.TB, hosts int, setup func(*Config)) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(7, 7)), delay: time.Microsecond, rate: 25e9, buffer: 64 << 20, free: make([]time.Duration, hosts), setup: setup}
	for i := range hosts {
		nic, err := engine.New(engine.Config{IP: ipOf(i).As4(), Rate: w.rate, MTU: mtu, DSCP: 26, ECN: true, Params: dcqcn.Defaults(), Scale: 1,
			AckEvery: 64, Window: 512, CatchUp: 20 * time.Microsecond, Random: w.rng.Uint32})
		if err != nil {
			t.Fatal(err)
		}
		h := &host{w: w, i: i, ip: ipOf(i), nic: nic}
		w.hosts = append(w.hosts, h)
		h.on()
	}
	return w
}

// on switches the host's gate on, or on anew.
func (h *host) on() {
	w := h.w
	c := Config{Port: testPort, Sender: sender.Config{LineRate: int64(w.rate), Nonce: w.rng.Uint64, Rand: w.rng},
		Receiver: receiver.Config{Fabric: testFabric, Random: chacha{w.rng}}}
	if w.setup != nil {
		w.setup(&c)
	}
	g, err := New(w.now, h.nic, c)
	if err != nil {
		w.t.Fatal(err)
	}
	h.gate, h.closed = g, false
}

func (h *host) off() {
	h.gate.Close(h.w.now)
	h.control()
	h.gate, h.closed = nil, true
}

// chacha makes a reader of random numbers.
type chacha struct{ *rand.Rand }

func (c chacha) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(c.Uint32())
	}
	return len(b), nil
}

func (h *host) send(d *wire) {
	w := h.w
	w.seq++
	d.from, d.seq, d.at = h.i, w.seq, w.now+w.delay
	if w.tap != nil {
		w.tap(d)
	}
	heap.Push(&w.events, d)
}

// control sends what the gate has to say, until it has nothing more.
func (h *host) control() {
	for g := h.gate; g != nil; {
		g.Advance(h.w.now)
		n := 0
		for {
			to, b, ok := g.Poll(nil)
			if !ok {
				break
			}
			n++
			h.send(&wire{to: int(to.Addr().As4()[3]) - 11, control: true, data: b})
		}
		if n == 0 {
			return
		}
	}
}

func (h *host) transmit() {
	h.control()
	var d engine.Datagram
	for h.nic.Transmit(h.w.now, h.buf[:], &d) {
		h.send(&wire{to: int(d.Dst[3]) - 11, sport: d.SrcPort, tos: d.TOS, data: append([]byte(nil), h.buf[:d.Len]...)})
	}
	h.control()
	for q := h.nic.Finished(); q != nil; q = h.nic.Finished() {
		q.Tag.(func())()
	}
	h.control()
}

func (h *host) deadline() (time.Duration, bool) {
	at, ok := h.nic.Deadline()
	if h.gate != nil {
		if t, some := h.gate.Deadline(); some && (!ok || t < at) {
			at, ok = t, true
		}
	}
	return at, ok
}

// run plays until end.
func (w *world) run(end time.Duration) {
	for {
		for _, h := range w.hosts {
			h.transmit()
		}
		next := end
		for _, h := range w.hosts {
			if at, ok := h.deadline(); ok {
				at = max(at, w.now+1)
				if w.wake > 0 {
					at = (at + w.wake - 1) / w.wake * w.wake
				}
				next = min(next, at)
			}
		}
		if len(w.events) > 0 {
			next = min(next, w.events[0].at)
		}
		if w.now = max(next, w.now); w.now >= end {
			return
		}
		for len(w.events) > 0 && w.events[0].at <= w.now {
			w.move(heap.Pop(&w.events).(*wire))
		}
	}
}

// move takes a packet a step further.
func (w *world) move(d *wire) {
	switch d.step {
	case 0:
		if w.used+len(d.data) > w.buffer {
			w.drops++
			return
		}
		if lost := w.rng.Float64(); d.control && lost < w.noise || !d.control && lost < w.loss {
			return
		}
		if !d.control && d.tos&3 == 2 && w.ecn > 0 && w.used > w.ecn {
			d.tos |= 3
		}
		w.used += len(d.data)
		w.peak = max(w.peak, w.used)
		w.free[d.to] = max(w.free[d.to], w.now) + w.rate.Transmit(d.size())
		d.at = w.free[d.to]
	case 1:
		w.used -= len(d.data)
		d.at += w.delay
	case 2:
		if w.deliver != nil {
			w.deliver(d)
		}
		h := w.hosts[d.to]
		if !d.control {
			h.nic.Receive(w.now, &engine.Header{Src: ipOf(d.from).As4(), SrcPort: d.sport, TOS: d.tos, DF: true}, d.data)
		} else if h.gate != nil {
			h.gate.Receive(w.now, netip.AddrPortFrom(ipOf(d.from), testPort), d.data)
		} else if answer := Refuse(d.data); answer != nil && h.closed {
			h.send(&wire{to: d.from, control: true, data: answer})
		}
		return
	}
	w.seq++
	d.seq = w.seq
	d.step++
	heap.Push(&w.events, d)
}

// flow is a pair of queue pairs, the first of which always has work while it is on.
type flow struct {
	w        *world
	from, to *host
	x, y     *engine.QP
	size     int
	depth    int
	op       qp.Op
	rkey     uint32
	posted   int
	done     int
	octets   uint64
	failed   qp.Status
	on       bool
}

func (w *world) connect(from, to, size int) *flow {
	f := &flow{w: w, from: w.hosts[from], to: w.hosts[to], size: size, depth: 4}
	mem := make([]byte, max(size, 1))
	o := engine.Options{PD: 1, Local: mem, Timeout: 8, RetryCount: 7, RNRRetry: 7, SendDepth: 128, RecvDepth: 128}
	var err error
	if f.x, err = f.from.nic.CreateQP(o); err != nil {
		w.t.Fatal(err)
	}
	if f.y, err = f.to.nic.CreateQP(o); err != nil {
		w.t.Fatal(err)
	}
	w.seq++
	sport := uint16(0xc000 + w.seq%1000)
	if err := f.x.Connect(w.now, f.to.ip.As4(), f.y.QPN(), f.y.PSN(), sport); err != nil {
		w.t.Fatal(err)
	}
	if err := f.y.Connect(w.now, f.from.ip.As4(), f.x.QPN(), f.x.PSN(), sport); err != nil {
		w.t.Fatal(err)
	}
	f.rkey = f.to.nic.Register(1, mem, 0x1000).RKey
	f.x.Tag = func() {
		for c, ok := f.x.Poll(); ok; c, ok = f.x.Poll() {
			if c.Status != qp.Success {
				f.failed = max(f.failed, c.Status)
				continue
			}
			f.done++
			f.octets += uint64(c.Length)
		}
		for f.on && f.failed == 0 && f.x.Queued() < f.depth {
			f.post(f.size)
		}
	}
	f.y.Tag = func() {
		for _, ok := f.y.Poll(); ok; _, ok = f.y.Poll() {
			if err := f.y.PostRecv(qp.RecvRequest{Length: uint32(size)}); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	return f
}

func (f *flow) post(size int) {
	f.w.t.Helper()
	if err := f.x.Post(f.w.now, qp.WorkRequest{Op: f.op, Length: uint32(size), RemoteVA: 0x1000, RKey: f.rkey}); err != nil {
		f.w.t.Fatal(err)
	}
	f.posted++
}

// start keeps the queue pair busy; with SENDs the peer posts receives first.
func (f *flow) start() {
	if f.op == qp.Send {
		for range 64 {
			if err := f.y.PostRecv(qp.RecvRequest{Length: uint32(f.size)}); err != nil {
				f.w.t.Fatal(err)
			}
		}
	}
	f.on = true
	f.x.Tag.(func())()
}

// finish lets the flow end within d, and fails the test if it does not.
func (w *world) finish(d time.Duration, flows ...*flow) {
	w.t.Helper()
	for _, f := range flows {
		f.on = false
	}
	for end := w.now + d; w.now < end; {
		idle := true
		for _, f := range flows {
			idle = idle && f.x.Queued() == 0
		}
		if idle {
			return
		}
		w.run(w.now + max(d/100, 1))
	}
	for i, f := range flows {
		if f.x.Queued() > 0 {
			w.t.Errorf("flow %d: %d of %d work requests hang", i, f.x.Queued(), f.posted)
		}
	}
}

func jain(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum += v
		squares += v * v
	}
	return sum * sum / (float64(len(x)) * squares)
}
