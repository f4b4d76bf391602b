package analysis

import (
	"cmp"
	"math"
	"slices"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// series are the numbers over time.
func (r *run) series(flows []*direction, docs []Flow) Series {
	width := int64(r.o.Bin) << r.halved
	s := Series{BinNS: width, StartNS: r.order.originNS, Flows: make([]FlowSeries, 0, len(flows))}
	if r.order.started {
		s.Bins = int((r.order.lastNS-r.order.originNS)/width) + 1
	}
	perBin := 8e9 / float64(width)
	for i, d := range flows {
		data, cnps := d.tx.binned(), d.cnpBins()
		first, end := data.span()
		if len(cnps) > 0 {
			f, e := cnps.span()
			first, end = min(first, f), max(end, e)
		}
		n := int(end - first)
		fs := FlowSeries{ID: docs[i].ID, FirstBin: int(first), GoodputBps: make([]float64, n), SentBps: make([]float64, n), Packets: make([]int64, n),
			CE: make([]int64, n), Retransmits: make([]int64, n)}
		for j := range data {
			c := &data[j]
			k := c.index - first
			fs.GoodputBps[k], fs.SentBps[k] = float64(c.unique)*perBin, float64(c.wire)*perBin
			fs.Packets[k], fs.CE[k], fs.Retransmits[k] = int64(c.packets), int64(c.ce), int64(c.resent)
		}
		if d.peer != nil {
			fs.CNPs = make([]int64, n)
			for j := range cnps {
				fs.CNPs[cnps[j].index-first] = int64(cnps[j].packets)
			}
		}
		s.Flows = append(s.Flows, fs)
	}
	return s
}

// cnpBins are the bins of the CNPs that answered d's data.
func (d *direction) cnpBins() tallies {
	if c := d.peer.cnps(); c != nil {
		return c.bins
	}
	return nil
}

// span is [first, end) of the bins; both 0 without any.
func (t tallies) span() (first, end int32) {
	if len(t) == 0 {
		return 0, 0
	}
	return t[0].index, t[len(t)-1].index + 1
}

// curves are the flows' goodputs per bin; failed flows and those without payload do not share.
func curves(s *Series, docs []Flow) []rateCurve {
	var out []rateCurve
	for i := range docs {
		f := &docs[i]
		if f.State == StateFailed || f.UniqueBytes == 0 {
			continue
		}
		out = append(out, rateCurve{id: f.ID, firstNS: f.FirstNS, lastNS: f.LastNS, from: s.Flows[i].FirstBin, rates: s.Flows[i].GoodputBps})
	}
	return out
}

// wholeBins are the bins [first, end) that lie within [from, to].
func wholeBins(s *Series, from, to int64) (first, end int) {
	first = int((max(from, s.StartNS) - s.StartNS + s.BinNS - 1) / s.BinNS)
	end = min(int((to-s.StartNS+1)/s.BinNS), s.Bins)
	return first, max(end, first)
}

// rawDirections are the raw counts, all lives of a key together.
func (r *run) rawDirections() []Direction {
	var all []*direction
	for d := range r.directions() {
		all = append(all, d)
	}
	r.byKey(all)
	out := []Direction{}
	for i, d := range all {
		if i == 0 || d.life == 1 {
			k := r.key(d)
			out = append(out, Direction{ID: k.id(), Src: k.src.String(), Dst: k.dst.String(), DstQP: d.dstQP, PSNFirst: d.psnFirst, Opcodes: map[string]int64{}})
		}
		o := &out[len(out)-1]
		o.Lives++
		o.Packets += d.packets
		c := d.counted()
		o.CEPackets += c.ecn[roce.CE]
		for slot, n := range c.opcodes {
			if n == 0 {
				continue
			}
			o.Opcodes[slotName(slot)] += n
			if op := slotOpcode(slot); op.HasRETH() {
				o.RETHCount += n
			}
			switch op := slotOpcode(slot); {
			case op.IsRequest():
				o.RequestPackets += n
			case op.IsResponse():
				o.ResponsePackets += n
			}
		}
		o.PSNLast = d.psnLast
		if t := d.tx; t != nil {
			x := t.req.disorderOf()
			o.UniquePSNs += t.req.unique()
			o.DuplicatePackets += x.duplicates
			o.PSNBackwardSteps += x.backward
			o.PSNGaps += x.gaps
			o.RETHBytes += t.rethBytes
		}
		acks, cnps, naks := d.answered()
		o.Acks += acks
		o.NAKs.add(&naks)
		o.CNPs += cnps
	}
	return out
}

// distributions are those of all flows together.
func (r *run) distributions(flows []*direction) Distributions {
	var rtt, message, gap histogram
	for _, d := range flows {
		rtt.merge(d.tx.samples.of(sampleRTT))
		byKind, _ := d.tx.samples.messages()
		for _, k := range byKind {
			message.merge(k)
		}
		if c := d.peer.cnps(); c != nil {
			gap.merge(c.gaps)
		}
	}
	return Distributions{RTTNS: rtt.samples(), MessageNS: message.samples(), CNPGapNS: gap.samples()}
}

// congestion is about CNPs and arrivals beyond single flows.
func (r *run) congestion() (c Congestion) {
	x := r.order
	c.Scopes, c.PacingScope, c.PacingNS, c.PacingReason, c.Pairs, c.Ports = x.scopes.finish(&r.o, x.ceData, r.shared.intern.addr)
	c.Receivers = x.arrivals.finish(r.shared.intern.addr)
	return c
}

// connections are the handshakes, oldest first.
func (r *run) connections() []Connection {
	out := []Connection{}
	for _, l := range r.lanes {
		out = append(out, l.connections()...)
	}
	at := func(c *Connection) int64 {
		if c.RequestNS == nil {
			return math.MinInt64
		}
		return *c.RequestNS
	}
	slices.SortStableFunc(out, func(a, b Connection) int {
		return cmp.Or(cmp.Compare(at(&a), at(&b)), cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst))
	})
	return out
}

func (n *NAKs) add(o *NAKs) {
	n.Sequence += o.Sequence
	n.RNR += o.RNR
	n.Invalid += o.Invalid
	n.Access += o.Access
	n.Remote += o.Remote
	n.InvalidRequest += o.InvalidRequest
	n.Other += o.Other
}
