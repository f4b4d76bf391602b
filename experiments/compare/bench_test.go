package compare

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/experiments"
)

// twoSweeps are of 24 cells with ten repeats each.
func twoSweeps(b *testing.B) (before, after []Group) {
	base := noise(b, "virtual-4-noise")
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 24 {
		for side, groups := range map[string]*[]Group{"before": &before, "after": &after} {
			g := draw(r, base, side, 10, everything, unchanged)
			g.Name += fmt.Sprintf("/%02d", i)
			*groups = append(*groups, g)
		}
	}
	return before, after
}

// BenchmarkCompareFolders is the whole of pcmlab compare: it reads the folders of both sweeps, too. How many other runs lie
// beside them does not matter, since they are not looked at.
func BenchmarkCompareFolders(b *testing.B) {
	before, after := twoSweeps(b)
	root := b.TempDir()
	for side, groups := range map[string][]Group{"before": before, "after": after} {
		for _, g := range groups {
			for i, r := range g.Runs {
				r.Trial = &experiments.Trial{Sweep: side, Cell: filepath.Base(g.Name), Repeat: i + 1}
				dir := filepath.Join(root, side, r.Trial.Cell, fmt.Sprintf("%02d", i+1))
				data, err := json.MarshalIndent(r, "", " ")
				if err != nil {
					b.Fatal(err)
				}
				if err := os.MkdirAll(dir, 0o755); err != nil {
					b.Fatal(err)
				}
				for name, text := range map[string][]byte{"summary.json": data, "manifest.json": nil, "timeline.jsonl": nil} {
					if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
	}
	began := cpuTime(b)
	for b.Loop() {
		var sides [2][]Group
		for i, side := range []string{"before", "after"} {
			groups, err := Gather([]string{filepath.Join(root, side)})
			if err != nil {
				b.Fatal(err)
			}
			sides[i] = groups
		}
		if report := Compare(sides[0], sides[1], Options{}); len(report.Cells) != 24 || len(report.Cells[0].Before.Runs) != 10 {
			b.Fatalf("%d cells, %+v", len(report.Cells), report.Cells[0].Before)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-began).Milliseconds())/float64(b.N), "cpu-ms/op") // whatever else the machine does
	b.ReportMetric(480, "runs")
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCompare compares two sweeps of 24 cells with ten repeats each, of 157 scores a run as the five-phase incast has.
func BenchmarkCompare(b *testing.B) {
	before, after := twoSweeps(b)
	b.ReportAllocs()
	for b.Loop() {
		if report := Compare(before, after, Options{}); len(report.Cells) != 24 {
			b.Fatalf("%d cells", len(report.Cells))
		}
	}
	b.ReportMetric(480, "runs")
}
