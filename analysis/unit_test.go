package analysis

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestJain(t *testing.T) {
	for _, tt := range []struct {
		name, why string
		x         []float64
		want      float64
		ok        bool
	}{
		{"equal", "all shares equal", []float64{5, 5, 5}, 1, true},
		{"one_of_four", "one has all: 1/n", []float64{1, 0, 0, 0}, 0.25, true},
		{"textbook", "(1+2+3)^2 / (3*14)", []float64{1, 2, 3}, 36.0 / 42, true},
		{"alone", "a single flow is fair", []float64{7}, 1, true},
		{"empty", "nothing to compare", nil, 0, false},
		{"idle", "0/0 is no index", []float64{0, 0}, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := Jain(tt.x)
			if math.Abs(got-tt.want) > 1e-12 || ok != tt.ok {
				t.Errorf("Jain(%v) = %g, %v; want %g, %v (%s)", tt.x, got, ok, tt.want, tt.ok, tt.why)
			}
		})
	}
}

// TestHistogram_quantiles: off by at most 3 % of the true quantile, exact at both ends, whatever the distribution.
func TestHistogram_quantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		n := rapid.IntRange(1, 3000).Draw(t, "samples")
		spread := rapid.Float64Range(0.1, 40).Draw(t, "octaves")
		var h, first, second histogram
		x := make([]int64, n)
		for i := range x {
			x[i] = int64(math.Exp2(r.Float64() * spread))
			h.add(x[i])
			if i%2 == 0 {
				first.add(x[i])
			} else {
				second.add(x[i])
			}
		}
		first.merge(&second)
		if diff := cmp.Diff(h.latency(1), first.latency(1)); diff != "" {
			t.Fatalf("merged halves differ from the whole:\n%s", diff)
		}
		sort.Slice(x, func(i, j int) bool { return x[i] < x[j] })
		for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 1} {
			want := modelQuantile(x, q)
			got := h.quantile(q)
			if math.Abs(float64(got-want)) > 0.03*float64(want) {
				t.Fatalf("quantile %g of %d samples: %d, want %d", q, n, got, want)
			}
		}
	})
}

// TestPSNTracker_countsDistinct: against a set, for any order of PSNs within reach, also across the wrap.
func TestPSNTracker_countsDistinct(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.SampledFrom([]uint32{0, 1, 1<<24 - 5, 1 << 23}).Draw(t, "start")
		steps := rapid.SliceOfN(rapid.IntRange(-40, 20), 1, 400).Draw(t, "steps")
		var tr psnTracker
		known := map[uint32]bool{}
		psn := start
		dups := int64(0)
		for i, s := range steps {
			if i > 0 {
				psn = uint32(int(psn)+s) & 0xffffff
			}
			class, ext, _ := tr.see(&seen{psn: psn, bytes: 100, lateNS: 1})
			if uint32(ext)&0xffffff != psn {
				t.Fatalf("step %d: PSN %d unwrapped to %d", i, psn, ext)
			}
			if (class == psnDup) != known[psn] {
				t.Fatalf("step %d: PSN %d: class %d, seen before %v", i, psn, class, known[psn])
			}
			if known[psn] {
				dups++
			}
			known[psn] = true
		}
		tr.close(-1 << 62)
		x := tr.disorderOf()
		if tr.unique() != int64(len(known)) || x.duplicates != dups {
			t.Fatalf("unique %d, duplicates %d; want %d, %d", tr.unique(), x.duplicates, len(known), dups)
		}
		if x.retransmitted+x.outOfOrder < dups || x.lost < 0 {
			t.Fatalf("retransmitted %d, late %d, lost %d with %d duplicates", x.retransmitted, x.outOfOrder, x.lost, dups)
		}
	})
}

