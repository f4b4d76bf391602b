package analysis

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/pcm/calls"
)

// A value holds until the next one; before the first it is not known, and what is not known does not count.
func TestSteps_mean(t *testing.T) {
	s := steps{at: []int64{100, 200, 400}, v: []float64{10, 20, 40}}
	for _, tc := range []struct {
		name     string
		from, to int64
		want     float64
		ok       bool
	}{
		{"before", 0, 100, 0, false},
		{"half_known", 0, 200, 10, true},
		{"one", 120, 180, 10, true},
		{"two", 150, 250, 15, true},
		{"all", 100, 500, (10*100 + 20*200 + 40*100) / 400., true},
		{"after", 1000, 2000, 40, true},
		{"nothing", 300, 300, 0, false},
	} {
		if got, ok := s.mean(tc.from, tc.to); got != tc.want || ok != tc.ok {
			t.Errorf("%s: mean of [%d, %d) is %v %v, want %v %v", tc.name, tc.from, tc.to, got, ok, tc.want, tc.ok)
		}
	}
}

// What two NICs logged comes into the series of their flows, and into Jain's index of the phase in which both pace.
func TestRun_handlerCalls(t *testing.T) {
	dir := t.TempDir()
	src := func(i byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, i}) }
	write := func(i byte, bound int, records ...calls.Record) string {
		l := calls.New(bound)
		l.Device, l.Src, l.Handlers = "softnic0", src(i), []calls.Handler{{Name: "bbr"}}
		for _, r := range records {
			r.Dst, r.DstQP, r.Fired = src(9).As4(), 20, 1
			l.Add(r)
		}
		path := filepath.Join(dir, src(i).String()+".csv.gz")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := l.Write(f); err != nil {
			t.Fatal(err)
		}
		return path
	}
	logs, err := readCalls([]string{
		write(1, 10, calls.Record{TimeNS: 1000, Packets: 4, Rate: 100, Pacer: 2, Window: 4096}, calls.Record{TimeNS: 1050, Packets: 8, Rate: 300, Pacer: 6, Window: 8192}),
		write(2, 1, calls.Record{TimeNS: 900, Packets: 1, Rate: 100, Pacer: 2}, calls.Record{TimeNS: 1010, Packets: 3, Rate: 100, Pacer: 2}),
	})
	if err != nil {
		t.Fatal(err)
	}
	flow := func(i byte) Flow {
		return Flow{ID: src(i).String(), Src: src(i).String(), Dst: src(9).String(), DstQP: 20}
	}
	three := func() []float64 { return make([]float64, 3) }
	d := &Document{Flows: []Flow{flow(1), flow(2), flow(3)}, Series: Series{BinNS: 100, StartNS: 900, Bins: 3, Flows: []FlowSeries{{GoodputBps: three()}, {GoodputBps: three()}, {GoodputBps: three()}}}}
	d.Aggregate.PerPhase = []PhaseSummary{
		{StartNS: 900, EndNS: 1100, TrimNS: 100, Flows: []PhaseFlow{{Flow: src(1).String()}, {Flow: src(2).String()}}},
		{StartNS: 900, EndNS: 1100, Flows: []PhaseFlow{{Flow: src(1).String()}, {Flow: src(3).String()}}},
		{StartNS: 900, EndNS: 1100, Flows: []PhaseFlow{{Flow: src(1).String()}, {Flow: src(3).String()}}, Excluded: []Excluded{{Flow: src(3).String()}}},
	}
	logs.fill(d)
	p := func(v ...float64) (out []*float64) {
		for _, x := range v {
			if x < 0 {
				out = append(out, nil)
				continue
			}
			out = append(out, &x)
		}
		return out
	}
	want := []FlowSeries{
		{GoodputBps: three(), PacerRateBps: p(-1, 4, 6), CwndBytes: p(-1, 6144, 8192), AcksPerCall: p(-1, 6, -1)},
		{GoodputBps: three(), PacerRateBps: p(2, 2, 2), AcksPerCall: p(1, -1, -1)},
		{GoodputBps: three()},
	}
	if diff := cmp.Diff(want, d.Series.Flows); diff != "" {
		t.Errorf("series (-want +got)\n%s", diff)
	}
	cut := int64(1010)
	wantLogs := []HandlerLog{
		{Path: filepath.Join(dir, "192.0.2.1.csv.gz"), Device: "softnic0", Src: "192.0.2.1", Calls: 2, Logged: 2},
		{Path: filepath.Join(dir, "192.0.2.2.csv.gz"), Device: "softnic0", Src: "192.0.2.2", Calls: 2, Logged: 1, CutNS: &cut},
	}
	if diff := cmp.Diff(wantLogs, d.HandlerLogs); diff != "" {
		t.Errorf("logs (-want +got)\n%s", diff)
	}
	var jain []*float64
	for _, ph := range d.Aggregate.PerPhase {
		jain = append(jain, ph.JainPacer)
	}
	if diff := cmp.Diff(p(36./40, -1, 1), jain); diff != "" { // 4 and 2; one that did not log; one alone
		t.Errorf("jain_pacer (-want +got)\n%s", diff)
	}
	if _, err := readCalls([]string{filepath.Join(dir, "gone")}); err == nil {
		t.Error("a log that is not there is read")
	}
}
