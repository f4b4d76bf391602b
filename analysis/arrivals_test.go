package analysis

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

type arrived struct {
	ts   int64
	dst  addrID
	wire int
}

func runArrivals(o Options, packets []arrived) []QueueAt {
	a := newArrivals(&o)
	for _, p := range packets {
		a.see(p.ts, p.dst, p.wire)
	}
	return a.finish(testAddr)
}

// slowArrivals cuts the packets of each destination into busy periods, and measures those.
func slowArrivals(o Options, packets []arrived) []QueueAt {
	out := []QueueAt{}
	most := func(wire int) float64 {
		if o.LinkRateBps > 0 {
			return math.Floor(float64(wire) * (16e9 / o.LinkRateBps))
		}
		return 10_000 * o.TimeScale
	}
	byDst := map[addrID][]arrived{}
	for _, p := range packets {
		byDst[p.dst] = append(byDst[p.dst], p)
	}
	var order []addrID
	for dst := range byDst {
		order = append(order, dst)
	}
	slices.Sort(order) // as testAddr orders addresses
	for _, dst := range order {
		all := byDst[dst]
		var periods [][]arrived
		for i, p := range all {
			if i == 0 || float64(p.ts-all[i-1].ts) > most(p.wire) {
				periods = append(periods, nil)
			}
			last := &periods[len(periods)-1]
			*last = append(*last, p)
		}
		gap := int64(math.Round(most(1024)))
		if o.LinkRateBps > 0 {
			gap = int64(math.Round(1024 * (16e9 / o.LinkRateBps)))
		}
		q := QueueAt{Dst: testAddr(dst).String(), GapNS: gap}
		var lengths, sizes histogram
		var busy int64
		for _, p := range periods {
			length := p[len(p)-1].ts - p[0].ts
			lengths.add(length)
			busy += length
			var bytes int64
			for _, x := range p {
				bytes += int64(x.wire)
			}
			sizes.add(bytes)
		}
		q.BusyNS = lengths.latency(1)
		q.BusyBytes = Bursts{GapNS: gap, Count: int64(len(periods)), P50: ptr(sizes.quantile(0.5)), P99: ptr(sizes.quantile(0.99)), Max: ptr(sizes.max)}
		if span := all[len(all)-1].ts - all[0].ts; span > 0 {
			q.BusyShare = ptr(float64(busy) / float64(span))
		}
		if o.LinkRateBps > 0 {
			var backlogs histogram
			queue := 0.0
			for i, p := range all {
				if i > 0 {
					queue = max(0, queue-float64(p.ts-all[i-1].ts)*(o.LinkRateBps/8e9))
				}
				queue += float64(p.wire)
				backlogs.add(int64(queue))
			}
			q.QueueBytes = &Queue{P50: backlogs.quantile(0.5), P99: backlogs.quantile(0.99), Max: backlogs.max}
		}
		out = append(out, q)
	}
	return out
}

func TestArrivals_agreeWithDefinition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := Options{TimeScale: rapid.SampledFrom([]float64{1, 2}).Draw(t, "scale"), LinkRateBps: rapid.SampledFrom([]float64{0, 1e9, 9.7e7}).Draw(t, "rate")}
		var packets []arrived
		var ts int64
		for range rapid.IntRange(1, 150).Draw(t, "packets") {
			ts += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 30_000), rapid.SampledFrom([]int64{10_000, 10_001, 20_000, 20_001, 8192, 16_384, 1_000_000})).Draw(t, "gap")
			packets = append(packets, arrived{ts, addrID(rapid.IntRange(1, 3).Draw(t, "dst")), rapid.SampledFrom([]int{74, 512, 1024, 4170}).Draw(t, "wire")})
		}
		if diff := cmp.Diff(slowArrivals(o, packets), runArrivals(o, packets)); diff != "" {
			t.Fatalf("receivers (-definition +got):\n%s", diff)
		}
	})
}

func TestArrivals(t *testing.T) {
	t.Parallel()
	// Two senders of the link's rate, 1000 bytes a microsecond each, to one receiver: 10 packets of each pile up 9,000 bytes and one.
	var packets []arrived
	for i := range 10 {
		packets = append(packets, arrived{int64(i) * 1000, 1, 1000}, arrived{int64(i) * 1000, 1, 1000})
	}
	packets = append(packets, arrived{100_000, 1, 1000}, arrived{100_000, 2, 500})
	got := runArrivals(Options{TimeScale: 1, LinkRateBps: 8e9}, packets)
	if len(got) != 2 || got[0].Dst != "10.0.0.1" || got[1].Dst != "10.0.0.2" {
		t.Fatalf("receivers %+v, want 10.0.0.1 and 10.0.0.2", got)
	}
	first, second := got[0], got[1]
	if q := first.QueueBytes; q == nil || q.Max != 11_000 {
		t.Errorf("queue %+v, want at most 11000 bytes: 20 packets in, 9 out", q)
	}
	if first.BusyBytes.Count != 2 || *first.BusyBytes.Max != 20_000 || *first.BusyNS.Max != 9000 || *first.BusyShare != 0.09 {
		t.Errorf("busy %+v, %+v, share %v: want two periods, one of 20000 bytes in 9000 ns, of 100000 ns", first.BusyNS, first.BusyBytes, *first.BusyShare)
	}
	if second.BusyShare != nil || second.BusyNS.Samples != 1 || *second.BusyNS.Max != 0 {
		t.Errorf("one packet: busy %+v, share %v: want one period of 0 ns and no share", second.BusyNS, second.BusyShare)
	}
	if q := runArrivals(Options{TimeScale: 1}, packets)[0].QueueBytes; q != nil {
		t.Errorf("queue %+v without the link's rate, want null", q)
	}
	if got := runArrivals(Options{TimeScale: 1}, nil); got == nil || len(got) != 0 {
		t.Errorf("no packet: %v, want an empty list", got)
	}
	// A clock that steps back is no gap and takes nothing out of the queue.
	got = runArrivals(Options{TimeScale: 1, LinkRateBps: 8e9}, []arrived{{5000, 1, 1000}, {1000, 1, 1000}, {5000, 1, 1000}})
	if got[0].BusyBytes.Count != 1 || got[0].QueueBytes.Max != 3000 || got[0].BusyShare != nil {
		t.Errorf("steps back: %+v, queue %+v: want one period and 3000 bytes", got[0].BusyBytes, got[0].QueueBytes)
	}
}

func TestArrivals_nothingAllocatedPerPacket(t *testing.T) {
	a := newArrivals(&Options{TimeScale: 1, LinkRateBps: 1e9})
	ts := int64(0)
	see := func() {
		for i := range addrID(64) {
			ts += 3_000
			a.see(ts, i, 1000)
		}
		ts += 1_000_000
	}
	for range 20 { // distributions count one by one until they have a few values
		see()
	}
	if n := testing.AllocsPerRun(100, see); n != 0 {
		t.Errorf("%v allocations for 64 packets to known destinations, want 0", n)
	}
}
