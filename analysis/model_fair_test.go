package analysis

import (
	"math"
	"sort"
)

// modelCommon is the interval in which all flows are active, and their unique bytes in its whole bins.
func modelCommon(flows map[string]*modelFlow, ids []string, origin, width int64) (from, to int64, sums []float64) {
	from, to = math.MinInt64, math.MaxInt64
	for _, id := range ids {
		from, to = max(from, flows[id].first), min(to, flows[id].last)
	}
	whole := 0
	sums = make([]float64, len(ids))
	for b := 0; origin+int64(b)*width < to; b++ {
		if start := origin + int64(b)*width; start < from || start+width > to {
			continue
		}
		whole++
		for i, id := range ids {
			if c := flows[id].bins[b]; c != nil {
				sums[i] += float64(c.unique)
			}
		}
	}
	if whole == 0 {
		return from, to, nil
	}
	return from, to, sums
}

// modelBinJain is the index over the flows that cover bin b wholly; nil if none does or nobody got anything.
func modelBinJain(flows map[string]*modelFlow, ids []string, b int, origin, width int64) (jain *float64, active int) {
	var x []float64
	for _, id := range ids {
		f := flows[id]
		if start := origin + int64(b)*width; f.first > start || f.last < start+width {
			continue
		}
		v := 0.0
		if c := f.bins[b]; c != nil {
			v = float64(c.unique)
		}
		x = append(x, v)
	}
	if j := modelJain(x); !math.IsNaN(j) {
		return &j, len(x)
	}
	return nil, len(x)
}

type modelEvent struct {
	at   int64
	join bool
	id   string
}

// modelConvergence lists who joined and left more than five bins from the ends, and how long it took to be fair.
func modelConvergence(flows map[string]*modelFlow, ids []string, origin, width int64, bins int) (out []Convergence) {
	end := origin + int64(bins)*width
	var events []modelEvent
	for _, id := range ids {
		f := flows[id]
		if f.first-origin > ConvergedBins*width {
			events = append(events, modelEvent{f.first, true, id})
		}
		if end-f.last > ConvergedBins*width {
			events = append(events, modelEvent{f.last, false, id})
		}
	}
	sort.Slice(events, func(i, j int) bool {
		a, b := events[i], events[j]
		switch {
		case a.at != b.at:
			return a.at < b.at
		case a.join != b.join:
			return b.join
		}
		return a.id < b.id
	})
	for i := 0; i < len(events); {
		n := i
		for n < len(events) && events[n].at-events[i].at <= width {
			n++
		}
		from, to := int((events[n-1].at-origin)/width)+1, bins
		if n < len(events) {
			to = int((events[n].at - origin) / width)
		}
		_, active := modelBinJain(flows, ids, from, origin, width)
		if from >= bins {
			active = 0
		}
		run, found := 0, -1
		var lowest *float64
		for b := from; b < to && active >= 2 && found < 0; b++ {
			j, _ := modelBinJain(flows, ids, b, origin, width)
			if run++; j == nil || *j < ConvergedJain {
				run = 0
			}
			if run == ConvergedBins {
				found = b - ConvergedBins + 1
			}
		}
		last := to - 1
		if found >= 0 {
			last = found
		}
		for b := from; b <= last && active >= 2; b++ {
			if j, _ := modelBinJain(flows, ids, b, origin, width); j != nil && (lowest == nil || *j < *lowest) {
				lowest = j
			}
		}
		for _, e := range events[i:n] {
			c := Convergence{AtNS: e.at, Event: "leave", Flow: e.id, Active: active, LowestJain: lowest}
			if e.join {
				c.Event = "join"
			}
			if found >= 0 {
				c.TimeNS = ptr(origin + int64(found)*width - e.at)
			}
			out = append(out, c)
		}
		i = n
	}
	return out
}
