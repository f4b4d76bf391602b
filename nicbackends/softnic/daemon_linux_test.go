package softnic

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/internal/testwait"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

func TestServe_writesReachTheOtherProcessMemory(t *testing.T) {
	for _, receiver := range []string{"udp", "packet"} {
		t.Run(receiver, func(t *testing.T) { writesReach(t, receiver) })
	}
}

// needPacketSocket skips where packet sockets may not be opened.
func needPacketSocket(t testing.TB) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		t.Skipf("needs CAP_NET_RAW for packet sockets: %v", err)
	}
	unix.Close(fd)
}

func writesReach(t *testing.T, receiver string) {
	if receiver == "packet" {
		needPacketSocket(t)
	}
	dir := t.TempDir()
	ca := startNIC(t, dir, "softnic0", "127.77.0.1", func(c *Config) { c.Receive = receiver })
	cb := startNIC(t, dir, "softnic1", "127.77.0.2", func(c *Config) { c.Receive = receiver })
	a, b := openDevice(t, dir, "softnic0"), openDevice(t, dir, "softnic1")
	const size, messages = 65536, 50
	x, y := joined(t, a, b, perftest.QPOptions{BufferSize: size, Timeout: 21, RetryCount: 7}) // 8.6 s: a busy machine must not look like loss
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range x.Buffer() {
		x.Buffer()[i] = byte(rng.Uint32())
	}
	if err := x.PostWrites(messages, size); err != nil {
		t.Fatal(err)
	}
	await(t, x, messages)
	if !bytes.Equal(x.Buffer(), y.Buffer()) {
		t.Error("the receiver's memory differs from the sender's")
	}
	ma, mb := counters(t, ca), counters(t, cb)
	packets := uint64(messages * size / 4096)
	for _, w := range []struct {
		name      string
		got, want uint64
	}{
		{"a tx_data_packets", ma["tx_data_packets"], packets},
		{"a tx_payload_bytes", ma["tx_payload_bytes"], messages * size},
		{"a retransmitted_packets", ma["retransmitted_packets"], 0},
		{"b rx_write_requests", mb["rx_write_requests"], messages},
		{"b rx_payload_bytes", mb["rx_payload_bytes"], messages * size},
		{"b rx_roce_packets", mb["rx_roce_packets"], ma["tx_roce_packets"]},
		{"b rx_roce_bytes", mb["rx_roce_bytes"], ma["tx_roce_bytes"]},
		{"a rx_roce_packets", ma["rx_roce_packets"], mb["tx_roce_packets"]},
		{"b icrc_errors", mb["icrc_errors"], 0},
		{"a tx_discards", ma["tx_discards"], 0},
	} {
		if w.got != w.want {
			t.Errorf("%s = %d, want %d", w.name, w.got, w.want)
		}
	}
	hw := filepath.Join(cb.Sysfs, "softnic1", "ports", "1")
	if got, want := readFile(t, filepath.Join(hw, "hw_counters", "rx_write_requests")), strconv.Itoa(messages)+"\n"; got != want {
		t.Errorf("hw_counters/rx_write_requests = %q, want %q", got, want)
	}
}

// TestServe_foreignSenders: a sender that sets the IP identification, as rdma_rxe does, is verified where the IP header
// can be seen and refused where it cannot.
func TestServe_foreignSenders(t *testing.T) {
	needPacketSocket(t)
	raw, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(raw)
	for _, tc := range []struct {
		receiver, policy string
		damage           byte
		taken, errors    uint64
	}{
		{"packet", "drop", 0, 8, 0},
		{"packet", "drop", 1, 0, 1},
		{"udp", "drop", 0, 0, 1},
		{"udp", "accept", 0, 8, 1},
	} {
		t.Run(tc.receiver+"_"+tc.policy+strconv.Itoa(int(tc.damage)), func(t *testing.T) {
			dir := t.TempDir()
			c := startNIC(t, dir, "softnic0", "127.77.7.1", func(c *Config) { c.Receive, c.ForeignICRC = tc.receiver, tc.policy })
			q, err := openDevice(t, dir, "softnic0").CreateQP(perftest.QPOptions{BufferSize: 4096, GIDIndex: 1})
			if err != nil {
				t.Fatal(err)
			}
			src, dst := [4]byte{127, 77, 7, 9}, [4]byte{127, 77, 7, 1}
			if err := q.Connect(perftest.QPInfo{QPN: 5, PSN: 77, GID: [16]byte{10: 0xff, 11: 0xff, 12: 127, 13: 77, 14: 7, 15: 9}}); err != nil {
				t.Fatal(err)
			}
			l := q.Local()
			b := roce.BTH{Opcode: roce.RCWriteOnly, PKey: 0xffff, DestQP: l.QPN, AckReq: true, PSN: 77}.Append(nil)
			b = roce.RETH{VA: l.VA + 16, RKey: l.RKey, DMALen: 8}.Append(b)
			b = append(b, "pcmlab! "...)
			b = roce.AppendICRC(b, roce.ICRCv4(src, dst, 0xc123, roce.Port, 0x4321, true, b)^uint32(tc.damage))
			frame := asIP(src, dst, 0xc123, 0x4321, b)
			if err := unix.Sendto(raw, frame, 0, &unix.SockaddrInet4{Addr: dst}); err != nil {
				t.Fatal(err)
			}
			testwait.For(t, 20*time.Second, "the packet", func() bool { return counters(t, c)["rx_roce_packets"] == 1 })
			m := counters(t, c)
			if m["rx_payload_bytes"] != tc.taken || m["icrc_errors"] != tc.errors {
				t.Errorf("took %d bytes with %d ICRC errors, want %d and %d", m["rx_payload_bytes"], m["icrc_errors"], tc.taken, tc.errors)
			}
			if got := string(q.(*clientQP).Buffer()[16:24]); (got == "pcmlab! ") != (tc.taken > 0) {
				t.Errorf("memory holds %q", got)
			}
		})
	}
}

