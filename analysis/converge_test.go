package analysis

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// slowConvergence looks at each event alone and asks every bin after it for the flows that fill it.
func slowConvergence(flows []rateCurve, start, width int64, bins int) (jain []*float64, out []Convergence) {
	activeIn := func(b int) (active []rateCurve) {
		for _, c := range flows {
			if b < bins && c.firstNS <= start+int64(b)*width && c.lastNS >= start+int64(b+1)*width {
				active = append(active, c)
			}
		}
		return active
	}
	for b := range bins {
		var x []float64
		for _, c := range activeIn(b) {
			v := 0.0
			if k := b - c.from; k >= 0 && k < len(c.rates) {
				v = c.rates[k]
			}
			x = append(x, v)
		}
		jain = append(jain, jainOf(x))
	}
	end := start + int64(bins)*width
	out = []Convergence{}
	for _, c := range flows {
		if c.firstNS > start+5*width {
			out = append(out, Convergence{AtNS: c.firstNS, Event: "join", Flow: c.id})
		}
		if c.lastNS < end-5*width {
			out = append(out, Convergence{AtNS: c.lastNS, Event: "leave", Flow: c.id})
		}
	}
	slices.SortFunc(out, func(a, b Convergence) int {
		return cmp.Or(cmp.Compare(a.AtNS, b.AtNS), cmp.Compare(b.Event, a.Event), cmp.Compare(a.Flow, b.Flow))
	})
	group := make([]int, len(out)) // index of the first event of the group
	for i := range out {
		if i > 0 && out[i].AtNS-out[group[i-1]].AtNS <= width {
			group[i] = group[i-1]
		} else {
			group[i] = i
		}
	}
	for i := range out {
		last := i
		for last+1 < len(out) && group[last+1] == group[i] {
			last++
		}
		b0 := int((out[last].AtNS-start)/width) + 1
		stop := bins
		if last+1 < len(out) {
			stop = int((out[last+1].AtNS - start) / width)
		}
		e := &out[i]
		e.Active = len(activeIn(b0))
		if b0 >= stop || e.Active < 2 {
			continue
		}
		found := -1
		for b := b0; b+5 <= stop && found < 0; b++ {
			fair := true
			for _, j := range jain[b : b+5] {
				fair = fair && j != nil && *j >= 0.95
			}
			if fair {
				found = b
				e.TimeNS = ptr(start + int64(b)*width - e.AtNS)
			}
		}
		if found >= 0 {
			stop = found + 1
		}
		for _, j := range jain[b0:stop] {
			if j != nil {
				if e.LowestJain == nil {
					e.LowestJain = ptr(2.0)
				}
				*e.LowestJain = min(*e.LowestJain, *j)
			}
		}
	}
	return jain, out
}

var nearly = gocmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })

func TestConvergence_agreesWithDefinition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const width = 100
		start := rapid.SampledFrom([]int64{0, 12_345}).Draw(t, "start")
		bins := rapid.IntRange(1, 60).Draw(t, "bins")
		end := start + int64(bins)*width
		var flows []rateCurve
		for i := range rapid.IntRange(0, 6).Draw(t, "flows") {
			c := rateCurve{id: fmt.Sprint("f", i)}
			c.firstNS = rapid.Int64Range(start, end-1).Draw(t, "first")
			c.lastNS = rapid.Int64Range(c.firstNS, end-1).Draw(t, "last")
			c.from = max(int((c.firstNS-start)/width)-rapid.IntRange(0, 1).Draw(t, "answers before"), 0)
			rate := 0.0
			for b := c.from; b <= int((c.lastNS-start)/width); b++ {
				if b == c.from || rapid.IntRange(0, 9).Draw(t, "change") == 0 {
					rate = rapid.SampledFrom([]float64{0, 1e9, 2e9, 2e9, 2e9, 2.1e9}).Draw(t, "rate")
				}
				c.rates = append(c.rates, rate)
			}
			flows = append(flows, c)
		}
		f := fairnessOf(flows, start, width, bins)
		got := f.convergence(flows)
		wantJain, want := slowConvergence(flows, start, width, bins)
		if diff := gocmp.Diff(wantJain, f.jain, nearly); diff != "" {
			t.Fatalf("Jain per bin (-definition +got):\n%s", diff)
		}
		for i := range got {
			if (got[i].TimeNS == nil) != (got[i].Reason != "") {
				t.Fatalf("%+v: a reason is there when the time is not", got[i])
			}
			got[i].Reason = ""
		}
		if diff := gocmp.Diff(want, got, nearly); diff != "" {
			t.Fatalf("convergence (-definition +got):\n%s", diff)
		}
	})
}

