package verbs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/endpoint"
)

// Config says how an endpoint's data goes over a NIC.
type Config struct {
	Options

	// Listen is where senders bring their halves of queue pairs, the RDCC port in TCP; invalid: this endpoint only sends.
	Listen netip.AddrPort
	// CreditUnit is the domain's; 0 means the path MTU.
	CreditUnit int64
	// Segment is the length of RDMA messages unless a message says it; 0 means five Credit Units: two fill the pacing window,
	// while two of eight do not fit into it.
	Segment uint64
	// Unscheduled and Class are the domain's code points. A queue pair has one, so that where unscheduled data has another
	// than its class, messages wait for credit.
	Unscheduled *uint8
	Class       [rdcc.MaxClass + 1]*uint8
	Path        Path // TrafficClass is overwritten
}

// Transport carries messages over the NIC. It is an endpoint.Transport.
type Transport struct {
	c   Config
	h   endpoint.Host
	p   *Program
	d   Device
	ctx context.Context
	end context.CancelFunc
	all sync.WaitGroup

	listener net.Listener

	// Of the endpoint's goroutine.
	queues   map[queueKey]*queue
	byQP     map[uint32]*queue
	heard    map[uint32]*arrivals
	incoming map[incomingKey]endpoint.Incoming
	counts   Counters

	mu      sync.Mutex
	reports []Report
	told    bool // the endpoint will fetch them
}

var _ endpoint.Transport = (*Transport)(nil)

// Counters are what a transport has counted.
type Counters struct {
	Segments     uint64 `json:"segments"`      // handed to the program
	Empty        uint64 `json:"empty"`         // RDMA messages without octets, of messages that ended early
	Acked        uint64 `json:"acked"`         // messages' progress reports
	Arrived      uint64 `json:"arrived"`       // octets
	ArrivedRDMA  uint64 `json:"arrived_rdma"`  // RDMA messages
	OutOfOrder   uint64 `json:"out_of_order"`  // immediates that were not the next one: never on a reliable queue pair
	Unannounced  uint64 `json:"unannounced"`   // octets that came before their request
	QueuesFailed uint64 `json:"queues_failed"` // queue pairs
}

type queueKey struct {
	to    netip.AddrPort
	class uint8
}

// New builds and starts the program, and opens the device.
func New(ctx context.Context, c Config) (*Transport, error) {
	t := newTransport(c)
	var err error
	t.p, t.d, err = Start(ctx, c.Options, t.report)
	if err != nil {
		t.end()
		return nil, err
	}
	t.defaults()
	if t.c.Segment > t.d.Region {
		t.p.Close()
		t.end()
		return nil, fmt.Errorf("verbs: segments of %d octets do not fit into the region of %d: a larger region, or shorter segments", t.c.Segment, t.d.Region)
	}
	return t, nil
}

func newTransport(c Config) *Transport {
	t := &Transport{c: c, queues: map[queueKey]*queue{}, byQP: map[uint32]*queue{}, heard: map[uint32]*arrivals{}, incoming: map[incomingKey]endpoint.Incoming{}}
	t.ctx, t.end = context.WithCancel(context.Background())
	return t
}

func (t *Transport) defaults() {
	if t.c.CreditUnit <= 0 {
		t.c.CreditUnit = int64(t.d.MTU)
	}
	if t.c.Segment == 0 {
		t.c.Segment = uint64(5 * t.c.CreditUnit)
	}
}

// Device is the device that was opened.
func (t *Transport) Device() Device { return t.d }

// Pacing says how finely messages are paced (decision 18): "nic" by the NIC, "segment" by the program between segments of
// at most eight Credit Units, "per message" when segments are longer than that.
func (t *Transport) Pacing() string {
	switch {
	case t.d.RateMax > 0:
		return "nic"
	case t.c.Segment <= uint64(8*t.c.CreditUnit):
		return "segment"
	}
	return "per message"
}

// Counters are what was counted; for the endpoint's goroutine.
func (t *Transport) Counters() Counters { return t.counts }

// Kind is RoCEv2.
func (t *Transport) Kind() rdcc.BindingKind { return rdcc.BindingRoCEv2 }

// Open begins to listen.
func (t *Transport) Open(h endpoint.Host) error {
	t.h = h
	t.mu.Lock()
	if len(t.reports) > 0 {
		t.told = h.Do(t.take)
	}
	t.mu.Unlock()
	if !t.c.Listen.IsValid() {
		return nil
	}
	l, err := net.Listen("tcp", t.c.Listen.String())
	if err != nil {
		return fmt.Errorf("verbs: listen for queue pairs: %w", err)
	}
	t.listener = l
	t.all.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				h.Logf("verbs", "accept a queue pair: %v", err)
				continue
			}
			t.all.Go(func() { t.serve(c) })
		}
	})
	return nil
}

// Close ends the program, and with it all queue pairs.
func (t *Transport) Close() error {
	t.end()
	if t.listener != nil {
		t.listener.Close()
	}
	err := t.p.Close()
	for _, q := range t.queues {
		q.conn.Close()
	}
	t.all.Wait()
	return err
}

// Advance has nothing to do: the program has the clock of the pacing.
func (t *Transport) Advance(time.Duration) {}

// Deadline is never.
func (t *Transport) Deadline() (time.Duration, bool) { return 0, false }

// report takes what the program tells to the endpoint's goroutine, all that there is in one call.
func (t *Transport) report(r Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reports = append(t.reports, r)
	if !t.told && t.h != nil {
		t.told = t.h.Do(t.take)
	}
}

func (t *Transport) take(now time.Duration) {
	t.mu.Lock()
	all := t.reports
	t.reports, t.told = nil, false
	t.mu.Unlock()
	for _, r := range all {
		switch r.Kind {
		case Posted:
			if q := t.byQP[r.QP]; q != nil {
				q.posted(r)
			}
		case Acked:
			if q := t.byQP[r.QP]; q != nil {
				t.acked(now, q, r)
			}
		case Arrived:
			t.arrived(now, r)
		case Failed:
			t.h.Logf("verbs", "%v", r.Err)
			if q := t.byQP[r.QP]; q != nil {
				t.fail(now, q, r.Err)
			}
		case Complaint:
			t.h.Logf("verbs", "%v", r.Err)
		case Ended:
			t.h.Logf("verbs", "%v", r.Err)
			for _, q := range t.byQP {
				t.fail(now, q, r.Err)
			}
		}
	}
	for _, q := range t.byQP {
		t.pump(now, q)
	}
}

// fail gives up a queue pair and all messages on it.
func (t *Transport) fail(now time.Duration, q *queue, err error) {
	if q.dead {
		return
	}
	q.dead = true
	t.counts.QueuesFailed++
	t.forget(q)
	for _, s := range slices.Concat(q.sent, q.waiting) {
		if !s.ended {
			t.h.Abort(now, s.m, err)
		}
	}
}

// forget lets the next message to that receiver and class get a new queue pair.
func (t *Transport) forget(q *queue) {
	q.conn.Close() // the peer destroys its half, and this side's goroutine ours
	if t.queues[q.key] == q {
		delete(t.queues, q.key)
	}
	delete(t.byQP, q.own.QP)
}
