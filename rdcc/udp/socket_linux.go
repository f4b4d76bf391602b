package udp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is struct mmsghdr of sendmmsg(2) and recvmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
	_   [4]byte
}

const controlSize = 128 // room for a TOS, a packet info and a drop count

// batch is messages for one system call. Everything points into it: it must not be copied.
type batch struct {
	hdrs    [Batch]mmsghdr
	iovs    [Batch]unix.Iovec
	names   [Batch]unix.RawSockaddrInet6
	control [Batch][controlSize]byte
	buf     []byte
	n       int
}

func newBatch(size int) *batch {
	b := &batch{buf: make([]byte, size*Batch)}
	for i := range Batch {
		h := &b.hdrs[i].hdr
		b.iovs[i].Base = &b.buf[i*size]
		h.Iov = &b.iovs[i]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&b.names[i]))
		h.Control = &b.control[i][0]
	}
	return b
}

// Socket is a UDP socket. It is for one goroutine.
type Socket struct {
	fd     int
	v6     bool
	wild   bool
	size   int
	addr   netip.AddrPort
	rx, tx *batch
	Stats  Stats
}

// Open opens a socket.
func Open(o Options) (*Socket, error) {
	if o.Size == 0 {
		o.Size = 2048
	}
	if o.Buffer == 0 {
		o.Buffer = 4 << 20
	}
	o.Addr = netip.AddrPortFrom(o.Addr.Addr().Unmap(), o.Addr.Port())
	s := &Socket{v6: o.Addr.Addr().Is6(), size: o.Size, wild: o.Addr.Addr().IsUnspecified()}
	family := unix.AF_INET
	if s.v6 {
		family = unix.AF_INET6
	}
	var err error
	if s.fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP); err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	set := func(name string, level, opt, value int) {
		if e := unix.SetsockoptInt(s.fd, level, opt, value); e != nil && err == nil {
			err = fmt.Errorf("setsockopt %s: %w", name, e)
		}
	}
	probe := func(v int) int {
		if o.Whole {
			return v
		}
		return 0 // IP_PMTUDISC_DONT
	}
	v4 := !s.v6 || s.wild // IPv4 datagrams may come and go
	if s.v6 {
		only := 1
		if s.wild {
			only = 0
		}
		set("IPV6_V6ONLY", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only)
		set("IPV6_RECVTCLASS", unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1)
		set("IPV6_TCLASS", unix.IPPROTO_IPV6, unix.IPV6_TCLASS, int(o.TOS))
		set("IPV6_MTU_DISCOVER", unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, probe(unix.IPV6_PMTUDISC_PROBE))
		if s.wild {
			set("IPV6_RECVPKTINFO", unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
		}
	}
	if v4 {
		set("IP_RECVTOS", unix.SOL_IP, unix.IP_RECVTOS, 1)
		set("IP_TOS", unix.SOL_IP, unix.IP_TOS, int(o.TOS))
		set("IP_MTU_DISCOVER", unix.SOL_IP, unix.IP_MTU_DISCOVER, probe(unix.IP_PMTUDISC_PROBE))
		if s.wild && !s.v6 {
			set("IP_PKTINFO", unix.SOL_IP, unix.IP_PKTINFO, 1)
		}
	}
	set("SO_RXQ_OVFL", unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1)
	// Senders must set the UDP checksum (Message Formats): this is the default, said so that nothing can turn it off.
	set("SO_NO_CHECK", unix.SOL_SOCKET, unix.SO_NO_CHECK, 0)
	force(s.fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, o.Buffer)
	force(s.fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, o.Buffer)
	if err == nil {
		err = s.bind(o.Addr)
	}
	if err != nil {
		unix.Close(s.fd)
		return nil, err
	}
	s.rx, s.tx = newBatch(o.Size), newBatch(o.Size)
	return s, nil
}