func asIP(src, dst [4]byte, sport, id uint16, b []byte) []byte {
	n := 28 + len(b)
	f := []byte{0x45, 2, byte(n >> 8), byte(n), byte(id >> 8), byte(id), 0x40, 0, 64, 17, 0, 0}
	f = append(append(f, src[:]...), dst[:]...)
	f = append(f, byte(sport>>8), byte(sport), 0x12, 0xb7, byte((n-20)>>8), byte(n-20), 0, 0)
	return append(f, b...)
}

// TestServe_manyQueuePairs: queue pairs of all sizes side by side, both ways, each into its own memory.
func TestServe_manyQueuePairs(t *testing.T) {
	dir := t.TempDir()
	ca := startNIC(t, dir, "softnic0", "127.77.9.1", nil)
	cb := startNIC(t, dir, "softnic1", "127.77.9.2", nil)
	a, b := openDevice(t, dir, "softnic0"), openDevice(t, dir, "softnic1")
	type pair struct {
		from, to *clientQP
		n, size  int
	}
	var pairs []pair
	var bytesAB, bytesBA uint64
	for i, tc := range []struct{ n, size, mtu int }{{1, 3 << 20, 4096}, {20, 1, 4096}, {8, 65536, 1024}, {5, 1023, 256}, {3, 4096, 4096}, {7, 100_001, 2048}, {4, 0, 512}} {
		x, y := joined(t, a, b, perftest.QPOptions{BufferSize: max(tc.size, 1), MTU: tc.mtu, Timeout: 14, RetryCount: 7})
		if i%2 == 1 {
			x, y = y, x
			bytesBA += uint64(tc.n * tc.size)
		} else {
			bytesAB += uint64(tc.n * tc.size)
		}
		for k := range x.Buffer() {
			x.Buffer()[k] = byte(k*7 + i)
		}
		pairs = append(pairs, pair{x, y, tc.n, tc.size})
	}
	for _, p := range pairs {
		if err := p.from.PostWrites(p.n, p.size); err != nil {
			t.Fatal(err)
		}
	}
	for i, p := range pairs {
		await(t, p.from, p.n)
		if !bytes.Equal(p.from.Buffer()[:p.size], p.to.Buffer()[:p.size]) {
			t.Errorf("pair %d of %d bytes: memory differs", i, p.size)
		}
	}
	ma, mb := counters(t, ca), counters(t, cb)
	if mb["rx_payload_bytes"] != bytesAB || ma["rx_payload_bytes"] != bytesBA {
		t.Errorf("received %d and %d bytes, want %d and %d", mb["rx_payload_bytes"], ma["rx_payload_bytes"], bytesAB, bytesBA)
	}
}

// TestServe_sendsNeedReceives: a SEND that finds no buffer waits for one (RNR NAK), and then arrives.
func TestServe_sendsNeedReceives(t *testing.T) {
	dir := t.TempDir()
	startNIC(t, dir, "softnic0", "127.77.10.1", nil)
	cb := startNIC(t, dir, "softnic1", "127.77.10.2", nil)
	x, y := joined(t, openDevice(t, dir, "softnic0"), openDevice(t, dir, "softnic1"), perftest.QPOptions{BufferSize: 10000, Timeout: 14, RetryCount: 7})
	copy(x.Buffer(), "a message")
	if err := x.PostSends(2, 10000); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, 20*time.Second, "an RNR NAK", func() bool { return counters(t, cb)["out_of_buffer"] > 0 })
	if err := y.PostRecvs(2, 10000); err != nil {
		t.Fatal(err)
	}
	await(t, x, 2)
	for got := 0; got < 2; {
		n, err := y.Received(t.Context(), 10*time.Second)
		if err != nil || n == 0 {
			t.Fatalf("Received: %d, %v", n, err)
		}
		got += n
	}
	if got := string(y.Buffer()[:9]); got != "a message" {
		t.Errorf("received %q", got)
	}
}
