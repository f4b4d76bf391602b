package sender

import (
	"math"
	"math/bits"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// backlog is what the sender holds of all its receivers' credit (Sender Backlog Indication and Suggested Rates).
type backlog struct {
	threshold uint64 // the smallest of the receivers' N_cu and the local one
	least     uint64 // the smallest of the receivers'
	leastOf   *assoc // whose that is
	held      uint64 // octets of credit held and not used, over all associations
	holders   []*assoc
	over      bool     // held was above the threshold when that was last looked at
	rate      int64    // bit/s that this host has for all receivers
	shares    uint64   // sum over the associations
	telling   []*assoc // those that are owed a last SENDER_STATUS
}

const noThreshold = math.MaxUint64

// SetRate says what the host can transmit now to all its receivers together, in bit/s; at first that is the line rate.
func (x *Machine) SetRate(now time.Duration, bps int64) {
	x.clock(now)
	x.backlog.rate = min(max(bps, 0), x.c.LineRate)
}

// thresholds finds the Backlog Threshold anew. An association that is there and says no more than the others cannot change
// it, which spares looking at all of them for each that is established.
func (x *Machine) thresholds(a *assoc) {
	b := &x.backlog
	counts := a.state == assocOpen
	switch {
	case counts && a.ncu <= b.least && x.on(rdcc.RuleThresholdSmallest):
		b.least, b.leastOf = a.ncu, a
	case b.leastOf == a || !x.on(rdcc.RuleThresholdSmallest):
		b.least, b.leastOf = noThreshold, nil
		for _, s := range x.slots {
			if s.a == nil || s.a.state != assocOpen {
				continue
			}
			if b.leastOf == nil || (s.a.ncu < b.least) == x.on(rdcc.RuleThresholdSmallest) {
				b.least, b.leastOf = s.a.ncu, s.a
			}
		}
	}
	b.threshold = b.least
	if local := x.c.BacklogThreshold; local > 0 && x.on(rdcc.RuleThresholdLocal) {
		b.threshold = min(b.threshold, local)
	}
}

// recount brings the association's held credit up to a message's.
func (x *Machine) recount(m *message) {
	n := uint64(0)
	if m.a.kind != grantsPool {
		n = m.limit - min(m.limit, m.transmitted)
	}
	if n != m.counted {
		held := m.a.held + n - m.counted
		m.counted = n
		x.hold(m.a, held)
	}
}

// hold notes how much credit an association holds.
func (x *Machine) hold(a *assoc, n uint64) {
	b := &x.backlog
	b.held += n - a.held
	a.held = n
	switch {
	case n > 0 && a.holding == 0:
		b.holders = append(b.holders, a)
		a.holding = len(b.holders)
		if b.over {
			x.tell(a)
		}
	case n == 0 && a.holding != 0:
		last := b.holders[len(b.holders)-1]
		b.holders[a.holding-1], last.holding = last, a.holding
		b.holders[len(b.holders)-1] = nil
		b.holders = b.holders[:len(b.holders)-1]
		a.holding = 0
	}
}

// settle looks whether the backlog has crossed its threshold; each call from outside ends with it.
func (x *Machine) settle() {
	b := &x.backlog
	over := b.held > b.threshold && x.on(rdcc.RuleStatusAbove)
	if over == b.over {
		return
	}
	b.over = over
	if over {
		for _, a := range b.holders {
			x.tell(a)
		}
		return
	}
	for i, a := range b.telling {
		b.telling[i] = nil
		x.untell(a)
	}
	b.telling = b.telling[:0]
}

// tell begins to send SENDER_STATUS: at once, but not sooner than one round trip after the last.
func (x *Machine) tell(a *assoc) {
	if a.state != assocOpen || a.statusAt != never || !a.caps.Has(rdcc.CapStatus) && x.on(rdcc.RuleStatusCapability) {
		return
	}
	if a.statusOf > 0 && x.now < a.statusOf+x.interval(a) {
		a.statusAt = a.statusOf + x.interval(a)
		x.armAssoc(a)
		return
	}
	x.status(a)
}

// statusDue repeats SENDER_STATUS once per round trip while the association holds credit and the backlog lasts.
func (x *Machine) statusDue(a *assoc) {
	a.statusAt = never
	if x.backlog.over && a.held > 0 && a.state == assocOpen {
		x.status(a)
	}
}

func (x *Machine) status(a *assoc) {
	b := &x.backlog
	if !a.statusOn {
		a.statusOn = true
		b.telling = append(b.telling, a)
	}
	a.statusOf = x.now
	if x.on(rdcc.RuleStatusRepeated) {
		a.statusAt = x.now + x.interval(a)
	}
	x.armAssoc(a)
	if a.statusOut {
		return
	}
	a.statusOut = true
	above := b.held - min(b.held, b.threshold)
	level := uint64(math.MaxUint8)
	if above < b.threshold {
		hi, lo := bits.Mul64(above, math.MaxUint8)
		level, _ = bits.Div64(hi, lo, b.threshold)
	}
	x.out.push(item{
		kind: outStatus, a: a, value: a.held, level: uint8(max(level, 1)), hint: a.dominant(), rate: x.suggested(a),
	})
}

// untell sends the last SENDER_STATUS, with level zero.
func (x *Machine) untell(a *assoc) {
	a.statusAt = never
	x.armAssoc(a)
	a.statusOn = false
	if a.state != assocOpen || !x.on(rdcc.RuleStatusFinal) {
		return
	}
	a.statusOf = x.now
	x.out.push(item{kind: outStatus, a: a, value: a.held, hint: a.dominant()})
}

// suggested is the host's rate times the receiver's share; the shares sum to one.
func (x *Machine) suggested(a *assoc) rdcc.Mbps {
	if a.share == 0 || x.backlog.shares == 0 {
		return 0 // nothing waits for this receiver's credit
	}
	if !x.on(rdcc.RuleSharesSum) {
		return rdcc.MbpsOf(x.backlog.rate)
	}
	hi, lo := bits.Mul64(uint64(x.backlog.rate), a.share)
	rate, _ := bits.Div64(hi, lo, x.backlog.shares)
	return rdcc.MbpsOf(int64(rate))
}

// pend keeps count of the messages that have octets to transmit, and with them the association's share.
func (x *Machine) pend(m *message, n int) {
	a := m.a
	a.hints[hintOf(m.Hint)] += n
	share := uint64(0)
	for h, k := range a.hints {
		if k > 0 {
			share = max(share, uint64(x.c.Shares[h]))
		}
	}
	if !x.on(rdcc.RuleSharesHints) && share > 0 {
		share = 1
	}
	x.backlog.shares += share - a.share
	a.share = share
}

// hintOf takes unknown hints for none.
func hintOf(h rdcc.Hint) rdcc.Hint {
	if h.Defined() {
		return h
	}
	return rdcc.HintNone
}

// dominant is the hint of most of the pending messages, the more urgent of equals.
func (a *assoc) dominant() rdcc.Hint {
	best := rdcc.HintNone
	for _, h := range [...]rdcc.Hint{rdcc.HintLatencySensitive, rdcc.HintThroughputOriented} {
		if a.hints[h] > a.hints[best] || h == rdcc.HintLatencySensitive && a.hints[h] > 0 && a.hints[h] == a.hints[best] {
			best = h
		}
	}
	return best
}