func (s *Socket) bind(a netip.AddrPort) error {
	var sa unix.Sockaddr
	if s.v6 {
		sa = &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	} else {
		sa = &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	if err := unix.Bind(s.fd, sa); err != nil {
		return os.NewSyscallError("bind", err)
	}
	got, err := unix.Getsockname(s.fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	switch g := got.(type) {
	case *unix.SockaddrInet6:
		s.addr = netip.AddrPortFrom(a.Addr(), uint16(g.Port))
	case *unix.SockaddrInet4:
		s.addr = netip.AddrPortFrom(a.Addr(), uint16(g.Port))
	}
	return nil
}

// Addr is where the socket listens.
func (s *Socket) Addr() netip.AddrPort { return s.addr }

// Close closes the socket.
func (s *Socket) Close() error { return unix.Close(s.fd) }

// Recv hands what has arrived to f, at most a batch, and does not wait. It returns how many there were.
func (s *Socket) Recv(f func(*Packet)) (int, error) {
	b := s.rx
	for i := range Batch {
		h := &b.hdrs[i].hdr
		h.Namelen = unix.SizeofSockaddrInet6
		h.SetControllen(controlSize)
		b.iovs[i].SetLen(s.size)
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&b.hdrs)), Batch, unix.MSG_DONTWAIT, 0, 0)
	s.Stats.Syscalls++
	switch errno {
	case 0:
	case unix.EAGAIN, unix.EINTR:
		return 0, nil
	default:
		return 0, os.NewSyscallError("recvmmsg", errno)
	}
	s.Stats.Received += uint64(n)
	var p Packet
	for i := range int(n) {
		s.packet(i, &p)
		f(&p)
	}
	return int(n), nil
}

func (s *Socket) packet(i int, p *Packet) {
	b := s.rx
	h := &b.hdrs[i].hdr
	*p = Packet{From: s.from(&b.names[i]), Data: b.buf[i*s.size : i*s.size+int(b.hdrs[i].n)], Cut: h.Flags&unix.MSG_TRUNC != 0}
	c := b.control[i][:min(uint64(controlSize), uint64(h.Controllen))]
	for level, typ, data, c, ok := NextControl(c); ok; level, typ, data, c, ok = NextControl(c) {
		switch {
		case level == unix.SOL_IP && typ == unix.IP_TOS && len(data) >= 1:
			p.TOS = data[0]
		case level == unix.IPPROTO_IPV6 && typ == unix.IPV6_TCLASS && len(data) >= 4:
			p.TOS = uint8(binary.NativeEndian.Uint32(data))
		case level == unix.SOL_IP && typ == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			p.Local = netip.AddrFrom4([4]byte(data[8:12]))
		case level == unix.IPPROTO_IPV6 && typ == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			p.Local = netip.AddrFrom16([16]byte(data[:16])).Unmap()
		case level == unix.SOL_SOCKET && typ == unix.SO_RXQ_OVFL && len(data) >= 4:
			s.Stats.Dropped = uint64(binary.NativeEndian.Uint32(data))
		}
	}
}

func (s *Socket) from(name *unix.RawSockaddrInet6) netip.AddrPort {
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&name.Port))[:])
	if name.Family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(name)).Addr), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16(name.Addr).Unmap(), port)
}

// Next is where the next datagram is to be written, empty and with room for the socket's Size.
func (s *Socket) Next() []byte {
	if s.tx.n == Batch {
		s.Flush()
	}
	i := s.tx.n
	return s.tx.buf[i*s.size : i*s.size : (i+1)*s.size]
}

