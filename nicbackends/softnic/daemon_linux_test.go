package softnic

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

func TestServe_writesReachTheOtherProcessMemory(t *testing.T) {
	dir := t.TempDir()
	ca := startNIC(t, dir, "softnic0", "127.77.0.1", nil)
	cb := startNIC(t, dir, "softnic1", "127.77.0.2", nil)
	a, b := openDevice(t, dir, "softnic0"), openDevice(t, dir, "softnic1")
	const size, messages = 65536, 50
	x, y := joined(t, a, b, perftest.QPOptions{BufferSize: size, Timeout: 14, RetryCount: 7})
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
