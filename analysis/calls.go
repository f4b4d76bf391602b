package analysis

import (
	"fmt"
	"os"
	"sort"

	"github.com/pcmlab/pcmlab/pcm/calls"
)

// HandlerLog is a NIC's log of its handlers' invocations.
type HandlerLog struct {
	Path   string `json:"path"`
	Device string `json:"device"`
	Src    string `json:"src"`    // data address of the NIC
	Calls  int64  `json:"calls"`  // invocations
	Logged int64  `json:"logged"` // of them in the log: fewer when it was full
	CutNS  *int64 `json:"cut_ns"` // when it was full; null: it holds all
}

// callKey is a flow as its sender's NIC names it.
type callKey struct {
	src, dst string
	dstQP    uint32
}

// callLogs are the logs of a run, by flow.
type callLogs struct {
	files []HandlerLog
	flows map[callKey]*flowCalls
}

// flowCalls are the invocations for one flow, oldest first.
type flowCalls struct {
	at      []int64
	packets []int64 // acknowledged since the invocation before
	pacer   steps   // empty: no handler sets a rate
	window  steps
}

// steps is a value that holds until the next one.
type steps struct {
	at []int64
	v  []float64
}

func (s *steps) add(at int64, v float64) { s.at, s.v = append(s.at, at), append(s.v, v) }

// mean is over time in [from, to), as far as the value is known there; ok is false before the first one.
func (s *steps) mean(from, to int64) (mean float64, ok bool) {
	i := sort.Search(len(s.at), func(i int) bool { return s.at[i] > from }) - 1
	var sum float64
	var known int64
	for ; i < len(s.at); i++ {
		if i < 0 {
			continue
		}
		a, b := max(s.at[i], from), to
		if i+1 < len(s.at) {
			b = min(s.at[i+1], to)
		}
		if a >= to {
			break
		}
		sum += s.v[i] * float64(b-a)
		known += b - a
	}
	if known <= 0 {
		return 0, false
	}
	return sum / float64(known), true
}

// readCalls reads the logs of handlers' invocations.
func readCalls(paths []string) (*callLogs, error) {
	l := &callLogs{files: []HandlerLog{}, flows: map[callKey]*flowCalls{}}
	for _, path := range paths {
		if err := l.read(path); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return l, nil
}

func (l *callLogs) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	type line struct {
		callKey
		at, packets, pacer int64
		rate, window       *int64
	}
	var lines []line
	h, err := calls.Read(f, func(c *calls.Call) {
		lines = append(lines, line{callKey{dst: c.Dst.String(), dstQP: c.DstQP}, c.TimeNS, c.Packets, c.Pacer, c.Rate, c.Window})
	})
	if err != nil {
		return err
	}
	log := HandlerLog{Path: path, Device: h.Device, Src: h.Src.String(), Calls: int64(h.Calls), Logged: int64(h.Logged)}
	if h.CutNS != 0 {
		log.CutNS = &h.CutNS
	}
	l.files = append(l.files, log)
	for _, c := range lines {
		c.src = log.Src
		of := l.flows[c.callKey]
		if of == nil {
			of = &flowCalls{}
			l.flows[c.callKey] = of
		}
		of.at, of.packets = append(of.at, c.at), append(of.packets, c.packets)
		if c.rate != nil {
			of.pacer.add(c.at, float64(c.pacer))
		}
		if c.window != nil {
			of.window.add(c.at, float64(*c.window))
		}
	}
	return nil
}

// fill puts what the NICs logged beside what the capture shows: into the flows' series, and Jain's index of pacer rates into phases.
func (l *callLogs) fill(doc *Document) {
	doc.HandlerLogs = l.files
	lives := map[callKey]int{}
	for i := range doc.Flows {
		lives[keyOf(&doc.Flows[i])]++
	}
	byID := map[string]*flowCalls{}
	s := &doc.Series
	for i := range doc.Flows {
		f := &doc.Flows[i]
		of := l.flows[keyOf(f)]
		if of == nil || lives[keyOf(f)] > 1 && f.Incarnation > 1 { // numbers of queue pairs that came again: the log tells their lives no better than the capture
			continue
		}
		byID[f.ID] = of
		of.series(&s.Flows[i], s)
	}
	for i := range doc.Aggregate.PerPhase {
		p := &doc.Aggregate.PerPhase[i]
		p.JainPacer = jainPacer(p, byID)
	}
}

func keyOf(f *Flow) callKey { return callKey{f.Src, f.Dst, f.DstQP} }

// series fills in the bins of one flow.
func (c *flowCalls) series(fs *FlowSeries, s *Series) {
	n := len(fs.GoodputBps)
	begin := func(i int) int64 { return s.StartNS + int64(fs.FirstBin+i)*s.BinNS }
	bins := func(of *steps) []*float64 {
		if len(of.at) == 0 {
			return nil
		}
		out := make([]*float64, n)
		for i := range out {
			if v, ok := of.mean(begin(i), begin(i+1)); ok {
				out[i] = &v
			}
		}
		return out
	}
	fs.PacerRateBps, fs.CwndBytes = bins(&c.pacer), bins(&c.window)
	fs.AcksPerCall = make([]*float64, n)
	at := sort.Search(len(c.at), func(i int) bool { return c.at[i] >= begin(0) })
	for i := range n {
		var packets, called int64
		for ; at < len(c.at) && c.at[at] < begin(i+1); at++ {
			packets += c.packets[at]
			called++
		}
		if called > 0 {
			fs.AcksPerCall[i] = ptr(float64(packets) / float64(called))
		}
	}
}

// jainPacer is over the mean pacer rates of the flows that count in a phase; null unless all of them are known.
func jainPacer(p *PhaseSummary, byID map[string]*flowCalls) *float64 {
	excluded := map[string]bool{}
	for _, e := range p.Excluded {
		excluded[e.Flow] = true
	}
	var rates []float64
	for _, f := range p.Flows {
		if excluded[f.Flow] {
			continue
		}
		of := byID[f.Flow]
		if of == nil {
			return nil
		}
		v, ok := of.pacer.mean(p.StartNS+p.TrimNS, p.EndNS-p.TrimEndNS)
		if !ok {
			return nil
		}
		rates = append(rates, v)
	}
	return jainOf(rates)
}
