package softnic

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/fixtures"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/engine"
)

// TestSysfs_textIsTheKernels compares with what a real rdma_rxe device on the same MAC and address printed.
func TestSysfs_textIsTheKernels(t *testing.T) {
	state := filepath.Join(fixtures.Dir(t), "state", "before", "h1")
	dir := t.TempDir()
	mac := [6]byte{2, 0, 0, 0, 0, 1}
	_, err := newSysfsView(Config{Device: "rxe0", Netdev: "eth0", IP: netip.MustParsePrefix("192.0.2.11/24"), RateBps: 2_500_000_000, Sysfs: dir}, mac)
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, "rxe0", name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(string(b), "\n")
	}
	gids, err := os.ReadFile(filepath.Join(state, "gids.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range strings.Split(string(gids), "\n")[:2] {
		i := l[:1]
		got := i + " " + read("ports/1/gids/"+i) + " type=" + read("ports/1/gid_attrs/types/"+i) + " ndev=" + read("ports/1/gid_attrs/ndevs/"+i)
		if got != l {
			t.Errorf("GID %s: %q, the kernel has %q", i, got, l)
		}
	}
	port, err := os.ReadFile(filepath.Join(state, "sysfs_port.txt"))
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, l := range strings.Split(strings.TrimSpace(string(port)), "\n") {
		name, want, ok := strings.Cut(l, ":")
		if !ok || name == "../../node_desc" || strings.Contains(name, "pkeys") {
			continue
		}
		if got := read(filepath.Join("ports/1", name)); got != want {
			t.Errorf("%s: %q, the kernel has %q", name, got, want)
		}
		compared++
	}
	if compared < 8 {
		t.Errorf("compared %d files only", compared)
	}
}

func TestSysfs_publishesExactCounters(t *testing.T) {
	dir := t.TempDir()
	v, err := newSysfsView(Config{Device: "d", Netdev: "e", IP: netip.MustParsePrefix("192.0.2.1/24"), RateBps: 500_000_000, Sysfs: dir}, [6]byte{})
	if err != nil {
		t.Fatal(err)
	}
	c := engine.Counters{NPCNPSent: 18446744073709551615, TxRoCEBytes: 4003}
	for range 2 {
		if err := v.publish(&c); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			"hw_counters/np_cnp_sent": "18446744073709551615\n", "counters/port_xmit_data": "1000\n", "hw_counters/out_of_sequence": "0\n", "rate": "0.5 Gb/sec (1X)\n"} {
			b, err := os.ReadFile(filepath.Join(dir, "d/ports/1", name))
			if err != nil || string(b) != want {
				t.Errorf("%s: %q, %v, want %q", name, b, err, want)
			}
		}
	}
	entries, _ := os.ReadDir(filepath.Join(dir, "d/ports/1/hw_counters"))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("%s is left among the counters", e.Name())
		}
	}
	if err := v.remove(); err != nil {
		t.Fatal(err)
	}
}

func TestCounterNames_areUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, n := range counterNames {
		if seen[n.name] {
			t.Errorf("%s twice", n.name)
		}
		seen[n.name] = true
	}
	for _, name := range []string{"rx_write_requests", "out_of_sequence", "duplicate_request", "packet_seq_err", "local_ack_timeout_err", "np_cnp_sent",
		"np_ecn_marked_roce_packets", "rp_cnp_handled", "rp_cnp_ignored", "rx_icrc_encapsulated", "rnr_nak_retry_err", "req_cqe_error",
		"tx_roce_packets", "tx_roce_bytes", "rx_roce_packets", "rx_roce_bytes", "tx_data_packets", "tx_payload_bytes", "retransmitted_packets", "rx_payload_bytes"} {
		if !seen[name] {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestLateness_quantiles(t *testing.T) {
	var h latenessHistogram
	if s := h.summary(); s.Samples != 0 || s.MaxNS != 0 {
		t.Errorf("empty: %+v", s)
	}
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Microsecond)
	}
	s := h.summary()
	within := func(got int64, want time.Duration) bool {
		return float64(got) >= 0.999*float64(want) && float64(got) <= 1.13*float64(want)
	}
	if !within(s.P50NS, 500*time.Microsecond) || !within(s.P99NS, 990*time.Microsecond) || s.MaxNS != 1e6 || s.Samples != 1000 {
		t.Errorf("summary %+v", s)
	}
	for d := time.Duration(0); d < 1<<40; d = d*9/8 + 1 {
		if i := bucketOf(d); bucketTop(i) < d || i > 0 && bucketTop(i-1) >= d {
			t.Fatalf("%d ns is in bucket %d, which ends at %d", d, i, bucketTop(i))
		}
	}
	h.add(-5)
}
