package bench

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/pcmlab/pcmlab/pcm"
)

// Kind of a trace: whom it is for.
type Kind string

// The kinds are those of packages.
const (
	Sender   Kind = "sender_cc"
	LB       Kind = "lb"
	Receiver Kind = "receiver_cc"
)

// Mix is what a trace consists of. Those of senders and load balancers are shares of the feedback (paper, section 7.1); those of
// receivers are shares of the pull targets that jump by exactly Jump, while the others grow by less.
type Mix struct {
	Name      string
	Loss, ECN int // percent
	Jumps     int // percent
	What      string
}

// Jump is two quanta of grant (paper, section 7.1).
const Jump = 128

var feedback = []Mix{
	{Name: "ack", What: "unmarked acknowledgements only"},
	{Name: "ecn", ECN: 90, What: "90 % of the acknowledgements are marked"},
	{Name: "loss", Loss: 80, What: "80 % losses, the others are unmarked acknowledgements"},
	{Name: "mixed", Loss: 20, ECN: 40, What: "20 % losses, 40 % marked and 40 % unmarked acknowledgements"},
}

var pulls = []Mix{
	{Name: "pull0", What: "targets grow by 1 to 127 units"},
	{Name: "pull25", Jumps: 25, What: "25 % grow by 128 units"},
	{Name: "pull50", Jumps: 50, What: "50 % grow by 128 units"},
	{Name: "pull75", Jumps: 75, What: "75 % grow by 128 units"},
}

// Mixes are those of a kind, in the paper's order.
func Mixes(k Kind) []Mix {
	if k == Receiver {
		return pulls
	}
	return feedback
}

// Path is the network that a trace is of.
type Path struct {
	BaseRTT uint32 // round trip without queues, ns
	Packet  uint32 // bytes of data in a packet
	BDP     uint32 // bytes
	Gap     uint32 // mean time between events, ns
}

// PathOf is that of a deployment, with what it does not say taken from a fabric of 100 Gbit/s.
func PathOf(f *pcm.Fabric) Path {
	p := Path{BaseRTT: 14023, Packet: 4096, BDP: 175284, Gap: 328}
	if f == nil {
		return p
	}
	value := func(name string, scale float64, to *uint32) {
		if n, ok := f.Values[name]; ok {
			if v := number(n) * scale; v >= 1 && v < 1<<30 {
				*to = uint32(v)
			}
		}
	}
	value("FABRIC_BRTT", float64(f.TimeUnitPS)/1000, &p.BaseRTT)
	value("FABRIC_LINK_MSS", 1, &p.Packet)
	value("FABRIC_BDP", 1, &p.BDP)
	if rate, ok := f.Values["FABRIC_LINK_RATE_GBPS"]; ok && number(rate) > 0 {
		p.Gap = max(2, uint32(float64(p.Packet)/number(rate)))
	}
	return p
}

func number(n pcm.Number) float64 {
	if n.Int != nil {
		v, _ := n.Int.Float64()
		return v
	}
	return n.Float
}

// Event is what happened, as a datapath has it before it fills the input of a shell: 32 bytes, struct bench_event of bench.h.
type Event struct {
	Mask    uint32 // of sources
	Gap     uint32 // ns since the event before, of any flow
	RTT     uint32 // ns
	Bytes   uint32 // acknowledged, refused or sent
	Flying  uint32 // bytes under way
	Path    uint32 // entropy of the packet that was answered
	Pull    uint32 // by how much the pull target grows
	Backlog uint32 // bytes that wait at the sender
}

// EventBytes is the size of an event.
const EventBytes = 32

const (
	ackMask  = 1<<pcm.ACK | 1<<pcm.DataTX | 1<<pcm.RTT | 1<<pcm.InFlight | 1<<pcm.TXBytes | 1<<pcm.TXBacklogBytes
	goodMask = ackMask | 1<<pcm.ACKEV
	ecnMask  = ackMask | 1<<pcm.ECN | 1<<pcm.CNP | 1<<pcm.ECNEV
	lossMask = 1<<pcm.NACK | 1<<pcm.DataNACKed | 1<<pcm.InFlight | 1<<pcm.NACKEV
	txMask   = 1<<pcm.TXReadyPackets | 1<<pcm.TXBytes
	pullMask = 1 << pcm.PullTarget
)

