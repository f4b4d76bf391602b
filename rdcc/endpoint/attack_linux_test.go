package endpoint_test

import (
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/domain"
	"github.com/pcmlab/pcmlab/rdcc/endpoint"
	"github.com/pcmlab/pcmlab/rdcc/opaque"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
	"github.com/pcmlab/pcmlab/rdcc/udp"
)

// forger sends forged datagrams from thousands of addresses of this host, to the RDCC and data ports of a receiver and to
// the RDCC port of a sender. It has seen the association of an honest sender, and not its nonce, its numbers or identifiers.
type forger struct {
	rng     *rand.Rand
	sockets []*udp.Socket
	waiter  *udp.Waiter
	targets [3]netip.AddrPort // receiver, its data, a sender
	assoc   uint32
	epoch   uint16
	answers uint64 // octets that came back
	asked   uint64 // octets that were sent
}

func newForger(t testing.TB, r, data, s netip.AddrPort, assoc uint32, epoch uint16) *forger {
	f := &forger{rng: rand.New(rand.NewPCG(1, 2)), targets: [3]netip.AddrPort{r, data, s}, assoc: assoc, epoch: epoch}
	for range 4 {
		f.sockets = append(f.sockets, raw(t, "0.0.0.0"))
	}
	var err error
	if f.waiter, err = udp.NewWaiter(f.sockets...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.waiter.Close() })
	return f
}

// datagram forges one.
func (f *forger) datagram(b []byte) (_ []byte, to netip.AddrPort) {
	rng := f.rng
	h := rdcc.Header{Assoc: rng.Uint32(), Epoch: uint16(rng.Uint32()), Seq: rng.Uint32()}
	if rng.IntN(2) == 0 {
		h.Assoc, h.Epoch = f.assoc, f.epoch
	}
	to = f.targets[0]
	var m rdcc.Message
	switch rng.IntN(14) {
	case 0, 1, 2:
		m, h = &rdcc.AssocRequest{SenderNonce: rng.Uint64(), LineRate: 1e6}, rdcc.Header{Seq: 1}
	case 3:
		m = &rdcc.CreditRequest{MessageID: rng.Uint64(), MessageLength: rng.Uint64(), BindingKind: rdcc.BindingOpaque, UnscheduledSent: rng.Uint64()}
	case 4:
		m = &rdcc.SenderStatus{SuggestedRate: 1}
	case 5:
		m = &rdcc.CreditReturn{MessageID: 1}
	case 6:
		m = &rdcc.Cancel{MessageID: 1}
	case 7:
		m, h = &rdcc.CongestionReport{Direction: rdcc.ToReceiver, CongestionDegree: 255, Source: netip.MustParseAddr("127.0.0.1"), Destination: f.targets[0].Addr()}, rdcc.Header{}
	case 8:
		m, to = &rdcc.CreditGrant{MessageID: 1, GrantLimit: 1 << 40, PacingRate: 1 << 20, Lifetime: 1 << 20}, f.targets[2]
	case 9:
		m, to = &rdcc.MsgDone{MessageID: 1, OctetsReceived: 1}, f.targets[2]
	case 10:
		m, to = &rdcc.Error{Reason: rdcc.ReasonUnknownAssociation}, f.targets[2]
	case 11:
		m, to, h.Flags = &rdcc.AssocAccept{SenderNonce: rng.Uint64(), UnscheduledLimit: 1 << 30}, f.targets[2], rdcc.FlagParameterUpdate
	default:
		p := opaque.Packet{Assoc: h.Assoc, Value: rng.Uint64(), Offset: rng.Uint64() >> 32, Length: 1 << 40}
		b = append(p.AppendHeader(b), "forged"...)
		opaque.Seal(b)
		return b, f.targets[1]
	}
	b = m.Append(b, h)
	if rng.IntN(20) == 0 {
		b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
	}
	return b, to
}

// run sends n datagrams, perSecond of them in a second, until stop.
func (f *forger) run(n int, perSecond float64, stop *atomic.Bool) (sent int) {
	start := time.Now()
	for sent < n && !stop.Load() {
		due := min(int(time.Since(start).Seconds()*perSecond)+1, n)
		if sent >= due {
			_ = f.waiter.Wait(200 * time.Microsecond)
		}
		for ; sent < due; sent++ {
			s := f.sockets[sent/udp.Batch%len(f.sockets)]
			b, to := f.datagram(s.Next())
			from := netip.AddrFrom4([4]byte{127, 1, byte(f.rng.IntN(16)), byte(1 + f.rng.IntN(250))})
			s.Put(len(b), to, from, -1)
			f.asked += uint64(len(b))
		}
		for _, s := range f.sockets {
			s.Flush()
			_, _ = s.Recv(func(p *udp.Packet) { f.answers += uint64(len(p.Data)) })
		}
	}
	return sent
}

// siege is a receiver, honest senders, and a forger.
type siege struct {
	r       *node
	honest  []*node
	f       *forger
	octets  atomic.Uint64 // that honest senders have delivered
	failed  atomic.Pointer[endpoint.Result]
	stop    atomic.Bool
	waiting sync.WaitGroup
}

const (
	siegeAssociations = 300
	siegePerAddress   = 40
	siegeEarly        = 64 << 10
)

