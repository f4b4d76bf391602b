package engine

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/dcqcn"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/qp"
)

// Overhead is what a RoCEv2 datagram takes on an Ethernet link besides BTH to ICRC: preamble and start 8, Ethernet
// header 14, IPv4 20, UDP 8, FCS 4, gap 12.
const Overhead = 66

// frameOverhead is the part of it that counters of frames include: Ethernet header, IPv4 and UDP, but no FCS.
const frameOverhead = 42

const (
	ecnMask = 3
	ecnCE   = 3
	ecnECT0 = 2
)

// Config describes a NIC. Times and rates are as built.
type Config struct {
	IP     [4]byte
	Rate   units.Rate // line rate
	MTU    int        // largest path MTU: 256 to 4096
	DSCP   int
	ECN    bool
	DCQCN  bool
	Params dcqcn.Params
	Scale  units.Scale // for times that arrive in hardware terms: ACK timeouts and RNR timers

	AckEvery, Window int
	CatchUp          time.Duration
	AcceptForeign    bool          // accept datagrams whose ICRC does not match ID 0: see Receive
	Random           func() uint32 // keys and first PSNs; required
	FirstQPN         uint32        // 0 means 0x11
}

// PathMTU is the largest RoCE path MTU whose packets fit a network interface of mtu bytes: IPv4 20, UDP 8, BTH 12,
// RETH 16, immediate 4 and ICRC 4 go off.
func PathMTU(mtu int) (int, error) {
	for _, p := range []int{4096, 2048, 1024, 512, 256} {
		if p+64 <= mtu {
			return p, nil
		}
	}
	return 0, fmt.Errorf("MTU %d: RoCE needs at least %d", mtu, 256+64)
}

// NIC is one software NIC. It is not safe for concurrent use.
type NIC struct {
	c        Config
	counters Counters
	qps      map[uint32]*QP
	regions  map[uint32]*Region
	limiters map[[4]byte]*limiter // CNP limiters shared by address; the zero address is the port's
	due      dueHeap
	finished []*QP         // with completions to fetch
	port     time.Duration // virtual time at which the port is free
	carry    int64
	nextQPN  uint32
	domains  map[uint64]*domain
	rules    []*ruleState     // none: DCQCN alone
	keys     []inventory.Rule // of the rules
	trace    func(*Call)      // nil: none
	gate     Gate             // nil: none
	in       qp.In
	out      qp.Out
}

// New makes a NIC without queue pairs.
func New(c Config) (*NIC, error) {
	if err := c.Params.Validate(); err != nil {
		return nil, err
	}
	if c.Rate <= 0 || c.Random == nil || c.AckEvery < 1 || c.Window < 1 {
		return nil, fmt.Errorf("NIC: rate %v, ack every %d, window %d, random source %v: out of range", c.Rate, c.AckEvery, c.Window, c.Random != nil)
	}
	if c.FirstQPN == 0 {
		c.FirstQPN = 0x11
	}
	return &NIC{c: c, qps: map[uint32]*QP{}, regions: map[uint32]*Region{}, limiters: map[[4]byte]*limiter{}, domains: map[uint64]*domain{}, nextQPN: c.FirstQPN}, nil
}

// Counters are the cumulative counters; the pointer stays valid.
func (n *NIC) Counters() *Counters { return &n.counters }

// QPs is the number of queue pairs.
func (n *NIC) QPs() int { return len(n.qps) }

// Each calls f for every queue pair, in no order.
func (n *NIC) Each(f func(*QP)) {
	for _, q := range n.qps {
		f(q)
	}
}

// DCQCN reports whether the control loop is on.
func (n *NIC) DCQCN() bool { return n.c.DCQCN }

// SetDCQCN switches the control loop; off lets all queue pairs send at line rate and sends no CNPs.
func (n *NIC) SetDCQCN(now time.Duration, on bool) {
	n.c.DCQCN = on
	for _, q := range n.qps {
		q.rp = dcqcn.NewRP(n.c.Params, n.c.Rate)
		q.np, q.cnp = limiter{}, false
		if q.policy == nil {
			q.m.SetRate(now, n.c.Rate)
		}
		n.settle(q)
	}
	clear(n.limiters)
}

