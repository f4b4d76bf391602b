package world

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// crn is where on-path nodes speak from.
var crn = netip.MustParseAddrPort("10.9.0.1:50123")

// begin makes the world ready for a fault.
func (w *World) begin(f *Fault) {
	w.quiet = append(w.quiet, window{f.At, f.Until})
	switch f.Kind {
	case Restart:
		r := w.receivers[f.Host]
		w.at(f.At, func() { r.leave(f) })
		w.at(f.Until, func() { r.comeBack(f) })
	case Forge:
		w.at(f.At, func() { w.forge(f) })
	case Report:
		w.at(f.At, func() { w.report(f) })
	}
}

// is says that a fault of the kind is going on.
func (w *World) is(k FaultKind, host int) *Fault {
	for i := range w.s.Faults {
		f := &w.s.Faults[i]
		if f.Kind == k && f.At <= w.now && w.now < f.Until && (host < 0 || f.Host == host) {
			return f
		}
	}
	return nil
}

// hits draws whether a fault that is going on hits.
func (w *World) hits(k FaultKind) bool {
	f := w.is(k, -1)
	return f != nil && w.draw(256) < f.How
}

// cut says that nothing gets through between two hosts.
func (w *World) cut(i, j int, control bool) bool {
	return w.is(CutSender, i) != nil || w.is(CutReceiver, j) != nil || control && w.is(CutControl, i) != nil
}

// ends are the hosts of a datagram.
func (w *World) ends(from, to netip.AddrPort) (i, j int, toReceiver, ok bool) {
	a, okA := w.byAddr[from]
	b, okB := w.byAddr[to]
	switch {
	case okA && okB && a < 0 && b >= 0:
		return -1 - a, b, true, true
	case okA && okB && a >= 0 && b < 0:
		return -1 - b, a, false, true
	}
	return 0, 0, false, false
}

// send puts a datagram of a host into the control network.
func (w *World) send(from, to netip.AddrPort, b []byte) {
	w.stats.Datagrams++
	i, j, toReceiver, ok := w.ends(from, to)
	if w.attack != nil && ok && w.attack.Sees != nil {
		w.attack.Sees(from, to, bytes.Clone(b))
	}
	if !ok {
		if w.attack != nil && w.attack.Answer != nil {
			w.attack.Answer(to, bytes.Clone(b))
		}
		return // else an answer to somebody who was never there
	}
	if w.trace != nil {
		w.note("%s -> %s %s", w.name(from), w.name(to), show(b))
	}
	if w.cut(i, j, true) || w.hits(Drop) {
		w.stats.Lost++
		w.note("    lost")
		return
	}
	b = bytes.Clone(b)
	if w.hits(Damage) && !w.damage(&b) {
		w.stats.Lost++
		w.note("    damaged")
		return
	}
	way := w.s.Senders[i].Delay + w.s.Receivers[j].Delay
	if w.hits(Delay) {
		way = w.draw.within(way, w.latest())
	}
	came, end := false, w.now+w.latest()
	w.at(w.now+way, func() { came = w.arrive(i, j, toReceiver, from, b, true) })
	if w.hits(Double) {
		again := w.now + way + w.draw.within(0, pick(w.draw, w.s.Fabric.BaseRTT, 10*w.s.Fabric.DMax))
		w.at(again, func() {
			if came || w.now <= end { // a second one whose first was lost would be a datagram that takes longer than D_max
				w.arrive(i, j, toReceiver, from, b, true)
			}
		})
	}
}

// latest is the longest that anything takes: less than D_max, since clocks differ.
func (w *World) latest() time.Duration { return w.s.Fabric.DMax * 15 / 16 }

func (w *World) arrive(i, j int, toReceiver bool, from netip.AddrPort, b []byte, genuine bool) (came bool) {
	if genuine && w.cut(i, j, true) {
		w.stats.Lost++
		return false
	}
	if w.trace != nil {
		to := w.senders[i].addr
		if toReceiver {
			to = w.receivers[j].addr
		}
		w.note("%s at %s from %s", show(b), w.name(to), w.name(from))
	}
	if toReceiver {
		w.receivers[j].receive(from, b)
		return true
	}
	w.senders[i].receive(from, b, genuine)
	return true
}

