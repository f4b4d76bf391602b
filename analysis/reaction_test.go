package analysis

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// reactionEvent is a data packet of wire bytes, or a CNP.
type reactionEvent struct {
	ts   int64
	wire int
	cnp  bool
}

func runReaction(origin, width int64, events []reactionEvent) *Reaction {
	var w rateWindow
	var r *reaction
	for _, e := range events {
		window := (e.ts - origin) / width
		if e.cnp {
			if r == nil {
				r = newReaction(origin, width)
			}
			r.cnp(&w, e.ts, window)
		} else {
			w.advance(r, window)
			w.add(uint32(e.wire))
		}
	}
	return r.finish()
}

// slowReaction goes by the definition: a table of all windows, and for each CNP a look ahead. Events are in order of time.
func slowReaction(origin, width int64, events []reactionEvent) *Reaction {
	bytes := map[int64]int64{}
	var last int64
	cnps := 0
	for _, e := range events {
		last = (e.ts - origin) / width
		if e.cnp {
			cnps++
		} else {
			bytes[last] += int64(e.wire)
		}
	}
	if cnps == 0 {
		return nil
	}
	out := &Reaction{WindowNS: width}
	var before, lowest, recover *histogram
	busyUntil := int64(-1) // CNPs of windows up to here belong to an episode that is over or goes on
	forever := false
	for i, e := range events {
		k := (e.ts - origin) / width
		if !e.cnp || k <= busyUntil || forever {
			continue
		}
		was := bytes[k-1]
		if was == 0 {
			continue
		}
		var slack int64
		for _, p := range events[:i] {
			slack = max(slack, int64(p.wire))
		}
		below := func(w int64) bool { return bytes[w]*100 < was*95 && was-bytes[w] > slack }
		out.Episodes++
		cutAt := int64(-1)
		for w := k + 1; w <= k+4 && w < last && cutAt < 0; w++ {
			if below(w) {
				cutAt = w
			}
		}
		if cutAt < 0 {
			if k+4 < last {
				out.NoCut++
				busyUntil = k + 4 // the window's end is seen by what comes after it
			} else {
				out.Unfinished++
				forever = true
			}
			continue
		}
		out.Cut++
		add(&before, int64(float64(was)*8e9/float64(width)+0.5))
		low := bytes[cutAt]
		again := int64(-1) // the window of the first CNP after a quiet time
		train := k
		for _, p := range events[i:] {
			if j := (p.ts - origin) / width; p.cnp {
				if j >= train+5 && j > cutAt {
					again = j
					break
				}
				train = j
			}
		}
		end := int64(-1)
		for w := cutAt + 1; w < last && (again < 0 || w < again); w++ {
			low = min(low, bytes[w])
			if !below(w) {
				end = w
				break
			}
		}
		switch {
		case end >= 0:
			out.Recovered++
			add(&recover, origin+(end+1)*width-e.ts)
			busyUntil = end
		case again >= 0:
			out.Interrupted++
			busyUntil = again - 1
		default:
			out.Unfinished++
			forever = true
		}
		add(&lowest, int64(float64(low)*8e9/float64(width)+0.5))
	}
	out.BeforeBps, out.LowestBps, out.RecoverNS = before.rates(), lowest.rates(), recover.latency(1)
	return out
}

func TestReaction_agreesWithDefinition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const origin, width = 5_000, 1_000
		var events []reactionEvent
		ts := int64(origin)
		for range rapid.IntRange(1, 40).Draw(t, "stretches") {
			step := rapid.Int64Range(20, 400).Draw(t, "step")
			wire := rapid.IntRange(60, 1200).Draw(t, "wire")
			for range rapid.IntRange(0, 60).Draw(t, "packets") {
				ts += step
				events = append(events, reactionEvent{ts: ts, wire: wire})
			}
			ts += rapid.SampledFrom([]int64{0, 0, 0, 300, 2_000, 9_000}).Draw(t, "pause")
			if rapid.IntRange(0, 2).Draw(t, "CNP") > 0 {
				events = append(events, reactionEvent{ts: ts, cnp: true})
			}
		}
		got, want := runReaction(origin, width, events), slowReaction(origin, width, events)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("reaction (-definition +got):\n%s", diff)
		}
		if got != nil && (got.Episodes != got.NoCut+got.Recovered+got.Interrupted+got.Unfinished) {
			t.Fatalf("the ends do not sum up to the episodes: %+v", got)
		}
	})
}