// Rate is the line rate as built.
func (n *NIC) Rate() units.Rate { return n.c.Rate }

// SetRate changes the line rate. Reaction points start anew from it.
func (n *NIC) SetRate(now time.Duration, r units.Rate) {
	n.c.Rate = r
	n.carry = 0
	n.SetDCQCN(now, n.c.DCQCN)
}

// Region is memory that remote peers may write.
type Region struct {
	Mem  []byte
	VA   uint64
	RKey uint32
	PD   uint64 // protection domain: only queue pairs of the same one may use it
}

// Register opens mem at address va. The memory must stay valid until Deregister.
func (n *NIC) Register(pd uint64, mem []byte, va uint64) *Region {
	r := &Region{Mem: mem, VA: va, PD: pd}
	for {
		r.RKey = n.c.Random()
		if _, taken := n.regions[r.RKey]; r.RKey != 0 && !taken {
			break
		}
	}
	n.regions[r.RKey] = r
	return r
}

// Deregister closes a region; requests under its key are refused from now on.
func (n *NIC) Deregister(r *Region) { delete(n.regions, r.RKey) }

// Header is what the headers around a received datagram said.
type Header struct {
	Src     [4]byte
	SrcPort uint16
	TOS     byte
	IPID    uint16 // a driver that cannot see it says what this NIC's own kind sends: 0
	DF      bool   // likewise: true
}

// Receive handles the payload of a datagram that arrived at UDP port 4791.
//
// The ICRC covers the IP identification. Where the driver cannot see it, that of a foreign sender does not match and
// cannot be told from damage: it is dropped and counted, unless AcceptForeign is set; then it is counted and taken.
func (n *NIC) Receive(now time.Duration, h *Header, b []byte) {
	c := &n.counters
	src, tos := h.Src, h.TOS
	c.RxRoCEPackets++
	c.RxRoCEBytes += uint64(len(b) + frameOverhead)
	if len(b) < roce.BTHLen+roce.ICRCLen {
		c.RxMalformed++
		return
	}
	body := b[:len(b)-roce.ICRCLen]
	want := roce.ICRCv4(src, n.c.IP, h.SrcPort, roce.Port, h.IPID, h.DF, body)
	if binary.LittleEndian.Uint32(b[len(body):]) != want {
		c.RxICRCErrors++
		if !n.c.AcceptForeign {
			return
		}
	}
	bth, used, err := roce.ParseBTH(body)
	op := bth.Opcode
	hdr := used + op.HeaderLen()
	if err != nil || !op.Known() || bth.Version != 0 || hdr+int(bth.Pad) > len(body) || bth.PKey&0x7fff != roce.DefaultPKey&0x7fff {
		c.RxMalformed++
		return
	}
	q := n.qps[bth.DestQP]
	if q == nil || q.remote != src || q.m.State() == qp.Init {
		c.RxUnknownQP++
		return
	}
	if tos&ecnMask == ecnCE {
		c.NPECNMarked++
		if n.c.DCQCN && op != roce.CNP {
			n.marked(now, q)
		}
	}
	if op == roce.CNP {
		n.congested(now, q)
		return
	}
	n.in = qp.In{BTH: bth}
	if op.HasRETH() {
		n.in.RETH, _, _ = roce.ParseRETH(body[used:hdr])
	} else if op.HasAETH() {
		n.in.AETH, _, _ = roce.ParseAETH(body[used:hdr])
	}
	n.in.Payload = body[hdr : len(body)-int(bth.Pad)]
	if op.IsRequest() {
		c.RxDataPackets++
	}
	if n.gate != nil {
		n.receiveGated(now, q, tos&ecnMask == ecnCE)
	} else {
		q.m.Receive(now, &n.in)
	}
	if q.policy != nil && op.IsAck() {
		n.consult(now, q)
	}
	n.settle(q)
}

// Datagram says where the bytes that Transmit wrote are to go.
type Datagram struct {
	QP      *QP
	Dst     [4]byte
	SrcPort uint16
	TOS     byte
	Len     int
}

