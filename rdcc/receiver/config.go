package receiver

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// Fabric is what is known of the path to this receiver.
type Fabric struct {
	LineRate int64         // of the access link, bit/s
	BaseRTT  time.Duration // of the domain, without queues
	DMax     time.Duration // largest one-way delay of the domain (D_max); zero means BaseRTT
	Payload  int           // payload octets of a full data packet; zero means 4096
	Wire     int           // octets that it occupies on the link; zero means Payload and 82, a RoCEv2 packet with preamble and gap
}

// BDP is the bandwidth-delay product of the access link in octets.
func (f *Fabric) BDP() int64 { return octetsIn(f.LineRate, f.BaseRTT) }

// Capacity is what the access link carries of message payload, in bit/s (decision 17).
func (f *Fabric) Capacity() int64 {
	return int64(float64(f.LineRate) * float64(f.Payload) / float64(f.Wire) * linkShare)
}

// linkShare keeps room on the link for control and retransmissions (decision 17).
const linkShare = 0.98

func octetsIn(bps int64, d time.Duration) int64 { return int64(float64(bps) / 8 * d.Seconds()) }

// Config sets a receiver up. Zero values are the defaults that are stated.
type Config struct {
	Fabric Fabric

	G               int64         // budget, octets; zero means 2 BDP
	Gu              int64         // its unscheduled part; zero means G/4, negative none
	U               int64         // most that an association gets; zero means Gu/ExpectedSenders, at most a BDP
	ExpectedSenders int           // concurrent ones; zero means 8
	MinU            int64         // a smaller U is not worth having; zero means a Credit Unit
	Jitter          time.Duration // J; zero means BaseRTT
	Backlog         uint32        // N_cu; zero means 2 BDP
	Lifetime        time.Duration // of grants; zero means 4 BaseRTT, at least 100 µs
	CreditUnit      int64         // zero means Fabric.Payload
	Pool            bool          // pool grants for senders that can use them (decision 4)

	MaxAssociations int           // zero means 16384
	MaxPerAddress   int           // associations of one address; zero means a quarter of MaxAssociations, at least 64
	MaxMessages     int           // pending, of all associations; zero means 262144
	MaxPending      int           // pending of one association, and holes in its message numbers; zero means 256
	MaxCredit       int64         // octets granted to one association; zero means all of G_s
	MaxLength       uint64        // of a message; zero means 1 TiB
	MaxUnattributed int           // records of data that came before its request; zero means 4096
	MaxTimeout      time.Duration // largest of senders' request timeouts; zero means 100 ms, as the specification has it
	Idle            time.Duration // without traffic until an association is removed; zero means 10 s
	ExhaustedAfter  time.Duration // of waiting until a repeated request is told BUDGET_EXHAUSTED; zero means 1 s
	OutQueue        int           // datagrams waiting to be polled; zero means 4096

	Bindings  []rdcc.BindingKind // that the transport can count; nil means both
	CRNs      []netip.Addr       // whose reports are believed
	Local     []netip.Addr       // this receiver's addresses in the reports' data flows; nil means any
	TargetRTT time.Duration      // above it the path counts as congested; zero means 2 BaseRTT

	BreakerThreshold float64       // share of unscheduled octets lost over a second; zero means 0.01
	BreakerHold      time.Duration // of the first trip (decision 22); zero means 1 s

	Allocator Allocator // zero means AIMD{}
	Random    io.Reader // Association IDs and the Epoch; nil means crypto/rand
	Epoch     uint16    // zero means a random one, never LastEpoch
	LastEpoch uint16    // of the incarnation before, if it is known

	off rdcc.RuleSet // rules that a test has switched off
}

const (
	breakerWindow  = time.Second      // over which loss is measured (Congestion Control Considerations)
	breakerMaxHold = 60 * time.Second // decision 22
	maxWireU       = 1<<32 - 1
)

func def[T int | int64 | uint32 | uint64 | float64 | time.Duration](v *T, to T) {
	if *v == 0 {
		*v = to
	}
}