// TestPSNTracker_patterns: the runs that tell resends from reordering.
func TestPSNTracker_patterns(t *testing.T) {
	for _, tt := range []struct {
		name, why                          string
		psns                               []uint32
		dup, resent, late, lost, resentLen int64
	}{
		{"in_order", "nothing happens", []uint32{1, 2, 3, 4}, 0, 0, 0, 0, 0},
		{"late", "one packet overtaken by two", []uint32{1, 3, 4, 2, 5}, 0, 0, 1, 0, 0},
		{"lost_for_good", "UC: nobody sends it again", []uint32{1, 3, 4, 5}, 0, 0, 0, 1, 0},
		{"go_back_n", "2 lost before the tap, resent with what follows", []uint32{1, 3, 4, 2, 3, 4, 5}, 2, 3, 0, 1, 3},
		{"go_back_n_lost_after", "nothing lost before the tap", []uint32{1, 2, 3, 2, 3, 4}, 2, 2, 0, 0, 2},
		{"resend_loses_again", "the copy of 3 is lost, too", []uint32{1, 3, 4, 5, 2, 4, 5, 6}, 2, 3, 0, 2, 3},
		{"copy", "the network doubled one packet", []uint32{1, 2, 2, 3}, 1, 1, 0, 0, 1},
		{"late_copy", "the doubled packet comes late: no loss", []uint32{1, 2, 3, 4, 2, 5}, 1, 1, 0, 0, 1},
		{"late_in_resend", "an overtaken copy inside a resend", []uint32{1, 2, 3, 4, 5, 2, 3, 5, 4, 6}, 4, 4, 0, 1, 4},
		{"wrap", "across 2^24", []uint32{0xfffffe, 0xffffff, 0, 1, 0xffffff, 0, 1, 2}, 3, 3, 0, 0, 3},
		{"before_first", "the capture starts in the middle of a resend", []uint32{5, 6, 3, 4, 5, 6, 7}, 2, 4, 0, 2, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var tr psnTracker
			var resentLen int64
			for i, p := range tt.psns {
				_, _, r := tr.see(&seen{ts: int64(i), psn: p, bytes: 10, lateNS: 1000})
				resentLen += r
			}
			tr.close(-1 << 62)
			x := tr.disorderOf()
			got := []int64{x.duplicates, x.retransmitted, x.outOfOrder, x.lost, resentLen, x.retransmittedBytes}
			want := []int64{tt.dup, tt.resent, tt.late, tt.lost, tt.resentLen, 10 * tt.resent}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%v: duplicates, retransmitted, late, lost, recognised, bytes (-want +got):\n%s(%s)", tt.psns, diff, tt.why)
			}
		})
	}
}

// TestPSNTracker_resends: what the log says of steps back. A number is a packet 1 us after the one before; "N3" is a NAK that
// names 3, "+3" the packet 3 with a newer IP identification, "..." a millisecond of silence.
func TestPSNTracker_resends(t *testing.T) {
	for _, tt := range []struct{ name, packets, want string }{
		{"in_order", "1 2 3", ""},
		{"late", "1 3 2 4", ""},
		{"nak", "1 2 4 5 N3 3 4 5 6", "nak 3+1us from 3 to 5: 3 sent, 0 skipped"},
		{"resumed_early", "1 2 4 5 N3 2 3 4 5 6", "nak 3+1us from 2 to 5: 4 sent, 0 skipped"},
		{"timeout", "1 2 3 ... 1 2 3 4", "timeout from 1 to 3: 3 sent, 0 skipped"},
		{"tail", "1 2 3 ... 3 4", "timeout from 3 to 3: 1 sent, 0 skipped"},
		{"doubled", "1 2 3 3 4", ""},
		{"skips", "1 2 3 4 5 N2 2 3 5 6", "nak 2+1us from 2 to 5: 3 sent, 1 skipped"},
		{"alone", "1 2 4 5 N3 +3 6", "nak 3+1us from 3 to 5: 1 sent, 0 skipped"},
		{"alone_after_long", "1 2 4 5 ... 3 6", "timeout from 3 to 5: 1 sent, 0 skipped"},
		{"alone_seen_before", "1 2 3 4 5 N3 +3 6", "nak 3+1us from 3 to 5: 1 sent, 0 skipped"},
		{"alone_at_end", "1 2 3 4 5 N3 +3", "nak 3+1us from 3 to 5: 1 sent, 0 skipped"},
		{"twice", "1 2 3 4 N2 2 3 N2 2 3 4 5", "nak 2+1us from 2 to 4: 2 sent, 0 skipped; nak 2+1us from 2 to 4: 3 sent, 0 skipped"},
		{"late_inside", "1 2 3 4 5 6 N2 2 3 5 4 6 7", "nak 2+1us from 2 to 6: 4 sent, 1 skipped"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var tr psnTracker
			now, last := int64(0), int64(0)
			for _, w := range strings.Fields(tt.packets) {
				now += 1000
				if w == "..." {
					now += 1_000_000
					continue
				}
				digits := strings.TrimLeft(w, "N+")
				n, err := strconv.Atoi(digits)
				if err != nil {
					t.Fatal(err)
				}
				if w[0] == 'N' {
					if tr.x == nil {
						tr.x = new(disorder)
					}
					tr.x.refuse(now, uint32(n), byNAK)
					continue
				}
				tr.see(&seen{ts: now, psn: uint32(n), newer: w[0] == '+', quiet: now - last, lateNS: 100_000})
				last = now
			}
			tr.close(-1 << 62)
			var got []string
			if r := tr.disorderOf().recovery(); r != nil {
				for _, e := range r.Events {
					s := e.Trigger
					if e.NAKPSN != nil {
						s += fmt.Sprintf(" %d+%dus", *e.NAKPSN, *e.DelayNS/1000)
					}
					got = append(got, fmt.Sprintf("%s from %d to %d: %d sent, %d skipped", s, e.FromPSN, e.HighPSN, e.Packets, e.Skipped))
				}
			}
			if text := strings.Join(got, "; "); text != tt.want {
				t.Errorf("%s:\n got %q\nwant %q", tt.packets, text, tt.want)
			}
		})
	}
}