// Put queues the first n octets of Next for to. A valid local is the address that they come from, a tos of less than
// zero the socket's own.
func (s *Socket) Put(n int, to netip.AddrPort, local netip.Addr, tos int) {
	b, i := s.tx, s.tx.n
	h := &b.hdrs[i].hdr
	name := &b.names[i]
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&name.Port))[:], to.Port())
	if s.v6 {
		name.Family, name.Addr, name.Flowinfo, name.Scope_id = unix.AF_INET6, to.Addr().As16(), 0, 0
		h.Namelen = unix.SizeofSockaddrInet6
	} else {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		v4.Family, h.Namelen = unix.AF_INET, unix.SizeofSockaddrInet4
		if to.Addr().Is4() || to.Addr().Is4In6() {
			v4.Addr = to.Addr().Unmap().As4()
		} else { // the kernel says that it is none of this family's
			name.Family, name.Addr, h.Namelen = unix.AF_INET6, to.Addr().As16(), unix.SizeofSockaddrInet6
		}
	}
	b.iovs[i].SetLen(n)
	c := b.control[i][:0]
	if tos >= 0 {
		if to.Addr().Is4() || to.Addr().Is4In6() {
			c = AppendControl(c, unix.SOL_IP, unix.IP_TOS, 4)
		} else {
			c = AppendControl(c, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, 4)
		}
		binary.NativeEndian.PutUint32(c[len(c)-8:], uint32(tos)) // 4 octets, and 4 to align
	}
	if local.IsValid() && s.wild {
		if s.v6 {
			at := len(c) + unix.SizeofCmsghdr
			c = AppendControl(c, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
			a := local.As16()
			copy(c[at:], a[:])
		} else {
			at := len(c) + unix.SizeofCmsghdr
			c = AppendControl(c, unix.SOL_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
			a := local.As4()
			copy(c[at+4:], a[:])
		}
	}
	h.SetControllen(len(c))
	b.n++
}

// Flush sends what was put. A datagram that the kernel does not take is counted and skipped: to a protocol that repeats it
// is one that was lost. Where the kernel's buffer is full, Flush waits for room.
func (s *Socket) Flush() {
	b := s.tx
	for first := 0; first < b.n; {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&b.hdrs[first])), uintptr(b.n-first), unix.MSG_DONTWAIT, 0, 0)
		s.Stats.Syscalls++
		switch errno {
		case 0:
			s.Stats.Sent += uint64(n)
			first += int(n)
		case unix.EINTR:
		case unix.EAGAIN:
			fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}
			if k, err := unix.Poll(fds, 100); k == 0 || err != nil && err != unix.EINTR {
				s.Stats.SendErrors += uint64(b.n - first)
				s.Stats.LastError = os.NewSyscallError("sendmmsg", errno)
				first = b.n
			}
		default:
			s.Stats.SendErrors++
			s.Stats.LastError = os.NewSyscallError("sendmmsg", errno)
			first++
		}
	}
	b.n = 0
}

// Queued says how many datagrams wait for Flush.
func (s *Socket) Queued() int { return s.tx.n }

// Waiter waits for datagrams on several sockets, a time, or Wake.
type Waiter struct {
	fds  []unix.PollFd
	wake int
}

// NewWaiter makes a waiter.
func NewWaiter(sockets ...*Socket) (*Waiter, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	w := &Waiter{wake: wake, fds: []unix.PollFd{{Fd: int32(wake), Events: unix.POLLIN}}}
	for _, s := range sockets {
		w.fds = append(w.fds, unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN})
	}
	return w, nil
}

// Precise makes this thread's waits end in time. The goroutine must be locked to its thread, and end with it.
func Precise() error { return unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) }

// Wait waits until a socket is readable, d has passed, or Wake was called. A negative d waits for ever.
func (w *Waiter) Wait(d time.Duration) error {
	var ts *unix.Timespec
	if d >= 0 {
		t := unix.NsecToTimespec(int64(d))
		ts = &t
	}
	n, err := unix.Ppoll(w.fds, ts, nil)
	if err != nil && err != unix.EINTR {
		return os.NewSyscallError("ppoll", err)
	}
	if n > 0 && w.fds[0].Revents != 0 {
		var b [8]byte
		_, _ = unix.Read(w.wake, b[:])
	}
	return nil
}

// Wake ends a Wait, from any goroutine.
func (w *Waiter) Wake() { _, _ = unix.Write(w.wake, []byte{0: 1, 7: 1}) }

// Close frees the waiter; no Wake may follow.
func (w *Waiter) Close() error { return unix.Close(w.wake) }

// force sets a buffer size past the system's limit where that is allowed, else up to it.
func force(fd, forced, plain, size int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, forced, size) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, size)
	}
}
