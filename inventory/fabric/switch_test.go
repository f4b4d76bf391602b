package fabric

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pcmlab/pcmlab/internal/units"
)

func newTestSwitch(t testing.TB, o Options) *Switch {
	t.Helper()
	if o.Pool == nil {
		o.Pool = NewPool(DefaultMaxFrame)
	}
	if o.Rand == nil {
		o.Rand = rand.New(rand.NewPCG(1, 2))
	}
	if o.Static == nil {
		o.Static = map[[6]byte]int{}
		for i := range o.Links {
			o.Static[station6(i)] = i
		}
	}
	sw, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return sw
}

// TestSwitch_allocatesNothingPerPacket holds the data path to pooled memory, with marks, drops and mirrors.
func TestSwitch_allocatesNothingPerPacket(t *testing.T) {
	step, _ := loadedSwitch(t, 16)
	for range 2000 {
		step()
	}
	if n := testing.AllocsPerRun(1000, step); n != 0 {
		t.Errorf("%v allocations per step of 16 packets, want 0", n)
	}
}

// TestSwitch_rateIsExactInVirtualTime: however irregularly the driver wakes, a saturated link sends at its rate.
func TestSwitch_rateIsExactInVirtualTime(t *testing.T) {
	for _, row := range []struct {
		rate units.Rate
		size int
		why  string
	}{
		{500 * units.MbitPerSec, 4154, "25 Gbit/s at a time scale of 50"},
		{142857143, 62, "transmission times that are no whole ns, acknowledgements"},
		{400 * units.GbitPerSec, 64, "less than 2 ns a packet"},
	} {
		t.Run(fmt.Sprintf("%s_%d", row.rate, row.size), func(t *testing.T) {
			link := Link{Rate: row.rate}
			pool := NewPool(DefaultMaxFrame)
			sw := newTestSwitch(t, Options{Links: []Link{{Rate: 10 * row.rate}, link}, Overhead: DefaultOverhead, Pool: pool})
			frame := udpFrame(station6(0), station6(1), row.size)
			tx := row.rate.Transmit(row.size + DefaultOverhead)
			random := rand.New(rand.NewPCG(3, 4))
			var out []Output
			var first, last time.Duration
			n, sent := 0, 0
			now := time.Duration(0)
			for n < 20000 {
				for ; sent < n+264; sent++ {
					sw.Receive(0, now, pool.Copy(frame))
				}
				now += time.Duration(random.Int64N(int64(100*tx) + 2)) // wakes late and early
				out = sw.Advance(now, out[:0])
				for _, o := range out {
					if n == 0 {
						first = o.At
					}
					last, n = o.At, n+1
					pool.Release(o.P)
				}
			}
			got := float64(n-1) * float64(row.size+DefaultOverhead) * 8e9 / float64(last-first)
			if off := math.Abs(got/float64(row.rate) - 1); off > 1e-4 {
				t.Errorf("rate %.0f bit/s, want %d: off by %.4f %% (%s)", got, row.rate, 100*off, row.why)
			}
		})
	}
}

// TestSwitch_ingressShapesABurstToTheLink: what a host sends at once reaches the switch at its link's rate.
func TestSwitch_ingressShapesABurstToTheLink(t *testing.T) {
	pool := NewPool(DefaultMaxFrame)
	sw := newTestSwitch(t, Options{
		Links:    []Link{{Rate: units.GbitPerSec, Delay: time.Microsecond}, {Rate: 100 * units.GbitPerSec}},
		Overhead: 24, Pool: pool, Mirrors: []Mirror{{Direction: Ingress, Ports: []int{0}}},
	})
	const size = 1226 // 1250 bytes on the wire: 10 us
	for range 3 {
		sw.Receive(0, 0, pool.Copy(udpFrame(station6(0), station6(1), size)))
	}
	if got := sw.IngressBytes(0); got != 3*size {
		t.Errorf("%d bytes on the link, want %d", got, 3*size)
	}
	var at []time.Duration
	for _, o := range sw.Advance(time.Second, nil) {
		if o.To == 2 {
			at = append(at, o.At)
		}
		pool.Release(o.P)
	}
	want := []time.Duration{11 * time.Microsecond, 21 * time.Microsecond, 31 * time.Microsecond}
	if diff := cmp.Diff(want, at); diff != "" {
		t.Errorf("arrivals (-want +got):\n%s", diff)
	}
}