// Transmit writes the next datagram that is due at now (BTH to ICRC) into buf, which must hold MTU+64 bytes, and
// reports whether there was one. Acknowledgements and CNPs come first.
func (n *NIC) Transmit(now time.Duration, buf []byte, d *Datagram) bool {
	for len(n.due) > 0 && n.due[0].dueAt <= now {
		q := n.due[0]
		if n.transmit(now, q, buf, d) {
			n.settle(q)
			return true
		}
		n.settle(q)
	}
	return false
}

func (n *NIC) transmit(now time.Duration, q *QP, buf []byte, d *Datagram) bool {
	n.tick(now, q)
	if q.cnp {
		q.cnp = false
		n.counters.NPCNPSent++
		n.out = qp.Out{BTH: roce.BTH{Opcode: roce.CNP, DestQP: q.m.Peer(), PKey: roce.DefaultPKey, MigReq: true, BECN: true}}
		n.write(q, buf, d, byte(n.c.Params.CNPDSCP)<<2)
		return true
	}
	if q.m.DataReady(now) {
		if n.gate != nil && q.m.Fresh() {
			n.gate.Allow(now, q) // it may be held back now, which Next sees
		}
		q.m.Hold(n.port)
	}
	slot := q.m.Slot()
	some := q.m.Next(now, &n.out)
	if q.policy != nil && q.m.HasFeedback() { // a timeout
		n.consult(now, q)
	}
	if n.gate != nil && q.m.State() == qp.Error {
		n.gate.Gone(now, q)
	}
	if !some {
		return false
	}
	if !n.out.Data() {
		// ACKs carry the queue pair's DSCP but are not ECN-capable: a mark on them would say nothing about the data.
		n.write(q, buf, d, q.tos&^ecnMask)
		return true
	}
	n.takePort(now, slot, n.out.WireLen()+Overhead)
	if q.policy != nil {
		q.policy.next.Sent += n.out.Length
	} else if n.c.DCQCN {
		q.rp.Sent(now, n.out.WireLen())
		q.m.SetRate(now, q.rp.Rate())
	}
	tos := q.tos
	if n.gate != nil {
		tos = n.sendGated(now, q)
	}
	n.write(q, buf, d, tos)
	return true
}

// takePort lets the port be busy for the time of so many bytes from start on.
func (n *NIC) takePort(now, start time.Duration, bytes int) {
	start = max(start, now-n.c.CatchUp)
	if n.port < start {
		n.port, n.carry = start, 0
	}
	t := int64(bytes)*8e9 + n.carry
	n.port += time.Duration(t / int64(n.c.Rate))
	n.carry = t % int64(n.c.Rate)
}

// appendPacket appends a packet from its BTH to its pad.
func appendPacket(b []byte, o *qp.Out, payload []byte) []byte {
	b = o.BTH.Append(b)
	op := o.BTH.Opcode
	switch {
	case op.HasRETH():
		b = o.RETH.Append(b)
	case op.HasAETH():
		b = o.AETH.Append(b)
	case op == roce.CNP:
		b = append(b, make([]byte, 16)...) // reserved, zero (IBTA A17.9.3)
	}
	b = append(b, payload...)
	for range o.BTH.Pad {
		b = append(b, 0)
	}
	return b
}

// write encodes n.out into buf.
func (n *NIC) write(q *QP, buf []byte, d *Datagram, tos byte) {
	o := &n.out
	b := appendPacket(buf[:0], o, q.local[o.Local:o.Local+uint64(o.Length)])
	b = roce.AppendICRC(b, roce.ICRCv4(n.c.IP, q.remote, q.sport, roce.Port, 0, true, b))
	*d = Datagram{QP: q, Dst: q.remote, SrcPort: q.sport, TOS: tos, Len: len(b)}
	n.counters.TxRoCEPackets++
	n.counters.TxRoCEBytes += uint64(len(b) + frameOverhead)
}

// Finished takes a queue pair that has completions to Poll, or nil. All of them have to be polled.
func (n *NIC) Finished() *QP {
	last := len(n.finished) - 1
	if last < 0 {
		return nil
	}
	q := n.finished[last]
	n.finished = n.finished[:last]
	q.listed = false
	return q
}

// Deadline is when Transmit has something to do; false means not before the next event. It may lie in the past.
func (n *NIC) Deadline() (time.Duration, bool) {
	if len(n.due) == 0 {
		return 0, false
	}
	return n.due[0].dueAt, true
}
