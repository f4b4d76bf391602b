package domain

import (
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
	"github.com/pcmlab/pcmlab/rdcc/sender"
)

var capabilities = map[string]rdcc.Capabilities{
	"pool": rdcc.CapPool, "status": rdcc.CapStatus, "crn": rdcc.CapCRN, "none": sender.NoCapabilities,
}

// Scale is the virtual lab's time scale.
func (c Config) Scale() units.Scale { return units.Scale(c.TimeScale) }

// MayUnschedule says that data may go before it has credit.
func (c Config) MayUnschedule() bool {
	return (c.Unscheduled == nil || *c.Unscheduled) && !(c.U.Given() && c.U.Of(1<<30) == 0) && !(c.Gu.Given() && c.Gu.Of(1<<30) == 0)
}

// Fabric is the path as it is on the clock of the machines: f, which is in the lab's own rates and times already, and over
// it what the configuration says of hardware, scaled.
func (c Config) Fabric(f receiver.Fabric) receiver.Fabric {
	s := c.Scale()
	if c.LineRate != 0 {
		f.LineRate = int64(s.Rate(c.LineRate))
	}
	if c.BaseRTT.Given() {
		f.BaseRTT = c.BaseRTT.Of(0, s)
	}
	if c.DMax.Given() {
		f.DMax = c.DMax.Of(f.BaseRTT, s)
	}
	if f.DMax == 0 {
		f.DMax = f.BaseRTT
	}
	if c.Payload != 0 {
		f.Payload, f.Wire = int(c.Payload), 0
	}
	if c.Wire != 0 {
		f.Wire = int(c.Wire)
	}
	return f
}

// Receiver is the receiver's configuration on the path f.
func (c Config) Receiver(f receiver.Fabric) receiver.Config {
	f = c.Fabric(f)
	bdp, s := f.BDP(), c.Scale()
	r := receiver.Config{
		Fabric: f, G: c.G.Of(bdp), Gu: c.Gu.Of(bdp), U: c.U.Of(bdp), MinU: c.MinU.Of(bdp), ExpectedSenders: c.ExpectedSenders,
		Jitter: c.J.Of(f.BaseRTT, s), Backlog: uint32(min(c.Backlog.Of(bdp), 1<<32-1)), Lifetime: c.Lifetime.Of(f.BaseRTT, s),
		CreditUnit: int64(c.CreditUnit), Pool: c.Pool,
		MaxAssociations: c.MaxAssociations, MaxPerAddress: c.MaxPerAddress, MaxMessages: c.MaxMessages, MaxPending: c.MaxPending,
		MaxCredit: c.MaxCredit.Of(bdp), MaxLength: uint64(c.MaxLength), Idle: c.Idle.Of(f.BaseRTT, 1),
		CRNs: c.CRNs, Local: c.Local, MaxTimeout: s.Time(100 * time.Millisecond), TargetRTT: c.TargetRTT.Of(f.BaseRTT, s),
	}
	if !c.MayUnschedule() {
		r.Gu, r.U = -1, 0
	}
	if !c.Lifetime.Given() {
		r.Lifetime = max(4*f.BaseRTT, s.Time(100*time.Microsecond))
	}
	if c.J.Given() {
		r.Jitter = max(r.Jitter, 1) // below a microsecond there is none on the wire, and zero would mean the default
	}
	if c.Allocator == "bbr" {
		r.Allocator = receiver.BBR{}
	}
	return r
}

// Sender is the sender's configuration on the path f.
func (c Config) Sender(f receiver.Fabric) sender.Config {
	f = c.Fabric(f)
	s := sender.Config{
		LineRate: f.LineRate, BacklogThreshold: uint64(c.LocalBacklog.Of(f.BDP())), Local: c.Local,
		DSCP: sender.DSCP{Unscheduled: c.DSCP.Unscheduled, Class: c.DSCP.Classes()}, MaxMessages: c.MaxOutgoing,
	}
	for _, name := range c.Advertise {
		s.Capabilities |= capabilities[name]
	}
	for _, a := range c.CRNs {
		s.CRNs = append(s.CRNs, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
	}
	if c.OnRefused == "without" {
		s.OnRefused = sender.RefusedWithout
	}
	s.Timing.GiveUp = c.GiveUp.Of(0, 1)
	s.Timing = s.Timing.Scale(c.Scale().Factor())
	s.Timing.DMax = f.DMax // the path's, which is scaled already
	return s
}

// Message is a message of length octets with the configuration's class, weight, hint and segment.
func (c Config) Message(f receiver.Fabric, to netip.AddrPort, length uint64) sender.Message {
	f = c.Fabric(f)
	return sender.Message{
		To: to, Length: length, Class: c.Class, Weight: c.Weight, Hint: c.hint(), Scheduled: !c.MayUnschedule(),
		Segment: uint64(c.Segment.Of(f.BDP())),
	}
}

func (c Config) hint() rdcc.Hint {
	for h := rdcc.HintNone; h.Defined(); h++ {
		if h.String() == c.Hint {
			return h
		}
	}
	return rdcc.HintNone
}
