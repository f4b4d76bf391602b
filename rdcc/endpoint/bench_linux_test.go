package endpoint_test

import (
	"context"
	"encoding/binary"
	"math"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/domain"
	"github.com/pcmlab/pcmlab/rdcc/endpoint"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
	"github.com/pcmlab/pcmlab/rdcc/udp"
)

// told is a transport whose data arrives when the load generator says so: what is measured is the endpoint.
type told struct{ h endpoint.Host }

func (a *told) Kind() rdcc.BindingKind                                 { return rdcc.BindingOpaque }
func (a *told) Open(h endpoint.Host) error                             { a.h = h; return nil }
func (a *told) Bind(time.Duration, *endpoint.Outgoing) (uint64, error) { return 0, nil }
func (a *told) Allowed(time.Duration, *endpoint.Outgoing)              {}
func (a *told) Stopped(time.Duration, *endpoint.Outgoing)              {}
func (a *told) Ended(time.Duration, *endpoint.Outgoing, error)         {}
func (a *told) Incoming(time.Duration, receiver.Event)                 {}
func (a *told) Advance(time.Duration)                                  {}
func (a *told) Deadline() (time.Duration, bool)                        { return 0, false }
func (a *told) Close() error                                           { return nil }

// pin keeps the calling goroutine on one core.
func pin(b *testing.B, core int) {
	runtime.LockOSThread()
	if runtime.NumCPU() < 2 {
		return
	}
	var set unix.CPUSet
	set.Set(core)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		b.Log(err)
	}
}

// caller is many senders, in bare datagrams. Each has one message at a time, or more where they come by the clock.
type caller struct {
	b       *testing.B
	e       *endpoint.Endpoint
	tr      *told
	s       *udp.Socket
	to      netip.AddrPort
	senders [callers]callee
	byAssoc map[uint32]int
	free    []int // senders without a message
	asked   int
	granted int
	done    int
	arrived []arrival // granted, and not yet told
	start   time.Time
	delays  []time.Duration
}

type callee struct {
	assoc, seq uint32
	epoch      uint16
	next       uint64
	sentAt     [256]time.Duration // by Message ID
}

type arrival struct {
	assoc   uint32
	message uint64
}

const (
	callers = 128
	unit    = 1400
	line    = 100e9
)

func (c *caller) now() time.Duration { return time.Since(c.start) }

func (c *caller) request(i int, now time.Duration) {
	q := &c.senders[i]
	q.seq++
	q.next++
	c.asked++
	q.sentAt[q.next%uint64(len(q.sentAt))] = now
	m := rdcc.CreditRequest{MessageID: q.next, MessageLength: unit, BindingKind: rdcc.BindingOpaque, BindingValue: q.next, Weight: 1}
	b := m.Append(c.s.Next(), rdcc.Header{Assoc: q.assoc, Epoch: q.epoch, Seq: q.seq})
	c.s.Put(len(b), c.to, netip.Addr{}, -1)
}

// answers takes what has come, and tells the endpoint that what was granted has arrived.
func (c *caller) answers() {
	for n := udp.Batch; n == udp.Batch; {
		var err error
		n, err = c.s.Recv(func(p *udp.Packet) {
			i := c.byAssoc[binary.BigEndian.Uint32(p.Data[4:])]
			switch rdcc.Type(p.Data[1]) {
			case rdcc.TypeCreditGrant:
				q, id := &c.senders[i], binary.BigEndian.Uint64(p.Data[16:])
				c.granted++
				c.arrived = append(c.arrived, arrival{q.assoc, id})
				if c.delays != nil {
					c.delays = append(c.delays, c.now()-q.sentAt[id%uint64(len(q.sentAt))])
				}
			case rdcc.TypeMsgDone:
				c.done++
				c.free = append(c.free, i)
			case rdcc.TypeAssocAccept:
			default:
				c.b.Errorf("an answer of type %v: %x", rdcc.Type(p.Data[1]), p.Data)
			}
		})
		if err != nil {
			c.b.Fatal(err)
		}
	}
	if len(c.arrived) == 0 {
		return
	}
	told := c.arrived
	c.arrived = nil
	c.e.Do(func(now time.Duration) {
		for _, a := range told {
			c.tr.h.Arrived(now, a.assoc, receiver.Arrival{Message: a.message, Kind: rdcc.BindingOpaque, Octets: unit, Packets: 1})
		}
	})
}