func TestPhase_window(t *testing.T) {
	const s = int64(time.Second)
	for _, tt := range []struct {
		name, why      string
		phase          Phase
		scale          float64
		wantLo, wantHi int64
	}{
		{"long", "a second at each end", Phase{EndNS: 60 * s}, 1, s, 59 * s},
		{"short", "10 % where that is less than a second", Phase{EndNS: 2 * s}, 1, s / 5, 2*s - s/5},
		{"scaled", "10 % in a scaled lab, however long", Phase{EndNS: 60 * s}, 50, 6 * s, 54 * s},
		{"last_60_percent", "as expectations ask", Phase{EndNS: 10 * s, TrimStart: 4 * time.Second, TrimEnd: -1}, 50, 4 * s, 10 * s},
		{"untrimmed", "negative means none", Phase{EndNS: 10 * s, TrimStart: -1, TrimEnd: -1}, 1, 0, 10 * s},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if lo, hi := tt.phase.window(tt.scale); lo != tt.wantLo || hi != tt.wantHi {
				t.Errorf("window = [%d, %d), want [%d, %d) (%s)", lo, hi, tt.wantLo, tt.wantHi, tt.why)
			}
		})
	}
}

func TestFormat(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{FormatRate(0), "0 b/s"}, {FormatRate(999), "999 b/s"}, {FormatRate(23.4e9), "23.4 Gb/s"}, {FormatRate(480e6), "480 Mb/s"}, {FormatRate(1.5e3), "1.50 kb/s"},
		{FormatSize(1023), "1023 B"}, {FormatSize(65536), "64.0 KiB"}, {FormatDuration(812_000), "812 us"}, {FormatDuration(2.5e9), "2.500 s"},
		{FormatShare(0.983), "98.3 %"}, {FormatShare(0.0004), "0.04 %"}, {FormatShare(0), "0.0 %"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

// TestHistogram_buckets: every value from which a quantile may be read is within 2.7 % of the bucket's values, buckets follow each
// other without gaps, and 16-bit counters overflow into wider ones.
func TestHistogram_buckets(t *testing.T) {
	worst := 0.0
	last := -1
	for v := int64(0); v < 1<<22; v += 1 + v>>12 {
		number := histBucket(v)
		if i := number; i < last || i > last+1 && v < 1<<12 && v > 32 && i > last+2 {
			t.Fatalf("value %d: bucket %d after %d", v, i, last)
		} else {
			last = i
		}
		if r := histValues[number]; v > 0 {
			worst = max(worst, math.Abs(float64(r-v))/float64(v))
		}
	}
	t.Logf("worst error %.2f %%", 100*worst)
	if worst > 0.027 {
		t.Errorf("worst error %.2f %%, want at most 2.7 %%", 100*worst)
	}
	var h histogram
	for range 200_000 {
		h.add(1000)
	}
	h.add(5)
	if got := h.samples(); len(got) != 2 || got[1].Count != 200_000 || h.quantile(0.5) != 1000 {
		t.Errorf("200,000 times 1000 and one 5: %v", got)
	}
}
