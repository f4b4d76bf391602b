package analysis

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BenchmarkPeers runs other readers of captures over the file of BenchmarkRun/flows=1000/mixed=false, one after the other, so that one
// command gives all figures: tcpdump, which copies the packets to /dev/null, tshark, which prints the fields that the
// analysis needs of each, and cat, which does nothing with them.
func BenchmarkPeers(b *testing.B) {
	const packets = 1_000_000
	path := filepath.Join(b.TempDir(), "bench.pcap")
	data := benchCapture(b, packets, 1000, false)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		b.Fatal(err)
	}
	b.Run("pcmlab", func(b *testing.B) {
		for b.Loop() {
			if _, err := Run(b.Context(), []Input{{Path: path}}, benchOptions(1)); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(packets*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mpkts/s")
	})
	fields := []string{"-r", path, "-n", "-T", "fields"}
	for _, f := range []string{"frame.time_epoch", "frame.len", "ip.src", "ip.dst", "ip.dsfield", "ip.id", "infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn", "infiniband.bth.a",
		"infiniband.reth.dmalen", "infiniband.aeth.syndrome", "infiniband.aeth.msn"} {
		fields = append(fields, "-e", f)
	}
	for _, peer := range [][]string{{"cat", path}, {"tcpdump", "-r", path, "-w", "/dev/null"}, append([]string{"tshark"}, fields...)} {
		b.Run(peer[0], func(b *testing.B) {
			if _, err := exec.LookPath(peer[0]); err != nil {
				b.Skipf("%s is not installed", peer[0])
			}
			for b.Loop() {
				c := exec.CommandContext(b.Context(), peer[0], peer[1:]...)
				if err := c.Run(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(packets*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mpkts/s")
		})
	}
}
