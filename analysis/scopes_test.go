package analysis

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

type seenCNP struct {
	ts       int64
	mac      uint64
	src, dst addrID
	qp       uint32
}

func testAddr(id addrID) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(id >> 8), byte(id)}) }

// slowScopes groups CNPs by their names at each scope and measures within each group.
func slowScopes(cnps []seenCNP) (scopes []CNPScope, pairs, ports []CNPCount) {
	name := func(c seenCNP, scope string) string {
		port := testAddr(c.src).String()
		if c.mac != 0 {
			port = macString(c.mac)
		}
		switch scope {
		case ScopeQP:
			return fmt.Sprint(c.src, ">", c.dst, ":", c.qp)
		case ScopeIPPair:
			return testAddr(c.src).String() + ">" + testAddr(c.dst).String()
		case ScopeDestination:
			return port + ">" + testAddr(c.dst).String()
		}
		return port
	}
	for _, scope := range []string{ScopeQP, ScopeIPPair, ScopeDestination, ScopePort} {
		groups := map[string][]seenCNP{}
		for _, c := range cnps {
			groups[name(c, scope)] = append(groups[name(c, scope)], c)
		}
		var all *histogram
		var counts []CNPCount
		for n, g := range groups {
			var gaps *histogram
			for i := 1; i < len(g); i++ {
				add(&gaps, g[i].ts-g[i-1].ts)
				add(&all, g[i].ts-g[i-1].ts)
			}
			c := CNPCount{CNPs: int64(len(g)), GapNS: gaps.latency(1)}
			c.Src, c.Dst, _ = strings.Cut(n, ">")
			if span := g[len(g)-1].ts - g[0].ts; span > 0 {
				c.RateHz = ptr(float64(len(g)-1) * 1e9 / float64(span))
			}
			counts = append(counts, c)
		}
		scopes = append(scopes, CNPScope{scope, len(groups), all.latency(1)})
		slices.SortFunc(counts, func(a, b CNPCount) int { return strings.Compare(a.Src+">"+a.Dst, b.Src+">"+b.Dst) })
		switch scope {
		case ScopeIPPair:
			pairs = counts
		case ScopePort:
			ports = counts
		}
	}
	return scopes, pairs, ports
}

func TestCNPScopes_agreeWithDefinition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newCNPScopes()
		var cnps []seenCNP
		ts := int64(1_000_000)
		cooked := rapid.Bool().Draw(t, "cooked") // no MAC addresses
		for range rapid.IntRange(1, 200).Draw(t, "CNPs") {
			ts += rapid.SampledFrom([]int64{0, 1, 700, 50_000, 51_000, 4_000_000}).Draw(t, "gap")
			c := seenCNP{ts: ts, src: addrID(rapid.IntRange(1, 4).Draw(t, "src")), dst: addrID(rapid.IntRange(5, 7).Draw(t, "dst")), qp: uint32(rapid.IntRange(1, 3).Draw(t, "qp"))}
			if !cooked {
				c.mac = 0x020000000000 | uint64(rapid.IntRange(1, 2).Draw(t, "mac")) // also: a QP that moves to another port
			}
			cnps = append(cnps, c)
			s.see(c.ts, c.mac, c.src, c.dst, c.qp)
		}
		scopes, _, _, _, pairs, ports := s.finish(&Options{TimeScale: 1}, 0, testAddr)
		wantScopes, wantPairs, wantPorts := slowScopes(cnps)
		if diff := cmp.Diff(wantScopes, scopes); diff != "" {
			t.Errorf("scopes (-definition +got):\n%s", diff)
		}
		if diff := cmp.Diff(wantPairs, pairs); diff != "" {
			t.Errorf("pairs (-definition +got):\n%s", diff)
		}
		if diff := cmp.Diff(wantPorts, ports); diff != "" {
			t.Errorf("ports (-definition +got):\n%s", diff)
		}
	})
}

// notifierSim makes CNPs as a NIC does that paces by a scope: it answers a mark at once and a mark that comes too early when
// the interval ends, to the QP that was marked last (as the software NIC does).
type notifierSim struct {
	scope    string
	interval int64
	jitter   int64 // of the tap
	addrs    int   // of the notifier; one MAC address
	senders  int
	qps      int   // per pair of addresses
	mean     int64 // time between marks of one QP
	phases   bool  // senders come one after another
	marks    int
}

