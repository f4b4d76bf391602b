package endpoint

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/domain"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
	"github.com/pcmlab/pcmlab/rdcc/sender"
	"github.com/pcmlab/pcmlab/rdcc/udp"
)

// Options set an endpoint up.
type Options struct {
	Domain domain.Config
	Fabric receiver.Fabric // what is known of the path; Domain wins

	// Listen is the address of the RDCC port; :: and none mean all addresses of both families, 0.0.0.0 all of IPv4.
	Listen netip.Addr
	// AnyPort takes a free port instead of the domain's: for a sender beside an endpoint on one host. Reports of nodes,
	// which go to the domain's port, do not reach it.
	AnyPort bool

	NoSender, NoReceiver bool
	Transports           []Transport

	// Accept is asked for a sink for each message of a transport that has octets to give (Host.Sink). Nil discards them.
	Accept func(Incoming) (Sink, error)
	// Arrived is told when a message has arrived whole, or will not (err).
	Arrived func(in Incoming, err error)

	// Spin is how near a deadline is waited for awake; zero means 50 µs, negative never.
	Spin time.Duration
	// Busy is how long to look for datagrams after the last before sleeping; zero means not at all. It costs a core.
	Busy time.Duration
	Log  *slog.Logger // nil discards
}

// Errors of messages.
var (
	// ErrWithout says that the receiver does not answer, or not as one with RDCC.
	ErrWithout = errors.New("the receiver does not speak RDCC, or is not there")
	ErrRefused = errors.New("the receiver refuses the association")
	ErrGaveUp  = errors.New("no progress for too long, given up")
	ErrClosed  = errors.New("the endpoint has ended")
	// ErrCancelled is a message that its own application has given up.
	ErrCancelled = errors.New("cancelled")
)

// AbortedError is a message that the other side ended.
type AbortedError struct{ Reason rdcc.Reason }

func (e *AbortedError) Error() string {
	return fmt.Sprintf("the receiver ended the message: %s", e.Reason)
}

// Endpoint is a host's RDCC. Make one with New, and Run it.
type Endpoint struct {
	o        Options
	log      *limiter
	socket   *udp.Socket
	waiter   *udp.Waiter
	start    time.Time
	sender   *sender.Machine
	receiver *receiver.Receiver

	transports []Transport
	watched    []Descriptive
	outgoing   map[uint64]*Outgoing
	incoming   map[incomingKey]Incoming
	peers      map[uint32]netip.AddrPort // of associations at this receiver
	again      againHeap
	locals     map[netip.AddrPort]netip.Addr // to which peers wrote, where this host has several addresses
	asked      netip.AddrPort                // whose datagram is being processed, and where it came to
	askedAt    netip.Addr

	mu      sync.Mutex
	queue   []func(time.Duration)
	ended   bool
	done    chan struct{}
	closing bool // on the loop: the machines are told goodbye

	stats Stats
}

// Stats count what the endpoint itself does.
type Stats struct {
	Rounds      uint64 `json:"rounds"`      // of the loop
	Waits       uint64 `json:"waits"`       // of them that slept
	Datagrams   uint64 `json:"datagrams"`   // RDCC, received
	Sent        uint64 `json:"sent"`        // RDCC
	Unknown     uint64 `json:"unknown"`     // received, and for neither machine
	Misbehaving uint64 `json:"misbehaving"` // events of senders that do not obey
	Untold      uint64 `json:"untold"`      // lines that were not logged, to bound the log
}

type incomingKey struct {
	assoc   uint32
	message uint64
}

// New opens the RDCC port and the transports. It starts nothing that needs Run.
func New(o Options) (*Endpoint, error) {
	if err := o.Domain.Validate(); err != nil {
		return nil, err
	}
	if o.Domain.Off {
		return nil, errors.New("rdcc: off: there is nothing to run")
	}
	if o.Spin == 0 {
		o.Spin = 50 * time.Microsecond
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	e := &Endpoint{
		o: o, start: time.Now(), outgoing: map[uint64]*Outgoing{}, incoming: map[incomingKey]Incoming{}, locals: map[netip.AddrPort]netip.Addr{}, peers: map[uint32]netip.AddrPort{},
		done: make(chan struct{}), transports: o.Transports,
	}
	e.log = newLimiter(o.Log, &e.stats.Untold)
	var err error
	if !o.NoSender {
		if e.sender, err = sender.New(o.Domain.Sender(o.Fabric)); err != nil {
			return nil, err
		}
	}
	if !o.NoReceiver {
		c := o.Domain.Receiver(o.Fabric)
		for _, t := range o.Transports {
			c.Bindings = append(c.Bindings, t.Kind())
		}
		if e.receiver, err = receiver.New(c); err != nil {
			return nil, err
		}
	}
	if err := e.open(); err != nil {
		return nil, err
	}
	return e, nil
}

func (e *Endpoint) open() (err error) {
	listen := e.o.Listen
	if !listen.IsValid() {
		listen = netip.IPv6Unspecified()
	}
	port := e.o.Domain.Port
	if e.o.AnyPort {
		port = 0
	}
	tos := uint8(0)
	if d := e.o.Domain.DSCP.Control; d != nil {
		tos = *d << 2
	}
	e.socket, err = udp.Open(udp.Options{Addr: netip.AddrPortFrom(listen, port), TOS: tos, Size: 512})
	if err != nil && !e.o.Listen.IsValid() { // a host without IPv6
		e.socket, err = udp.Open(udp.Options{Addr: netip.AddrPortFrom(netip.IPv4Unspecified(), port), TOS: tos, Size: 512})
	}
	if err != nil {
		return fmt.Errorf("rdcc: UDP port %d of %v: %w", port, listen, err)
	}
	sockets := []*udp.Socket{e.socket}
	for i, t := range e.transports {
		if err := t.Open(host{e}); err != nil {
			for _, opened := range e.transports[:i] {
				opened.Close()
			}
			e.socket.Close()
			return err
		}
		if d, ok := t.(Descriptive); ok {
			e.watched = append(e.watched, d)
			sockets = append(sockets, d.Sockets()...)
		}
	}
	if e.waiter, err = udp.NewWaiter(sockets...); err != nil {
		e.closeSockets()
	}
	return err
}

func (e *Endpoint) closeSockets() {
	for _, t := range e.transports {
		t.Close()
	}
	e.socket.Close()
}

// Addr is where the RDCC port listens.
func (e *Endpoint) Addr() netip.AddrPort { return e.socket.Addr() }

// Close frees what New has opened. It is for an endpoint that was never Run.
func (e *Endpoint) Close() {
	e.mu.Lock()
	ended := e.ended
	e.ended = true
	e.mu.Unlock()
	if !ended {
		e.closeSockets()
		e.waiter.Close()
		close(e.done)
	}
}

func (e *Endpoint) now() time.Duration { return time.Since(e.start) }

// Do runs f on the endpoint's goroutine and does not wait for it. False: the endpoint has ended, and f will not run.
func (e *Endpoint) Do(f func(now time.Duration)) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return false
	}
	e.queue = append(e.queue, f)
	if len(e.queue) == 1 {
		e.waiter.Wake()
	}
	return true
}

