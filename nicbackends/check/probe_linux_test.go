package check

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// TestListen_besidesAListener: somebody holds UDP 4791 already, as rdma_rxe and the software NIC do, and the probe sees what
// arrives all the same, with its DSCP, and answers.
func TestListen_besidesAListener(t *testing.T) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) {
		t.Skip("packet sockets need CAP_NET_RAW")
	}
	unix.Close(fd)
	to, from := netip.MustParseAddr("127.0.77.1"), netip.MustParseAddr("127.0.77.2")
	holder, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, rocePort)))
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	const nonce = "0011223344556677"
	ctx, stop := context.WithCancel(t.Context())
	ready := newWaiter("listening")
	var out bytes.Buffer
	done := make(chan error, 1)
	go func() { done <- Listen(ctx, "lo", to, nonce, both{ready, &out}) }()
	select {
	case <-ready.found:
	case err := <-done:
		t.Fatal(err)
	}
	sent, err := Send(t.Context(), SendOptions{From: from, Iface: "lo", Nonce: nonce, TOS: 26<<2 | 2, Sizes: []int{smallest, 1472}, Count: 3, Wait: 10 * time.Second, To: []netip.Addr{to}})
	stop()
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	_, doc, _ := bytes.Cut(out.Bytes(), []byte("\n"))
	var seen []Listened
	if err := json.Unmarshal(doc, &seen); err != nil {
		t.Fatalf("%v: %q", err, doc)
	}
	if len(seen) != 2 || seen[0] != (Listened{from, smallest, 3, 106}) || seen[1] != (Listened{from, 1472, 3, 106}) {
		t.Errorf("seen %+v, want three of each size with DSCP 26 and ECT(0)", seen)
	}
	for _, s := range sent {
		if s.Sent != 3 || s.Answered != 3 || s.RTT <= 0 || s.Err != "" {
			t.Errorf("sent %+v, want three with their answers", s)
		}
	}
}

// both writes to two writers.
type both struct {
	a, b interface{ Write([]byte) (int, error) }
}

func (w both) Write(p []byte) (int, error) {
	w.b.Write(p) // the buffer first: the other one's line lets the test go on
	return w.a.Write(p)
}

func TestSend_saysWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	sent, err := Send(t.Context(), SendOptions{From: netip.MustParseAddr("127.0.78.2"), Iface: "lo", Nonce: "0011223344556677", Sizes: []int{65500}, Count: 1, Wait: time.Millisecond,
		To: []netip.Addr{netip.MustParseAddr("127.0.78.1")}})
	if err != nil {
		t.Fatal(err)
	}
	if len(sent) != 1 || sent[0].Sent+sent[0].Answered > 1 {
		t.Errorf("%+v", sent)
	}
}

// packet is a datagram in its IP packet, as a packet socket gives it.
func packet(v6 bool, nonce [8]byte, n uint16, size int) []byte {
	payload := datagram(nonce, n, size)
	udp := binary.BigEndian.AppendUint16(nil, 40000)
	udp = binary.BigEndian.AppendUint16(udp, rocePort)
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(payload)))
	udp = append(append(udp, 0, 0), payload...)
	if v6 {
		ip := make([]byte, 40)
		ip[0], ip[1], ip[6] = 6<<4|106>>4, 106<<4&0xff, 17
		a := netip.MustParseAddr("2001:db8::1").As16()
		copy(ip[8:], a[:])
		return append(ip, udp...)
	}
	ip := make([]byte, 20)
	ip[0], ip[1], ip[9] = 0x45, 106, 17
	copy(ip[12:], []byte{192, 0, 2, 1})
	return append(ip, udp...)
}

// TestDatagram_isDroppedByEveryNIC: a transport version that does not exist, and an ICRC that does not fit.
func TestDatagram_isDroppedByEveryNIC(t *testing.T) {
	t.Parallel()
	nonce := [8]byte{1, 2, 3}
	b := datagram(nonce, 7, 200)
	bth, _, err := roce.ParseBTH(b)
	if err == nil && (bth.Version == 0 || bth.Opcode.Known()) {
		t.Errorf("BTH %+v: a NIC might take it", bth)
	}
	if len(b) != 200 {
		t.Errorf("%d bytes, want 200", len(b))
	}
	for _, v6 := range []bool{false, true} {
		p := packet(v6, nonce, 7, 200)
		h, ok := hear(append(p, 0, 0, 0), nonce) // with the link's padding
		if !ok || h.n != 7 || h.size != 200 || h.tos != 106 || h.from.Port() != 40000 {
			t.Errorf("IPv6 %v: heard %+v, %v", v6, h, ok)
		}
		if _, ok := hear(p, [8]byte{9}); ok {
			t.Error("heard another probe's")
		}
		for n := range p {
			if _, ok := hear(p[:n], nonce); ok {
				t.Errorf("IPv6 %v: heard a packet cut at %d of %d", v6, n, len(p))
			}
		}
	}
}

func FuzzHear(f *testing.F) {
	nonce := [8]byte{1, 2, 3}
	f.Add(packet(false, nonce, 1, 64))
	f.Add(packet(true, nonce, 1, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, ok := hear(b, nonce); ok && (h.size < headLen || h.size > len(b) || !h.from.IsValid()) {
			t.Errorf("heard %+v in %d bytes", h, len(b))
		}
	})
}
