package analysis

import (
	"testing"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// BenchmarkMetrics is what each of the congestion metrics costs a packet, for 1,000 flows in turn.
func BenchmarkMetrics(b *testing.B) {
	const flows = 1000
	b.Run("rate_window", func(b *testing.B) {
		b.ReportAllocs()
		w := make([]rateWindow, flows)
		i := 0
		for b.Loop() {
			w[i%flows].advance(nil, int64(i/50_000))
			w[i%flows].add(1082)
			i++
		}
	})
	b.Run("reaction", func(b *testing.B) { // a CNP for each tenth packet
		b.ReportAllocs()
		w := make([]rateWindow, flows)
		r := make([]*reaction, flows)
		for i := range r {
			r[i] = newReaction(0, 100_000)
		}
		i := 0
		for b.Loop() {
			f, window := i%flows, int64(i/50_000)
			w[f].advance(r[f], window)
			w[f].add(1082)
			if i%10 == 3 {
				r[f].cnp(&w[f], window*100_000, window)
			}
			i++
		}
	})
	b.Run("cnp_scopes", func(b *testing.B) {
		b.ReportAllocs()
		s := newCNPScopes()
		i := uint32(0)
		for b.Loop() {
			f := i % flows
			s.see(int64(i)*700, 1+uint64(f%2), addrID(f%2), addrID(2+f%64), f)
			i++
		}
	})
	b.Run("arrivals", func(b *testing.B) {
		b.ReportAllocs()
		a := newArrivals(&Options{TimeScale: 1, LinkRateBps: 100e9})
		i := 0
		for b.Loop() { // 16 destinations, busy for 64 packets each
			a.see(int64(i)*90, addrID(i/64%16), 1082)
			i++
		}
	})
	b.Run("burst", func(b *testing.B) {
		b.ReportAllocs()
		bursts := make([]burst, flows)
		i := 0
		for b.Loop() {
			bursts[i%flows].add(int64(i)*90, burstGap, 1082)
			i++
		}
	})
	b.Run("pauses", func(b *testing.B) {
		b.ReportAllocs()
		p := newPauses(100e9)
		f := roce.Pause{ClassEnable: 1 << 3, Quanta: [8]uint16{3: 0xffff}}
		i := 0
		for b.Loop() {
			p.see(int64(i)*90, roce.KindPFC, &f)
			i++
		}
	})
	b.Run("fairness", func(b *testing.B) { // per cell: 1,000 bins of 1,000 flows
		curves := make([]rateCurve, flows)
		for i := range curves {
			curves[i] = rateCurve{firstNS: int64(i) * 10, lastNS: 10_000 - int64(i)*5, from: i, rates: make([]float64, 1000-i)}
		}
		for b.Loop() {
			f := fairnessOf(curves, 0, 10, 1000)
			f.convergence(curves)
		}
	})
}
