package fabric

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// batchSize is how many frames one recvmmsg or sendmmsg moves at most.
const batchSize = 32

// mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
	_   [4]byte
}

// batch holds frames and the headers that name them to the kernel.
type batch struct {
	n    int
	p    [batchSize]*Packet
	hdrs [batchSize]mmsghdr
	iovs [batchSize]unix.Iovec
}

func newBatch() *batch {
	b := &batch{}
	for i := range b.hdrs {
		b.hdrs[i].hdr.Iov = &b.iovs[i]
		b.hdrs[i].hdr.SetIovlen(1)
	}
	return b
}

func (b *batch) add(p *Packet) {
	b.p[b.n] = p
	b.iovs[b.n].Base = &p.Data[0]
	b.iovs[b.n].SetLen(len(p.Data))
	b.n++
}

// flush sends what target to's batch holds. A frame that the interface does not take is counted and skipped.
func (d *epollDriver) flush(to int) {
	b, st := d.batches[to], &d.st.targets[to]
	for first := 0; first < b.n; {
		d.st.syscalls++
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(d.targets[to].fd), uintptr(unsafe.Pointer(&b.hdrs[first])), uintptr(b.n-first), unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			st.failed++
			first++
		default:
			st.sent += uint64(n)
			first += int(n)
		}
	}
	for i := range b.n {
		d.pool.Release(b.p[i])
		b.p[i] = nil
	}
	b.n = 0
	runtime.KeepAlive(b)
}

// readPackets reads what a packet socket holds.
func (d *epollDriver) readPackets(port int, in []arrival) []arrival {
	b := d.rx
	for range readBudget / batchSize {
		for b.n < batchSize {
			b.add(d.pool.Largest())
		}
		for i := range b.iovs {
			b.iovs[i].Base = &b.p[i].buf[0]
			b.iovs[i].SetLen(len(b.p[i].buf))
		}
		d.st.syscalls++
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(d.targets[port].fd), uintptr(unsafe.Pointer(&b.hdrs[0])), batchSize, unix.MSG_DONTWAIT, 0, 0)
		if errno != 0 {
			if errno != unix.EAGAIN && errno != unix.EINTR && gone(d.targets[port].fd) {
				d.lose(port)
			}
			return in
		}
		kept := 0 // buffers that are empty again move to the front
		for i := range b.p {
			p := b.p[i]
			if i < int(n) {
				size := int(b.hdrs[i].n)
				if b.hdrs[i].hdr.Flags&unix.MSG_TRUNC != 0 || size == len(p.buf) {
					d.st.targets[port].oversize++
				} else if fit, taken := d.pool.Fit(p, size); taken {
					in = append(in, arrival{port, fit})
					continue
				} else {
					in = append(in, arrival{port, fit})
				}
			}
			b.p[kept] = p
			kept++
		}
		b.n = kept
		if int(n) < batchSize {
			return in
		}
	}
	return in
}

// gone says whether the interface of a packet socket has been removed: the kernel then unbinds it.
func gone(fd int) bool {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return true
	}
	ll, ok := sa.(*unix.SockaddrLinklayer)
	return !ok || ll.Ifindex <= 0
}
