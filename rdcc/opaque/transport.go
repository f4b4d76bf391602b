package opaque

import (
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/endpoint"
	"github.com/pcmlab/pcmlab/rdcc/udp"
)

// Options set a transport up. Zero values mean what is stated.
type Options struct {
	Listen netip.Addr // as the endpoint's
	// Port is the UDP port of data, the same on all hosts of the domain; required, and not that of RDCC, which no other
	// service may use (Port Configuration).
	Port    uint16
	AnyPort bool // a sender takes a free port of its own, and Port is that of receivers

	Payload int // octets of a full packet; 0 means 1400
	// Window bounds the congestion window, in packets; 0 means 4096.
	Window int
	// MinRTO bounds the retransmission timeout from below; 0 means 5 ms.
	MinRTO time.Duration

	MaxIncoming int // messages at a receiver at a time; 0 means 16384
	MaxEarly    int // octets of data that came before its message was announced; 0 means 1 MiB
}

// Bounds of what is remembered.
const (
	maxFinished = 4096 // messages that were received, for acknowledgements that got lost
	maxPaths    = 4096 // receivers
)

// Transport carries messages of Binding Kind 2.
type Transport struct {
	o      Options
	h      endpoint.Host
	socket *udp.Socket

	paths    map[netip.AddrPort]*Path
	out      map[uint64]*sending // by identifier
	flying   map[uint64]*sending // of them those with something under way
	blocked  []*sending          // of them those that wait for room in a window
	in       map[inKey]*receiving
	assocs   map[uint32]netip.Addr
	finished map[inKey]uint64 // and its length
	order    []inKey          // of finished, a ring
	oldest   int
	early    []early
	earlySum int

	dirty  []*receiving // of this round: to be counted and acknowledged
	fresh  []Range
	p      Packet
	Counts Counts
}

var _ endpoint.Descriptive = (*Transport)(nil)

// Counts are what the transport counted.
type Counts struct {
	Packets       uint64 `json:"packets"`      // DATA sent
	Again         uint64 `json:"again"`        // of them sent again
	Acks          uint64 `json:"acks"`         // received
	Received      uint64 `json:"received"`     // DATA
	Doubled       uint64 `json:"doubled"`      // of them with nothing new
	Damaged       uint64 `json:"damaged"`      // that could not be decoded
	Strangers     uint64 `json:"strangers"`    // of no association from that address
	Unannounced   uint64 `json:"unannounced"`  // not kept, since nothing was announced and the room for such is full
	Untaken       uint64 `json:"untaken"`      // of another length, or with too many holes
	Timeouts      uint64 `json:"timeouts"`     //
	UnknownAcks   uint64 `json:"unknown_acks"` //
	SinkErrors    uint64 `json:"sink_errors"`  //
	MarkedPackets uint64 `json:"marked"`       // DATA received with Congestion Experienced
	SendErrors    uint64 `json:"send_errors"`  // packets that the kernel did not take
	KernelDropped uint64 `json:"kernel_drops"` // that found the receive buffer full
}

type sending struct {
	*Outbound
	m     *endpoint.Outgoing
	to    netip.AddrPort
	assoc uint32
	path  *Path
	err   error
	isOn  bool // in blocked
	gone  bool
}

type inKey struct {
	assoc uint32
	value uint64
}

type receiving struct {
	*Inbound
	key  inKey
	info endpoint.Incoming
	sink endpoint.Sink
	from netip.AddrPort // where acknowledgements go
	at   netip.Addr     // and the address that they come from
	isOn bool           // in dirty

	octets, gap uint64 // of this round
	packets, ce uint32
}

type early struct {
	key  inKey
	from netip.AddrPort
	to   netip.Addr
	data []byte
	ce   bool
	at   time.Duration
}

// Counters are the transport's, for those who tell them.
func (t *Transport) Counters() any { return t.Counts }