func (n notifierSim) run(seed uint64) (cnps []seenCNP, marked int64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	type limiter struct {
		until   int64
		pending bool
		owner   seenCNP
	}
	limiters := map[string]*limiter{}
	var inOrder []*limiter
	type event struct {
		ts  int64
		who seenCNP
	}
	var marks []event
	total := n.addrs * n.senders * n.qps
	length := n.mean * int64(n.marks/total)
	for a := range n.addrs {
		for s := range n.senders {
			for q := range n.qps {
				start := int64(rng.IntN(int(n.interval)))
				if n.phases {
					start += int64(s) * length * 2
				}
				for ts := start; ts < start+length; ts += int64(rng.ExpFloat64()*float64(n.mean)) + 1 {
					marks = append(marks, event{ts, seenCNP{mac: 0x02_00_00_00_00_01, src: addrID(1 + a), dst: addrID(100 + s), qp: uint32(q + 1)}})
				}
			}
		}
	}
	slices.SortFunc(marks, func(a, b event) int { return int(a.ts - b.ts) })
	send := func(c seenCNP, ts int64) {
		c.ts = ts + rng.Int64N(n.jitter+1)
		cnps = append(cnps, c)
	}
	for _, m := range marks {
		for _, l := range inOrder { // timers due
			for l.until <= m.ts && l.pending {
				send(l.owner, l.until)
				l.until, l.pending = l.until+n.interval, false
			}
		}
		c := m.who
		key := map[string]string{ScopeQP: fmt.Sprint(c.src, c.dst, c.qp), ScopeIPPair: fmt.Sprint(c.src, c.dst), ScopeDestination: fmt.Sprint(c.dst), ScopePort: ""}[n.scope]
		l := limiters[key]
		if l == nil {
			l = &limiter{until: -1}
			limiters[key] = l
			inOrder = append(inOrder, l)
		}
		l.owner = c
		if m.ts < l.until {
			l.pending = true
			continue
		}
		l.until, l.pending = m.ts+n.interval, false
		send(c, m.ts)
	}
	slices.SortFunc(cnps, func(a, b seenCNP) int { return int(a.ts - b.ts) })
	return cnps, int64(len(marks))
}

func (n notifierSim) infer(seed uint64) (string, int64, string) {
	s := newCNPScopes()
	cnps, marked := n.run(seed)
	for _, c := range cnps {
		s.see(c.ts, c.mac, c.src, c.dst, c.qp)
	}
	_, scope, interval, reason, _, _ := s.finish(&Options{TimeScale: 1}, marked, testAddr)
	if scope == nil {
		return "null", 0, reason
	}
	return *scope, *interval, reason
}

func TestCNPScopes_pacing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		why  string
		sim  notifierSim
		want string
		open string // scopes that cannot be told apart from it
	}{
		{"qp", "QPs of one pair keep no distance", notifierSim{scope: ScopeQP, addrs: 2, senders: 3, qps: 2, mean: 5_000}, ScopeQP, ""},
		{"qp_alone", "one QP a sender: its pair is the same", notifierSim{scope: ScopeQP, addrs: 1, senders: 4, qps: 1, mean: 5_000}, ScopeQP, "ip_pair, destination"},
		{"pair", "two addresses of the notifier are paced apart", notifierSim{scope: ScopeIPPair, addrs: 2, senders: 3, qps: 2, mean: 40_000}, ScopeIPPair, ""},
		{"pair_of_one_address", "one address: pair and destination are the same", notifierSim{scope: ScopeIPPair, addrs: 1, senders: 4, qps: 4, mean: 5_000}, ScopeIPPair, "destination"},
		{"destination", "both addresses of the notifier share the interval", notifierSim{scope: ScopeDestination, addrs: 2, senders: 3, qps: 2, mean: 5_000}, ScopeDestination, ""},
		{"port", "all share the interval", notifierSim{scope: ScopePort, addrs: 2, senders: 3, qps: 2, mean: 5_000}, ScopePort, ""},
		{"port_by_turns", "64 QPs: the gaps of one are many intervals, at random", notifierSim{scope: ScopePort, addrs: 2, senders: 16, qps: 2, mean: 40_000}, ScopePort, ""},
		{"one_after_another", "senders that are never marked at one time say nothing of wider scopes", notifierSim{scope: ScopePort, addrs: 1, senders: 4, qps: 4, mean: 5_000, phases: true}, ScopeIPPair, "destination, port"},
		{"sparse", "marks are rarer than the interval: each is answered", notifierSim{scope: ScopeQP, addrs: 1, senders: 4, qps: 1, mean: 2_000_000}, "null", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sim := tc.sim
			sim.interval, sim.jitter, sim.marks = 50_000, 1_000, 12_000
			scope, interval, reason := sim.infer(7)
			if scope != tc.want {
				t.Fatalf("%s: scope %s (%s), want %s", tc.why, scope, reason, tc.want)
			}
			if scope != "null" && (interval < 48_500 || interval > 51_000) {
				t.Errorf("interval %d ns, want about 50000", interval)
			}
			if _, open, _ := strings.Cut(reason, "apart from "); !strings.HasPrefix(open, tc.open) || (tc.open == "") != (open == "") {
				t.Errorf("%s: reason %q, want %q as not told apart", tc.why, reason, tc.open)
			}
		})
	}
}