// TestSwitch_neverReordersBetweenTwoPorts, also while links are changed.
func TestSwitch_neverReordersBetweenTwoPorts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool := NewPool(2000)
		o := Options{Pool: pool, Rand: rand.New(rand.NewPCG(1, 2)), Static: map[[6]byte]int{}}
		for i := range 3 {
			o.Links = append(o.Links, Link{Rate: units.GbitPerSec, Delay: time.Millisecond, ECN: &ECNConfig{KMax: 3000, PMax: 0.5}})
			o.Static[station6(i)] = i
		}
		sw, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		var next, seen [3][3]byte
		now := time.Duration(0)
		var out []Output
		lastAt := time.Duration(0)
		check := func() {
			out = sw.Advance(now, out[:0])
			for _, o := range out {
				from, n := o.P.Data[11]-1, o.P.Data[50]
				if o.At < lastAt {
					t.Fatalf("output at %v after %v", o.At, lastAt)
				}
				lastAt = o.At
				if n != seen[from][o.To] {
					t.Fatalf("from %d to %d: packet %d, want %d", from, o.To, n, seen[from][o.To])
				}
				seen[from][o.To]++
				pool.Release(o.P)
			}
			holds(t, sw)
		}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			from := rapid.IntRange(0, 2).Draw(t, "from")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				l := sw.Link(from)
				l.Rate = units.Rate(rapid.SampledFrom([]int64{1e6, 1e9, 40e9}).Draw(t, "rate"))
				l.Delay = rapid.SampledFrom([]time.Duration{0, time.Microsecond, 10 * time.Millisecond}).Draw(t, "delay")
				if err := sw.SetLink(from, l); err != nil {
					t.Fatal(err)
				}
			case 1:
				now += rapid.SampledFrom([]time.Duration{time.Microsecond, time.Millisecond}).Draw(t, "pass")
				check()
			default:
				to := (from + rapid.IntRange(1, 2).Draw(t, "to")) % 3
				frame := udpFrame(station6(from), station6(to), rapid.IntRange(60, 1500).Draw(t, "size"))
				frame[50] = next[from][to]
				next[from][to]++
				sw.Receive(from, now, pool.Copy(frame))
			}
		}
		now += time.Hour
		check()
		if next != seen || pool.InUse() != 0 {
			t.Fatalf("sent %v, got %v, %d not released", next, seen, pool.InUse())
		}
	})
}

// TestSwitch_isDeterministicFromItsSeed: the same seed gives the same marks, another one others.
func TestSwitch_isDeterministicFromItsSeed(t *testing.T) {
	run := func(seed uint64) (marks []bool) {
		pool := NewPool(DefaultMaxFrame)
		fast := Link{Rate: 40 * units.GbitPerSec}
		slow := Link{Rate: units.GbitPerSec, ECN: &ECNConfig{KMin: 8 * units.KiB, KMax: 512 * units.KiB, PMax: 0.5}}
		sw := newTestSwitch(t, Options{Links: []Link{fast, slow}, Pool: pool, Rand: rand.New(rand.NewPCG(seed, 0))})
		for range 100 {
			sw.Receive(0, 0, pool.Copy(udpFrame(station6(0), station6(1), 4154)))
		}
		for _, o := range sw.Advance(time.Second, nil) {
			marks = append(marks, o.P.Data[15]&3 == ce)
			pool.Release(o.P)
		}
		return marks
	}
	first := run(1)
	if diff := cmp.Diff(first, run(1)); diff != "" {
		t.Errorf("same seed, other marks (-first +second):\n%s", diff)
	}
	if slices.Equal(first, run(2)) {
		t.Error("another seed gives the same marks")
	}
	if n := len(first); n != 100 || !slices.Contains(first, true) || !slices.Contains(first[:50], false) {
		t.Errorf("%d packets, marks %v: not a RED queue", n, first)
	}
}