func newSiege(t testing.TB, honest int) *siege {
	// Each endpoint, and the forger, is a process of its own elsewhere. Here their threads take turns by the kernel's scheduler,
	// too, and not by Go's, which leaves one that has woken waiting for milliseconds while others are in system calls.
	procs := runtime.GOMAXPROCS(4 + honest)
	t.Cleanup(func() { runtime.GOMAXPROCS(procs) })
	// Slow enough that the machine is not what limits the honest: where five threads share two cores, one may wait for
	// milliseconds until it is its turn, which a receiver takes for congestion of the path.
	slow := receiver.Fabric{LineRate: 100e6, BaseRTT: 10 * time.Millisecond, DMax: 20 * time.Millisecond, Payload: 1400, Wire: opaque.Wire(1400)}
	c := domain.Config{MaxAssociations: siegeAssociations, MaxPerAddress: siegePerAddress}
	w := &siege{r: newNode(t, "127.0.0.2", endpoint.Options{Domain: c, Fabric: slow})}
	for range honest {
		n := newNode(t, "127.0.0.1", endpoint.Options{Domain: c, Fabric: slow, AnyPort: true})
		if res := n.send(w.r.Addr(), 5000); res.Err != nil {
			t.Fatal(res.Err)
		}
		w.honest = append(w.honest, n)
	}
	var assoc uint32
	var epoch uint16
	s := w.honest[0]
	s.Call(func(time.Duration) {
		i, _ := s.Sender().Association(w.r.Addr())
		assoc, epoch = i.Association, i.Epoch
	})
	w.f = newForger(t, w.r.Addr(), addrPort("127.0.0.2", dataPort), s.Addr(), assoc, epoch)
	return w
}

// traffic lets the honest send one message after the other until stop.
func (w *siege) traffic(length uint64) {
	for _, n := range w.honest {
		w.waiting.Add(1)
		var next func()
		ended := func(r endpoint.Result) {
			if r.Err != nil {
				w.failed.Store(&r)
			} else {
				w.octets.Add(r.Octets)
			}
			if r.Err != nil || w.stop.Load() {
				w.waiting.Done()
				return
			}
			go next()
		}
		next = func() {
			m := &endpoint.Outgoing{To: w.r.Addr(), Kind: rdcc.BindingOpaque, Length: length, Ended: ended}
			if err := n.Send(m); err != nil {
				ended(endpoint.Result{Err: err})
			}
		}
		next()
	}
}

// TestAttack: forged datagrams of all kinds over real sockets, 100,000 a second. State stays within its bounds, answers are
// not larger than what they answer, and all that honest senders send arrives.
func TestAttack(t *testing.T) {
	const forged = 150_000
	w := newSiege(t, 3)
	w.traffic(64 << 10)
	sent := w.f.run(forged, 100_000, &w.stop)
	w.stop.Store(true)
	w.waiting.Wait()
	if r := w.failed.Load(); r != nil {
		t.Errorf("an honest message: %v", r.Err)
	}
	if w.octets.Load() == 0 {
		t.Error("the honest sent nothing")
	}
	w.r.Call(func(time.Duration) {
		k := w.r.Receiver().Counters
		locals, peers, incoming := w.r.Kept()
		in, early := w.r.tr.Kept()
		if peers > siegeAssociations || incoming > 0 || in > 0 || early > 1<<20 || locals > endpoint.MaxLocals {
			t.Errorf("kept: %d associations, %d and %d messages, %d octets of early data, %d addresses", peers, incoming, in, early, locals)
		}
		if k.AssocRefused == 0 || k.UnknownAssociation == 0 || k.WrongAddress == 0 || k.ReportsForeign == 0 {
			t.Errorf("the attack did not get there: %+v", k)
		}
		if k.Faults != ([len(k.Faults)]uint64{}) {
			t.Errorf("honest senders are said to be at fault: %v", k.Faults)
		}
		t.Logf("%d forged; %d associations, %d refused, %d of unknown associations, %d from elsewhere, %d data packets of strangers; the honest delivered %d octets",
			sent, peers, k.AssocRefused, k.UnknownAssociation, k.WrongAddress, w.r.tr.Counts.Strangers, w.octets.Load())
	})
	w.r.obeyed()
	for _, n := range w.honest {
		n.obeyed()
	}
	if w.f.answers > w.f.asked {
		t.Errorf("%d octets of forgeries were answered with %d", w.f.asked, w.f.answers)
	}
}

// BenchmarkAttack measures what honest senders keep of their rate under 100,000 forged datagrams a second: at least 95 %.
func BenchmarkAttack(b *testing.B) {
	w := newSiege(b, 3)
	w.traffic(64 << 10)
	b.ResetTimer()
	var calm, stormy, forgedPerSecond float64
	for range b.N {
		measure := func(attack bool) float64 {
			const span = time.Second
			before, start := w.arrived(), time.Now()
			var stop atomic.Bool
			var sent int
			over := time.AfterFunc(span, func() { stop.Store(true) })
			if attack {
				sent = w.f.run(1<<30, 100_000, &stop)
			} else {
				w.f.idle(&stop)
			}
			over.Stop()
			elapsed := time.Since(start).Seconds()
			forgedPerSecond += float64(sent) / elapsed
			return float64(w.arrived()-before) / elapsed
		}
		calm += measure(false)
		stormy += measure(true)
	}
	w.stop.Store(true)
	w.waiting.Wait()
	b.ReportMetric(100*stormy/calm, "%-of-rate-kept")
	b.ReportMetric(calm/float64(b.N)*8/1e6, "Mbit/s-calm")
	b.ReportMetric(forgedPerSecond/float64(b.N), "forged/s")
}

// arrived is how many octets of the honest the receiver has.
func (w *siege) arrived() (n uint64) {
	w.r.Call(func(time.Duration) { n = w.r.Receiver().Counters.AcceptedOctets })
	return n
}

func (f *forger) idle(stop *atomic.Bool) {
	for !stop.Load() {
		_ = f.waiter.Wait(time.Millisecond)
		for _, s := range f.sockets {
			_, _ = s.Recv(func(*udp.Packet) {})
		}
	}
}
