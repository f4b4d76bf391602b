package gate

import (
	"fmt"
	"time"

	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/rdcc"
)

// ledger judges the traffic by what is on the wire alone: grants as they arrive, data packets as they leave. It knows nothing
// of the gate.
type ledger struct {
	w        *world
	bindings map[bindingKey]*entry
	byID     map[idKey]*entry
	pools    map[assocKey]*poolEntry
	qps      map[qpKey]*stream
	checked  int // packets
	faults   []string
}

type (
	assocKey struct {
		from, to int // data's sender and receiver
		assoc    uint32
	}
	idKey struct {
		assocKey
		id uint64
	}
	qpKey struct {
		from, to int
		qpn      uint32
	}
	bindingKey struct {
		qpKey
		msn uint32
	}
	entry struct {
		key         assocKey
		unscheduled uint64
		limit       uint64
		until       time.Duration
	}
	poolEntry struct {
		limit, used uint64
		until       time.Duration
	}
	stream struct {
		next   uint32 // PSN that was never sent
		msn    uint32
		offset uint64
	}
)

func newLedger(w *world) *ledger {
	l := &ledger{w: w, bindings: map[bindingKey]*entry{}, byID: map[idKey]*entry{}, pools: map[assocKey]*poolEntry{}, qps: map[qpKey]*stream{}}
	w.tap, w.deliver = l.leaves, l.arrives
	return l
}

func (l *ledger) fault(format string, args ...any) {
	if len(l.faults) < 5 {
		l.faults = append(l.faults, fmt.Sprintf("%v: ", l.w.now)+fmt.Sprintf(format, args...))
	}
}

// arrives takes a datagram that reaches a host.
func (l *ledger) arrives(d *wire) {
	var m rdcc.Datagram
	if !d.control || m.Decode(d.data) != nil || m.Type != rdcc.TypeCreditGrant && m.Type != rdcc.TypeAssocAccept {
		return
	}
	k := assocKey{d.to, d.from, m.Assoc}
	if m.Type == rdcc.TypeAssocAccept {
		for _, e := range l.bindings { // of another incarnation: the credit is gone
			if e.key.from == k.from && e.key.to == k.to && e.key.assoc != k.assoc {
				e.limit = 0
			}
		}
		return
	}
	g := &m.CreditGrant
	if m.Flags&rdcc.FlagPool != 0 {
		p := l.pools[k]
		if p == nil {
			p = &poolEntry{}
			l.pools[k] = p
		}
		p.limit, p.until = max(p.limit, g.GrantLimit), l.w.now+g.Lifetime.Duration()
		return
	}
	if e := l.byID[idKey{k, g.MessageID}]; e != nil {
		e.limit, e.until = max(e.limit, g.GrantLimit), l.w.now+g.Lifetime.Duration()
	}
}

// leaves takes a datagram that a host sends.
func (l *ledger) leaves(d *wire) {
	if d.control {
		var m rdcc.Datagram
		if m.Decode(d.data) == nil && m.Type == rdcc.TypeCreditRequest {
			b := rdcc.RoCEBindingOf(m.CreditRequest.BindingValue)
			k := assocKey{d.from, d.to, m.Assoc}
			bk := bindingKey{qpKey{d.from, d.to, b.DestQP}, b.MSN}
			e := l.bindings[bk]
			if e == nil {
				e = &entry{}
				l.bindings[bk] = e
			}
			e.key, e.unscheduled = k, m.CreditRequest.UnscheduledSent
			l.byID[idKey{k, m.CreditRequest.MessageID}] = e
		}
		return
	}
	bth, used, err := roce.ParseBTH(d.data)
	if err != nil || !bth.Opcode.IsRequest() {
		return
	}
	k := qpKey{d.from, d.to, bth.DestQP}
	s := l.qps[k]
	if s == nil {
		s = &stream{next: bth.PSN}
		l.qps[k] = s
	}
	if roce.PSNDiff(bth.PSN, s.next) < 0 {
		return // sent before: within the credit
	}
	s.next = roce.PSNAdd(bth.PSN, 1)
	if bth.Opcode.IsFirst() {
		s.msn++
		s.offset = 0
	}
	octets := uint64(len(d.data) - used - bth.Opcode.HeaderLen() - int(bth.Pad) - roce.ICRCLen)
	s.offset += octets
	l.checked++
	e := l.bindings[bindingKey{k, s.msn}]
	if e == nil {
		if octets > 0 {
			l.fault("message %d of queue pair 0x%x: octets up to %d, and no request", s.msn, k.qpn, s.offset)
		}
		return
	}
	p := l.pools[e.key]
	switch {
	case s.offset <= e.unscheduled:
	case p != nil:
		if p.used += octets; p.used > p.limit || l.w.now > p.until {
			l.fault("pool of %v: octets up to %d, credit up to %d until %v", e.key, p.used, p.limit, p.until)
		}
	case s.offset > e.limit || l.w.now > e.until:
		l.fault("message %d of queue pair 0x%x: octets up to %d, credit up to %d until %v, unscheduled %d", s.msn, k.qpn, s.offset, e.limit, e.until, e.unscheduled)
	}
}

// check fails the test when a packet had no credit, or no packet was looked at.
func (l *ledger) check() {
	l.w.t.Helper()
	for _, f := range l.faults {
		l.w.t.Error(f)
	}
	if l.checked == 0 {
		l.w.t.Error("no data packet left")
	}
}