// New checks the options.
func New(o Options) (*Transport, error) {
	def := func(v *int, to int) {
		if *v == 0 {
			*v = to
		}
	}
	def(&o.Payload, 1400)
	def(&o.Window, MaxInFlight)
	def(&o.MaxIncoming, 16384)
	def(&o.MaxEarly, 1<<20)
	if o.MinRTO == 0 {
		o.MinRTO = 5 * time.Millisecond
	}
	var errs []error
	if o.Port == 0 {
		errs = append(errs, errors.New("opaque transport: no port for data (data_port): there is no default"))
	}
	if o.Payload < 1 || o.Payload > 65000 {
		errs = append(errs, fmt.Errorf("opaque transport: payload of %d octets: 1 to 65000", o.Payload))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &Transport{
		o: o, paths: map[netip.AddrPort]*Path{}, out: map[uint64]*sending{}, flying: map[uint64]*sending{}, in: map[inKey]*receiving{}, assocs: map[uint32]netip.Addr{},
		finished: map[inKey]uint64{}, order: make([]inKey, maxFinished),
	}, nil
}

// Wire is what a packet of payload octets occupies on an Ethernet link: with this header, UDP, IPv6, Ethernet, preamble and
// gap.
func Wire(payload int) int { return payload + HeaderSize + 8 + 40 + 18 + 20 }

// Kind is Binding Kind 2.
func (t *Transport) Kind() rdcc.BindingKind { return rdcc.BindingOpaque }

// Open opens the data port.
func (t *Transport) Open(h endpoint.Host) (err error) {
	t.h = h
	port := t.o.Port
	if t.o.AnyPort {
		port = 0
	}
	listen := t.o.Listen
	if !listen.IsValid() {
		listen = netip.IPv6Unspecified()
	}
	size := max(t.o.Payload+HeaderSize, MaxAck, 9216)
	open := func(a netip.Addr) (*udp.Socket, error) {
		return udp.Open(udp.Options{Addr: netip.AddrPortFrom(a, port), Size: size, Whole: true, Buffer: 16 << 20})
	}
	if t.socket, err = open(listen); err != nil && !t.o.Listen.IsValid() {
		t.socket, err = open(netip.IPv4Unspecified())
	}
	if err != nil {
		return fmt.Errorf("opaque transport: UDP port %d of %v: %w", port, listen, err)
	}
	return nil
}

// Sockets are to be waited for.
func (t *Transport) Sockets() []*udp.Socket { return []*udp.Socket{t.socket} }

// Addr is where data arrives.
func (t *Transport) Addr() netip.AddrPort { return t.socket.Addr() }

// Close closes the data port and all sinks.
func (t *Transport) Close() error {
	for _, r := range t.in {
		t.drop(r, errors.New("the endpoint has ended"))
	}
	return t.socket.Close()
}

// Bind draws an identifier that nobody else can guess, so that data and acknowledgements cannot be forged blindly.
func (t *Transport) Bind(_ time.Duration, m *endpoint.Outgoing) (uint64, error) {
	to, ok := m.Target.(netip.AddrPort)
	if !ok {
		to = netip.AddrPortFrom(m.To.Addr(), t.o.Port)
	}
	path := t.paths[to]
	if path == nil {
		if len(t.paths) >= maxPaths {
			for k, p := range t.paths {
				if p.inFlight == 0 {
					delete(t.paths, k)
					break
				}
			}
		}
		path = NewPath(t.o.Payload, t.o.Window, t.o.MinRTO)
		t.paths[to] = path
	}
	for {
		var b [8]byte
		crand.Read(b[:]) // never fails (its documentation)
		value := binary.BigEndian.Uint64(b[:])
		if _, taken := t.out[value]; !taken && value != 0 {
			s := &sending{Outbound: NewOutbound(path, t.o.Payload, m.Length), m: m, to: to, path: path}
			t.out[value] = s
			m.State = s
			return value, nil
		}
	}
}

// Allowed transmits what credit and window allow.
func (t *Transport) Allowed(now time.Duration, m *endpoint.Outgoing) {
	if s, ok := m.State.(*sending); ok {
		t.pump(now, s)
	}
}

// Stopped has nothing to do: each transmission asks for its allowance.
func (t *Transport) Stopped(time.Duration, *endpoint.Outgoing) {}

// ErrRestarted is a message whose receiver has begun anew in the middle: what had arrived is gone with it.
var ErrRestarted = errors.New("the receiver began anew, and what it had of the message is lost")

func (t *Transport) pump(now time.Duration, s *sending) {
	if s.err != nil {
		return
	}
	assoc, _, ok := t.h.Wire(s.m)
	if !ok {
		return // it is being asked for
	}
	if s.Sent() == 0 {
		s.assoc = assoc
	} else if assoc != s.assoc {
		s.err = ErrRestarted
		if s.Sent() == s.m.Length && s.Acked() {
			t.h.Abort(now, s.m, nil) // it was all there before
			return
		}
		t.h.Abort(now, s.m, s.err)
		return
	}
	upTo := s.Sent()
	if s.Sent() < s.m.Length {
		upTo, _ = t.h.Allowance(now, s.m)
	}
	tos := 2 // ECT(0)
	if d, ok := t.h.DSCP(s.m); ok {
		tos |= int(d) << 2
	}
	before := s.Sent()
	for {
		r, again, ok := s.Next(now, upTo)
		if !ok {
			break
		}
		if err := t.write(now, s, r, again, tos); err != nil {
			s.err = err
			t.h.Abort(now, s.m, err)
			return
		}
	}
	if !s.Acked() {
		t.flying[s.m.Value] = s
	}
	if (s.losses > 0 || s.Sent() < upTo) && !s.isOn {
		s.isOn = true
		t.blocked = append(t.blocked, s)
	}
	if s.Sent() > before {
		t.h.Transmitted(now, s.m, s.Sent())
	}
}

// unblock goes on with those that waited for room, when acknowledgements have made some.
func (t *Transport) unblock(now time.Duration) {
	waiting := t.blocked
	t.blocked = nil
	for _, s := range waiting {
		s.isOn = false
		switch {
		case s.gone:
		case s.path.Room() > 0:
			t.pump(now, s)
		default:
			s.isOn = true
			t.blocked = append(t.blocked, s)
		}
	}
}

func (t *Transport) write(now time.Duration, s *sending, r Range, again bool, tos int) error {
	p := Packet{Assoc: s.assoc, Value: s.m.Value, Stamp: Stamp(now), Offset: r.First, Length: s.m.Length, Again: again}
	b := p.AppendHeader(t.socket.Next())
	b = b[:HeaderSize+int(r.End-r.First)]
	if s.m.Data == nil {
		clear(b[HeaderSize:])
	} else if n, err := s.m.Data.ReadAt(b[HeaderSize:], int64(r.First)); n < int(r.End-r.First) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read octets %d to %d of the message: %w", r.First, r.End, err)
	}
	Seal(b)
	t.socket.Put(len(b), s.to, netip.Addr{}, tos)
	t.Counts.Packets++
	if again {
		t.Counts.Again++
	}
	return nil
}