// Call runs f on the endpoint's goroutine and waits for its end.
func (e *Endpoint) Call(f func(now time.Duration)) bool {
	ran := make(chan struct{})
	if !e.Do(func(now time.Duration) { f(now); close(ran) }) {
		return false
	}
	select {
	case <-ran:
		return true
	case <-e.done:
		select {
		case <-ran:
			return true
		default:
			return false
		}
	}
}

// Send sends a message. m.Ended is called when it is at its end; an error says that it never began.
func (e *Endpoint) Send(m *Outgoing) error {
	var err error
	if !e.Call(func(now time.Duration) { err = e.submit(now, m) }) {
		return ErrClosed
	}
	return err
}

// Progress is how far a message is; false when it is at its end.
func (e *Endpoint) Progress(m *Outgoing) (p Progress, ok bool) {
	e.Call(func(now time.Duration) {
		if e.outgoing[m.ID] != m {
			return
		}
		s, _ := e.sender.State(m.ID)
		p = Progress{Transmitted: m.result.Transmitted, Length: m.Length, Elapsed: now - m.track.began, Waited: m.track.waited, State: s.String()}
		ok = true
	})
	return p, ok
}

// Cancel abandons a message.
func (e *Endpoint) Cancel(m *Outgoing) {
	e.Call(func(now time.Duration) {
		if e.outgoing[m.ID] == m {
			m.track.over, m.track.aborted = true, ErrCancelled
			_ = e.sender.Cancel(now, m.ID)
			e.after(now)
		}
	})
}

// Run drives the endpoint until ctx ends, says goodbye to its peers, and frees everything.
func (e *Endpoint) Run(ctx context.Context) error {
	// The thread's timer slack is changed, so it ends with the goroutine: no UnlockOSThread.
	runtime.LockOSThread()
	if err := udp.Precise(); err != nil {
		e.Close()
		return fmt.Errorf("rdcc: timer slack: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { e.Do(func(time.Duration) {}) })
	defer stop()
	err := e.loop(ctx)
	e.goodbye()
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
	e.closeSockets()
	e.waiter.Close()
	close(e.done)
	return err
}

// Done is closed when Run has returned.
func (e *Endpoint) Done() <-chan struct{} { return e.done }

type againAt struct {
	at time.Duration
	m  *Outgoing
}

// againHeap is when messages are to be allowed again.
type againHeap []againAt

func (h againHeap) Len() int           { return len(h) }
func (h againHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h againHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].m.track.heap, h[j].m.track.heap = i+1, j+1
}
func (h *againHeap) Push(x any) { a := x.(againAt); *h = append(*h, a); a.m.track.heap = len(*h) }
func (h *againHeap) Pop() any {
	old := *h
	a := old[len(old)-1]
	*h = old[:len(old)-1]
	a.m.track.heap = 0
	return a
}

func (e *Endpoint) allowAgain(m *Outgoing, at time.Duration) {
	if i := m.track.heap; i > 0 {
		if e.again[i-1].at > at {
			e.again[i-1].at = at
			heap.Fix(&e.again, i-1)
		}
		return
	}
	heap.Push(&e.again, againAt{at, m})
}

func (e *Endpoint) forgetAgain(m *Outgoing) {
	if i := m.track.heap; i > 0 {
		heap.Remove(&e.again, i-1)
	}
}

// Receiver and Sender are the machines, for functions that Do and Call run; nil where Options leave one out.
func (e *Endpoint) Receiver() *receiver.Receiver { return e.receiver }

// Sender is the sender's machine.
func (e *Endpoint) Sender() *sender.Machine { return e.sender }

// Stats are the endpoint's own counts, for functions that Do and Call run.
func (e *Endpoint) Stats() Stats { return e.stats }