func serveBench(b *testing.B, busy time.Duration) *caller {
	tr := &told{}
	e, err := endpoint.New(endpoint.Options{
		Domain: domain.Config{Port: port, MaxAssociations: 2 * callers, MaxPerAddress: 2 * callers, G: domain.Octets(1 << 30), Idle: domain.Time(time.Hour),
			Lifetime: domain.Time(time.Second), TargetRTT: domain.Time(time.Second)},
		Fabric: receiver.Fabric{LineRate: line, BaseRTT: 100 * time.Microsecond, Payload: unit},
		Listen: netip.MustParseAddr("127.0.0.2"), NoSender: true, Transports: []endpoint.Transport{tr}, Busy: busy,
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		pin(b, 0)
		_ = e.Run(ctx)
	}()
	b.Cleanup(func() {
		cancel()
		<-e.Done()
		if k := e.Receiver().Counters; k.Faults != ([len(k.Faults)]uint64{}) || k.InvariantViolations > 0 || k.OutDropped > 0 {
			b.Errorf("%+v", k)
		}
	})
	s, err := udp.Open(udp.Options{Addr: netip.MustParseAddrPort("127.0.0.1:0"), Buffer: 16 << 20})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	c := &caller{b: b, e: e, tr: tr, s: s, to: e.Addr(), start: time.Now(), byAssoc: map[uint32]int{}}
	for i := range callers {
		for nonce := uint64(i + 1); c.senders[i].assoc == 0; {
			say(s, c.to, (&rdcc.AssocRequest{SenderNonce: nonce, LineRate: rdcc.MbpsOf(int64(line) / callers)}).Append(nil, rdcc.Header{Seq: 1}))
			_, d := hear(b, s)
			var m rdcc.Datagram
			if err := m.Decode(d); err == nil && m.Type == rdcc.TypeAssocAccept && m.AssocAccept.SenderNonce == nonce {
				c.senders[i] = callee{assoc: m.Assoc, epoch: m.Epoch, seq: 1}
				c.byAssoc[m.Assoc] = i
			}
		}
		c.free = append(c.free, i)
	}
	return c
}

// BenchmarkRoundTrips: CREDIT_REQUEST of a new message, CREDIT_GRANT, the data at once, MSG_DONE: three datagrams a round
// trip. The endpoint has one core and the load generator another; there are 128 senders.
func BenchmarkRoundTrips(b *testing.B) {
	for _, how := range ways {
		b.Run(how.name, func(b *testing.B) {
			c := serveBench(b, how.busy)
			done := make(chan struct{})
			go func() {
				defer close(done)
				pin(b, 1)
				b.ResetTimer()
				for quiet := c.now(); c.done < b.N; {
					now := c.now()
					for _, i := range c.free {
						if c.asked < b.N {
							c.request(i, now)
						}
					}
					c.free = c.free[:0]
					c.s.Flush()
					before := c.done
					if c.answers(); c.done > before {
						quiet = now
					} else if now-quiet > 5*time.Second {
						b.Errorf("%d requests, %d grants, %d messages done, and nothing more comes", c.asked, c.granted, c.done)
						return
					}
				}
				b.StopTimer()
			}()
			<-done
			b.ReportMetric(float64(c.granted)/b.Elapsed().Seconds(), "roundtrips/s")
		})
	}
}

// ways to wait: asleep, or looking for datagrams for a while after the last.
var ways = []struct {
	name string
	busy time.Duration
}{{"sleeping", 0}, {"busy", 200 * time.Microsecond}}

// BenchmarkHalfLoad: requests come at 75,000 a second, evenly, whether answers come or not. The 99th percentile from
// request to grant is to stay under 200 µs.
func BenchmarkHalfLoad(b *testing.B) {
	for _, how := range ways {
		b.Run(how.name, func(b *testing.B) {
			c := serveBench(b, how.busy)
			c.delays = make([]time.Duration, 0, b.N)
			done := make(chan struct{})
			go func() {
				defer close(done)
				pin(b, 1)
				const gap = time.Second / 75_000
				b.ResetTimer()
				start := c.now()
				for quiet := c.now(); len(c.delays) < b.N; {
					now := c.now()
					for due := min(int((now-start)/gap)+1, b.N); c.asked < due; {
						c.request(c.asked%callers, start+time.Duration(c.asked)*gap) // when it should have been sent
					}
					c.s.Flush()
					c.free = c.free[:0]
					before := len(c.delays)
					c.answers()
					if len(c.delays) > before {
						quiet = now
					} else if now-quiet > 5*time.Second {
						b.Errorf("%d requests of %d are not answered", b.N-len(c.delays), b.N)
						return
					}
				}
				b.StopTimer()
			}()
			<-done
			slices.Sort(c.delays)
			for _, p := range []float64{50, 99, 99.9} {
				if n := len(c.delays); n > 0 {
					at := c.delays[min(int(math.Ceil(p/100*float64(n))), n-1)]
					b.ReportMetric(float64(at.Nanoseconds())/1e3, "p"+map[float64]string{50: "50", 99: "99", 99.9: "99.9"}[p]+"-us")
				}
			}
		})
	}
}
