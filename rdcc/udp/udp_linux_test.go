package udp

import (
	"encoding/binary"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func open(t *testing.T, o Options) *Socket {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// collect receives n datagrams.
func collect(t *testing.T, s *Socket, n int) (all []Packet) {
	t.Helper()
	w, err := NewWaiter(s)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for end := time.Now().Add(time.Minute); len(all) < n; {
		if time.Now().After(end) {
			t.Fatalf("%d datagrams of %d", len(all), n)
		}
		if _, err := s.Recv(func(p *Packet) {
			q := *p
			q.Data = append([]byte(nil), p.Data...)
			all = append(all, q)
		}); err != nil {
			t.Fatal(err)
		}
		if len(all) < n {
			_ = w.Wait(100 * time.Millisecond)
		}
	}
	return all
}

// TestSocket: more datagrams than a batch, in order, from where they were to come, with their code points.
func TestSocket(t *testing.T) {
	for _, row := range []struct{ listen, from, to, reason string }{
		{"127.0.0.2", "127.0.0.1", "127.0.0.2", "IPv4"},
		{"::1", "::1", "::1", "IPv6"},
		{"::", "127.0.0.1", "127.0.0.3", "IPv4 at a socket of both"},
		{"::", "::1", "::1", "IPv6 at a socket of both"},
		{"0.0.0.0", "127.0.0.1", "127.0.0.4", "all addresses of IPv4"},
	} {
		a := open(t, Options{Addr: netip.AddrPortFrom(netip.MustParseAddr(row.listen), 0), TOS: 0x20})
		b := open(t, Options{Addr: netip.AddrPortFrom(netip.MustParseAddr(row.from), 0)})
		to := netip.AddrPortFrom(netip.MustParseAddr(row.to), a.Addr().Port())
		const n = Batch + 10
		for i := range n {
			tos := i%64<<2 | 1
			if i == 0 {
				tos = -1
			}
			p := binary.BigEndian.AppendUint32(b.Next(), uint32(i))
			b.Put(len(p), to, netip.Addr{}, tos)
		}
		b.Flush()
		for i, p := range collect(t, a, n) {
			want := uint8(i%64<<2 | 1)
			if i == 0 {
				want = 0
			}
			local := netip.Addr{}
			if a.wild {
				local = to.Addr()
			}
			if binary.BigEndian.Uint32(p.Data) != uint32(i) || p.TOS != want || p.From != b.Addr() || p.Local != local || p.Cut {
				t.Fatalf("%s: datagram %d: %+v, want TOS %d, from %v, at %v", row.reason, i, p, want, b.Addr(), local)
			}
		}
		// Back, from the address that was written to and with the socket's own code point.
		reply := append(a.Next(), "back"...)
		a.Put(len(reply), b.Addr(), netip.MustParseAddr(row.to), -1)
		a.Flush()
		if p := collect(t, b, 1)[0]; p.From != to || p.TOS != 0x20 || string(p.Data) != "back" {
			t.Errorf("%s: %+v, want from %v with TOS 0x20", row.reason, p, to)
		}
		if b.Stats.Sent != n || a.Stats.Received != n || b.Stats.Syscalls > 8 {
			t.Errorf("%s: %+v, %+v", row.reason, a.Stats, b.Stats)
		}
	}
}

// TestFamilies: a socket of one family does not take the other's datagrams, and says that it cannot send them.
func TestFamilies(t *testing.T) {
	for _, row := range []struct{ at, to string }{{"127.0.0.1", "[::1]:9"}, {"::1", "127.0.0.1:9"}} {
		s := open(t, Options{Addr: netip.AddrPortFrom(netip.MustParseAddr(row.at), 0)})
		b := append(s.Next(), 0)
		s.Put(len(b), netip.MustParseAddrPort(row.to), netip.Addr{}, -1)
		s.Flush()
		if s.Stats.SendErrors != 1 || s.Stats.LastError == nil {
			t.Errorf("from %s to %s: %+v", row.at, row.to, s.Stats)
		}
	}
	only, err := unix.GetsockoptInt(open(t, Options{Addr: netip.MustParseAddrPort("[::1]:0")}).fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY)
	if err != nil || only != 1 {
		t.Errorf("IPV6_V6ONLY of a socket on an IPv6 address is %d, %v", only, err)
	}
	only, err = unix.GetsockoptInt(open(t, Options{Addr: netip.MustParseAddrPort("[::]:0")}).fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY)
	if err != nil || only != 0 {
		t.Errorf("IPV6_V6ONLY of a socket on all addresses is %d, %v", only, err)
	}
}

// TestChecksum: datagrams carry a UDP checksum in both families.
func TestChecksum(t *testing.T) {
	for _, at := range []string{"127.0.0.1", "::1"} {
		s := open(t, Options{Addr: netip.AddrPortFrom(netip.MustParseAddr(at), 0)})
		if off, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_NO_CHECK); err != nil || off != 0 {
			t.Errorf("%s: SO_NO_CHECK is %d, %v", at, off, err)
		}
		if os.Getuid() != 0 {
			continue // looking at the datagram itself needs a raw socket
		}
		family := unix.AF_INET
		if s.v6 {
			family = unix.AF_INET6
		}
		tap, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(tap)
		tv := unix.NsecToTimeval(int64(10 * time.Second))
		if err := unix.SetsockoptTimeval(tap, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
			t.Fatal(err)
		}
		b := append(s.Next(), "checked"...)
		s.Put(len(b), s.Addr(), netip.Addr{}, -1)
		s.Flush()
		for buf := make([]byte, 2048); ; {
			n, _, err := unix.Recvfrom(tap, buf, 0)
			if err != nil {
				t.Fatalf("%s: the datagram was not seen: %v", at, err)
			}
			p := buf[:n]
			if !s.v6 {
				p = p[int(p[0]&15)*4:]
			}
			if len(p) < 8 || binary.BigEndian.Uint16(p[2:]) != s.Addr().Port() {
				continue // another's
			}
			if binary.BigEndian.Uint16(p[6:]) == 0 {
				t.Errorf("%s: checksum zero", at)
			}
			break
		}
	}
}

// TestWaiter: a wait ends with a datagram, at its time, and by Wake.
func TestWaiter(t *testing.T) {
	s := open(t, Options{Addr: netip.MustParseAddrPort("127.0.0.1:0")})
	w, err := NewWaiter(s)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Wait(time.Microsecond); err != nil {
		t.Error(err)
	}
	w.Wake()
	w.Wake()
	if err := w.Wait(-1); err != nil {
		t.Error(err)
	}
	b := append(s.Next(), 1)
	s.Put(len(b), s.Addr(), netip.Addr{}, -1)
	s.Flush()
	if err := w.Wait(-1); err != nil {
		t.Error(err)
	}
	if n, err := s.Recv(func(*Packet) {}); n != 1 || err != nil {
		t.Errorf("%d datagrams, %v", n, err)
	}
}

// TestCut: what is longer than the socket's Size is marked as cut.
func TestCut(t *testing.T) {
	a := open(t, Options{Addr: netip.MustParseAddrPort("127.0.0.1:0"), Size: 100})
	b := open(t, Options{Addr: netip.MustParseAddrPort("127.0.0.1:0")})
	b.Put(len(b.Next()[:101]), a.Addr(), netip.Addr{}, -1)
	b.Flush()
	if p := collect(t, a, 1)[0]; !p.Cut || len(p.Data) != 100 {
		t.Errorf("%d octets, cut: %v", len(p.Data), p.Cut)
	}
}