func TestReaction(t *testing.T) {
	t.Parallel()
	const width = 1000
	// windows gives packets of 100 bytes: n[i] of them in window i, and a CNP in the middle of each window of cnps.
	windows := func(n []int, cnps ...int64) (events []reactionEvent) {
		for i, packets := range n {
			for _, c := range cnps {
				if c == int64(i) {
					events = append(events, reactionEvent{ts: c*width + 1, cnp: true})
				}
			}
			for p := range packets {
				events = append(events, reactionEvent{ts: int64(i)*width + 2 + int64(p), wire: 100})
			}
		}
		return events
	}
	for _, tc := range []struct {
		name   string
		why    string
		events []reactionEvent
		want   *Reaction // without rates and times
	}{
		{"no_cnp", "not measured is null", windows([]int{5, 5}), nil},
		{"cut_and_back", "half, then 96 %", windows([]int{50, 50, 25, 30, 48, 1}, 1), &Reaction{Episodes: 1, Cut: 1, Recovered: 1}},
		{"no_cut", "four windows at the old rate", windows([]int{50, 50, 50, 49, 50, 50, 1}, 1), &Reaction{Episodes: 1, NoCut: 1}},
		{"last_window_is_not_whole", "the capture ends within the fourth", windows([]int{50, 50, 50, 49, 50, 50}, 1), &Reaction{Episodes: 1, Unfinished: 1}},
		{"one_packet_less", "counting whole packets is off by one; 3 of 4 is no cut", windows([]int{4, 4, 3, 4, 3, 4, 1}, 1), &Reaction{Episodes: 1, NoCut: 1}},
		{"starting", "nothing was sent before: nothing to compare with", windows([]int{0, 50, 25, 25, 25, 25, 25, 1}, 1), &Reaction{}},
		{"train", "CNPs of one train are one episode", windows([]int{50, 50, 25, 25, 25, 25, 50, 1}, 1, 2, 3, 5), &Reaction{Episodes: 1, Cut: 1, Recovered: 1}},
		{"again_before_back", "quiet for four windows, then CNPs again at a lower rate", windows([]int{50, 50, 20, 25, 30, 35, 38, 15, 40, 1}, 1, 6), &Reaction{Episodes: 2, Cut: 2, Interrupted: 1, Recovered: 1}},
		{"idle_is_a_cut", "the windows without packets count once a packet comes", windows([]int{50, 50, 0, 0, 0, 0, 0, 0, 0, 50, 1}, 1), &Reaction{Episodes: 1, Cut: 1, Recovered: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := runReaction(0, width, tc.events)
			if got != nil {
				if got.Cut > 0 != (got.BeforeBps != nil) || got.Recovered != got.RecoverNS.Samples {
					t.Errorf("rates and times of %+v do not fit its counts", got)
				}
				got.WindowNS, got.BeforeBps, got.LowestBps, got.RecoverNS = 0, nil, nil, Latency{}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
	t.Run("numbers", func(t *testing.T) {
		got := runReaction(0, width, windows([]int{50, 50, 25, 20, 48, 1}, 1))
		want := &Reaction{WindowNS: width, Episodes: 1, Cut: 1, Recovered: 1, BeforeBps: &Rates{Min: 4e10, P50: 4e10, Max: 4e10},
			LowestBps: &Rates{Min: 1.6e10, P50: 1.6e10, Max: 1.6e10}}
		if got.RecoverNS.Samples != 1 || *got.RecoverNS.Max != 3999 { // from 1001 to the end of window 4
			t.Errorf("recover_ns %+v, want one of 3999", got.RecoverNS)
		}
		got.RecoverNS = Latency{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

func TestRateWindow_staysAtItsLimit(t *testing.T) {
	t.Parallel()
	var w rateWindow
	for range 3 {
		w.add(2_000_000_000)
	}
	if w.cur != 1<<32-1 {
		t.Errorf("%d bytes, want the limit of 2^32-1", w.cur)
	}
}
