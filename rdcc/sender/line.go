package sender

import "github.com/pcmlab/pcmlab/rdcc"

// line is the messages of a queue pair. They are processed in their order (Transport Bindings), so that pool credit is for the first
// that has not all it needs: it is divided between queue pairs, not within one (decision 25).
type line struct {
	qp   uint32
	last *message
}

func (m *message) qp() uint32 { return uint32(m.BindingValue >> 40) }

// lineUp puts a new message behind the others of its queue pair.
func (a *assoc) lineUp(m *message) {
	if m.Binding != rdcc.BindingRoCEv2 {
		return
	}
	for i := range a.lines {
		if l := &a.lines[i]; l.qp == m.qp() {
			m.ahead, l.last.behind = l.last, m
			l.last = m
			return
		}
	}
	a.lines = append(a.lines, line{m.qp(), m})
}

// stepOut takes out a message that is at its end.
func (a *assoc) stepOut(m *message) {
	if m.Binding != rdcc.BindingRoCEv2 {
		return
	}
	if m.ahead != nil {
		m.ahead.behind = m.behind
	}
	if m.behind != nil {
		m.behind.ahead = m.ahead
		return
	}
	for i := range a.lines {
		if l := &a.lines[i]; l.last == m {
			if l.last = m.ahead; l.last == nil {
				n := len(a.lines) - 1
				a.lines[i] = a.lines[n]
				a.lines[n] = line{}
				a.lines = a.lines[:n]
			}
			return
		}
	}
}

// waitsInLine says that one in front of the message needs credit still.
func (m *message) waitsInLine() bool {
	o := m.ahead
	return o != nil && o.limit < o.Length && o.state != StateUnsched
}

// inFront takes back the place of those behind a message that wants credit again.
func (x *Machine) inFront(m *message) {
	for b := m.behind; b != nil; b = b.behind {
		if b.wanting {
			m.a.pool.want[x.classOf(b)].remove(b, wants)
			b.wanting = false
		}
	}
}

// nextInLine lets the one behind a message that has all it needs take part in the division, with what is left of the round.
func (x *Machine) nextInLine(m *message) {
	b, p := m.behind, &m.a.pool
	if b == nil || !x.enlist(b) {
		return
	}
	c := x.classOf(b)
	if b.deficit = min(m.deficit, int64(x.quantum(b))); b.deficit > 0 && x.classOf(m) == c {
		p.want[c].remove(b, wants)
		p.want[c].pushFront(b, wants)
	}
	if need := b.Length - b.limit; p.free() < need && x.on(rdcc.RulePoolClasses) {
		x.takeBack(m.a, c, need-p.free())
	}
}
