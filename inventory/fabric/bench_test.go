package fabric

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
)

// loadedSwitch is a switch of n ports in a steady overload of one egress in four, with marks and drops.
func loadedSwitch(t testing.TB, n int) (step func(), packets func() uint64) {
	t.Helper()
	pool := NewPool(DefaultMaxFrame)
	o := Options{Pool: pool, Rand: rand.New(rand.NewPCG(1, 2)), Overhead: DefaultOverhead, Static: map[[6]byte]int{}}
	for i := range n {
		o.Links = append(o.Links, Link{
			Rate: units.GbitPerSec, Delay: 50 * time.Microsecond, Buffer: 256 * units.KiB,
			ECN: &ECNConfig{KMin: 32 * units.KiB, KMax: 128 * units.KiB, PMax: 0.2},
		})
		o.Static[station6(i)] = i
	}
	sw, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	frames := make([][]byte, n)
	for i := range frames {
		frames[i] = udpFrame(station6(i), station6((i/4*4+1)%n), 4154)
	}
	frames[1] = udpFrame(station6(1), station6(0), 4154)
	var out []Output
	now := time.Duration(0)
	sent := uint64(0)
	step = func() {
		for i := range n {
			sw.Receive(i, now, pool.Copy(frames[i]))
			sent++
		}
		now += 34 * time.Microsecond
		out = sw.Advance(now, out[:0])
		for i := range out {
			pool.Release(out[i].P)
		}
		sw.Deadline()
	}
	return step, func() uint64 { return sent }
}

func BenchmarkSwitch(b *testing.B) {
	for _, n := range []int{4, 16} {
		b.Run(fmt.Sprintf("ports=%d", n), func(b *testing.B) {
			step, packets := loadedSwitch(b, n)
			for range 2000 {
				step()
			}
			before := packets()
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets()-before), "ns/packet")
		})
	}
}
