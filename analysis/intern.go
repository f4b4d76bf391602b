package analysis

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"sync"
	"sync/atomic"
)

// pairID names two addresses and a direction: the index of a hostPair, times two, plus 1 from its b to its a.
type pairID uint32

// hostPair is two addresses between which packets were seen, and the directions of QPs between them.
type hostPair struct {
	a, b   addrID
	lane   int32 // -1 until its first packet is handed out
	joined bool
	way    [2]uint32 // how its packets come, each direction; 0: none did
	newest [2]uint32 // one more than the index of the last direction from a to b, and from b to a; the lane's
}

// interner gives numbers to addresses and pairs of them. Several goroutines ask; each keeps what it knows in a pairCache.
type interner struct {
	mu    sync.Mutex
	addrs map[[16]byte]addrID
	names []netip.Addr
	ids   map[[2]addrID]pairID
	n     int
	pairs [1 << 14]atomic.Pointer[pairChunk]
}

const (
	pairChunkBits = 8
	maxPairs      = 1 << (14 + pairChunkBits)
)

type pairChunk [1 << pairChunkBits]hostPair

func newInterner() *interner {
	return &interner{addrs: map[[16]byte]addrID{}, ids: map[[2]addrID]pairID{}}
}

// pair is the pair of an id; it may be called at any time.
func (t *interner) pair(id pairID) *hostPair {
	i := id >> 1
	return &t.pairs[i>>pairChunkBits].Load()[i&(1<<pairChunkBits-1)]
}

func (t *interner) src(id pairID) addrID {
	p := t.pair(id)
	if id&1 == 0 {
		return p.a
	}
	return p.b
}

// back is the other direction; both are one where a host talks to itself.
func (t *interner) back(id pairID) pairID {
	if p := t.pair(id); p.a == p.b {
		return id
	}
	return id ^ 1
}

func (t *interner) dst(id pairID) addrID { return t.src(id ^ 1) }

// addr is the address of a number; nobody may intern meanwhile.
func (t *interner) addr(id addrID) netip.Addr { return t.names[id] }

func (t *interner) addrLocked(a [16]byte) addrID {
	id, ok := t.addrs[a]
	if !ok {
		id = addrID(len(t.names))
		t.addrs[a] = id
		t.names = append(t.names, netip.AddrFrom16(a).Unmap())
	}
	return id
}

// id gives the number of (src, dst), a new one if need be; ok is false when there are too many.
func (t *interner) id(src, dst [16]byte) (id pairID, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, d := t.addrLocked(src), t.addrLocked(dst)
	if id, ok := t.ids[[2]addrID{s, d}]; ok {
		return id, true
	}
	if t.n == maxPairs {
		return 0, false
	}
	id = pairID(t.n) << 1
	chunk := &t.pairs[t.n>>pairChunkBits]
	if chunk.Load() == nil {
		chunk.Store(new(pairChunk))
	}
	t.pairs[t.n>>pairChunkBits].Load()[t.n&(1<<pairChunkBits-1)] = hostPair{a: s, b: d, lane: -1}
	t.n++
	t.ids[[2]addrID{s, d}] = id
	if s != d { // loopback: both directions are one
		t.ids[[2]addrID{d, s}] = id | 1
	}
	return id, true
}

// pairCache is one goroutine's memory of pairs: a hash table with linear probing, so that a packet costs one comparison.
// IPv4 has one of its own, of which three times as much fits into the first-level cache.
type pairCache struct {
	t     *interner
	slots []pairEntry
	n     int

	four  []pairEntry4
	nFour int
}

type pairEntry4 struct {
	addrs uint64 // source and destination
	id    uint32 // pairID plus 1; 0 is empty
}

type pairEntry struct {
	words [4]uint64 // source and destination, each in two
	id    uint32    // pairID plus 1; 0 is empty
}

// id is interner.id, mostly without it.
func (c *pairCache) id(src, dst *[16]byte) (id pairID, ok bool) {
	be := binary.BigEndian
	return c.find(be.Uint64(src[:]), be.Uint64(src[8:]), be.Uint64(dst[:]), be.Uint64(dst[8:]))
}

// id4 is id for IPv4.
func (c *pairCache) id4(src, dst uint32) (id pairID, ok bool) {
	addrs := uint64(src)<<32 | uint64(dst)
	if len(c.four) > 0 {
		if e := c.find4(addrs); e.id != 0 {
			return pairID(e.id - 1), true
		}
	}
	if id, ok = c.find(0, 0xffff_0000_0000|uint64(src), 0, 0xffff_0000_0000|uint64(dst)); !ok {
		return 0, false
	}
	if c.nFour++; c.nFour*2 > len(c.four) {
		old := c.four
		c.four = make([]pairEntry4, max(64, 2*len(old)))
		for _, e := range old {
			if e.id != 0 {
				*c.find4(e.addrs) = e
			}
		}
	}
	*c.find4(addrs) = pairEntry4{addrs, uint32(id) + 1}
	return id, true
}

func (c *pairCache) find4(addrs uint64) *pairEntry4 {
	mask := uint64(len(c.four) - 1)
	for i := addrs * 0x9e3779b97f4a7c15 >> 40 & mask; ; i = (i + 1) & mask {
		if e := &c.four[i]; e.addrs == addrs || e.id == 0 {
			return e
		}
	}
}

func (c *pairCache) find(s0, s1, d0, d1 uint64) (id pairID, ok bool) {
	hi, lo := bits.Mul64(s1^bits.RotateLeft64(s0, 31)^0x9e3779b97f4a7c15, bits.RotateLeft64(d1, 17)^d0^0xbf58476d1ce4e5b9)
	if len(c.slots) > 0 {
		mask := uint64(len(c.slots) - 1)
		for i := (hi ^ lo) & mask; ; i = (i + 1) & mask {
			e := &c.slots[i]
			if e.id == 0 {
				break
			}
			if w := &e.words; w[3] == d1 && w[1] == s1 && w[0] == s0 && w[2] == d0 {
				return pairID(e.id - 1), true
			}
		}
	}
	return c.learn([4]uint64{s0, s1, d0, d1})
}

// learn asks for a pair that is not known yet.
func (c *pairCache) learn(words [4]uint64) (id pairID, ok bool) {
	var src, dst [16]byte
	be := binary.BigEndian
	be.PutUint64(src[:], words[0])
	be.PutUint64(src[8:], words[1])
	be.PutUint64(dst[:], words[2])
	be.PutUint64(dst[8:], words[3])
	if id, ok = c.t.id(src, dst); !ok {
		return 0, false
	}
	if c.n++; c.n*2 > len(c.slots) {
		old := c.slots
		c.slots = make([]pairEntry, max(64, 2*len(old)))
		for i := range old {
			if old[i].id != 0 {
				c.put(old[i])
			}
		}
	}
	c.put(pairEntry{words, uint32(id) + 1})
	return id, true
}

func (c *pairCache) put(e pairEntry) {
	w := &e.words
	hi, lo := bits.Mul64(w[1]^bits.RotateLeft64(w[0], 31)^0x9e3779b97f4a7c15, bits.RotateLeft64(w[3], 17)^w[2]^0xbf58476d1ce4e5b9)
	mask := uint64(len(c.slots) - 1)
	i := (hi ^ lo) & mask
	for c.slots[i].id != 0 {
		i = (i + 1) & mask
	}
	c.slots[i] = e
}
