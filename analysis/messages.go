package analysis

import (
	"math"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// pendingAck is a request that asked to be acknowledged.
type pendingAck struct {
	psn  int64 // unwrapped; its complement when the request was sent again: nobody knows which copy is answered (Karn)
	atNS int64
}

func (p *pendingAck) ext() int64 {
	if p.psn < 0 {
		return ^p.psn
	}
	return p.psn
}

func (p *pendingAck) resent() bool { return p.psn < 0 }

// message is one whose completion is awaited.
type message struct {
	first int64 // unwrapped PSN; of a headless one, its end
	atNS  int64 // when its first packet was first seen
	// span is from then to the first sight of its last packet, in ns; below 0 when that came first. It is read only where no
	// acknowledgements are, and its error of 1 in 10 million is none.
	span   float32
	length int32 // PSNs from first to last, times 8, and the kind; below 0 until the last was seen
}

type msgKind uint8

const (
	msgWrite msgKind = iota
	msgSend
	msgRead
	msgAtomic
	msgKinds
	msgHeadless msgKind = 7 // only its end was seen
)

func newMessage(first, ts int64, kind msgKind) message {
	return message{first: first, atNS: ts, length: math.MinInt32 | int32(kind)}
}

func (m *message) kind() msgKind { return msgKind(m.length & 7) }

// ended reports that its last packet was seen.
func (m *message) ended() bool { return m.length >= 0 }

// last is the PSN of its last packet, -1 until that was seen.
func (m *message) last() int64 {
	if m.length < 0 {
		return -1
	}
	return m.first + int64(m.length>>3)
}

func (m *message) lastNS() int64 { return m.atNS + int64(m.span) }

func (m *message) end(ext, ts int64) {
	m.length = int32(ext-m.first)<<3 | int32(m.kind())
	m.span = float32(ts - m.atNS)
}

func (m *message) open() { m.length = math.MinInt32 | int32(m.kind()) }

func kindOf(op roce.Opcode) msgKind {
	switch {
	case op.IsWrite():
		return msgWrite
	case op.IsReadRequest():
		return msgRead
	case op.IsAtomic():
		return msgAtomic
	}
	return msgSend
}

// Bounds on what is awaited per direction. Without any acknowledgement the tap probably does not see them.
const (
	waitBlind = 256
	waitAcks  = 4096
)

func (d *direction) waitLimit() int {
	if d.peer != nil || d.srcQP != 0 {
		return waitAcks
	}
	return waitBlind
}

// markResent takes a repeated request out of the round-trip times.
func (t *sender) markResent(ext int64) {
	for i := t.pending.len() - 1; i >= 0; i-- {
		p := t.pending.at(i)
		at := p.ext()
		if at == ext {
			p.psn = ^ext
		}
		if at <= ext {
			return
		}
	}
}

// isPending reports that ext asked for an acknowledgement and has none.
func (t *sender) isPending(ext int64) bool {
	lo, hi := 0, t.pending.len()
	n := hi
	for lo < hi {
		if mid := (lo + hi) / 2; t.pending.at(mid).ext() < ext {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo < n && t.pending.at(lo).ext() == ext
}

// begin notes the first packet of a message at ext.
func (l *lane) begin(d *direction, ext, ts int64, op msgKind) {
	q := d.tx.messages
	m := newMessage(ext, ts, op)
	i := q.len()
	for i > 0 && q.at(i-1).first > ext {
		i--
	}
	if q.len() >= d.waitLimit() { // nobody acknowledges: the oldest is as complete as it gets
		d.tx.outlast()
		i--
	}
	if i >= 0 && i < q.len() {
		if next := q.at(i); next.kind() == msgHeadless { // that end is this message's
			m.end(next.last(), next.lastNS())
			*next = m
			return
		}
	}
	if i > 0 {
		before := q.at(i - 1)
		if before.first == ext && before.kind() != msgHeadless {
			return
		}
		if before.first == ext { // a message of one packet, seen before as an end
			m.end(ext, before.lastNS())
			*before = m
			return
		}
		if last := before.last(); last >= ext { // that end is this message's: the one before lost its own
			m.end(last, before.lastNS())
			before.open()
		}
	}
	l.messages.insert(&d.tx.messages, max(i, 0), m, d.waitLimit())
}

// ends notes the last packet of a message at ext, also when it is seen again: a message ends at the first end at or
// after its beginning, however late either is seen.
func (l *lane) ends(d *direction, ext, ts int64) {
	q := d.tx.messages
	i := q.len()
	for i > 0 && q.at(i-1).first > ext {
		i--
	}
	if i > 0 {
		switch m := q.at(i - 1); {
		case m.kind() == msgHeadless && m.first == ext:
			return
		case m.kind() == msgRead:
		case ext == m.last():
			if m.span < 0 { // seen before its beginning, and now again
				m.end(ext, ts)
			}
			return
		case m.kind() == msgHeadless || m.ended() && ext > m.last(): // another one's, whose beginning is missing
		case !m.ended():
			m.end(ext, ts)
			return
		default: // it took the end of another one
			later, at := m.last(), m.lastNS()
			m.end(ext, ts)
			ext, ts = later, at
		}
	}
	if ext > d.tx.ackedTo && q.len() < d.waitLimit() {
		m := newMessage(ext, ts, msgHeadless)
		m.end(ext, ts)
		l.messages.insert(&d.tx.messages, i, m, d.waitLimit())
	}
}

// outlast drops the oldest message that no acknowledgement completed and takes its time to its last packet.
func (t *sender) outlast() {
	if m := t.messages.at(0); m.kind() < msgKinds && m.kind() != msgRead && m.ended() && m.span >= 0 {
		t.samples.add(sampleLast+sampleKind(m.kind()), int64(m.span))
	}
	t.messages.pop()
}

// ackTo takes a cumulative acknowledgement of all requests up to ext. A sample of the round trip is taken only from a
// positive one.
func (l *lane) ackTo(t *sender, ext, ts int64, positive bool) {
	if ext > t.ackedTo {
		t.ackedTo = ext
		t.resendsNoAck = 0
	}
	for t.pending.len() > 0 {
		p := t.pending.at(0)
		if p.ext() > ext {
			break
		}
		if positive && !p.resent() {
			t.samples.add(sampleRTT, ts-p.atNS)
		}
		t.pending.pop()
	}
	l.pending.release(&t.pending)
	for t.messages.len() > 0 {
		m := t.messages.at(0)
		if m.first > ext || m.last() > ext {
			break
		}
		if !m.ended() && (t.messages.len() == 1 || t.messages.at(1).first > ext+1) {
			break // its end was not seen, and may lie beyond what is acknowledged
		}
		if k := m.kind(); k < msgKinds && k != msgRead && m.ended() {
			t.samples.add(sampleAcked+sampleKind(k), ts-m.atNS)
		}
		t.messages.pop()
	}
	l.messages.release(&t.messages)
}

// readDone takes the last READ response, at ext, seen on r for the request that t sent.
func (l *lane) readDone(t, r *sender, ext, ts int64) {
	t.ackedTo = max(t.ackedTo, ext)
	for t.messages.len() > 0 {
		m := t.messages.at(0)
		if m.first > ext {
			break
		}
		last := t.messages.len() == 1 || t.messages.at(1).first > ext
		if last && m.kind() == msgRead {
			r.samples.add(sampleAcked+sampleKind(msgRead), ts-m.atNS)
		}
		t.messages.pop()
		if last {
			break
		}
	}
	l.messages.release(&t.messages)
}
