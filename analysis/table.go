package analysis

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// dirKey names one direction: from an address to a QP at another address. Datagram services add the source QP,
// since their PSNs count per sending QP.
type dirKey struct {
	srcHi, srcLo, dstHi, dstLo uint64
	dstQP, srcQP               uint32
}

func keyOf(f *roce.Frame) dirKey {
	k := dirKey{
		srcHi: binary.BigEndian.Uint64(f.Src[:8]), srcLo: binary.BigEndian.Uint64(f.Src[8:]),
		dstHi: binary.BigEndian.Uint64(f.Dst[:8]), dstLo: binary.BigEndian.Uint64(f.Dst[8:]),
		dstQP: f.BTH.DestQP,
	}
	if f.BTH.Opcode.Transport() == roce.UD && f.HasDETH {
		k.srcQP = f.DETH.SrcQP + 1 // 0 stays "none"; QP 0 exists
	}
	return k
}

func addrOf(hi, lo uint64) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	return netip.AddrFrom16(b).Unmap()
}

func (k *dirKey) src() netip.Addr { return addrOf(k.srcHi, k.srcLo) }
func (k *dirKey) dst() netip.Addr { return addrOf(k.dstHi, k.dstLo) }

// id is the key in words: 192.0.2.11>192.0.2.14:0x000025, for datagrams with the source QP before the arrow.
func (k *dirKey) id() string {
	if k.srcQP != 0 {
		return fmt.Sprintf("%s/0x%06x>%s:0x%06x", k.src(), k.srcQP-1, k.dst(), k.dstQP)
	}
	return fmt.Sprintf("%s>%s:0x%06x", k.src(), k.dst(), k.dstQP)
}

// compare orders keys by addresses and QP.
func (k *dirKey) compare(o *dirKey) int {
	a := [6]uint64{k.srcHi, k.srcLo, k.dstHi, k.dstLo, uint64(k.dstQP), uint64(k.srcQP)}
	b := [6]uint64{o.srcHi, o.srcLo, o.dstHi, o.dstLo, uint64(o.dstQP), uint64(o.srcQP)}
	for i := range a {
		if a[i] != b[i] {
			if a[i] < b[i] {
				return -1
			}
			return 1
		}
	}
	return 0
}

// hash mixes with two 64x64 multiplications; the constants are odd fractions of pi and e, of no further meaning.
func (k *dirKey) hash() uint64 {
	hi, lo := bits.Mul64(k.srcLo^bits.RotateLeft64(k.srcHi, 23)^0x243f6a8885a308d3, k.dstLo^bits.RotateLeft64(k.dstHi, 41)^0xb7e151628aed2a6b)
	hi, lo = bits.Mul64(hi^lo^uint64(k.dstQP), uint64(k.srcQP)<<1^0x9e3779b97f4a7c15)
	return hi ^ lo
}

// table is a hash table with open addressing and linear probing. It never forgets and doubles at two thirds full;
// a look-up touches one cache line and allocates nothing.
type table[V any] struct {
	slots []slot[V]
	n     int
}

type slot[V any] struct {
	key dirKey
	v   *V
}

// find returns where key, whose hash is given, is or belongs. The caller stores a new value there with put before the next find.
func (t *table[V]) find(k *dirKey, hash uint64) *slot[V] {
	if len(t.slots) == 0 {
		t.slots = make([]slot[V], 64)
	}
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.v == nil || s.key == *k {
			return s
		}
	}
}

// put stores v for k in the empty slot that find returned.
func (t *table[V]) put(s *slot[V], k *dirKey, v *V) {
	s.key, s.v = *k, v
	t.n++
	if t.n*3 < len(t.slots)*2 {
		return
	}
	old := t.slots
	t.slots = make([]slot[V], 2*len(old))
	for i := range old {
		if old[i].v != nil {
			*t.find(&old[i].key, old[i].key.hash()) = old[i]
		}
	}
}
