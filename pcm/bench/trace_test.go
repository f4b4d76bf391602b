package bench

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/handlers"
)

var p100 = PathOf(nil)

// TestGenerate_isTheSameEverywhere: figures are compared between machines, so a seed gives the same bytes on all of them. The sums were
// taken once; a change of the traces is a change of what is measured, and is made on purpose.
func TestGenerate_isTheSameEverywhere(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		mix  string
		seed uint64
		want string
	}{
		{Sender, "mixed", 1, "c05bdbefa1111c8e"},
		{LB, "mixed", 1, "c19309ec09da10c4"},
		{Receiver, "pull50", 2, "b4103f5d575d31d1"},
	} {
		got := AppendEvents(nil, Generate(c.kind, mixNamed(t, c.kind, c.mix), p100, c.seed, 10000))
		sum := sha256.Sum256(got)
		if text := hex.EncodeToString(sum[:8]); text != c.want {
			t.Errorf("%s %s, seed %d: %s, want %s", c.kind, c.mix, c.seed, text, c.want)
		}
		if len(got) != 10000*EventBytes {
			t.Errorf("%d bytes", len(got))
		}
	}
}

func mixNamed(t *testing.T, k Kind, name string) Mix {
	t.Helper()
	for _, m := range Mixes(k) {
		if m.Name == name {
			return m
		}
	}
	t.Fatalf("no mix %s", name)
	return Mix{}
}

func TestGenerate_seedsAndMixesDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, k := range []Kind{Sender, LB, Receiver} {
		for _, m := range Mixes(k) {
			for seed := range uint64(3) {
				b := string(AppendEvents(nil, Generate(k, m, p100, seed+1, 1000)))
				if b != string(AppendEvents(nil, Generate(k, m, p100, seed+1, 1000))) {
					t.Errorf("%s %s: one seed, two traces", k, m.Name)
				}
				name := string(k) + m.Name + string(rune('1'+seed))
				if other, ok := seen[b]; ok {
					t.Errorf("%s is %s", name, other)
				}
				seen[b] = name
			}
		}
	}
}

// TestGenerate_shares: kinds of events come as often as the paper says (section 7.1), within half a percent of 100,000.
func TestGenerate_shares(t *testing.T) {
	const n = 100_000
	for _, k := range []Kind{Sender, LB} {
		for _, m := range Mixes(k) {
			var loss, marked, good, tx int
			for i, e := range Generate(k, m, p100, 7, n) {
				switch e.Mask {
				case lossMask:
					loss++
				case ecnMask:
					marked++
				case goodMask:
					good++
				case txMask:
					tx++
					if i%2 != 1 || k != LB {
						t.Fatalf("%s: event %d is a transmission", k, i)
					}
				default:
					t.Fatalf("event %+v", e)
				}
			}
			rx := float64(loss + marked + good)
			for _, s := range []struct {
				name      string
				got, want int
			}{{"losses", loss, m.Loss}, {"marked", marked, m.ECN}, {"unmarked", good, 100 - m.Loss - m.ECN}} {
				if share := 100 * float64(s.got) / rx; math.Abs(share-float64(s.want)) > 0.5 || s.want == 0 && s.got > 0 {
					t.Errorf("%s %s: %.2f %% %s, want %d", k, m.Name, share, s.name, s.want)
				}
			}
			if want := map[Kind]int{Sender: 0, LB: n / 2}[k]; tx != want {
				t.Errorf("%s %s: %d transmissions, want %d", k, m.Name, tx, want)
			}
		}
	}
	for _, m := range Mixes(Receiver) {
		jumps, sum := 0, 0
		for _, e := range Generate(Receiver, m, p100, 7, n) {
			if e.Mask != pullMask || e.Pull < 1 || e.Pull > Jump {
				t.Fatalf("event %+v", e)
			}
			if e.Pull == Jump {
				jumps++
			}
			sum += int(e.Pull)
		}
		if share := 100 * float64(jumps) / n; math.Abs(share-float64(m.Jumps)) > 0.5 || m.Jumps == 0 && jumps > 0 {
			t.Errorf("%s: %.2f %% jumps", m.Name, share)
		}
		j := float64(m.Jumps) / 100
		if mean, want := float64(sum)/n, 128*j+64*(1-j); math.Abs(mean-want) > 0.5 {
			t.Errorf("%s: targets grow by %.2f on average, want %.1f", m.Name, mean, want)
		}
	}
}

