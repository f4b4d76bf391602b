package check

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Listen sees the datagrams of a probe on an interface, at its packet socket, before whoever listens at 4791; it answers
// each from an ordinary UDP socket, and prints "listening", and, when ctx is done, what it saw.
func Listen(ctx context.Context, iface string, ip netip.Addr, nonceText string, out io.Writer) error {
	nonce, err := parseNonce(nonceText)
	if err != nil {
		return err
	}
	i, err := net.InterfaceByName(iface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", iface, err)
	}
	proto := uint16(unix.ETH_P_IP)
	if ip.Is6() {
		proto = unix.ETH_P_IPV6
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	defer unix.Close(fd)
	if err := filter(fd, ip.Is6()); err != nil {
		return err
	}
	big := binary.BigEndian.AppendUint16(nil, proto)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16(big), Ifindex: i.Index}); err != nil {
		return fmt.Errorf("packet socket on %s: %w", iface, err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}); err != nil {
		return os.NewSyscallError("SO_RCVTIMEO", err)
	}
	answer, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, 0)))
	if err != nil {
		return err
	}
	defer answer.Close()
	fmt.Fprintln(out, "listening")
	var seen []Listened
	buf := make([]byte, 64<<10)
	for ctx.Err() == nil {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("packet socket on %s: %w", iface, err)
		}
		if h, ok := hear(buf[:n], nonce); ok {
			seen = note(seen, h)
			answer.WriteToUDPAddrPort(datagram(nonce, h.n, 0), h.from) // one that does not get through shows at the sender
		}
	}
	return json.NewEncoder(out).Encode(seen)
}

func note(seen []Listened, h heard) []Listened {
	for k := range seen {
		if s := &seen[k]; s.From == h.from.Addr() && s.Size == h.size {
			s.N++
			s.TOS = h.tos
			return seen
		}
	}
	return append(seen, Listened{From: h.from.Addr(), Size: h.size, N: 1, TOS: h.tos})
}

// filter lets only UDP to 4791 with the probe's first word through, so that a busy link does not fill the socket.
func filter(fd int, v6 bool) error {
	ip, protocol := uint32(20), uint32(9)
	if v6 {
		ip, protocol = 40, 6
	}
	word := binary.BigEndian.Uint32([]byte(magic))
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: protocol, Size: 1}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 17, SkipTrue: 5},
		bpf.LoadAbsolute{Off: ip + 2, Size: 2}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: rocePort, SkipTrue: 3},
		bpf.LoadAbsolute{Off: ip + 8 + bthLen, Size: 4}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: word, SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 16}, bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return err
	}
	raw := make([]unix.SockFilter, len(program))
	for i, p := range program {
		raw[i] = unix.SockFilter{Code: p.Op, Jt: p.Jt, Jf: p.Jf, K: p.K}
	}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(raw)), Filter: &raw[0]}); err != nil {
		return os.NewSyscallError("filter of the packet socket", err)
	}
	return nil
}

// SendOptions are what one host sends.
type SendOptions struct {
	From  netip.Addr
	Iface string
	Nonce string
	TOS   int
	Sizes []int // UDP payloads
	Count int   // of each size to each address
	Wait  time.Duration
	To    []netip.Addr
}

const spacing = 2 * time.Millisecond // between datagrams: a burst would overrun a slow host's socket

// Send sends a probe's datagrams from a data address, unfragmented, and returns who answered.
func Send(ctx context.Context, o SendOptions) ([]Sent, error) {
	nonce, err := parseNonce(o.Nonce)
	if err != nil {
		return nil, err
	}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			unix.BindToDevice(int(fd), o.Iface) // where it may not, the routes decide
			unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TOS, o.TOS)
			unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
			unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_TCLASS, o.TOS)
			unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
		})
	}}
	pc, err := lc.ListenPacket(ctx, "udp", netip.AddrPortFrom(o.From, 0).String())
	if err != nil {
		return nil, err
	}
	defer pc.Close()
	conn := pc.(*net.UDPConn)
	var out []Sent
	type one struct {
		row int
		at  time.Time
	}
	var sent []one
	answers := func(until time.Time, enough func() bool) {
		b := make([]byte, 2048)
		conn.SetReadDeadline(until)
		for !enough() {
			n, _, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			if n < headLen || [8]byte(b[bthLen+len(magic):]) != nonce {
				continue
			}
			k := int(binary.BigEndian.Uint16(b[bthLen+len(magic)+8:]))
			if k >= len(sent) || sent[k].at.IsZero() {
				continue
			}
			row := &out[sent[k].row]
			row.Answered++
			if rtt := time.Since(sent[k].at).Nanoseconds(); row.RTT == 0 || rtt < row.RTT {
				row.RTT = rtt
			}
			sent[k].at = time.Time{}
		}
	}
	want, got := 0, func() int {
		n := 0
		for _, r := range out {
			n += r.Answered
		}
		return n
	}
	for _, size := range o.Sizes {
		for _, to := range o.To {
			out = append(out, Sent{To: to, Size: size})
			for range o.Count {
				row := &out[len(out)-1]
				n := len(sent)
				sent = append(sent, one{len(out) - 1, time.Now()})
				if _, err := conn.WriteToUDPAddrPort(datagram(nonce, uint16(n), size), netip.AddrPortFrom(to, rocePort)); err != nil {
					row.Err = reason(err)
					sent[n].at = time.Time{}
					continue
				}
				row.Sent++
				want++
				answers(time.Now().Add(spacing), func() bool { return false })
			}
		}
	}
	answers(time.Now().Add(o.Wait), func() bool { return got() == want || ctx.Err() != nil })
	return out, nil
}

func reason(err error) string {
	switch {
	case errors.Is(err, unix.EMSGSIZE):
		return "larger than the interface's MTU here"
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return "no route to it here"
	}
	return err.Error()
}
