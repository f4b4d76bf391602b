package export

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
)

// pseudonyms give the same pseudonym for the same thing, as a secret decides. Who does not have the secret cannot tell what
// stands behind one, nor try whether a guess is right.
type pseudonyms struct {
	key   []byte
	v4    map[netip.Addr]netip.Addr
	taken map[netip.Addr]bool
	v6    map[netip.Addr]netip.Addr
	macs  map[[6]byte][6]byte
}

// newPseudonyms uses secret, or a new one that nobody keeps.
func newPseudonyms(secret string) *pseudonyms {
	p := &pseudonyms{v4: map[netip.Addr]netip.Addr{}, taken: map[netip.Addr]bool{}, v6: map[netip.Addr]netip.Addr{}, macs: map[[6]byte][6]byte{}}
	if secret == "" {
		p.key = make([]byte, 32)
		rand.Read(p.key)
	} else {
		sum := sha256.Sum256([]byte("pcmlab redact " + secret))
		p.key = sum[:]
	}
	return p
}

// of is 32 bytes that depend on the secret, the kind of thing, and the thing.
func (p *pseudonyms) of(kind string, thing []byte) []byte {
	h := hmac.New(sha256.New, p.key)
	h.Write([]byte(kind + "\x00"))
	h.Write(thing)
	return h.Sum(nil)
}

// name is a pseudonym for a host or user: letters and digits alone, so that it can stand wherever the name could.
func (p *pseudonyms) name(kind, name string) string {
	return kind + hex.EncodeToString(p.of(kind, []byte(name))[:3])
}

func (p *pseudonyms) hash(text string) string { return hex.EncodeToString(p.of("hash", []byte(text))) }

func (p *pseudonyms) uuid(text string) string {
	b := p.of("uuid", []byte(text))
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // a random one, by its bits
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// addr is the pseudonym of an address. IPv4 goes to 10.0.0.0/8, IPv6 to the documentation prefix 2001:db8::/32, link-local stays
// link-local; addresses that mean the same everywhere (unspecified, loopback, broadcast, multicast groups) stay.
func (p *pseudonyms) addr(a netip.Addr) netip.Addr {
	zone := a.Zone()
	a = a.WithZone("")
	switch {
	case a.Is4In6():
		return netip.AddrFrom16(p.addr(a.Unmap()).As16())
	case a.Is4():
		return p.addr4(a)
	}
	got, ok := p.v6[a]
	if !ok {
		got = p.addr6(a)
		p.v6[a] = got
	}
	if zone != "" {
		return got.WithZone(zone)
	}
	return got
}

var everybody4 = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("255.255.255.255"), netip.IPv4Unspecified()}

func (p *pseudonyms) addr4(a netip.Addr) netip.Addr {
	for _, same := range everybody4 {
		if a == same {
			return a
		}
	}
	if a.IsMulticast() {
		return a
	}
	if got, ok := p.v4[a]; ok {
		return got
	}
	for try := byte(0); ; try++ { // two addresses of a run must not become one: the later one takes the next
		b := a.As4()
		h := p.of("ipv4", append(b[:], try))
		got := netip.AddrFrom4([4]byte{10, h[0], h[1], 1 + h[2]%254})
		if !p.taken[got] {
			p.v4[a], p.taken[got] = got, true
			return got
		}
	}
}

func (p *pseudonyms) addr6(a netip.Addr) netip.Addr {
	b := a.As16()
	h := p.of("ipv6", b[:])
	switch {
	case a.IsUnspecified() || a.IsLoopback():
		return a
	case a.IsMulticast():
		if low := binary.BigEndian.Uint64(b[8:]); binary.BigEndian.Uint64(b[:8])<<16 == 0 && low <= 0xffff { // ff02::1 and its like
			return a
		}
		copy(b[13:], h) // solicited-node groups hold the end of an address
	case a.IsLinkLocalUnicast():
		copy(b[8:], h)
	default:
		copy(b[:], []byte{0x20, 0x01, 0x0d, 0xb8})
		copy(b[4:], h)
	}
	return netip.AddrFrom16(b)
}

// mac is the pseudonym of a MAC address: locally administered. Groups stay groups; what their ends repeat of addresses does not stay.
func (p *pseudonyms) mac(m [6]byte) [6]byte {
	if got, ok := p.macs[m]; ok {
		return got
	}
	got := m
	h := p.of("mac", m[:])
	switch {
	case m == [6]byte{} || m == [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}:
	case m[0] == 0x01 && m[1] == 0x00 && m[2] == 0x5e: // IPv4 groups, which stay
	case m[0] == 0x33 && m[1] == 0x33:
		if m[2] != 0 || m[3] != 0 || m[4] != 0 { // else ff02::1 and its like
			copy(got[3:], h)
		}
	case m[0]&1 != 0: // pause frames, LLDP and other protocols
	default:
		copy(got[:], h)
		got[0] = got[0]&0xfc | 2
	}
	p.macs[m] = got
	return got
}
