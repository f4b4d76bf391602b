package verbs

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/endpoint"
)

// queue is a queue pair to a receiver, for one class. Its messages go one after the other (decision 25).
type queue struct {
	key       queueKey
	own, peer Half
	conn      net.Conn
	dead      bool
	msn       uint32 // of the next message bound

	waiting []*sending // not wholly handed to the program, in order
	sent    []*sending // handed, not yet at their end

	rate    int64 // bit/s that the program was told
	handed  uint64
	away    uint64        // of handed: that it says are posted
	backlog uint64        // octets that the program has not posted, were it to keep the rate exactly
	at      time.Duration // when that was so
}

// sending is a message on a queue.
type sending struct {
	m       *endpoint.Outgoing
	q       *queue
	msn     uint32 // of its first RDMA message
	segment uint64
	count   uint32 // RDMA messages that were promised
	handed  uint64
	away    uint64
	until   time.Duration // the grant lives at least so long
	ended   bool
}

// ahead is how much a NIC that holds the rate is handed before it is due: what cannot be taken back when a lifetime ends. Where
// the sender machine paces, all that is handed over leaves at once.
const ahead = 500 * time.Microsecond

// octetsIn is how many octets leave in a time; timeOf the reverse, rounded up.
func octetsIn(d time.Duration, rate int64) uint64 {
	hi, lo := bits.Mul64(uint64(max(d, 0)), uint64(rate))
	if hi >= 8e9 {
		return 1 << 62
	}
	n, _ := bits.Div64(hi, lo, 8e9)
	return n
}

func timeOf(octets uint64, rate int64) time.Duration {
	hi, lo := bits.Mul64(octets, 8e9)
	if rate <= 0 || hi >= uint64(rate) {
		return time.Hour
	}
	n, rest := bits.Div64(hi, lo, uint64(rate))
	if rest > 0 {
		n++
	}
	return time.Duration(min(n, uint64(time.Hour)))
}

// trafficClass is the code point of a class, if the domain has one, and ECT(0).
func (t *Transport) trafficClass(class uint8) uint8 {
	tc := uint8(2)
	if d := t.c.Class[class]; d != nil {
		tc |= *d << 2
	}
	return tc
}

// marksApart says that unscheduled data has another code point than the class's.
func (t *Transport) marksApart(class uint8) bool {
	return t.c.Unscheduled != nil && (t.c.Class[class] == nil || *t.c.Class[class] != *t.c.Unscheduled)
}

// Connect makes the queue pair to a receiver beforehand, so that Bind needs not wait for it. It is not for the endpoint's
// goroutine.
func (t *Transport) Connect(ctx context.Context, to netip.AddrPort, class uint8) error {
	q, err := t.connect(ctx, to, class)
	if err != nil {
		return err
	}
	if !t.h.Do(func(time.Duration) {
		if t.queues[q.key] != nil { // another was first
			q.conn.Close()
			return
		}
		t.keep(q)
	}) {
		return endpoint.ErrClosed
	}
	return nil
}

func (t *Transport) keep(q *queue) {
	t.queues[q.key] = q
	t.byQP[q.own.QP] = q
	t.all.Go(func() {
		untilClosed(q.conn)
		q.conn.Close()
		t.p.CloseQP(t.ctx, q.own.QP)
		t.h.Do(func(now time.Duration) {
			if t.byQP[q.own.QP] == q {
				t.fail(now, q, fmt.Errorf("verbs: %v: the receiver has closed the queue pair", q.key.to))
			}
		})
	})
}

