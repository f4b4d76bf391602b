package softnic

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

// TestServe_whatTheWireShows holds the packets that the kernel really sent against what the engine computed the ICRC
// for, and against the marks that a switch will look at.
func TestServe_whatTheWireShows(t *testing.T) {
	needPacketSocket(t)
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all&0xffff)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	startNIC(t, dir, "softnic0", "127.77.8.1", nil)
	startNIC(t, dir, "softnic1", "127.77.8.2", nil)
	x, y := joined(t, openDevice(t, dir, "softnic0"), openDevice(t, dir, "softnic1"), perftest.QPOptions{BufferSize: 65536})
	z, _ := joined(t, openDevice(t, dir, "softnic0"), openDevice(t, dir, "softnic1"), perftest.QPOptions{BufferSize: 65536, TrafficClass: 0x20 | 1, MTU: 1024})
	for _, q := range []*clientQP{x, z} {
		if err := q.PostWrites(2, 10001); err != nil {
			t.Fatal(err)
		}
		await(t, q, 2)
	}
	if err := y.PostWrites(1, 1); err != nil { // the other way too
		t.Fatal(err)
	}
	await(t, y, 1)

	ports := map[uint32]uint16{}
	seen := map[string]int{}
	var f roce.Frame
	buf := make([]byte, 1<<16)
	deadline := time.Now().Add(10 * time.Second)
	want := 6 + 20 + 1 // data packets: 3 of MTU 4096 twice, 10 of MTU 1024 twice, one back
	for seen["data"] < want || seen["ack"] == 0 {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("after %v: %v", seen, err)
		}
		if l, ok := from.(*unix.SockaddrLinklayer); !ok || l.Pkttype == unix.PACKET_OUTGOING {
			continue // lo shows each packet twice
		}
		if err := f.Decode(roce.LinkEthernet, buf[:n], n, roce.Port); err != nil || f.Kind != roce.KindRoCE || f.Src[13] != 77 || f.Src[14] != 8 {
			continue
		}
		if ok, checked := f.CheckICRC(buf[:n]); !ok || !checked {
			t.Errorf("%v PSN %d: ICRC ok=%v checked=%v", f.BTH.Opcode, f.BTH.PSN, ok, checked)
		}
		if f.IPID != 0 || !f.DF || buf[f.IPOffset+26] != 0 || buf[f.IPOffset+27] != 0 {
			t.Errorf("%v: IP identification %d, DF %v, UDP checksum %x: want 0, true, 0", f.BTH.Opcode, f.IPID, f.DF, buf[f.IPOffset+26:f.IPOffset+28])
		}
		if f.SrcPort < 0xc000 {
			t.Errorf("%v: source port %d: want 49152 or more", f.BTH.Opcode, f.SrcPort)
		}
		kind, tos := "data", uint8(26<<2|2)
		if f.BTH.DestQP == z.local.QPN || f.PayloadLen <= 1024 && f.BTH.Opcode.IsWrite() && f.PayloadLen != 1 && f.PayloadLen != 10001-8192 {
			tos = 0x20 | 1
		}
		if f.BTH.Opcode.IsAck() {
			kind = "ack"
			tos &^= 3
		}
		if f.TOS != tos {
			t.Errorf("%v to QP %#x of %d bytes: TOS %#x, want %#x", f.BTH.Opcode, f.BTH.DestQP, f.PayloadLen, f.TOS, tos)
		}
		if p, ok := ports[f.BTH.DestQP]; ok && p != f.SrcPort {
			t.Errorf("QP %#x is reached from ports %d and %d", f.BTH.DestQP, p, f.SrcPort)
		}
		ports[f.BTH.DestQP] = f.SrcPort
		seen[kind]++
	}
	distinct := map[uint16]bool{}
	for _, p := range ports {
		distinct[p] = true
	}
	if len(distinct) < 2 {
		t.Errorf("source ports %v: want one a queue pair", ports)
	}
}

func TestParse_refusesWhatContradictsItself(t *testing.T) {
	good := asIP([4]byte{192, 0, 2, 1}, [4]byte{192, 0, 2, 2}, 5000, 7, []byte("0123456789abcdef"))
	var m message
	if !m.parse(append(append([]byte(nil), good...), 0, 0, 0)) || string(m.data) != "0123456789abcdef" || m.ipID != 7 || !m.df || m.tos != 2 || m.sport != 5000 {
		t.Errorf("padded packet: %+v", m)
	}
	for n := range good {
		if m.parse(good[:n]) {
			t.Fatalf("%d of %d bytes were taken", n, len(good))
		}
	}
	for at, v := range map[int]byte{25: 7, 24: 1, 3: 27} {
		b := append([]byte(nil), good...)
		b[at] = v
		if m.parse(b) {
			t.Errorf("byte %d = %d was taken", at, v)
		}
	}
}