// TestSwitch_marksLeaveOtherCopiesAlone: a flooded or mirrored packet is marked only where the queue is long.
func TestSwitch_marksLeaveOtherCopiesAlone(t *testing.T) {
	pool := NewPool(DefaultMaxFrame)
	always := &ECNConfig{KMin: 0, KMax: 0, PMax: 1}
	sw := newTestSwitch(t, Options{
		Links: []Link{{Rate: 100 * units.GbitPerSec}, {Rate: units.MbitPerSec, ECN: always}, {Rate: units.MbitPerSec}},
		Pool:  pool, Mirrors: []Mirror{{Direction: Ingress}, {Direction: Egress}},
	})
	flood := udpFrame(station6(0), [6]byte{255, 255, 255, 255, 255, 255}, 100)
	for range 2 { // the second finds the first in the queue
		sw.Receive(0, 0, pool.Copy(flood))
	}
	got := map[int][]byte{}
	for _, o := range sw.Advance(time.Second, nil) {
		got[o.To] = append(got[o.To], o.P.Data[15]&3)
		pool.Release(o.P)
	}
	want := map[int][]byte{1: {ect0, ce}, 2: {ect0, ect0}, 3: {ect0, ect0}, 4: {ect0, ect0, ce, ect0}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ECN fields by target (-want +got):\n%s", diff)
	}
	if pool.InUse() != 0 {
		t.Errorf("%d packets were not released", pool.InUse())
	}
}

func TestSwitch_setLinkRefusesWhatNewRefuses(t *testing.T) {
	sw := newTestSwitch(t, Options{Links: []Link{{Rate: units.GbitPerSec}}})
	if err := sw.SetLink(0, Link{Rate: 0}); err == nil {
		t.Error("rate 0 was taken")
	}
	if _, err := New(Options{Links: []Link{{}}, Pool: NewPool(1500), Rand: rand.New(rand.NewPCG(1, 1))}); err == nil {
		t.Error("New took rate 0")
	}
}

// TestPool_fitsFramesToSmallBuffers: an acknowledgement must not keep a jumbo buffer.
func TestPool_fitsFramesToSmallBuffers(t *testing.T) {
	pool := NewPool(9000)
	big := pool.Largest()
	small, taken := pool.Fit(big, 62)
	if taken || len(small.Data) != 62 || len(small.buf) > 256 {
		t.Errorf("62 bytes: taken %v, %d of %d bytes", taken, len(small.Data), len(small.buf))
	}
	same, taken := pool.Fit(big, 9000)
	if !taken || same != big || len(big.Data) != 9000 {
		t.Errorf("9000 bytes: taken %v, %d bytes", taken, len(same.Data))
	}
	pool.Release(small)
	pool.Release(big)
	if pool.InUse() != 0 {
		t.Errorf("%d in use", pool.InUse())
	}
}

// TestHistogram_quantilesAreExactTo4Percent against sorted values.
func TestHistogram_quantilesAreExactTo4Percent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(0, 1<<40), 1, 200).Draw(t, "values")
		var h histogram
		for _, v := range values {
			h.add(v)
		}
		slices.Sort(values)
		for _, q := range []float64{0.01, 0.5, 0.99, 1} {
			want := values[max(int(math.Ceil(q*float64(len(values)))), 1)-1]
			if got := *h.quantile(q); got < want || float64(got) > float64(want)*1.04+1 {
				t.Fatalf("quantile %g is %d, want %d", q, got, want)
			}
		}
		if s := h.summary(); *s.Max != values[len(values)-1] || s.Samples != uint64(len(values)) {
			t.Fatalf("summary %+v", s)
		}
	})
	var empty histogram
	if s := empty.summary(); s.P50 != nil || s.Max != nil {
		t.Errorf("without samples %+v, want nulls", s)
	}
}
