package vlab

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkUp16 and BenchmarkDown16 build and remove a lab of 16 hosts with NICs, its switch and a mirror, self-test
// included, and say how long each took. The budget is 2 s up and 1 s down on two cores.
//
// With PCMLAB_BINARY they start the hosts, fabric and NIC daemons from that pcmlab instead of the test's stand-in.
func BenchmarkUp16(b *testing.B) {
	upAndDown(b, "s/up", func(up, _ time.Duration) time.Duration { return up })
}
func BenchmarkDown16(b *testing.B) {
	upAndDown(b, "s/down", func(_, down time.Duration) time.Duration { return down })
}

func upAndDown(b *testing.B, unit string, which func(up, down time.Duration) time.Duration) {
	needLab(b)
	o := testOptions(b)
	o.Ephemeral = true
	o.Binary = os.Getenv("PCMLAB_BINARY")
	var sum, least time.Duration
	for b.Loop() {
		began := time.Now()
		inst, err := Up(context.Background(), testLab("bench", 16), o)
		if err != nil {
			b.Fatal(err)
		}
		ready := time.Now()
		if _, err := inst.Down(context.Background()); err != nil {
			b.Fatal(err)
		}
		took := which(ready.Sub(began), time.Since(ready))
		sum += took
		if least == 0 || took < least {
			least = took
		}
	}
	b.ReportMetric(sum.Seconds()/float64(b.N), unit)
	b.ReportMetric(least.Seconds(), "min-"+unit)
	b.ReportMetric(float64(runtime.NumCPU()), "cpus")
	if load, err := os.ReadFile("/proc/loadavg"); err == nil { // a figure from a busy machine says little
		if v, err := strconv.ParseFloat(strings.Fields(string(load))[0], 64); err == nil {
			b.ReportMetric(v, "load")
		}
	}
}
