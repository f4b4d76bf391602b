package engine

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/dcqcn"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/qp"
)

// world is NICs around one output-queued switch in virtual time: each host has a link of rate and delay to it. Data
// queues at the egress towards its destination, is marked by RED on the queue's length and dropped when it is full.
type world struct {
	t          testing.TB
	nics       []*NIC
	rate       units.Rate
	delay      time.Duration
	kmin, kmax int
	pmax       float64
	limit      int
	wake       time.Duration // hosts wake at multiples of it, as a real thread wakes late; 0: exactly
	rng        *rand.Rand
	now        time.Duration
	free       []time.Duration // egress of each host
	events     wires
	seq        int
	marks      uint64
	drops      uint64
	sent       uint64 // datagrams that reached the switch
	loss       float64
	tap        func(at time.Duration, d *wire)
}

type wire struct {
	at    time.Duration
	seq   int
	to    int
	src   [4]byte
	sport uint16
	tos   byte
	data  []byte
	dst   [4]byte
	hop   bool // arrives at the switch
}

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

func hostIP(i int) [4]byte { return [4]byte{192, 0, 2, byte(11 + i)} }

// newWorld builds hosts of 25 Gbit/s and 1 us in hardware terms, slowed by scale.
func newWorld(t testing.TB, hosts int, scale units.Scale, change func(*Config)) *world {
	w := &world{t: t, rate: scale.Rate(25 * units.GbitPerSec), delay: scale.Time(time.Microsecond),
		kmin: 100 << 10, kmax: 400 << 10, pmax: 0.2, limit: 2 << 20, rng: rand.New(rand.NewPCG(7, 7)), free: make([]time.Duration, hosts)}
	for i := range hosts {
		c := Config{IP: hostIP(i), Rate: w.rate, MTU: 4096, DSCP: 26, ECN: true, DCQCN: true, Params: dcqcn.Defaults().Scale(scale), Scale: scale,
			AckEvery: 64, Window: 1024, CatchUp: 2 * time.Millisecond, Random: w.rng.Uint32}
		if change != nil {
			change(&c)
		}
		n, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		w.nics = append(w.nics, n)
	}
	return w
}

// flow is one queue pair pair that always has work.
type flow struct {
	w        *world
	from, to int
	x, y     *QP
	messages int // completed
	failed   qp.Status
	on       bool
}

