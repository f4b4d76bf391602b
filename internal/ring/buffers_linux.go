package ring

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Buffers is a ring of provided buffers from which the kernel takes one per read.
type Buffers struct {
	group uint16
	mem   []byte
	bufs  []buf
	tail  uint16
}

// buf is the kernel's struct io_uring_buf; the ring's tail lies in the reserved field of the first.
type buf struct {
	addr uint64
	len  uint32
	id   uint16
	tail uint16
}

// Buffers registers an empty ring of n (a power of two) buffers as a group.
func (r *Ring) Buffers(group uint16, n int) (*Buffers, error) {
	mem, err := unix.Mmap(-1, 0, n*int(unsafe.Sizeof(buf{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("io_uring: buffer ring: %w", err)
	}
	reg := struct {
		addr    uint64
		entries uint32
		group   uint16
		flags   uint16
		_       [3]uint64
	}{addr: uint64(uintptr(unsafe.Pointer(&mem[0]))), entries: uint32(n), group: group}
	if err := r.register(registerPbufRing, unsafe.Pointer(&reg), 1); err != nil {
		_ = unix.Munmap(mem)
		return nil, fmt.Errorf("io_uring: register %d buffers: %w", n, err)
	}
	b := &Buffers{group: group, mem: mem, bufs: unsafe.Slice((*buf)(unsafe.Pointer(&mem[0])), n)}
	r.groups = append(r.groups, b)
	return b, nil
}

// Provide gives the kernel b, under id; it must stay until a completion names it.
func (g *Buffers) Provide(b []byte, id uint16) {
	slot := &g.bufs[int(g.tail)&(len(g.bufs)-1)]
	slot.addr, slot.len, slot.id = uint64(uintptr(unsafe.Pointer(&b[0]))), uint32(len(b)), id
	g.tail++
	// The tail is 16 bits wide and there is no 16-bit atomic store: write it together with the first slot's id, with
	// which it shares an aligned 32-bit word and which stays what it is.
	first := &g.bufs[0]
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&first.id)), pair(first.id, g.tail))
}

// pair is the word whose memory holds id, then tail.
func pair(id, tail uint16) (word uint32) {
	p := (*[2]uint16)(unsafe.Pointer(&word))
	p[0], p[1] = id, tail
	return word
}