// damage changes octets. What a UDP checksum would catch never comes; what is left is what the protocol itself must see or ignore.
func (w *World) damage(p *[]byte) (comes bool) {
	b := *p
	switch w.draw(8) {
	case 0: // cut short
		*p = b[:w.draw(len(b))]
	case 1: // octets behind
		*p = append(b, make([]byte, 1+w.draw(40))...)
	case 2:
		b[0] = byte(w.draw(16))<<4 | b[0]&15 // version
	case 3:
		b[0] |= byte(w.draw(16)) // Rsv
	case 4:
		b[1] = byte(0x0b + w.draw(0xf5)) // type
	case 5:
		binary.BigEndian.PutUint16(b[2:], uint16(w.draw(1<<16)))
	case 6: // Association ID or Epoch, of what has one
		if t := rdcc.Type(b[1]); t == rdcc.TypeAssocAccept || t == rdcc.TypeAssocRequest || t == rdcc.TypeError {
			return false
		}
		b[4+w.draw(6)] ^= byte(1 << w.draw(8))
	default:
		return false
	}
	return true
}

// packet is a piece of a message on its way.
type packet struct {
	m           *message
	piece       int
	assoc       uint32
	unscheduled bool
	first       bool // not sent again: it is within credit
	tries       int
	left        time.Duration
	ce          bool
}

// launch lets a packet leave its host.
func (w *World) launch(p packet, at time.Duration) {
	if p.first {
		w.receivers[p.m.To].onWay(&p, 1)
	}
	if at > w.now {
		w.at(at, func() { w.leave(p) })
		return
	}
	w.leave(p)
}

func (w *World) leave(p packet) {
	w.stats.Packets++
	if p.m.over && !p.m.done { // the NIC throws away what is of an abandoned message
		w.land(&p)
		return
	}
	p.left = w.now
	way := w.s.Senders[p.m.From].Delay
	if w.hits(Shuffle) {
		way += w.draw.within(0, w.s.Fabric.BaseRTT)
	}
	w.at(w.now+way, func() { w.queue(p) })
}

// queue is the receiver's port at the switch.
func (w *World) queue(p packet) {
	r := w.receivers[p.m.To]
	if w.cut(p.m.From, p.m.To, false) || w.hits(Loss) || r.lost != nil && r.lost.How%2 == 0 {
		w.note("    data of m%d lost", p.m.n)
		w.again(p)
		return
	}
	took := w.wireTime(p.m.pieces[p.piece].n, w.s.Fabric.LineRate)
	if backlog := r.free - w.now; w.s.ECN > 0 && int64(backlog)*w.s.Fabric.LineRate/8/int64(time.Second) > w.s.ECN {
		p.ce = true
	}
	r.free = max(r.free, w.now) + took
	w.at(r.free+r.Delay, func() {
		if w.now-p.left > w.latest() && w.off == (rdcc.RuleSet{}) {
			w.fail("D_max", "a packet of m%d took %v", p.m.n, w.now-p.left)
		}
		r.data(p)
	})
}

// again is what a transport does about loss.
func (w *World) again(p packet) {
	w.land(&p)
	p.first = false
	wait := min(4*w.s.Fabric.BaseRTT<<min(p.tries, 10), time.Duration(w.s.Scale)*20*ms)
	p.tries++
	w.at(w.now+wait, func() {
		if assoc, _, ok := w.senders[p.m.From].m.Wire(p.m.id); ok {
			p.assoc = assoc
		}
		w.leave(p)
	})
}

// land takes a packet off the way.
func (w *World) land(p *packet) {
	if p.first {
		w.receivers[p.m.To].onWay(p, -1)
	}
}

// report lets on-path nodes speak, and somebody who is none.
func (w *World) report(f *Fault) {
	if w.now >= f.Until {
		return
	}
	i, j := w.draw(len(w.senders)), w.draw(len(w.receivers))
	m := rdcc.CongestionReport{
		CongestionDegree: uint8(f.How), Direction: rdcc.Direction(1 + w.draw(2)), Protocol: 17, SourcePort: 1, DestinationPort: 4791,
		SuggestedRate: rdcc.Mbps(w.draw(2) * w.draw(int(w.s.Fabric.LineRate/1e6))),
		Source:        w.senders[i].addr.Addr(), Destination: w.receivers[j].addr.Addr(),
	}
	from := crn
	if w.draw(4) == 0 {
		from = w.senders[w.draw(len(w.senders))].addr
	}
	b := m.Append(nil, rdcc.Header{})
	w.arrive(i, j, m.Direction == rdcc.ToReceiver, from, b, false)
	w.at(w.now+w.s.Fabric.BaseRTT/2, func() { w.report(f) })
}

