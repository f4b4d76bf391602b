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
	way    [2]uint32       // how its packets come, each direction; 0: none did
	dirs   [2][]*direction // from a to b, from b to a; the lane's
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
type pairCache struct {
	t     *interner
	slots []pairEntry
	n     int
}

type pairEntry struct {
	src, dst [16]byte
	id       uint32 // pairID plus 1; 0 is empty
}

// id is interner.id, mostly without it.
func (c *pairCache) id(src, dst *[16]byte) (id pairID, ok bool) {
	if c.slots == nil {
		c.slots = make([]pairEntry, 64)
	}
	e := c.find(src, dst)
	if e.id != 0 {
		return pairID(e.id - 1), true
	}
	if id, ok = c.t.id(*src, *dst); !ok {
		return 0, false
	}
	*e = pairEntry{*src, *dst, uint32(id) + 1}
	if c.n++; c.n*2 > len(c.slots) {
		old := c.slots
		c.slots = make([]pairEntry, 2*len(old))
		for i := range old {
			if old[i].id != 0 {
				*c.find(&old[i].src, &old[i].dst) = old[i]
			}
		}
	}
	return id, true
}

func (c *pairCache) find(src, dst *[16]byte) *pairEntry {
	le := binary.LittleEndian
	a, b := le.Uint64(src[8:]), le.Uint64(dst[8:])
	hi, lo := bits.Mul64(a^bits.RotateLeft64(le.Uint64(src[:]), 31)^0x9e3779b97f4a7c15, bits.RotateLeft64(b, 17)^le.Uint64(dst[:])^0xbf58476d1ce4e5b9)
	mask := uint64(len(c.slots) - 1)
	for i := (hi ^ lo) & mask; ; i = (i + 1) & mask {
		e := &c.slots[i]
		if e.id == 0 || le.Uint64(e.dst[8:]) == b && le.Uint64(e.src[8:]) == a && e.src == *src && e.dst == *dst {
			return e
		}
	}
}
