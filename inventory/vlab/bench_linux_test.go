package vlab

import (
	"context"
	"runtime"
	"testing"
	"time"
)

// BenchmarkUp16 builds and removes a lab of 16 hosts with NICs, its switch and a mirror, self-test included, and says
// how long each took. The budget is 2 s up and 1 s down on two cores.
func BenchmarkUp16(b *testing.B) {
	needLab(b)
	o := testOptions(b)
	o.Ephemeral = true
	var upTime, downTime time.Duration
	for b.Loop() {
		began := time.Now()
		inst, err := Up(context.Background(), testLab("bench", 16), o)
		if err != nil {
			b.Fatal(err)
		}
		upTime += time.Since(began)
		began = time.Now()
		if _, err := inst.Down(context.Background()); err != nil {
			b.Fatal(err)
		}
		downTime += time.Since(began)
	}
	b.ReportMetric(upTime.Seconds()/float64(b.N), "s/up")
	b.ReportMetric(downTime.Seconds()/float64(b.N), "s/down")
	b.ReportMetric(float64(runtime.NumCPU()), "cpus")
}