// connect makes a queue pair and exchanges its halves with the receiver.
func (t *Transport) connect(ctx context.Context, to netip.AddrPort, class uint8) (*queue, error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	fail := func(err error) (*queue, error) {
		return nil, fmt.Errorf("verbs: queue pair to %v: %w", to, err)
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return fail(fmt.Errorf("%w (is a receiving endpoint with --transport verbs there? queue pairs are arranged in TCP, on the RDCC port)", err))
	}
	c.SetDeadline(time.Now().Add(exchangeTimeout))
	own, err := t.p.Make(ctx, t.d)
	if err != nil {
		c.Close()
		return fail(err)
	}
	give := func(err error) (*queue, error) {
		c.Close()
		t.p.CloseQP(t.ctx, own.QP)
		return fail(err)
	}
	var w welcome
	if err := errors.Join(say(c, greeting{exchangeSchema, class, own}), hear(c, &w)); err != nil {
		return give(err)
	}
	if w.Error != "" || w.Half == nil {
		return give(errors.New("it says: " + w.Error))
	}
	if err := w.Half.check(); err != nil {
		return give(fmt.Errorf("it says: %w", err))
	}
	path := t.c.Path
	path.TrafficClass = t.trafficClass(class)
	if err := t.p.Connect(ctx, own, *w.Half, path); err != nil {
		return give(err)
	}
	return &queue{key: queueKey{to, class}, own: own, peer: *w.Half, conn: c, msn: 1}, nil
}

// Bind gives a message its place on the queue pair: the numbers of its RDMA messages are promised here.
func (t *Transport) Bind(now time.Duration, m *endpoint.Outgoing) (uint64, error) {
	if m.Data != nil {
		return 0, errors.New("verbs: the transport verbs carries octets without content, as ib_write_bw does: leave the file out, or take the transport udp")
	}
	if m.Class > rdcc.MaxClass {
		return 0, fmt.Errorf("verbs: class %d is above %d", m.Class, rdcc.MaxClass)
	}
	key := queueKey{m.To, m.Class}
	q := t.queues[key]
	if q == nil {
		var err error
		if q, err = t.connect(t.ctx, m.To, m.Class); err != nil {
			return 0, err
		}
		t.keep(q)
	}
	s := &sending{m: m, q: q, msn: q.msn, segment: m.Segment}
	if s.segment == 0 {
		s.segment = t.c.Segment
	}
	if most := min(t.d.Region, q.peer.Region); s.segment > most {
		return 0, fmt.Errorf("verbs: segments of %d octets do not fit into the region of %d", s.segment, most)
	}
	count := (m.Length + s.segment - 1) / s.segment
	if count > 0xffff {
		return 0, fmt.Errorf("verbs: %d octets in segments of %d are %d RDMA messages, and a Binding Value has room for 65535: segments of at least %d octets",
			m.Length, s.segment, count, (m.Length+0xfffe)/0xffff)
	}
	s.count = uint32(count)
	if len(q.waiting) > 0 {
		// Credit for a message that waits behind another on the queue pair is of no use yet, so it must not come first.
		m.Weight, m.Deadline = q.waiting[0].m.Weight, q.waiting[0].m.Deadline
	}
	q.msn = (q.msn + s.count) & 0xffffff
	q.waiting = append(q.waiting, s)
	m.Segment, m.SelfPaced, m.State = s.segment, t.d.RateMax > 0, s
	m.Scheduled = m.Scheduled || t.marksApart(m.Class)
	return rdcc.RoCEBinding{DestQP: q.peer.QP, MSN: s.msn, Messages: uint16(s.count)}.Value(), nil
}

// Allowed hands over what may go.
func (t *Transport) Allowed(now time.Duration, m *endpoint.Outgoing) {
	if s, ok := m.State.(*sending); ok {
		t.pump(now, s.q)
	}
}

// Stopped hands over no more, since the machine allows no more. What the program has is with the NIC, as far as the machine
// is concerned, and little (ahead).
func (t *Transport) Stopped(now time.Duration, m *endpoint.Outgoing) {
	if s, ok := m.State.(*sending); ok {
		s.until = 0
	}
}

// Ended forgets a message. RDMA messages that were promised and not posted go empty, so that the numbers of those behind hold.
func (t *Transport) Ended(now time.Duration, m *endpoint.Outgoing, err error) {
	s, ok := m.State.(*sending)
	if !ok {
		return
	}
	m.State = nil
	s.ended = true
	q := s.q
	q.away += s.handed - s.away // reports of it find it no more
	s.away = s.handed
	q.sent = slices.DeleteFunc(q.sent, func(x *sending) bool { return x == s })
	t.pump(now, q)
}