func TestConvergence(t *testing.T) {
	t.Parallel()
	const width = 10
	// curve makes a flow from bin first to the middle of bin last, with the rates given, the last of them for the rest.
	curve := func(id string, first, last int, rates ...float64) rateCurve {
		c := rateCurve{id: id, from: first, firstNS: int64(first)*width + 1, lastNS: int64(last)*width + 5}
		if first == 0 {
			c.firstNS = 0
		}
		for b := first; b <= last; b++ {
			c.rates = append(c.rates, rates[min(b-first, len(rates)-1)])
		}
		return c
	}
	late := curve("c", 11, 39, 1)
	late.firstNS = 119
	for _, tc := range []struct {
		name, why string
		bins      int
		flows     []rateCurve
		want      []string
	}{
		{"joins_and_converges", "unfair in bins 11 to 13, fair from bin 14", 40, []rateCurve{curve("a", 0, 39, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 9, 8, 7, 5), curve("b", 10, 39, 1, 1, 2, 3, 5)},
			[]string{"join b at 101: 2 active, 39 ns, lowest 0.61, "}},
		{"leaves", "one is left", 40, []rateCurve{curve("a", 0, 39, 5), curve("b", 0, 20, 5)}, []string{"leave b at 205: 1 active, - ns, lowest -, one flow is always fair"}},
		{"all_gone", "no one is left", 40, []rateCurve{curve("a", 0, 20, 5)}, []string{"leave a at 205: 0 active, - ns, lowest -, no flow was left"}},
		{"never_fair", "2 to 1", 40, []rateCurve{curve("a", 0, 39, 2), curve("b", 10, 39, 1)}, []string{"join b at 101: 2 active, - ns, lowest 0.90, not within the capture"}},
		{"next_too_soon", "a third comes within the five bins", 40, []rateCurve{curve("a", 0, 39, 1), curve("b", 10, 39, 1), curve("c", 15, 39, 1)},
			[]string{"join b at 101: 2 active, - ns, lowest 1.00, not before the next flow came or left", "join c at 151: 3 active, 9 ns, lowest 1.00, "}},
		{"next_at_once", "no whole bin lies between", 40, []rateCurve{curve("a", 0, 39, 1), curve("b", 10, 39, 1), late},
			[]string{"join b at 101: 2 active, - ns, lowest -, the next flow came or left first", "join c at 119: 3 active, 1 ns, lowest 1.00, "}},
		{"together", "two within a bin are one change, measured from the second", 40, []rateCurve{curve("a", 0, 39, 1), curve("b", 10, 39, 1), curve("c", 11, 39, 1)},
			[]string{"join b at 101: 3 active, 19 ns, lowest 1.00, ", "join c at 111: 3 active, 9 ns, lowest 1.00, "}},
		{"near_the_ends", "the capture began and ended, not the flows", 40, []rateCurve{curve("a", 0, 39, 1), curve("b", 4, 36, 1)}, nil},
		{"blocked", "after it came all are at zero: no index", 40, []rateCurve{curve("a", 0, 39, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0), curve("b", 10, 39, 1, 0)}, []string{"join b at 101: 2 active, - ns, lowest -, not within the capture"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := fairnessOf(tc.flows, 0, width, tc.bins)
			var got []string
			for _, c := range f.convergence(tc.flows) {
				after, lowest := "-", "-"
				if c.TimeNS != nil {
					after = fmt.Sprint(*c.TimeNS)
				}
				if c.LowestJain != nil {
					lowest = fmt.Sprintf("%.2f", *c.LowestJain)
				}
				got = append(got, fmt.Sprintf("%s %s at %d: %d active, %s ns, lowest %s, %s", c.Event, c.Flow, c.AtNS, c.Active, after, lowest, c.Reason))
			}
			if diff := gocmp.Diff(strings.Join(tc.want, "\n"), strings.Join(got, "\n")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}
