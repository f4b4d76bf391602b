package stats

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func BenchmarkDescribe(b *testing.B) {
	for _, n := range []int{10, 100} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			x := distributions[0].sample(rand.New(rand.NewPCG(1, 1)), n)
			b.ReportAllocs()
			for b.Loop() {
				if Describe(x, 1).MedianCI == nil {
					b.Fatal("no interval")
				}
			}
		})
	}
}

func BenchmarkChange(b *testing.B) {
	for _, n := range []int{10, 100} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 1))
			before, after := distributions[0].sample(r, n), distributions[0].sample(r, n)
			b.ReportAllocs()
			for b.Loop() {
				if Change(before, after).Interval == nil {
					b.Fatal("no interval")
				}
			}
		})
	}
}
