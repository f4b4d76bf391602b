package export

import (
	"encoding/binary"
	"net/netip"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// Protocols whose headers hold addresses, or that are kept for what the analysis counts.
const (
	etherIPv4, etherIPv6, etherARP  = 0x0800, 0x86dd, 0x0806
	etherVLAN, etherQinQ, etherQinX = 0x8100, 0x88a8, 0x9100
	etherMACControl                 = 0x8808

	protoICMP, protoTCP, protoUDP, protoGRE, protoICMP6 = 1, 6, 17, 47, 58
)

// frame puts pseudonyms into a captured frame, in place and without changing its length. Headers stay, with checksums and ICRC
// right where they were right and wrong where they were wrong. What frames carry becomes zeros (payload of RDMA and of all else,
// what neighbours say of themselves, private data of connections), for nobody knows what is in it. wire is the length on the wire.
func (r *redactor) frame(link roce.LinkType, b []byte, wire int) {
	var f roce.Frame
	if f.Decode(link, b, wire, 0) != nil {
		clear(b)
		return
	}
	right, checked := f.CheckICRC(b)
	p := patch{r: r, b: b}
	if f.Kind == roce.KindRoCE {
		p.transport, p.end = f.BTHOffset, len(b)
		if f.ICRCOffset >= 0 {
			p.end = f.ICRCOffset + roce.ICRCLen
		}
	}
	// Sums are taken over frames as they were, so that what is zeroed is done by the layer that the sum is of.
	p.payload = func() {
		if f.IsMAD() {
			clear(f.Payload[madKept(f.Payload):])
		} else {
			clear(f.Payload)
		}
	}
	if link == roce.LinkEthernet {
		p.ethernet(0)
	} else {
		p.ip(0)
	}
	if right && checked {
		binary.LittleEndian.PutUint32(b[f.ICRCOffset:], roce.ICRC(b[f.IPOffset:f.ICRCOffset]))
	}
}

// madKept is how much of a management datagram stays: its header and the queue pairs of a connection. Behind them come GIDs,
// addresses and what applications say. The GUID of a channel adapter within them becomes zeros.
func madKept(b []byte) int {
	mad, n, err := roce.ParseMAD(b)
	if err != nil {
		return 0
	}
	if mad.Class != roce.MADClassCM {
		return n
	}
	if roce.CMKind(mad.Attribute) == roce.CMRequest {
		if len(b) > n+16 {
			clear(b[n+16 : min(len(b), n+24)])
		}
		return min(len(b), n+48)
	}
	return min(len(b), n+24)
}

// patch is the work on one frame.
type patch struct {
	r              *redactor
	b              []byte
	transport, end int    // of the RoCE packet, when there is one
	payload        func() // zeroes that of the RoCE packet
	inner          bool   // within GRE
}

func (p *patch) ethernet(off int) {
	if len(p.b) < off+14 {
		clear(p.b[min(off, len(p.b)):])
		return
	}
	for _, at := range []int{off, off + 6} {
		m := p.r.mac([6]byte(p.b[at:]))
		copy(p.b[at:], m[:])
	}
	t, at := binary.BigEndian.Uint16(p.b[off+12:]), off+14
	for t == etherVLAN || t == etherQinQ || t == etherQinX {
		if len(p.b) < at+4 {
			return
		}
		t, at = binary.BigEndian.Uint16(p.b[at+2:]), at+4
	}
	switch t {
	case etherIPv4, etherIPv6:
		p.ip(at)
	case etherARP:
		p.arp(p.b[at:])
	case etherMACControl: // pause times
	default:
		clear(p.b[at:])
	}
}

func (p *patch) arp(b []byte) {
	if len(b) < 28 || b[4] != 6 || b[5] != 4 {
		clear(b[min(8, len(b)):])
		return
	}
	for _, at := range []int{8, 18} {
		m := p.r.mac([6]byte(b[at:]))
		copy(b[at:], m[:])
		p.address(b[at+6 : at+10])
	}
	clear(b[28:])
}

// address replaces an address of 4 or 16 bytes.
func (p *patch) address(b []byte) {
	a, _ := netip.AddrFromSlice(b)
	copy(b, p.r.addr(a).AsSlice())
}

func (p *patch) ip(off int) {
	switch {
	case off >= len(p.b):
	case p.b[off]>>4 == 4 && len(p.b) >= off+20:
		p.ipv4(off)
	case p.b[off]>>4 == 6 && len(p.b) >= off+40:
		p.ipv6(off)
	default:
		clear(p.b[off:])
	}
}

func (p *patch) ipv4(off int) {
	h := p.b[off:]
	header := min(max(int(h[0]&0xf)*4, 20), len(h))
	end := len(h)
	if total := int(binary.BigEndian.Uint16(h[2:])); total >= header { // 0: not filled in yet, for the NIC to cut it
		end = min(end, total)
	}
	clear(h[end:]) // padding and trailers
	before, addresses := sum(h[:header]), sum(h[12:20])
	p.address(h[12:16])
	p.address(h[16:20])
	clear(h[20:header]) // a record of the route
	fix(h[10:12], before, sum(h[:header]))
	proto := h[9]
	if binary.BigEndian.Uint16(h[6:])&0x1fff != 0 {
		clear(h[header:end])
		return
	}
	pseudo := sum(h[12:20])
	if proto == protoICMP {
		addresses, pseudo = 0, 0
	}
	p.upper(proto, off+header, off+end, addresses, pseudo)
}

func (p *patch) ipv6(off int) {
	h := p.b[off:]
	end := len(h)
	if n := int(binary.BigEndian.Uint16(h[4:])); n > 0 {
		end = min(end, 40+n)
	}
	clear(h[end:])
	addresses := sum(h[8:40])
	p.address(h[8:24])
	p.address(h[24:40])
	next, header := h[6], 40
	for range 8 {
		size := 0
		switch next {
		case 0, 43, 60, 135: // hop-by-hop, routing, destination options, mobility
			if end >= header+8 {
				size = 8 + 8*int(h[header+1])
			}
		case 44: // fragment
			if end >= header+8 {
				if binary.BigEndian.Uint16(h[header+2:])&0xfff8 != 0 {
					clear(h[header+8 : end])
					return
				}
				next, header = h[header], header+8
				continue
			}
		default:
			p.upper(next, off+header, off+end, addresses, sum(h[8:40]))
			return
		}
		if size == 0 || header+size > end {
			break
		}
		clear(h[header+2 : header+size])
		next, header = h[header], header+size
	}
	clear(h[min(header, end):end])
}

// upper is what IP carries, at off up to end. before and pseudo are the sums of the addresses as they were and as they are.
func (p *patch) upper(proto uint8, off, end int, before, pseudo uint32) {
	b := p.b[off:end]
	before += sum(b)
	check := -1 // offset of its checksum
	switch proto {
	case protoUDP:
		if check = 6; p.transport == off+8 {
			p.payload()
			clear(p.b[min(p.end, end):end])
		} else if len(b) > 8 {
			keep := 8
			if binary.BigEndian.Uint16(b[2:]) == roce.Port {
				keep = min(len(b), 8+roce.BTHLen) // cut, or malformed: counted by its headers
			}
			clear(b[keep:])
		}
		if len(b) < 8 || binary.BigEndian.Uint16(b[6:]) == 0 {
			return
		}
	case protoTCP:
		check = 16
		clear(b[min(20, len(b)):])
	case protoICMP, protoICMP6:
		check = 2
		clear(b[min(4, len(b)):])
	case protoGRE:
		p.gre(off, end)
		return
	default:
		clear(b)
		return
	}
	if len(b) >= check+2 {
		fix(b[check:check+2], before, pseudo+sum(b))
		if proto == protoUDP && b[6] == 0 && b[7] == 0 {
			b[6], b[7] = 0xff, 0xff
		}
	}
}

// gre is what a switch sends when it mirrors over IP: see roce.Frame.Mirrored.
func (p *patch) gre(off, end int) {
	b := p.b[off:end]
	if len(b) < 4 || p.inner {
		clear(b)
		return
	}
	flags, proto := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	before, at := sum(b), 4
	for _, bit := range []uint16{0x8000, 0x2000, 0x1000} {
		if flags&bit != 0 {
			at += 4
		}
	}
	switch {
	case proto == 0x88be && flags&0x1000 != 0:
		at += 8
	case proto == 0x22eb:
		if len(b) >= at+12 && b[at+11]&1 != 0 {
			at += 8
		}
		at += 12
	}
	p.inner = true
	switch {
	case at > len(b) || flags&7 != 0:
		clear(b[min(4, len(b)):])
	case proto == 0x6558 || proto == 0x88be || proto == 0x22eb:
		p.ethernet(off + at)
	case proto == etherIPv4 || proto == etherIPv6:
		p.ip(off + at)
	default:
		clear(b[at:])
	}
	if flags&0x8000 != 0 && len(b) >= 6 {
		fix(b[4:6], before, sum(b))
	}
}

// sum adds up the 16-bit words of b.
func sum(b []byte) (s uint32) {
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return s
}

func fold(s uint32) uint32 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return s
}

// fix brings a checksum from what it was of to what is there now (RFC 1624); a wrong one stays as wrong as it was.
func fix(field []byte, before, after uint32) {
	old := binary.BigEndian.Uint16(field)
	s := uint32(^old) + (0xffff ^ fold(before)) + fold(after)
	binary.BigEndian.PutUint16(field, ^uint16(fold(s)))
}
