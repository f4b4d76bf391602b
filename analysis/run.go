package analysis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
)

// Run reads the inputs once, merged by time, and returns the document. What is wrong with a capture (cut, corrupt,
// dropped packets, blind) is said in the document's quality; an error means that there is no document: an option is
// wrong, a file cannot be opened or is no capture, or ctx ended.
func Run(ctx context.Context, inputs []Input, o Options) (*Document, error) {
	if len(inputs) == 0 {
		return nil, errors.New("analysis: no capture given")
	}
	o, err := o.resolved()
	if err != nil {
		return nil, fmt.Errorf("analysis: %w", err)
	}
	r := newRun(o)
	defer r.close()
	for i, in := range inputs {
		s, err := openSource(in, i)
		if err != nil {
			return nil, fmt.Errorf("analysis: %w", err)
		}
		r.sources = append(r.sources, s)
	}
	if err := r.judged(ctx); err != nil {
		return nil, fmt.Errorf("analysis: %w", err)
	}
	up, err := r.upstream(ctx)
	if err != nil {
		return nil, fmt.Errorf("analysis: %w", err)
	}
	logs, err := readCalls(o.Calls)
	if err != nil {
		return nil, fmt.Errorf("analysis: %w", err)
	}
	doc := r.document(up)
	logs.fill(doc)
	return doc, nil
}

// run is one analysis.
type run struct {
	o       Options
	shared  *shared
	order   *order
	lanes   []*lane
	parsers []*parser
	sources []*source
	halved  int32
}

func newRun(o Options) *run {
	r := &run{o: o, shared: &shared{intern: newInterner()}}
	for range maxLanes {
		r.lanes = append(r.lanes, newLane(&r.o, r.shared))
	}
	workers := o.Workers
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	for range min(workers, maxLanes) {
		x := &parser{port: o.UDPPort, checkICRC: o.CheckICRC, sides: &r.shared.sides}
		x.pairs.t = r.shared.intern
		if o.RDCCPort != 0 {
			x.rdcc = newRDCCBook(o.RDCCPort)
		}
		r.parsers = append(r.parsers, x)
	}
	return r
}

func (r *run) close() {
	for _, s := range r.sources {
		if s.reader != nil {
			s.reader.Close()
		}
	}
}

// judged brings the packets of all judged captures to the lanes, oldest first.
func (r *run) judged(ctx context.Context) error {
	p := &pipeline{o: &r.o, ctx: ctx, cells: make([]laneCells, len(r.lanes))}
	for _, s := range r.sources {
		if s.in.Role == Judged {
			p.feeds = append(p.feeds, &feed{s: s, ready: map[int]*parsed{}, high: math.MinInt64})
		}
	}
	r.order = newOrder(&r.o, len(p.feeds), r.shared.intern, &r.shared.sides, r.lanes)
	r.order.full = p.full
	if len(r.parsers) == 1 {
		r.order.full = p.take
	}
	p.order = r.order
	if len(p.feeds) == 0 {
		return nil
	}
	err := p.run(len(r.parsers), r.parsers)
	r.halved = p.halved
	r.order.full = nil // and with it the chunks
	for _, l := range r.lanes {
		l.cur, l.queue, l.spareQueue = nil, nil, nil
	}
	return err
}

// upstream counts the packets of the upstream taps, file by file; nil when there are none.
func (r *run) upstream(ctx context.Context) (*tapCounter, error) {
	var c *tapCounter
	var p parsed
	x := r.parsers[0]
	book := x.rdcc // credit is that of the judged captures
	x.rdcc = nil
	defer func() { x.rdcc = book }()
	for _, s := range r.sources {
		if s.in.Role == Judged {
			continue
		}
		if c == nil {
			c = &tapCounter{dirs: map[tapKey]*tapCount{}}
		}
		for {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			base, ok, err := s.read(&x.batch)
			if err != nil {
				return nil, err
			}
			if !ok {
				break
			}
			if err := x.parse(s, base, &p); err != nil {
				return nil, err
			}
			s.account(&p)
			for i := range p.records {
				rec := &p.records[i]
				if rec.recFlags&(recPause|recSide) != 0 {
					r.shared.sides.take(rec.word)
				}
				if rec.recFlags&recPause == 0 {
					c.see(rec, s.index)
				}
			}
		}
	}
	return c, nil
}
