package world

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/rdcctest"
)

// seeds is how many a run of the tests tries. PCMLAB_RDCC_SEEDS asks for more.
func seeds(t *testing.T) uint64 {
	if n := os.Getenv("PCMLAB_RDCC_SEEDS"); n != "" {
		v, err := strconv.ParseUint(n, 10, 64)
		if err != nil {
			t.Fatalf("PCMLAB_RDCC_SEEDS=%q: %v", n, err)
		}
		return v
	}
	if testing.Short() {
		return 300
	}
	return 3000
}

// TestWorld: in worlds of thousands of seeds all oracles agree that nobody sends without credit, that no more than G is on its way or may
// be, that every message ends and is whole, that reports raise nothing and that traffic flows again in time after the last fault.
func TestWorld(t *testing.T) {
	off, n := rdcctest.Off(), seeds(t)
	var mu sync.Mutex
	var all Stats
	worst := uint64(0)
	next, stop := uint64(0), false
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() {
			for {
				mu.Lock()
				seed := next
				next++
				done := stop || seed >= n
				mu.Unlock()
				if done {
					return
				}
				st, bad, _ := Replay{Seed: seed}.Run(off, nil)
				mu.Lock()
				all.add(&st)
				if st.Gap == all.Gap && st.Gap > 0 {
					worst = seed
				}
				if bad != nil && !stop {
					stop = true
					r, b := Shrink(Replay{Seed: seed}, off)
					s, _, _ := r.Scenario()
					t.Errorf("seed %d: %v\nmade smaller: %v\n%s%s", seed, bad, b, s.String(), r.Command())
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	t.Logf("%d worlds: %d messages done, %d aborted, %d without RDCC; %d associations, %d messages converted", next-2, all.Done, all.Aborted, all.Without, all.Lives, all.Converted)
	t.Logf("%d events, %d control datagrams (%d lost), %d packets, %d MB", all.Events, all.Datagrams, all.Lost, all.Packets, all.Octets>>20)
	for k, n := range all.Faults {
		t.Logf("  %6d times %v", n, FaultKind(k))
	}
	t.Logf("longest time without traffic after the last fault: %v, at most %.0f %% of what is allowed (seed %d); most on its way: %.0f %% of G", all.Gap, 100*all.Used, worst, 100*all.Flight)
}

func (s *Stats) add(o *Stats) {
	s.Events, s.Datagrams, s.Lost, s.Packets, s.Octets = s.Events+o.Events, s.Datagrams+o.Datagrams, s.Lost+o.Lost, s.Packets+o.Packets, s.Octets+o.Octets
	s.Done, s.Aborted, s.Without = s.Done+o.Done, s.Aborted+o.Aborted, s.Without+o.Without
	s.Lives, s.Converted = s.Lives+o.Lives, s.Converted+o.Converted
	s.Gap, s.Used, s.Flight = max(s.Gap, o.Gap), max(s.Used, o.Used), max(s.Flight, o.Flight)
	for k := range s.Faults {
		s.Faults[k] += o.Faults[k]
	}
}

// TestReplay runs the world that PCMLAB_RDCC_WORLD names and tells all that happens; without it, one that must run the same twice.
func TestReplay(t *testing.T) {
	line := os.Getenv("PCMLAB_RDCC_WORLD")
	if line == "" {
		r, err := ParseReplay("26 without m1")
		if err != nil || r.String() != "26 without m1" {
			t.Fatalf("%v, %v", r, err)
		}
		tell := func() (all []string) {
			if _, _, err := r.Run(rdcc.RuleSet{}, func(f string, a ...any) { all = append(all, fmt.Sprintf(f, a...)) }); err != nil {
				t.Fatal(err)
			}
			return all
		}
		if a, b := tell(), tell(); len(a) < 20 || !slices.Equal(a, b) {
			t.Errorf("%d and %d lines: one seed, two histories", len(a), len(b))
		}
		for _, bad := range []string{"", "x", "1 m0", "1 without m99", "1 without q1", "1 without m"} {
			r, err := ParseReplay(bad)
			if err == nil {
				_, _, err = r.Run(rdcc.RuleSet{}, nil)
			}
			if err == nil {
				t.Errorf("%q: no error", bad)
			}
		}
		return
	}
	r, err := ParseReplay(line)
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := r.Scenario()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Print(s.String())
	stats, bad, _ := r.Run(rdcctest.Off(), func(f string, a ...any) { fmt.Printf(f, a...) })
	t.Logf("%+v", stats)
	if bad != nil {
		t.Error(bad)
	}
}

// noticed are rules that an oracle of the world misses within some hundred seeds when they are off. Rules that are not here concern
// what a world has not: wire formats, DSCPs, bounds that it never reaches, repetition that only costs datagrams.
var noticed = []string{
	"AssocMatch", "SequenceNewer", "EpochResetsSequence", "SequenceIncremented", "UnscheduledLimit", "OneOutstanding",
	"ReportStops", "PauseStops", "ConvertAnnounces", "CreditFirst", "IDsIncrease", "RequestRepeated", "BackoffMost",
	"LifetimeEnds", "ExpiryRequests", "Pacing", "PoolOffset", "PoolPaced", "PoolLifetime", "ExhaustedKeeps", "NICDrains",
	"LargerUntilAcked", "RefreshBounded", "SumU", "Restated", "Presumed", "NotBeyondLength", "PacingRateNotZero",
	"PoolCapability", "Done", "DoneAgain", "Budget", "ReclaimDelay", "SumOfRates", "LiveRates", "UnknownAssociation",
}

// TestWorld_notices: the oracles can fail, and their failures become small and are the same each time.
func TestWorld_notices(t *testing.T) {
	for _, name := range noticed {
		rule, ok := rdcc.RuleNamed(name)
		if !ok {
			t.Fatalf("no rule %s", name)
		}
		var off rdcc.RuleSet
		off.Add(rule)
		for seed := uint64(0); ; seed++ {
			if seed == 1500 {
				t.Errorf("%s: no oracle misses it", name)
				break
			}
			if _, bad, _ := (Replay{Seed: seed}).Run(off, nil); bad != nil {
				t.Logf("%-24s seed %3d: %s", name, seed, bad.Kind)
				break
			}
		}
	}
}

// TestDiscover tries all rules of the machines and prints those that are noticed.
func TestDiscover(t *testing.T) {
	most, err := strconv.Atoi(os.Getenv("PCMLAB_RDCC_DISCOVER"))
	if err != nil {
		most = 1 // seed a rule: that none crashes the world
	}
	for r := rdcc.Rule(64); r != 0; r++ {
		if n, ok := rdcc.RuleNamed(r.String()); !ok || n != r {
			continue
		}
		var off rdcc.RuleSet
		off.Add(r)
		for seed := range uint64(most) {
			if _, bad, _ := (Replay{Seed: seed}).Run(off, nil); bad != nil {
				t.Logf("%-24s seed %3d: %s", r, seed, bad.Kind)
				break
			}
		}
	}
}

// TestShrink: what is left of a failing world fails in the same way, and without any of its parts it does not.
func TestShrink(t *testing.T) {
	rule, _ := rdcc.RuleNamed("LifetimeEnds")
	var off rdcc.RuleSet
	off.Add(rule)
	for seed := range uint64(600) {
		_, bad, _ := (Replay{Seed: seed}).Run(off, nil)
		if bad == nil {
			continue
		}
		r, b := Shrink(Replay{Seed: seed}, off)
		s, _, _ := r.Scenario()
		left := 0
		for _, part := range s.parts() {
			if slices.Contains(r.Without, part) {
				continue
			}
			left++
			if _, x, _ := (Replay{r.Seed, append(slices.Clone(r.Without), part)}).Run(off, nil); x != nil && x.Kind == b.Kind {
				t.Errorf("it still fails without %s", part)
			}
		}
		t.Logf("%d of %d parts are left: %s", left, len(s.parts()), r.Command())
		if b.Kind != bad.Kind {
			t.Errorf("%q became %q", bad.Kind, b.Kind)
		}
		return
	}
	t.Fatal("no seed fails")
}

// even are n senders that send the same, over one link.
func even(n, messages int, length uint64) Scenario {
	s := Calm(n)
	for k := range n * messages {
		s.Messages = append(s.Messages, Message{From: k % n, Length: length, Weight: 1})
	}
	return s
}

// TestFaultless: without faults the link is used and shared: utilisation at least 0.9, Jain's index at least 0.95, nothing aborted.
func TestFaultless(t *testing.T) {
	for _, pool := range []bool{false, true} {
		for _, n := range []int{1, 3, 8} {
			s := even(n, 24/n, 500000)
			s.Receivers[0].Pool = pool
			w := newWorld(&s, Bytes(nil), rdcctest.Off())
			half := time.Duration(0)
			var at []uint64
			w.at(5*ms, func() { half, at = w.now, slices.Clone(w.stats.BySender) })
			st, bad := w.run()
			if bad != nil {
				t.Fatal(bad)
			}
			sum, squares := 0.0, 0.0
			for _, x := range at {
				sum += float64(x)
				squares += float64(x) * float64(x)
			}
			jain := sum * sum / (float64(n) * squares)
			used := sum * 8 / half.Seconds() / float64(s.Fabric.Capacity())
			t.Logf("pool %t, %d senders: utilisation %.3f, Jain %.3f, most on its way %.2f G", pool, n, used, jain, st.Flight)
			if used < 0.9 || jain < 0.95 || st.Aborted > 0 || st.Done != len(s.Messages) {
				t.Errorf("pool %t, %d senders: utilisation %.3f, Jain %.3f, %d done, %d aborted", pool, n, used, jain, st.Done, st.Aborted)
			}
		}
	}
}

// FuzzWorld draws all that a world decides from the fuzzer's bytes.
func FuzzWorld(f *testing.F) {
	for seed := range uint64(8) {
		d := Seeded(seed)
		b := make([]byte, 600)
		for i := range b {
			b[i] = byte(d(256))
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := Bytes(b)
		s := Generate(d)
		if _, bad := Run(&s, d, rdcc.RuleSet{}); bad != nil {
			t.Fatalf("%v\n%s", bad, s.String())
		}
	})
}
