package softnic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/rdcc/udp"
)

// mmsghdr is struct mmsghdr of sendmmsg(2) and recvmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
	_   [4]byte
}

const (
	batchSize   = 32
	controlSize = 64 // room for a TOS and a drop count
)

// batch is a set of messages for one sendmmsg or recvmmsg, with its buffers. Everything points into it, so it must not
// be copied.
type batch struct {
	hdrs    [batchSize]mmsghdr
	iovs    [batchSize]unix.Iovec
	names   [batchSize]unix.RawSockaddrInet4
	control [batchSize][controlSize]byte
	buf     []byte
	size    int // of one buffer
	n       int // messages in it
}

func newBatch(size int) *batch {
	b := &batch{buf: make([]byte, size*batchSize), size: size}
	for i := range batchSize {
		h := &b.hdrs[i].hdr
		b.iovs[i].Base = &b.buf[i*size]
		h.Iov = &b.iovs[i]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&b.names[i]))
		h.Control = &b.control[i][0]
	}
	return b
}

func (b *batch) buffer(i int) []byte { return b.buf[i*b.size : (i+1)*b.size : (i+1)*b.size] }

// recv fills the batch with what has arrived and does not wait.
func (b *batch) recv(fd int) (int, error) {
	for i := range batchSize {
		h := &b.hdrs[i].hdr
		h.Namelen = unix.SizeofSockaddrInet4
		h.SetControllen(controlSize)
		b.iovs[i].SetLen(b.size)
	}
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.hdrs)), batchSize, unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		b.n = 0
		if errno == unix.EAGAIN || errno == unix.EINTR {
			return 0, nil
		}
		return 0, errno
	}
	b.n = int(n)
	return b.n, nil
}

// message is one received datagram.
type message struct {
	src     [4]byte
	sport   uint16
	tos     byte
	ipID    uint16
	df      bool
	dropped uint32 // datagrams that the socket has dropped since it was opened; 0: none so far
	data    []byte
}

func (b *batch) message(i int, m *message) {
	port := (*[2]byte)(unsafe.Pointer(&b.names[i].Port))
	// A UDP socket does not see the IP header: this is what our own NICs send.
	*m = message{df: true, src: b.names[i].Addr, sport: binary.BigEndian.Uint16(port[:]), data: b.buffer(i)[:b.hdrs[i].n]}
	c := b.control[i][:min(uint64(controlSize), uint64(b.hdrs[i].hdr.Controllen))]
	for level, typ, data, c, ok := udp.NextControl(c); ok; level, typ, data, c, ok = udp.NextControl(c) {
		switch {
		case level == unix.SOL_IP && typ == unix.IP_TOS && len(data) >= 1:
			m.tos = data[0]
		case level == unix.SOL_SOCKET && typ == unix.SO_RXQ_OVFL && len(data) >= 4:
			m.dropped = binary.NativeEndian.Uint32(data)
		}
	}
}

// put makes message i go to dst with the given TOS; its data is the first n bytes of buffer(i).
func (b *batch) put(i int, dst [4]byte, port uint16, tos byte, n int) {
	name := &b.names[i]
	name.Family = unix.AF_INET
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&name.Port))[:], port)
	name.Addr = dst
	h := &b.hdrs[i].hdr
	h.Namelen = unix.SizeofSockaddrInet4
	b.iovs[i].SetLen(n)
	c := udp.AppendControl(b.control[i][:0], unix.SOL_IP, unix.IP_TOS, 4)
	binary.NativeEndian.PutUint32(c[unix.SizeofCmsghdr:], uint32(tos))
	h.SetControllen(len(c))
}

// sendmmsg sends messages and returns how many went out before an error; an error is that of the first.
func sendmmsg(fd int, hdrs []mmsghdr) (int, error) {
	sent, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&hdrs[0])), uintptr(len(hdrs)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(sent), nil
}

const socketBuffer = 16 << 20

// openSocket opens a UDP socket that sends with IP identification 0 and DF (what the ICRC is computed for): it stays
// unconnected and does path MTU discovery by probing. The UDP checksum is off, as RoCEv2 NICs send it.
func openSocket(ip netip.Addr, port int, priority int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	set := func(name string, level, opt, value int) {
		if e := unix.SetsockoptInt(fd, level, opt, value); e != nil && err == nil {
			err = fmt.Errorf("setsockopt %s: %w", name, e)
		}
	}
	set("IP_MTU_DISCOVER", unix.SOL_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	set("SO_NO_CHECK", unix.SOL_SOCKET, unix.SO_NO_CHECK, 1)
	set("SO_PRIORITY", unix.SOL_SOCKET, unix.SO_PRIORITY, min(priority, 6)) // 7 needs CAP_NET_ADMIN
	if port == roce.Port {
		set("IP_RECVTOS", unix.SOL_IP, unix.IP_RECVTOS, 1)
		set("SO_RXQ_OVFL", unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1)
		set("UDP_GRO", unix.SOL_UDP, unix.UDP_GRO, 0)
		force(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF)
	}
	force(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF)
	if err == nil {
		if e := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: ip.As4()}); e != nil {
			err = os.NewSyscallError("bind", e)
		}
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// force sets a buffer size past the system's limit where that is allowed, else up to it.
func force(fd, forced, plain int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, forced, socketBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, socketBuffer)
	}
}

// openSource opens the sending socket of a queue pair. NICs choose the UDP source port per queue pair, in 49152 to 65535,
// so that ECMP spreads them and a flow keeps its path; the port follows from the two numbers and moves on when taken.
func openSource(ip netip.Addr, priority int, local, remote uint32) (fd int, port uint16, err error) {
	h := (uint64(local)<<24 | uint64(remote)) * 0x9e3779b97f4a7c15
	for i := range uint64(64) {
		port = 0xc000 | uint16((h>>48+i)&0x3fff)
		fd, err = openSocket(ip, int(port), priority)
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		return -1, 0, fmt.Errorf("UDP source port of queue pair 0x%x: %w", local, err)
	}
	return fd, port, nil
}

// waiter sleeps until a descriptor is readable or a time has come, to the nanosecond that the kernel's timers allow.
type waiter struct{ fds [3]unix.PollFd }

// ready says which descriptors are readable.
type ready struct{ socket, wake, rdcc bool }

func newWaiter(socket, wake int) *waiter {
	return &waiter{[3]unix.PollFd{{Fd: int32(socket), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}, {Fd: -1, Events: unix.POLLIN}}}
}

// rdcc is the descriptor of the RDCC port from now on; -1: none.
func (w *waiter) rdcc(fd int) { w.fds[2].Fd = int32(fd) }

// wait returns what is readable. A negative d waits for ever.
func (w *waiter) wait(d time.Duration) (r ready, err error) {
	var ts *unix.Timespec
	if d >= 0 {
		t := unix.NsecToTimespec(int64(d))
		ts = &t
	}
	n, err := unix.Ppoll(w.fds[:], ts, nil)
	if err == unix.EINTR {
		return ready{}, nil
	}
	if err != nil || n == 0 {
		return ready{}, err
	}
	return ready{w.fds[0].Revents != 0, w.fds[1].Revents != 0, w.fds[2].Revents != 0}, nil
}
