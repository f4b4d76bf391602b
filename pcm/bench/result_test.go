package bench

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParse_readsWhatTheProgramSays(t *testing.T) {
	j := Job{Trace: "e", Order: "o", Flows: 4, Least: 10, Time: time.Millisecond, Repeat: 2, Rows: []Row{{"a.so", Sync, []int{0}}, {"b.so", Other, []int{0, 1}}}}
	if got, want := j.Text(), "trace e\norder o\nflows 4\nevents 10\ntime 1000000\nrepeat 2\nrow sync a.so 0\nrow other b.so 0 1\n"; got != want {
		t.Errorf("job:\n%s", got)
	}
	const said = "sample 0 0 100 10 10 7 0 0\nsample 1 0 400 10 5 7 20 3\nsample 0 1 120 10 10 7 0 0\nsample 1 1 360 10 5 7 0 0\n"
	samples, err := Parse(strings.NewReader(said), j)
	if err != nil || len(samples) != 4 || samples[1] != (Sample{1, 0, 400, 10, 5, 7, 20, 3}) {
		t.Errorf("%+v, %v", samples, err)
	}
	for text, says := range map[string]string{
		"sample 0 0 100 10 10 7 0 0\n":      "1 measurements, want 4",
		"sample 2 0 100 10 10 7 0 0\n":      "is none of this measurement",
		"sample 0 2 100 10 10 7 0 0\n":      "is none of this measurement",
		"sample 0 0 0 10 10 7 0 0\n":        "is none of this measurement",
		"Segmentation fault\n":              `line "Segmentation fault"`,
		said + "sample 0 0 1 1 1 1 1 1\n":   "5 measurements, want 4",
		"sample 0 0 100 10 10 7 0\n" + said: `10 7 0": EOF`,
	} {
		if _, err := Parse(strings.NewReader(text), j); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

func TestSummary(t *testing.T) {
	var samples []Sample
	for _, ns := range []int64{100, 110, 120, 130, 140, 150, 160, 170, 180, 190, 200} {
		samples = append(samples, Sample{NS: ns, Events: 10, Calls: 5, Lost: 3})
	}
	f := Summary(samples, Row{Cores: []int{0, 1}})
	if f.Median != 30 || f.Low != 22 || f.High != 38 || f.Each != 2 || math.Abs(f.Calls-5e9/150) > 1 || math.Abs(f.Lost-33.0/(1650*2)) > 1e-9 || f.Full {
		t.Errorf("%+v", f)
	}
	if s := f.Spread(); math.Abs(s-16.0/30) > 1e-9 {
		t.Errorf("spread %v", s)
	}
	if got := f.Doubts(0.5); len(got) != 2 || !strings.Contains(got[0], "spread of 53 %") || !strings.Contains(got[1], "50 % of the machine") {
		t.Errorf("doubts %q", got)
	}
	if got := (Figure{Median: 10, Low: 9.8, High: 10.2, Lost: 0.03}).Doubts(-1); len(got) != 1 || !strings.Contains(got[0], "kept from its core for 3 %") {
		t.Errorf("doubts %q", got)
	}
	if got := (Figure{Median: 10, Low: 9.8, High: 10.2}).Doubts(0.01); len(got) != 0 {
		t.Errorf("doubts of a quiet machine: %q", got)
	}
	idle := Summary([]Sample{{NS: 100, Events: 10}}, Row{Cores: []int{0}})
	if idle.Each != 0 || idle.Calls != 0 || idle.Median != 10 {
		t.Errorf("a handler that was never called: %+v", idle)
	}
}

// TestRatio_isOfPairs: the machine is half as fast in the second round, and the ratio does not see it.
func TestRatio_isOfPairs(t *testing.T) {
	row := Row{Cores: []int{0}}
	a := []Sample{{Repetition: 0, NS: 110, Events: 10}, {Repetition: 1, NS: 220, Events: 10}, {Repetition: 0, NS: 330, Events: 10}}
	b := []Sample{{Repetition: 0, NS: 100, Events: 10}, {Repetition: 1, NS: 200, Events: 10}, {Repetition: 0, NS: 300, Events: 10}}
	if r := Ratio(a, b, row, row); math.Abs(r-1.1) > 1e-9 {
		t.Errorf("ratio %v", r)
	}
	if r := Ratio(a, nil, row, row); !math.IsNaN(r) {
		t.Errorf("ratio to nothing: %v", r)
	}
}

func TestBudget(t *testing.T) {
	for _, c := range []struct {
		bps, calls float64
		want       string
	}{
		{100e9, 40e6, "every packet"}, // 3.05 M packets/s
		{800e9, 11.83e6, "one in 2.1 packets"},
		{1.6e12, 1e6, "one in 49 packets"},
		{1.6e12, 48e6, "nearly every packet"}, // 48.8 M packets/s
	} {
		if got := Budget(c.bps, c.calls); got != c.want {
			t.Errorf("%g bit/s with %g calls/s: %s, want %s", c.bps, c.calls, got, c.want)
		}
	}
}

// machine writes a /sys of cores: siblings and node of each.
func machine(t *testing.T, siblings map[int]string, nodes map[int]string) string {
	t.Helper()
	sys := t.TempDir()
	for id, list := range siblings {
		dir := filepath.Join(sys, "devices/system/cpu", "cpu"+string(rune('0'+id)))
		if err := os.MkdirAll(filepath.Join(dir, "topology"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "topology/thread_siblings_list"), []byte(list+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if n, ok := nodes[id]; ok {
			if err := os.Mkdir(filepath.Join(dir, "node"+n), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	return sys
}

func TestCores_placement(t *testing.T) {
	smt := Cores(machine(t, map[int]string{0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}, nil), []int{0, 1, 2, 3})
	if got, err := Spread(smt, 3); err != nil || !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("three workers on two cores of two threads: %v, %v", got, err)
	}
	if _, err := Spread(smt, 5); err == nil || !strings.Contains(err.Error(), "5 workers: this machine has 4") {
		t.Errorf("five workers: %v", err)
	}
	if got := Placements(smt); !slices.Equal(got, []Placement{{"SMT sibling", 0, 2}, {"cores", 0, 1}}) {
		t.Errorf("placements %v", got)
	}
	numa := Cores(machine(t, map[int]string{0: "0-1", 1: "0-1", 4: "4-5", 5: "4-5"}, map[int]string{0: "0", 1: "0", 4: "1", 5: "1"}), []int{0, 1, 4, 5})
	if got := Placements(numa); !slices.Equal(got, []Placement{{"SMT sibling", 0, 1}, {"nodes", 0, 4}}) {
		t.Errorf("placements on two nodes: %v", got)
	}
	// A sibling that may not be used, and a machine that says nothing.
	if got := Placements(Cores(machine(t, map[int]string{0: "0,2", 1: "1,3"}, nil), []int{0, 1})); !slices.Equal(got, []Placement{{"cores", 0, 1}}) {
		t.Errorf("placements without the sibling: %v", got)
	}
	if got := Placements(Cores(t.TempDir(), []int{3})); got != nil {
		t.Errorf("one core: %v", got)
	}
}

func TestLoad(t *testing.T) {
	write := func(line string) string {
		file := filepath.Join(t.TempDir(), "stat")
		if err := os.WriteFile(file, []byte(line+"\ncpu0 1 2 3\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	before, err := ReadTicks(write("cpu  100 0 50 1000 20 5 5 0 9 9"))
	if err != nil || before != (Ticks{160, 1180}) {
		t.Fatalf("%+v, %v", before, err)
	}
	after, err := ReadTicks(write("cpu  200 0 60 1080 20 5 5 10 9 9"))
	if err != nil {
		t.Fatal(err)
	}
	if got := Load(before, after, 1, 100); math.Abs(got-0.1) > 1e-9 { // 120 of 200 ticks, 100 of them ours
		t.Errorf("load of others %v", got)
	}
	if got := Load(before, after, 5, 100); got != 0 {
		t.Errorf("less than we used: %v", got)
	}
	for _, bad := range []string{"", "cpu 1 2", "cpu a b c d e f g h"} {
		if _, err := ReadTicks(write(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
