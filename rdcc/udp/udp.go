// Package udp is UDP sockets for endpoints: many datagrams a system call (recvmmsg, sendmmsg), code points by datagram, the
// local address to which a datagram came, and a wait with microseconds. One goroutine uses a socket.
//
// On systems other than Linux it works datagram by datagram, for development.
package udp

import "net/netip"

// Batch is how many datagrams one system call moves at most.
const Batch = 64

// Options say how to open a socket. Zero values mean what is stated.
type Options struct {
	// Addr is where to listen. An unspecified IPv6 address means both families on one socket (IPV6_V6ONLY off); an IPv6
	// address means that family alone.
	Addr netip.AddrPort
	TOS  uint8 // of all datagrams, unless Put says another
	Size int   // of the largest datagram; 0 means 2048
	// Whole forbids fragments: a datagram that the path cannot carry is an error, not two.
	Whole  bool
	Buffer int // of the kernel, each direction; 0 means 4 MiB, or what the system allows
}

// Packet is a datagram that was received. Data is valid until the next Recv.
type Packet struct {
	From  netip.AddrPort
	Local netip.Addr // to which it was sent; invalid when the socket listens on one address alone
	TOS   uint8
	Data  []byte
	Cut   bool // it was longer than the socket's Size
}

// Stats count what a socket did.
type Stats struct {
	Received, Sent uint64 // datagrams
	Syscalls       uint64
	SendErrors     uint64 // datagrams that the kernel did not take
	Dropped        uint64 // that found the kernel's receive buffer full, as last told by a datagram
	LastError      error
}