// TestGenerate_times: round trips of unmarked packets have a queue of a quarter of the path's delay on average, 0.187 in the median (of
// the product of two uniform draws) and never more than all of it; those of marked ones one to three, evenly. Gaps have their mean.
func TestGenerate_times(t *testing.T) {
	var short, long []float64
	var gaps float64
	events := Generate(Sender, mixNamed(t, Sender, "mixed"), p100, 3, 200_000)
	base := float64(p100.BaseRTT)
	for _, e := range events {
		gaps += float64(e.Gap)
		switch e.Mask {
		case goodMask:
			short = append(short, float64(e.RTT)/base-1)
		case ecnMask:
			long = append(long, float64(e.RTT)/base-1)
		case lossMask:
			if e.RTT != 0 {
				t.Fatal("a loss has no round trip")
			}
		}
		if e.Flying < p100.BDP/4 || e.Flying >= p100.BDP*5/4 || e.Bytes != p100.Packet || e.Path >= 1<<16 {
			t.Fatalf("event %+v", e)
		}
	}
	mean := func(v []float64) (m float64) {
		for _, x := range v {
			m += x / float64(len(v))
		}
		return m
	}
	for _, c := range []struct {
		what           string
		got, want, off float64
	}{
		{"mean of unmarked", mean(short), 0.25, 0.005}, {"median of unmarked", Quantile(short, 0.5), 0.1867, 0.005},
		{"mean of marked", mean(long), 2, 0.01}, {"first quarter of marked", Quantile(long, 0.25), 1.5, 0.02},
		{"least of unmarked", slices.Min(short), 0, 0.001}, {"most of unmarked", slices.Max(short), 1, 0.02},
		{"least of marked", slices.Min(long), 1, 0.001}, {"most of marked", slices.Max(long), 3, 0.001},
		{"gap", gaps / float64(len(events)), float64(p100.Gap), 1},
	} {
		if math.Abs(c.got-c.want) > c.off {
			t.Errorf("%s: %.4f, want %.4f", c.what, c.got, c.want)
		}
	}
}

// TestPathOf_readsTheDeployment: the library's example is the fabric that is taken for granted; other units of time are converted.
func TestPathOf_readsTheDeployment(t *testing.T) {
	if got := PathOf(handlers.Fabric()); got != (Path{14023, 4096, 175284, 327}) {
		t.Errorf("the example deployment: %+v", got)
	}
	f, err := pcm.ParseFabric("f.yaml", []byte("time_unit: ps\nFABRIC_BRTT: 14022720\nFABRIC_LINK_RATE_GBPS: 50\nFABRIC_LINK_MSS: 2048\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := PathOf(f); got != (Path{14022, 2048, 175284, 40}) {
		t.Errorf("in picoseconds: %+v", got)
	}
}

// TestOrder: each flow comes equally often, so that all of them are the working set, and once before any comes twice.
func TestOrder(t *testing.T) {
	for _, how := range []string{RoundRobin, Interleaved} {
		for _, flows := range []int{1, 2, 7, 1000, 131072} {
			order, err := Order(flows, how, 1, 1<<16)
			if err != nil {
				t.Fatal(err)
			}
			if len(order) < 1<<16 || len(order)%flows != 0 {
				t.Fatalf("%d flows: %d places", flows, len(order))
			}
			for from := 0; from < len(order); from += flows {
				turn := slices.Clone(order[from : from+flows])
				if how == RoundRobin && !slices.IsSorted(turn) {
					t.Fatalf("%d flows, round-robin: not in order", flows)
				}
				if how == Interleaved && flows > 100 && slices.IsSorted(turn) {
					t.Fatalf("%d flows, interleaved: in order", flows)
				}
				slices.Sort(turn)
				for i, f := range turn {
					if int(f) != i {
						t.Fatalf("%d flows, %s: flow %d is missing from a turn", flows, how, i)
					}
				}
			}
			again, _ := Order(flows, how, 1, 1<<16)
			if !bytes.Equal(AppendOrder(nil, order), AppendOrder(nil, again)) {
				t.Errorf("%d flows, %s: one seed, two orders", flows, how)
			}
		}
	}
	for _, c := range []struct {
		flows int
		how   string
		says  string
	}{{0, RoundRobin, "need 1 to"}, {MaxFlows + 1, RoundRobin, "need 1 to"}, {5, "random", "need round-robin or interleaved"}} {
		if _, err := Order(c.flows, c.how, 1, 10); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d flows, %s: %v", c.flows, c.how, err)
		}
	}
}
