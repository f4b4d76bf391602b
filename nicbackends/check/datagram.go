package check

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
)

// What is sent to UDP 4791 looks like RoCEv2 to switches and capture filters, and is dropped by every NIC without a word:
// its base transport header has version 15, where the only one that there is is 0 (IBTA 9.6.1.1.3: silently drop), its
// opcode is one that vendors may give away, and its ICRC is wrong. So it does no harm where a listener is at 4791 already,
// the kernel's rdma_rxe or the software NIC, and no socket can be opened there.
//
//	BTH 12 | "pcmlab01" | nonce 8 | number 2 | filling | ICRC 4, zero
const (
	rocePort   = 4791
	bthLen     = 12
	magic      = "pcmlab01"
	headLen    = bthLen + len(magic) + 8 + 2
	smallest   = 64
	bthOpcode  = 0xff
	bthVersion = 0x0f
)

// datagram is the payload of the nth datagram of a probe, size bytes long.
func datagram(nonce [8]byte, n uint16, size int) []byte {
	b := make([]byte, max(size, headLen+4))
	b[0], b[1] = bthOpcode, bthVersion
	b[2], b[3] = 0xff, 0xff // default partition
	copy(b[bthLen:], magic)
	copy(b[bthLen+len(magic):], nonce[:])
	binary.BigEndian.PutUint16(b[bthLen+len(magic)+8:], n)
	return b
}

// heard is a datagram as it arrived.
type heard struct {
	from netip.AddrPort
	tos  int
	size int // of the UDP payload
	n    uint16
}

// hear reads an IP packet; ok is false when it is no datagram of the probe.
func hear(b []byte, nonce [8]byte) (h heard, ok bool) {
	var ipLen int
	switch {
	case len(b) < 20:
		return h, false
	case b[0]>>4 == 4:
		ipLen = int(b[0]&15) * 4
		if b[9] != 17 || ipLen < 20 {
			return h, false
		}
		h.tos = int(b[1])
		src := netip.AddrFrom4([4]byte(b[12:16]))
		h.from = netip.AddrPortFrom(src, 0)
	case b[0]>>4 == 6 && len(b) >= 40:
		ipLen = 40
		if b[6] != 17 {
			return h, false
		}
		h.tos = int(b[0]&15)<<4 | int(b[1]>>4)
		h.from = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])), 0)
	default:
		return h, false
	}
	if len(b) < ipLen+8+headLen {
		return h, false
	}
	udp := b[ipLen:]
	payload := udp[8:]
	if length := int(binary.BigEndian.Uint16(udp[4:])); length >= 8+headLen && length <= len(udp) {
		payload = udp[8:length] // without the link's padding
	} else {
		return h, false
	}
	if binary.BigEndian.Uint16(udp[2:]) != rocePort || payload[1]&15 != bthVersion || !bytes.Equal(payload[bthLen:bthLen+len(magic)], []byte(magic)) ||
		[8]byte(payload[bthLen+len(magic):]) != nonce {
		return h, false
	}
	h.from = netip.AddrPortFrom(h.from.Addr(), binary.BigEndian.Uint16(udp))
	h.size, h.n = len(payload), binary.BigEndian.Uint16(payload[bthLen+len(magic)+8:])
	return h, true
}

func parseNonce(s string) (n [8]byte, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 8 {
		return n, fmt.Errorf("nonce %q: need 16 hex digits", s)
	}
	return [8]byte(b), nil
}

// room is the UDP payload that fills a packet of an interface's MTU.
func room(mtu int, v6 bool) int {
	if v6 {
		return mtu - 48
	}
	return mtu - 28
}

// Listened is what a listener saw of one sender at one size.
type Listened struct {
	From netip.Addr `json:"from"`
	Size int        `json:"size"`
	N    int        `json:"n"`
	TOS  int        `json:"tos"` // of the last
}

// Sent is what a sender did towards one address at one size.
type Sent struct {
	To       netip.Addr `json:"to"`
	Size     int        `json:"size"`
	Sent     int        `json:"sent"`
	Answered int        `json:"answered"`
	RTT      int64      `json:"rtt_ns,omitempty"` // the smallest; 0 without an answer
	Err      string     `json:"err,omitempty"`
}
