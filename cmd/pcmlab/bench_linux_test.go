package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/testwait"
	"github.com/pcmlab/pcmlab/inventory/fabric"
	"github.com/pcmlab/pcmlab/nicbackends/softnic"
)

// fastLab is a lab at time scale 1 whose links are faster than this machine, so that the machine is the limit.
func fastLab(pairs int) string {
	var hosts, links strings.Builder
	for i := range 2 * pairs {
		fmt.Fprintf(&hosts, "  h%d: {nics: [{ip: 192.0.2.%d/24}]}\n", i, i+10)
		fmt.Fprintf(&links, "  - {from: h%d, to: sw}\n", i)
	}
	return "lab: fast\nvirtual: {time_scale: 1}\ndefaults:\n" +
		"  nic: {device: softnic0, netdev: eth0, backend: softnic, rate: 10Gbit/s, mtu: 4200, dcqcn: false}\n" +
		"  link: {rate: 10Gbit/s, delay: 10us}\n" +
		"hosts:\n" + hosts.String() + "  sw: {}\nswitches:\n  sw: {host: sw, buffer: 64MiB}\nlinks:\n" + links.String()
}

// BenchmarkHostToHost prints what the live fabric carries host to host through the software NICs: 4 KiB packets with
// ICRC, ib_write_bw on both ends.
func BenchmarkHostToHost(b *testing.B) {
	for _, pairs := range []int{1, 2} {
		b.Run(fmt.Sprintf("pairs=%d", pairs), func(b *testing.B) { benchHostToHost(b, pairs) })
	}
}

func benchHostToHost(b *testing.B, pairs int) {
	h := newHome(b)
	lab := filepath.Join(h.dir, "fast.yaml")
	if err := os.WriteFile(lab, []byte(fastLab(pairs)), 0o644); err != nil {
		b.Fatal(err)
	}
	if out := h.run("lab", "up", lab, "--id", "fast"); out.code != 0 {
		b.Skipf("this machine raises no virtual lab: %s", out.stderr)
	}
	ask := func(host string, into any, argv ...string) {
		out := h.run(append([]string{"lab", "exec", "--lab", "fast", host, "--"}, argv...)...)
		if out.code != 0 {
			b.Fatalf("%v on %s: %s", argv, host, out.stderr)
		}
		if err := json.Unmarshal([]byte(out.stdout), into); err != nil {
			b.Fatal(err)
		}
	}
	const seconds = 4
	for b.Loop() {
		var before, after fabric.Counters
		ask("sw", &before, "pcmlab", "fabric-counters")
		var running []*started
		for i := range pairs {
			running = append(running, h.start("lab", "exec", "--lab", "fast", fmt.Sprintf("h%d", 2*i+1), "--", "ib_write_bw", "-d", "softnic0", "-F", "-D", fmt.Sprint(seconds), "-f", "1"))
		}
		for i := range pairs {
			h.listening(fmt.Sprintf("h%d", 2*i+1))
			running = append(running, h.start("lab", "exec", "--lab", "fast", fmt.Sprintf("h%d", 2*i), "--", "ib_write_bw", "-d", "softnic0", "-F", "-D", fmt.Sprint(seconds), "-f", "1",
				fmt.Sprintf("192.0.2.%d", 2*i+11)))
		}
		for _, s := range running {
			if out := h.finish(s); out.code != 0 {
				b.Fatalf("ib_write_bw: %s%s", out.stdout, out.stderr)
			}
		}
		ask("sw", &after, "pcmlab", "fabric-counters")
		var data uint64
		for i, p := range after.Ports {
			if p.Name[len(p.Name)-1]%2 == 1 { // the receivers: data goes there, acknowledgements the other way
				data += p.TxRoCEPackets - before.Ports[i].TxRoCEPackets
			}
		}
		var nic softnic.Status
		ask("h0", &nic, "pcmlab", "nic", "show", "-o", "json")
		b.ReportMetric(float64(data)/seconds, "pkts/s")
		b.ReportMetric(float64(after.Syscalls-before.Syscalls)/float64(data), "fabric-syscalls/pkt")
		b.ReportMetric(float64(after.CPUNS-before.CPUNS)/float64(data), "fabric-ns/pkt")
		if l := after.Lateness; l.P99 != nil {
			b.ReportMetric(float64(*l.P50)/1e3, "fabric-late-p50-us")
			b.ReportMetric(float64(*l.P99)/1e3, "fabric-late-p99-us")
		}
		b.ReportMetric(float64(nic.LatenessNS.P99NS)/1e3, "nic-late-p99-us")
	}
}

// listening waits until ib_write_bw listens on a host.
func (h *home) listening(host string) {
	testwait.For(h.t, 20*time.Second, "ib_write_bw listens on "+host, func() bool {
		return h.run("lab", "exec", "--lab", "fast", host, "--", "grep", "-qi", ":4853 .* 0A", "/proc/net/tcp", "/proc/net/tcp6").code == 0
	})
}
