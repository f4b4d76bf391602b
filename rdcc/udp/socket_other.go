//go:build !linux

package udp

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// Socket is a UDP socket. It is for one goroutine.
type Socket struct {
	conn  *net.UDPConn
	size  int
	addr  netip.AddrPort
	next  []byte
	Stats Stats

	mu     sync.Mutex
	queue  []Packet
	signal func()
}

// Open opens a socket. Code points and fragments are left to the system.
func Open(o Options) (*Socket, error) {
	if o.Size == 0 {
		o.Size = 2048
	}
	network := "udp4"
	switch a := o.Addr.Addr().Unmap(); {
	case a.Is6() && a.IsUnspecified():
		network = "udp"
	case a.Is6():
		network = "udp6"
	}
	conn, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(o.Addr))
	if err != nil {
		return nil, err
	}
	port := conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	s := &Socket{conn: conn, size: o.Size, next: make([]byte, 0, o.Size), addr: netip.AddrPortFrom(o.Addr.Addr(), port)}
	go s.read()
	return s, nil
}

// maxQueued bounds what was read and not yet taken.
const maxQueued = 4096

func (s *Socket) read() {
	for {
		b := make([]byte, s.size)
		n, from, err := s.conn.ReadFromUDPAddrPort(b)
		if err != nil {
			if ne, ok := err.(net.Error); ok && !ne.Timeout() {
				return
			}
			continue
		}
		s.mu.Lock()
		if len(s.queue) < maxQueued {
			s.queue = append(s.queue, Packet{From: netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), Data: b[:n]})
		}
		signal := s.signal
		s.mu.Unlock()
		if signal != nil {
			signal()
		}
	}
}

// Addr is where the socket listens.
func (s *Socket) Addr() netip.AddrPort { return s.addr }

// Close closes the socket.
func (s *Socket) Close() error { return s.conn.Close() }

// Recv hands what has arrived to f, at most a batch, and does not wait.
func (s *Socket) Recv(f func(*Packet)) (int, error) {
	s.mu.Lock()
	n := min(len(s.queue), Batch)
	taken := append([]Packet(nil), s.queue[:n]...)
	s.queue = s.queue[n:]
	s.mu.Unlock()
	s.Stats.Received += uint64(n)
	for i := range taken {
		f(&taken[i])
	}
	return n, nil
}

// Next is where the next datagram is to be written.
func (s *Socket) Next() []byte { return s.next[:0] }

// Put sends the first n octets of Next.
func (s *Socket) Put(n int, to netip.AddrPort, _ netip.Addr, _ int) {
	s.Stats.Syscalls++
	if _, err := s.conn.WriteToUDPAddrPort(s.next[:n], to); err != nil {
		s.Stats.SendErrors++
		s.Stats.LastError = err
		return
	}
	s.Stats.Sent++
}

// Flush does nothing: Put has sent.
func (s *Socket) Flush() {}

// Queued says how many datagrams wait for Flush.
func (s *Socket) Queued() int { return 0 }

// Waiter waits for datagrams on several sockets, a time, or Wake.
type Waiter struct{ c chan struct{} }

// NewWaiter makes a waiter.
func NewWaiter(sockets ...*Socket) (*Waiter, error) {
	w := &Waiter{make(chan struct{}, 1)}
	for _, s := range sockets {
		s.mu.Lock()
		s.signal = w.Wake
		s.mu.Unlock()
	}
	return w, nil
}

// Precise does nothing here.
func Precise() error { return nil }

// Wait waits until a socket is readable, d has passed, or Wake was called. A negative d waits for ever.
func (w *Waiter) Wait(d time.Duration) error {
	if d < 0 {
		<-w.c
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-w.c:
	case <-t.C:
	}
	return nil
}

// Wake ends a Wait, from any goroutine.
func (w *Waiter) Wake() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// Close frees the waiter.
func (w *Waiter) Close() error { return nil }