// forge is somebody off the path: he knows who is there, even their ports, but neither nonces nor Association IDs.
func (w *World) forge(f *Fault) {
	if w.now >= f.Until {
		return
	}
	i, j := w.draw(len(w.senders)), w.draw(len(w.receivers))
	toReceiver := w.draw(2) == 0
	from := w.receivers[j].addr
	if toReceiver {
		from = w.senders[i].addr
	}
	if w.draw(3) == 0 {
		from = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, 0, byte(w.draw(256))}), uint16(1+w.draw(60000)))
	}
	b := Forged(w.draw)
	if rdcc.Type(b[1]) == rdcc.TypeError { // ASSOC_REFUSED needs no secret but the moment: that is for the tests of attacks
		b[16] = 1
	}
	w.arrive(i, j, toReceiver, from, b, false)
	w.at(w.now+w.s.Fabric.BaseRTT/time.Duration(1+f.How%8), func() { w.forge(f) })
}

// Forged is a datagram of any type by somebody who knows no secret: what he cannot know is drawn.
func Forged(d Dice) []byte {
	long := func() uint64 { return uint64(d(1<<31))<<32 | uint64(d(1<<31))<<1 }
	small := func() uint64 { return uint64(1 + d(8)) }
	h := rdcc.Header{Assoc: uint32(long() >> 20), Epoch: uint16(d(1 << 16)), Seq: uint32(long() >> 31), Flags: uint16(d(4))}
	var m rdcc.Message
	switch rdcc.Type(1 + d(int(rdcc.TypeError))) {
	case rdcc.TypeAssocRequest:
		m = &rdcc.AssocRequest{SenderNonce: long(), Capabilities: rdcc.Capabilities(d(8)), LineRate: rdcc.Mbps(d(1 << 20))}
	case rdcc.TypeAssocAccept:
		m = &rdcc.AssocAccept{SenderNonce: long(), UnscheduledLimit: 1 << 30, GrantLifetime: 1 << 30, CreditUnit: 1 << 20}
	case rdcc.TypeCreditRequest:
		m = &rdcc.CreditRequest{MessageID: small(), MessageLength: long(), UnscheduledSent: long(), BindingKind: rdcc.BindingOpaque}
	case rdcc.TypeCreditGrant:
		m = &rdcc.CreditGrant{MessageID: small() - 1, GrantLimit: long(), PacingRate: 1 << 30, Lifetime: 1 << 30}
	case rdcc.TypeSenderStatus:
		m = &rdcc.SenderStatus{CongestionLevel: 255, SuggestedRate: 1}
	case rdcc.TypeCongestionReport:
		m = &rdcc.CongestionReport{CongestionDegree: 255, Direction: rdcc.Direction(1 + d(2)), SuggestedRate: 1,
			Source: netip.AddrFrom4([4]byte{10, 1, 0, byte(small())}), Destination: netip.AddrFrom4([4]byte{10, 2, 0, byte(small())})}
	case rdcc.TypeMsgDone:
		m = &rdcc.MsgDone{MessageID: small(), OctetsReceived: long()}
	case rdcc.TypeCancel:
		m = &rdcc.Cancel{MessageID: small()}
	case rdcc.TypeCreditReturn:
		m = &rdcc.CreditReturn{MessageID: small() - 1}
	default:
		m = &rdcc.Error{Reason: rdcc.Reason(1 + d(7)), MessageID: small() - 1}
	}
	return m.Append(nil, h)
}

func (w *World) name(a netip.AddrPort) string {
	if k, ok := w.byAddr[a]; ok {
		if k >= 0 {
			return "r" + string(rune('0'+k))
		}
		return "s" + string(rune('0'-1-k))
	}
	return a.String()
}

// show is a datagram on a line.
func show(b []byte) string {
	f := rdcc.Inspect(b)
	var t bytes.Buffer
	for _, x := range f.Fields {
		if !slices.Contains([]string{"Version", "Rsv", "Length", "Reserved"}, x.Name) {
			t.WriteString(" " + x.Text)
		}
	}
	return t.String()
}
