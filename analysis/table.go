package analysis

import (
	"math/bits"
	"net/netip"
)

// dirKey names one direction: from an address to a QP at another address. Datagram services add the source QP,
// since their PSNs count per sending QP.
type dirKey struct {
	src, dst     netip.Addr
	dstQP, srcQP uint32 // srcQP plus 1; 0 is none
}

// id is the key in words: 192.0.2.11>192.0.2.14:0x000025, for datagrams with the source QP before the arrow.
func (k *dirKey) id() string {
	b := make([]byte, 0, 64)
	b = k.src.AppendTo(b)
	if k.srcQP != 0 {
		b = appendQP(append(b, '/'), k.srcQP-1)
	}
	b = k.dst.AppendTo(append(b, '>'))
	return string(appendQP(append(b, ':'), k.dstQP))
}

func appendQP(b []byte, qp uint32) []byte {
	b = append(b, "0x"...)
	for shift := 20; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[qp>>shift&0xf])
	}
	return b
}

// compare orders keys by addresses, IPv4 first, and QP.
func (k *dirKey) compare(o *dirKey) int {
	if c := k.src.Compare(o.src); c != 0 {
		return c
	}
	if c := k.dst.Compare(o.dst); c != 0 {
		return c
	}
	if k.dstQP != o.dstQP {
		return int(k.dstQP) - int(o.dstQP)
	}
	return int(k.srcQP) - int(o.srcQP)
}

// table finds the current life of a direction. It is a hash table with open addressing and linear probing of 16-byte
// slots; it never forgets and doubles at three quarters full.
type table struct {
	slots []slot
	n     int
}

// slot holds a key and one more than the index of its direction; 0 is empty.
type slot struct {
	pair         pairID
	dstQP, srcQP uint32
	index        uint32
}

// find returns where the key is or belongs, until the next put.
func (t *table) find(pair pairID, dstQP, srcQP uint32) *slot {
	mask := uint64(len(t.slots) - 1)
	hi, lo := bits.Mul64(uint64(pair)<<32|uint64(dstQP)^0x9e3779b97f4a7c15, uint64(srcQP)<<1^0xbf58476d1ce4e5b9)
	for i := (hi ^ lo) & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.dstQP == dstQP && s.pair == pair && s.srcQP == srcQP && s.index != 0 || s.index == 0 {
			return s
		}
	}
}

// put stores the direction's index for the key in the empty slot that find returned.
func (t *table) put(s *slot, pair pairID, dstQP, srcQP, index uint32) {
	*s = slot{pair, dstQP, srcQP, index + 1}
	t.n++
	if t.n*4 < len(t.slots)*3 {
		return
	}
	old := t.slots
	t.slots = make([]slot, 2*len(old))
	for i := range old {
		if o := &old[i]; o.index != 0 {
			*t.find(o.pair, o.dstQP, o.srcQP) = *o
		}
	}
}

// slab holds the directions of a lane in pieces, so that they neither move nor cost the collector one object each.
type slab[T any] struct {
	chunks [][]T
	n      int
}

const slabSize = 64

func (s *slab[T]) add() (v *T, index int) {
	if s.n == len(s.chunks)*slabSize {
		s.chunks = append(s.chunks, make([]T, slabSize))
	}
	index = s.n
	s.n++
	return s.at(index), index
}

func (s *slab[T]) at(i int) *T { return &s.chunks[i/slabSize][i%slabSize] }