// Ended forgets a message.
func (t *Transport) Ended(_ time.Duration, m *endpoint.Outgoing, _ error) {
	s, ok := m.State.(*sending)
	if !ok {
		return
	}
	m.SetRetransmitted(s.Again)
	m.SetMarked(s.Marked)
	s.Forget()
	s.gone = true
	delete(t.out, m.Value)
	delete(t.flying, m.Value)
	m.State = nil
}

// Deadline is the first of the timeouts.
func (t *Transport) Deadline() (at time.Duration, ok bool) {
	for v, s := range t.flying {
		if s.Acked() {
			delete(t.flying, v)
			continue
		}
		if d, some := s.Deadline(); some && (!ok || d < at) {
			at, ok = d, true
		}
	}
	return at, ok
}

// Advance sends again what nobody acknowledges.
func (t *Transport) Advance(now time.Duration) {
	for _, s := range t.flying {
		if s.Timeout(now) {
			t.Counts.Timeouts++
			t.pump(now, s)
		}
	}
	t.unblock(now)
}

// Ready takes what has arrived.
func (t *Transport) Ready(now time.Duration) (more bool, err error) {
	n, err := t.socket.Recv(func(p *udp.Packet) { t.packet(now, p) })
	if err != nil {
		return false, fmt.Errorf("opaque transport: %w", err)
	}
	t.settle(now)
	if n > 0 {
		t.unblock(now)
	}
	t.Counts.KernelDropped, t.Counts.SendErrors = t.socket.Stats.Dropped, t.socket.Stats.SendErrors
	return n == udp.Batch, nil
}

// Flush sends what is queued.
func (t *Transport) Flush() { t.socket.Flush() }

func (t *Transport) packet(now time.Duration, u *udp.Packet) {
	p := &t.p
	if u.Cut || p.Decode(u.Data) != nil {
		t.Counts.Damaged++
		return
	}
	if p.Data {
		t.data(now, u)
		return
	}
	s := t.out[p.Value]
	if s == nil || s.to != u.From || s.assoc != p.Assoc {
		t.Counts.UnknownAcks++
		return
	}
	t.Counts.Acks++
	if rtt := s.Ack(now, p); rtt > 0 {
		t.h.RTTSample(now, s.m, rtt)
	}
	t.pump(now, s)
}

// Kept is how much the transport keeps: messages that arrive, and octets of data that came before its message was announced.
// It is for functions that Do and Call of the endpoint run.
func (t *Transport) Kept() (incoming, early int) { return len(t.in), t.earlySum }