// draws are whole numbers only: floating point is not the same on all machines.
type draws struct{ r *rand.PCG }

// below is uniform over 0 to n-1.
func (d draws) below(n uint32) uint32 { return uint32(d.r.Uint64() >> 32 * uint64(n) >> 32) }

func (d draws) percent(p int) bool { return d.below(100) < uint32(p) }

// Generate makes n events of a mix. The same arguments give the same events everywhere.
//
// A round trip of an unmarked packet is the path's plus a queue of up to as much again, mostly short (the product of two uniform
// draws: a quarter on average); that of a marked one has a queue of one to three. Times between events vary by half of their mean.
func Generate(k Kind, m Mix, p Path, seed uint64, n int) []Event {
	d := draws{rand.NewPCG(seed, uint64(m.Loss)<<16|uint64(m.ECN)<<8|uint64(m.Jumps))}
	events := make([]Event, 0, n)
	for len(events) < n {
		gap := p.Gap/2 + d.below(p.Gap+1)
		if k == LB && len(events)%2 == 1 { // a packet is ready for each one that was answered
			events = append(events, Event{Mask: txMask, Gap: gap, Bytes: p.Packet})
			continue
		}
		if k == Receiver {
			e := Event{Mask: pullMask, Gap: gap, Pull: Jump}
			if grows := 1 + d.below(Jump-1); !d.percent(m.Jumps) {
				e.Pull = grows
			}
			events = append(events, e)
			continue
		}
		e := Event{Gap: gap, Bytes: p.Packet, Path: d.below(1 << 16), Flying: p.BDP/4 + d.below(p.BDP), Backlog: d.below(p.BDP)}
		short := uint32(uint64(d.below(p.BaseRTT+1)) * uint64(d.below(1<<16)) >> 16)
		long := p.BaseRTT + d.below(2*p.BaseRTT)
		switch share := int(d.below(100)); {
		case share < m.Loss:
			e.Mask = lossMask
		case share < m.Loss+m.ECN:
			e.Mask, e.RTT = ecnMask, p.BaseRTT+long
		default:
			e.Mask, e.RTT = goodMask, p.BaseRTT+short
		}
		events = append(events, e)
	}
	return events
}

// AppendEvents are the bytes of events, as the program in C reads them.
func AppendEvents(b []byte, events []Event) []byte {
	for _, e := range events {
		for _, v := range [...]uint32{e.Mask, e.Gap, e.RTT, e.Bytes, e.Flying, e.Path, e.Pull, e.Backlog} {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
	}
	return b
}

// MaxFlows bounds the flows of a measurement.
const MaxFlows = 1 << 20

// Orders are how flows take turns: in a fixed order, or in orders that change each time round, as packets of many senders do.
const (
	RoundRobin  = "round-robin"
	Interleaved = "interleaved"
)

// Order says which flow each event is of. Each flow comes equally often, so that all of them are the working set; there are at least
// n places and one for each flow.
func Order(flows int, how string, seed uint64, n int) ([]uint32, error) {
	if flows < 1 || flows > MaxFlows {
		return nil, fmt.Errorf("%d flows: need 1 to %d", flows, MaxFlows)
	}
	if how != RoundRobin && how != Interleaved {
		return nil, fmt.Errorf("order %q: need %s or %s", how, RoundRobin, Interleaved)
	}
	d := draws{rand.NewPCG(seed, uint64(flows))}
	order := make([]uint32, 0, n+flows)
	for len(order) < n || len(order) < flows {
		turn := order[len(order):]
		for f := range flows {
			turn = append(turn, uint32(f))
		}
		if how == Interleaved {
			for i := len(turn) - 1; i > 0; i-- {
				j := d.below(uint32(i + 1))
				turn[i], turn[j] = turn[j], turn[i]
			}
		}
		order = append(order, turn...)
	}
	return order, nil
}

// AppendOrder are its bytes.
func AppendOrder(b []byte, order []uint32) []byte {
	for _, v := range order {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}