func TestCNPScopes_pacingNotTold(t *testing.T) {
	t.Parallel()
	infer := func(scale float64, marked int64, cnps ...seenCNP) (string, string) {
		s := newCNPScopes()
		for _, c := range cnps {
			s.see(c.ts, c.mac, c.src, c.dst, c.qp)
		}
		_, scope, interval, reason, _, _ := s.finish(&Options{TimeScale: scale}, marked, testAddr)
		if scope == nil {
			if interval != nil {
				t.Error("an interval without a scope")
			}
			return "null", reason
		}
		return *scope, reason
	}
	every := func(gap int64, n int) (cnps []seenCNP) {
		for i := range n {
			cnps = append(cnps, seenCNP{ts: int64(i) * gap, src: 1, dst: 2, qp: 3})
		}
		return cnps
	}
	// Two QPs, both paced by timers, half an interval apart: regular at both scopes.
	both := every(50_000, 40)
	for i := range 40 {
		both = append(both, seenCNP{ts: int64(i)*50_000 + 25_000, src: 1, dst: 2, qp: 4})
	}
	slices.SortFunc(both, func(a, b seenCNP) int { return int(a.ts - b.ts) })
	// trains makes two QPs that are paced one after the other: trains of a few CNPs, with the given gaps between two trains.
	trains := func(cnps int, between ...int64) (all []seenCNP) {
		ts := int64(0)
		for i, gap := range between {
			for range cnps {
				all = append(all, seenCNP{ts: ts, src: 1, dst: 2, qp: uint32(1 + i%2)})
				ts += 50_000
			}
			ts += gap - 50_000
		}
		return all
	}
	apart := slices.Repeat([]int64{500_000}, 20)
	apart[7] = 60_000
	strays := slices.Repeat([]int64{50_000, 50_000, 50_000, 50_000, 5_000}, 10)
	for _, tc := range []struct {
		name, scope, reason string
		scale               float64
		marked              int64
		cnps                []seenCNP
	}{
		{"none", "null", "no CNP", 1, 100, nil},
		{"few", "null", "only 7 gaps", 1, 100, every(50_000, 8)},
		{"enough", ScopeQP, "begin sharply at 50000 ns", 1, 100, every(50_000, 9)},
		{"each_mark", "null", "not paced", 1, 22, every(50_000, 20)},
		{"packets_apart", "null", "too short", 1, 100, every(900, 50)},
		{"slowed_lab", "null", "too short", 1024, 1000, every(50_000, 50)},
		{"hardly_ever_close", ScopeQP, "cannot be told apart from ip_pair, destination, port", 1, 10_000, trains(20, apart...)},
		{"close_and_kept", ScopeIPPair, "1st percentile", 1, 10_000, trains(4, slices.Repeat([]int64{50_000}, 50)...)},
		{"not_kept_by_a_fifth", ScopeQP, "those at a wider one do not", 1, 10_000, trains(4, strays...)},
		{"out_of_phase", "null", "ambiguous", 1, 1000, both},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if scope, reason := infer(tc.scale, tc.marked, tc.cnps...); scope != tc.scope || !strings.Contains(reason, tc.reason) {
				t.Errorf("scope %s (%s), want %s (%s)", scope, reason, tc.scope, tc.reason)
			}
		})
	}
}

func TestCNPScopes_nothingAllocatedPerCNP(t *testing.T) {
	s := newCNPScopes()
	ts := int64(0)
	see := func() {
		for i := range uint32(64) {
			ts += 10_000
			s.see(ts, 1+uint64(i%2), addrID(i%4), addrID(4+i%8), i)
		}
	}
	see()
	see()
	if n := testing.AllocsPerRun(100, see); n != 0 {
		t.Errorf("%v allocations for 64 CNPs of known groups, want 0", n)
	}
}

// TestCNPScopes_pacingIsNeverWrong: what the analysis says about simulated notifiers is right, or that it cannot be told.
func TestCNPScopes_pacingIsNeverWrong(t *testing.T) {
	t.Parallel()
	told := 0
	for _, mean := range []int64{5_000, 100_000} {
		for _, n := range [][3]int{{1, 1, 2}, {1, 4, 1}, {1, 4, 4}, {2, 3, 2}, {2, 10, 2}} {
			for _, phases := range []bool{false, true} {
				for _, scope := range scopeNames {
					sim := notifierSim{scope: scope, interval: 50_000, jitter: 1_000, addrs: n[0], senders: n[1], qps: n[2], mean: mean, phases: phases, marks: 4_000}
					got, interval, reason := sim.infer(uint64(mean))
					if got == "null" {
						continue
					}
					told++
					if _, open, _ := strings.Cut(reason, "apart from "); got != scope && !strings.Contains(open, scope) {
						t.Errorf("%+v: %s, %s", sim, got, reason)
					}
					if interval < 45_000 || interval > 55_000 {
						t.Errorf("%+v: interval %d ns", sim, interval)
					}
				}
			}
		}
	}
	if told < 60 {
		t.Errorf("told %d of 80, want at least 60", told)
	}
}