// fill puts defaults into the private copy and checks it.
func (c *Config) fill() error {
	f := &c.Fabric
	var bad []error
	refuse := func(ok bool, format string, a ...any) {
		if !ok {
			bad = append(bad, fmt.Errorf("rdcc receiver: "+format, a...))
		}
	}
	refuse(f.LineRate >= 1e6, "line rate of %d bit/s is less than the wire can express, 1 Mbit/s", f.LineRate)
	refuse(f.BaseRTT > 0, "base RTT of %v: must be more than zero", f.BaseRTT)
	if len(bad) > 0 {
		return errors.Join(bad...)
	}
	def(&f.DMax, f.BaseRTT)
	def(&f.Payload, 4096)
	def(&f.Wire, f.Payload+82)
	def(&c.CreditUnit, int64(f.Payload))
	def(&c.G, 2*f.BDP())
	def(&c.Gu, c.G/4)
	c.Gu = max(c.Gu, 0)
	def(&c.ExpectedSenders, 8)
	def(&c.U, min(c.Gu/int64(max(c.ExpectedSenders, 1)), f.BDP(), maxWireU))
	def(&c.MinU, c.CreditUnit)
	def(&c.Jitter, f.BaseRTT)
	def(&c.Backlog, uint32(min(2*f.BDP(), maxWireU)))
	def(&c.Lifetime, max(4*f.BaseRTT, 100*time.Microsecond))
	def(&c.MaxAssociations, 16384)
	def(&c.MaxPerAddress, max(64, c.MaxAssociations/4))
	def(&c.MaxMessages, 262144)
	def(&c.MaxPending, 256)
	def(&c.MaxCredit, c.G-c.Gu)
	def(&c.MaxLength, 1<<40)
	def(&c.MaxUnattributed, 4096)
	def(&c.MaxTimeout, 100*time.Millisecond)
	def(&c.Idle, 10*time.Second)
	def(&c.ExhaustedAfter, time.Second)
	def(&c.OutQueue, 4096)
	def(&c.TargetRTT, 2*f.BaseRTT)
	def(&c.BreakerThreshold, 0.01)
	def(&c.BreakerHold, time.Second)
	c.CRNs, c.Local = unmapped(c.CRNs), unmapped(c.Local)
	if c.Bindings == nil {
		c.Bindings = []rdcc.BindingKind{rdcc.BindingRoCEv2, rdcc.BindingOpaque}
	}
	if c.Allocator == nil {
		c.Allocator = AIMD{}
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	gone := c.Jitter + c.Lifetime + 2*f.DMax
	refuse(f.Payload > 0 && f.Wire >= f.Payload, "payload of %d octets in %d on the wire: must be more than zero and no more than the packet", f.Payload, f.Wire)
	refuse(f.Capacity() >= 1e6, "capacity of %d bit/s is less than the wire can express, 1 Mbit/s", f.Capacity())
	refuse(c.CreditUnit > 0, "credit unit of %d octets: must be more than zero", c.CreditUnit)
	refuse(c.G-c.Gu >= c.CreditUnit, "G = %d with G_u = %d leaves less than a Credit Unit (%d) for scheduled data", c.G, c.Gu, c.CreditUnit)
	refuse(c.MaxCredit > 0, "credit of one association is bounded to %d octets: must be more than zero", c.MaxCredit)
	refuse(c.U <= maxWireU, "U = %d does not fit the wire's 32 bits", c.U)
	refuse(c.Idle >= gone, "idle time of %v is shorter than credit can live, %v", c.Idle, gone)
	refuse(c.MaxAssociations > 0 && c.MaxPending > 0 && c.MaxMessages > 0, "bounds must be more than zero: %d associations, %d messages each, %d in all", c.MaxAssociations, c.MaxPending, c.MaxMessages)
	refuse(c.OutQueue >= 16, "output queue of %d datagrams: at least 16", c.OutQueue)
	refuse(c.Epoch == 0 || c.Epoch != c.LastEpoch, "epoch %d is that of the incarnation before: a receiver that lost its state must use another", c.Epoch)
	return errors.Join(bad...)
}

func unmapped(addrs []netip.Addr) (all []netip.Addr) {
	for _, a := range addrs {
		all = append(all, a.Unmap())
	}
	return all
}

// drawEpoch chooses the Epoch of this incarnation. Zero is what messages without an association carry.
func (c *Config) drawEpoch() error {
	for c.Epoch == 0 || c.Epoch == c.LastEpoch && !c.off.Has(rdcc.RuleNewEpoch) {
		var b [2]byte
		if _, err := io.ReadFull(c.Random, b[:]); err != nil {
			return fmt.Errorf("rdcc receiver: draw an epoch: %w", err)
		}
		c.Epoch = uint16(b[0])<<8 | uint16(b[1])
	}
	return nil
}