// pump hands the program what the first message in order may send, and then the next one's.
func (t *Transport) pump(now time.Duration, q *queue) {
	for len(q.waiting) > 0 && !q.dead {
		s := q.waiting[0]
		if s.ended {
			t.abandon(q, s)
		} else if !t.hand(now, q, s) {
			return
		}
		q.waiting = q.waiting[1:]
		if !s.ended {
			q.sent = append(q.sent, s)
		}
	}
}

// abandon posts what is left of a message as empty RDMA messages.
func (t *Transport) abandon(q *queue, s *sending) {
	done := uint32((s.handed + s.segment - 1) / s.segment)
	if done < s.count {
		t.counts.Empty += uint64(s.count - done)
		t.p.Post(Range{QP: q.own.QP, Message: s.m.ID, From: s.handed, UpTo: s.handed, Segment: uint32(s.segment), Immediate: s.msn + done, Empty: s.count - done})
	}
}

// hand hands over segments of a message; true when it has them all.
func (t *Transport) hand(now time.Duration, q *queue, s *sending) bool {
	upTo, rate := t.h.Allowance(now, s.m)
	if upTo <= s.handed || rate <= 0 {
		return false
	}
	if s.m.SelfPaced && !t.pace(now, q, s, upTo, rate) {
		return false
	}
	from := s.handed
	for s.handed < s.m.Length {
		end := min(s.handed+s.segment, s.m.Length)
		if end > upTo || s.m.SelfPaced && !t.inTime(now, q, s, end) {
			break
		}
		q.backlog += end - s.handed
		q.handed += end - s.handed
		s.handed = end
		t.counts.Segments++
	}
	if s.handed == from {
		return false
	}
	r := Range{QP: q.own.QP, Message: s.m.ID, From: from, UpTo: s.handed, Segment: uint32(s.segment), Immediate: s.msn + uint32(from/s.segment)}
	if t.p.Post(r) != nil {
		return false // its end is reported
	}
	t.h.Transmitted(now, s.m, s.handed)
	return s.handed == s.m.Length
}

// pace tells the NIC's rate, and what is known of the grant's lifetime.
func (t *Transport) pace(now time.Duration, q *queue, s *sending, upTo uint64, rate int64) bool {
	if q.rate != rate && t.p.Pace(q.own.QP, uint32(min(10*t.c.CreditUnit, 1<<30)), rate) != nil {
		return false // its end is reported
	}
	q.backlog -= min(q.backlog, octetsIn(now-q.at, q.rate))
	q.at, q.rate = now, rate
	// The machine allows what leaves before the grant's lifetime ends, were nothing in front of it: so it lives so long at least.
	s.until = max(s.until, now+timeOf(upTo-s.handed, rate))
	return true
}

// inTime says whether a segment leaves the NIC before the grant's lifetime ends, behind all that the NIC has, and whether that
// is little enough; otherwise it is for later.
func (t *Transport) inTime(now time.Duration, q *queue, s *sending, end uint64) bool {
	before := max(q.backlog, q.handed-q.away)
	gone := now + timeOf(before+end-s.handed, q.rate)
	if before == 0 || gone <= s.until && (before <= octetsIn(ahead, q.rate) || before <= 2*s.segment) {
		return true
	}
	t.h.Again(s.m, now+max(timeOf(before, q.rate)/2, 20*time.Microsecond))
	return false
}

// posted notes how far the program is.
func (q *queue) posted(r Report) {
	if s := q.find(r.Message); s != nil && r.UpTo > s.away {
		q.away += r.UpTo - s.away
		s.away = r.UpTo
	}
}

func (q *queue) find(id uint64) *sending {
	for _, list := range [2][]*sending{q.sent, q.waiting} {
		for _, s := range list {
			if s.m.ID == id {
				return s
			}
		}
	}
	return nil
}

func (t *Transport) acked(now time.Duration, q *queue, r Report) {
	t.counts.Acked++
	if s := q.find(r.Message); s != nil && r.RTT > 0 && !s.ended {
		t.h.RTTSample(now, s.m, r.RTT)
	}
}
