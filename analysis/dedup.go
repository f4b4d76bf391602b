package analysis

import (
	"math/bits"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// dedup finds copies that mirrors made of one packet: two taps on its way, or a port mirrored in both directions. A copy
// has the same invariant fields (IP identification, QP, PSN, opcode, acknowledgement) within a short time, but came
// through another interface, VLAN or hop count. A packet that is equal in these, too, was really sent twice
// and stays. The table has sets of four: a lost entry lets a copy through, never removes a packet.
type dedup struct {
	window  int64
	sets    [][4]dedupEntry
	removed int64
}

// dedupEntry holds 48 bits of the invariant fields' hash and 16 of how the packet came, so that a set is a cache line.
type dedupEntry struct {
	hashWay uint64
	atNS    int64
}

const dedupSets = 1 << 12

func newDedup(window int64) *dedup {
	return &dedup{window: window, sets: make([][4]dedupEntry, dedupSets)}
}

// copyOf reports that f is a copy of a packet seen before.
func (d *dedup) copyOf(ts int64, f *roce.Frame, keyHash uint64, iface int) bool {
	id := uint64(f.BTH.PSN) | uint64(f.BTH.Opcode)<<24 | uint64(f.SrcPort)<<48
	if !f.IPv6 { // stale otherwise
		id |= uint64(f.IPID) << 32
	}
	var more uint64
	if f.HasAETH {
		more = uint64(f.AETH.Syndrome)<<24 | uint64(f.AETH.MSN)
	}
	if f.BTH.AckReq {
		more |= 1 << 40
	}
	hi, lo := bits.Mul64(keyHash^id, more^uint64(f.PayloadLen)<<42^0xa0761d6478bd642f)
	h := hi ^ lo
	way := uint64(f.TTL) | uint64(iface)<<8
	for i := range f.VLANs {
		way ^= uint64(f.VLAN[i])<<(24+16*i) | 1<<(60+i)
	}
	set := &d.sets[h&(dedupSets-1)]
	mark := h&^0xffff | way*0x9e3779b97f4a7c15>>48
	oldest := 0
	for i := range set {
		e := &set[i]
		if (e.hashWay^mark)>>16 == 0 {
			if age := ts - e.atNS; e.hashWay != mark && age <= d.window && age >= -d.window {
				d.removed++
				return true
			}
			oldest = i
			break
		}
		if e.atNS < set[oldest].atNS {
			oldest = i
		}
	}
	set[oldest] = dedupEntry{mark, ts}
	return false
}
