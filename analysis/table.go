package analysis

import (
	"math/bits"
	"net/netip"
	"unsafe"
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

// table finds the current life of a direction. It is a hash table with open addressing and linear probing; it never forgets
// and doubles at three quarters full. The keys are in the directions, which are read next anyway.
type table struct {
	slots []slot
	n     int
}

// slot holds the hash of a key and one more than the index of its direction; 0 is empty.
type slot struct{ hash, index uint32 }

func hashKey(pair pairID, dstQP, srcQP uint32) uint32 {
	hi, lo := bits.Mul64(uint64(pair)<<32|uint64(dstQP)^0x9e3779b97f4a7c15, uint64(srcQP)<<1^0xbf58476d1ce4e5b9)
	return uint32(hi ^ lo)
}

// find returns where the key is or belongs, until the next put, and its direction, nil without.
func (t *table) find(all *slab[direction], pair pairID, dstQP, srcQP uint32) (s *slot, d *direction) {
	mask := uint32(len(t.slots) - 1)
	hash := hashKey(pair, dstQP, srcQP)
	for i := hash & mask; ; i = (i + 1) & mask {
		s = &t.slots[i]
		if s.index == 0 {
			return s, nil
		}
		if s.hash != hash {
			continue
		}
		if d = all.at(s.index - 1); d.dstQP == dstQP && d.id == pair && d.srcQP == srcQP {
			return s, d
		}
	}
}

// put stores the direction's index for a new key in the empty slot that find returned.
func (t *table) put(s *slot, hash, index uint32) {
	*s = slot{hash, index + 1}
	t.n++
	if t.n*4 < len(t.slots)*3 {
		return
	}
	old := t.slots
	t.slots = make([]slot, 2*len(old))
	mask := uint32(len(t.slots) - 1)
	for _, o := range old {
		if o.index == 0 {
			continue
		}
		i := o.hash & mask
		for t.slots[i].index != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = o
	}
}

// slab holds values of a lane in pieces, so that they neither move nor cost the collector one object each.
type slab[T any] struct {
	chunks [][]T
	n      int
}

// A chunk is what an allocation of 4 KiB has room for. Indices are those of the chunk and within it, side by side: they
// ascend, with gaps.
const (
	slabBytes = 4096 - 8 // the allocator takes a word
	slabBits  = 7
)

func (s *slab[T]) add() (v *T, index uint32) {
	last := len(s.chunks) - 1
	if last < 0 || len(s.chunks[last]) == cap(s.chunks[last]) {
		var v T
		s.chunks = append(s.chunks, make([]T, 0, min(slabBytes/unsafe.Sizeof(v), 1<<slabBits)))
		last++
	}
	c := &s.chunks[last]
	at := len(*c)
	*c = (*c)[:at+1]
	s.n++
	return &(*c)[at], uint32(last<<slabBits | at)
}

func (s *slab[T]) at(i uint32) *T { return &s.chunks[i>>slabBits][i&(1<<slabBits-1)] }

// each yields all, oldest first.
func (s *slab[T]) each(yield func(*T) bool) {
	for _, c := range s.chunks {
		for i := range c {
			if !yield(&c[i]) {
				return
			}
		}
	}
}