func (w *world) connect(from, to int) *flow {
	const size = 64 << 10
	f := &flow{w: w, from: from, to: to}
	mem := make([]byte, size)
	var err error
	o := Options{PD: 1, Local: mem, Timeout: 14, RetryCount: 7, RNRRetry: 7, SendDepth: 128}
	if f.x, err = w.nics[from].CreateQP(o); err != nil {
		w.t.Fatal(err)
	}
	if f.y, err = w.nics[to].CreateQP(o); err != nil {
		w.t.Fatal(err)
	}
	sport := uint16(0xc000 + w.seq%1000)
	w.seq++
	if err := f.x.Connect(w.now, hostIP(to), f.y.QPN(), f.y.PSN(), sport); err != nil {
		w.t.Fatal(err)
	}
	if err := f.y.Connect(w.now, hostIP(from), f.x.QPN(), f.x.PSN(), sport); err != nil {
		w.t.Fatal(err)
	}
	r := w.nics[to].Register(1, mem, 0x1000)
	f.x.Tag = func() {
		for c, ok := f.x.Poll(); ok; c, ok = f.x.Poll() {
			if c.Status != qp.Success {
				f.failed = c.Status
			} else {
				f.messages++
			}
		}
		for f.on && f.failed == 0 && f.x.Queued() < 16 {
			if err := f.x.Post(w.now, qp.WorkRequest{Length: size, RemoteVA: 0x1000, RKey: r.RKey}); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	f.y.Tag = func() {
		for _, ok := f.y.Poll(); ok; _, ok = f.y.Poll() {
		}
	}
	return f
}

func (f *flow) start() { f.on = true; f.x.Tag.(func())() }

// run plays until end.
func (w *world) run(end time.Duration) {
	buf := make([]byte, 4096+64)
	var d Datagram
	for {
		for i, n := range w.nics {
			for n.Transmit(w.now, buf, &d) {
				w.seq++
				heap.Push(&w.events, &wire{at: w.now + w.delay, seq: w.seq, src: hostIP(i), dst: d.Dst, sport: d.SrcPort, tos: d.TOS,
					data: append([]byte(nil), buf[:d.Len]...), hop: true})
			}
			for q := n.Finished(); q != nil; q = n.Finished() {
				q.Tag.(func())()
			}
		}
		next := end
		for _, n := range w.nics {
			if at, ok := n.Deadline(); ok {
				at = max(at, w.now)
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
			e := heap.Pop(&w.events).(*wire)
			if e.hop {
				w.forward(e)
				continue
			}
			w.nics[e.to].Receive(w.now, &Header{Src: e.src, SrcPort: e.sport, TOS: e.tos, DF: true}, e.data)
			n := w.nics[e.to]
			for q := n.Finished(); q != nil; q = n.Finished() {
				q.Tag.(func())()
			}
		}
	}
}

func (w *world) forward(e *wire) {
	w.sent++
	e.to = int(e.dst[3]) - 11
	queued := int(float64(max(w.free[e.to]-w.now, 0)) * float64(w.rate) / 8e9)
	if queued+len(e.data) > w.limit || w.rng.Float64() < w.loss {
		w.drops++
		return
	}
	if e.tos&3 == 2 {
		p := 0.0
		switch {
		case queued > w.kmax:
			p = 1
		case queued > w.kmin:
			p = w.pmax * float64(queued-w.kmin) / float64(w.kmax-w.kmin)
		}
		if w.rng.Float64() < p {
			e.tos |= 3
			w.marks++
		}
	}
	w.free[e.to] = max(w.free[e.to], w.now) + w.rate.Transmit(len(e.data)+Overhead)
	e.at, e.hop = w.free[e.to]+w.delay, false
	w.seq++
	e.seq = w.seq
	if w.tap != nil {
		w.tap(e.at, e)
	}
	heap.Push(&w.events, e)
}

func jain(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum += v
		squares += v * v
	}
	return sum * sum / (float64(len(x)) * squares)
}

// TestWorld_incastConverges is the shape of the incast experiment: senders come and go, the last 60 % of each phase is
// fair and fills the link, no packet is lost, and all counters agree.
func TestWorld_incastConverges(t *testing.T) {
	for _, tc := range []struct {
		name string
		wake time.Duration
	}{{"exact", 0}, {"woken_every_500us", 500 * time.Microsecond}} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, 4, 50, nil)
			w.wake = tc.wake
			flows := []*flow{w.connect(0, 3), w.connect(1, 3), w.connect(2, 3)}
			const phase = 3 * time.Second
			for i, active := range []int{1, 2, 3, 2, 1} {
				for j, f := range flows {
					if on := j < active; on && !f.on {
						f.start()
					} else if !on {
						f.on = false
					}
				}
				cnps := w.nics[3].Counters().NPCNPSent
				w.run(time.Duration(i)*phase + phase*4/10)
				var before []int
				for _, f := range flows {
					before = append(before, f.messages)
				}
				w.run(time.Duration(i+1) * phase)
				var rates []float64
				var sum float64
				for j, f := range flows[:active] {
					r := float64(f.messages-before[j]) * 65536 * 8 / (phase * 6 / 10).Seconds()
					rates = append(rates, r)
					sum += r
				}
				u := sum / float64(w.rate)
				t.Logf("phase %d: jain %.3f utilisation %.3f rates %.0f cnps %d", i+1, jain(rates), u, rates, w.nics[3].Counters().NPCNPSent-cnps)
				if jain(rates) < 0.95 || u < 0.85 {
					t.Errorf("phase %d: jain %.3f (want 0.95), utilisation %.3f (want 0.85), rates %.0f", i+1, jain(rates), u, rates)
				}
				if active > 1 && w.nics[3].Counters().NPCNPSent == cnps {
					t.Errorf("phase %d: no CNP", i+1)
				}
			}
			for _, f := range flows {
				f.on = false
			}
			w.run(w.now + 2*time.Second)
			r := w.nics[3].Counters()
			var tx Counters
			for _, n := range w.nics[:3] {
				c := n.Counters()
				tx.TxDataPackets += c.TxDataPackets
				tx.RetransmittedPackets += c.RetransmittedPackets
				tx.RPCNPHandled += c.RPCNPHandled
				tx.TxPayloadBytes += c.TxPayloadBytes
			}
			if w.drops != 0 || tx.RetransmittedPackets != 0 {
				t.Errorf("%d drops, %d retransmissions", w.drops, tx.RetransmittedPackets)
			}
			if r.NPECNMarked != w.marks || r.NPCNPSent != tx.RPCNPHandled || r.RxDataPackets != tx.TxDataPackets || r.RxPayloadBytes != tx.TxPayloadBytes {
				t.Errorf("marks %d/%d, CNPs %d/%d, data %d/%d, bytes %d/%d differ", w.marks, r.NPECNMarked, r.NPCNPSent, tx.RPCNPHandled,
					tx.TxDataPackets, r.RxDataPackets, tx.TxPayloadBytes, r.RxPayloadBytes)
			}
		})
	}
}

// TestWorld_withoutDCQCNDropsAndRepairs is the same network with the control loop off and a shallow buffer.
func TestWorld_withoutDCQCNDropsAndRepairs(t *testing.T) {
	w := newWorld(t, 4, 50, func(c *Config) { c.DCQCN = false })
	w.limit = 64 << 10
	flows := []*flow{w.connect(0, 3), w.connect(1, 3), w.connect(2, 3)}
	for _, f := range flows {
		f.start()
	}
	w.run(5 * time.Second)
	for _, f := range flows {
		f.on = false
	}
	w.run(60 * time.Second)
	var sent, repeated uint64
	for i, f := range flows {
		if f.failed != 0 || f.x.Queued() != 0 {
			t.Errorf("flow %d: status %d, %d queued", i, f.failed, f.x.Queued())
		}
		sent += w.nics[i].Counters().TxDataPackets
		repeated += w.nics[i].Counters().RetransmittedPackets
	}
	r := w.nics[3].Counters()
	if w.drops == 0 || repeated == 0 {
		t.Errorf("%d drops, %d retransmissions: want some", w.drops, repeated)
	}
	if lost := sent - r.RxDataPackets; lost != w.drops {
		t.Errorf("%d data packets lost, the switch dropped %d", lost, w.drops)
	}
	if r.NPCNPSent != 0 {
		t.Errorf("%d CNPs with DCQCN off", r.NPCNPSent)
	}
	t.Logf("sent %d, drops %d, repeated %d, timeouts %d", sent, w.drops, repeated, w.nics[0].Counters().LocalAckTimeoutErr)
}
