package receiver

import (
	"encoding/binary"
	"io"
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// binding is what identifies an association to an ASSOC_REQUEST (decision 24).
type binding struct {
	addr  netip.AddrPort
	nonce uint64
}

// association is what is kept of one sender.
type association struct {
	addr     netip.AddrPort
	nonce    uint64
	id       uint32
	newest   uint32 // sequence number of what was processed last
	seq      uint32 // of what was sent last
	used     bool
	pool     bool // grants cover the pool, for the association's whole life (decision 4)
	poolBad  bool // sent more than the pool had
	blocked  bool // has waiting messages, but cannot have more until something of its own ends
	isOn     bool // counts among the active
	lingers  bool // counts among them a moment longer
	leaving  bool // is in the line of those that may leave
	squeezed bool // has less than an equal share, since others have more
	inLine   bool // of those that wait until others send slower
	hoards   uint8

	barredUntil time.Duration // no grants before, since it let credit expire

	lastHeard time.Duration
	update    update

	highest uint64 // Message ID
	holes   holes
	first   int32   // of its messages, place and one; they are linked
	pending int32   // messages
	queue   []int32 // heap of messages that want credit
	readyAt int32   // place in the ready heap, and one
	qp      int32   // of its queue pairs, place and one; they are linked
	nqps    int32
	place   int32 // in the receiver's slab

	scheduled   int64 // charged to G_s
	unscheduled int64 // charged to G_u
	share       int64 // of sumU
	live        int64 // Mbit/s under grants that are alive
	weights     [rdcc.MaxClass + 1]uint32

	poolCredit   credit
	poolReceived uint64 // octets in scheduled mode, over the association's life
	poolDemand   uint64 // sum of announced scheduled lengths
	poolVain     vain

	lineRate    int64 // Mbit/s
	suggested   int64 // Mbit/s, zero: none
	suggestedAt time.Duration
	flow        Flow
	seen        observed
	peer        int32
	leavesAt    uint32 // tick until which it lingers
	probe       probe
}

// assocRequest answers an ASSOC_REQUEST, or takes it as an acknowledgment of parameters. It is never discarded for its
// number, since a peer that lost its state starts again (Common Header).
func (r *Receiver) assocRequest(from netip.AddrPort, seq uint32, flags uint16, m *rdcc.AssocRequest) {
	b := binding{from, m.SenderNonce}
	i, ok := r.byNonce[b]
	if ok && !r.on(rdcc.RuleAssocIdempotent) && flags&rdcc.FlagUpdateAck == 0 {
		ok = false
	}
	if ok {
		a := &r.assocs[i]
		if rdcc.Newer(seq, a.newest) || !r.on(rdcc.RuleExemptNeverLowers) {
			a.newest = seq
		}
		r.heard(i)
		if flags&rdcc.FlagUpdateAck != 0 {
			r.acknowledged(i)
			return
		}
		r.Counters.AssocRepeated++
		r.sendAccept(i, 0)
		return
	}
	if flags&rdcc.FlagUpdateAck != 0 { // of an association that is gone: nothing to acknowledge
		r.Counters.UnknownAssociation++
		return
	}
	i = r.newAssociation(b, seq, m)
	if i < 0 {
		r.Counters.AssocRefused++
		r.sendUnbound(from, 0, rdcc.Error{Reason: rdcc.ReasonAssocRefused})
		return
	}
	r.sendAccept(i, 0)
}

// newAssociation makes one, or returns -1 when bounds forbid it: the ones that are there are never evicted for it
// (Security Considerations, decision 24).
func (r *Receiver) newAssociation(b binding, seq uint32, m *rdcc.AssocRequest) int32 {
	if r.live >= r.cfg.MaxAssociations && r.on(rdcc.RuleBoundAssociations) {
		if r.on(rdcc.RuleRefuseNotEvict) {
			return -1
		}
		r.removeAssociation(0)
	}
	addr := b.addr.Addr().Unmap() // a socket of both families gives IPv4 in IPv6 form, a report does not
	if r.peers.count(addr) >= r.cfg.MaxPerAddress && r.on(rdcc.RuleBoundPerAddress) {
		return -1
	}
	id, ok := r.drawID()
	if !ok {
		return -1
	}
	var i int32
	if n := len(r.spare); n > 0 {
		i, r.spare = r.spare[n-1], r.spare[:n-1]
	} else {
		i = int32(len(r.assocs))
		r.assocs = append(r.assocs, association{})
	}
	a := &r.assocs[i]
	queue, spans := a.queue[:0], a.holes.spans[:0]
	*a = association{addr: b.addr, nonce: b.nonce, id: id, place: i, newest: seq, used: true, lastHeard: r.now, queue: queue}
	a.holes.spans = spans
	a.pool = r.cfg.Pool && (m.Capabilities.Has(rdcc.CapPool) || !r.on(rdcc.RulePoolCapability))
	a.lineRate = r.capacity
	if m.LineRate != 0 {
		a.lineRate = min(int64(m.LineRate), r.capacity)
	}
	a.peer = r.peers.join(addr)
	a.update.born = r.now
	r.byID[id], r.byNonce[b] = i, i
	r.live++
	r.params.changed(r)
	r.firstU(a)
	a.flow.Max, a.flow.Min = a.lineRate*1e6, r.rmin*1e6
	r.cfg.Allocator.Start(&a.flow, r.now)
	a.seen.since = r.now
	r.Counters.Associations++
	r.emit(Event{Kind: AssociationMade, Assoc: id, Addr: b.addr})
	r.armAssoc(i)
	return i
}

// drawID draws an Association ID that is neither zero nor in use (decision 21).
func (r *Receiver) drawID() (uint32, bool) {
	for range 64 {
		var b [4]byte
		if _, err := io.ReadFull(r.cfg.Random, b[:]); err != nil {
			return 0, false
		}
		id := binary.BigEndian.Uint32(b[:])
		if _, taken := r.byID[id]; !taken && (id != 0 || !r.on(rdcc.RuleAssocIDNotZero)) {
			return id, true
		}
	}
	return 0, false
}

// heard notes traffic: the association stays (Association Establishment).
func (r *Receiver) heard(i int32) {
	a := &r.assocs[i]
	if gap := r.now - a.lastHeard; gap > r.cfg.MaxTimeout/2 && r.on(rdcc.RuleFreshWhileSilent) {
		a.update.born += gap // it may have been cut off amid its first requests
	}
	if r.on(rdcc.RuleTrafficKeepsAlive) {
		a.lastHeard = r.now
	}
}

// removeAssociation reclaims all credit and forgets.
func (r *Receiver) removeAssociation(i int32) {
	a := &r.assocs[i]
	for a.first != 0 {
		r.freeMessage(a.first - 1)
	}
	for a.qp != 0 {
		r.freeQP(a.qp - 1)
	}
	if r.on(rdcc.RuleIdleReclaims) {
		r.uncharge(a, a.poolCredit.held, 0, &r.Counters.ReclaimedOctets)
	}
	r.setLive(a, -a.live)
	r.unbar(a)
	r.unready(a)
	r.gone(a)
	r.sumU -= a.share
	r.peers.leave(a.peer)
	delete(r.byID, a.id)
	delete(r.byNonce, binding{a.addr, a.nonce})
	r.assocTimers.clear(i)
	a.used = false
	r.spare = append(r.spare, i)
	r.live--
	r.Counters.AssocRemoved++
	r.emit(Event{Kind: AssociationGone, Assoc: a.id, Addr: a.addr})
	r.params.freed(r)
}

// assocDue runs the timers of an association: idle time, a parameter update, the pool's credit.
func (r *Receiver) assocDue(i int32) {
	a := &r.assocs[i]
	if r.now >= a.lastHeard+r.cfg.Idle {
		r.removeAssociation(i)
		return
	}
	r.updateDue(i)
	if a.pool {
		r.creditDue(a, &a.poolCredit, a.poolReceived)
		if r.beginAnew(i) {
			return
		}
		r.unblock(a)
	}
	if a.barredUntil != 0 && r.now >= a.barredUntil {
		r.unbar(a)
		r.unblock(a)
	}
	r.armAssoc(i)
}

// armAssoc sets the timer to what comes first. One that is set earlier stays: it then finds nothing and is set again.
func (r *Receiver) armAssoc(i int32) {
	a := &r.assocs[i]
	at := a.lastHeard + r.cfg.Idle
	if t, ok := a.update.next(); ok {
		at = min(at, t)
	}
	if t, ok := a.poolCredit.next(&a.poolCredit.own); ok {
		at = min(at, t)
	}
	if a.barredUntil != 0 {
		at = min(at, a.barredUntil)
	}
	if set, ok := r.assocTimers.at(i); !ok || at < set {
		r.assocTimers.set(i, at)
	}
}
