package analysis

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// finish turns what the engine holds into the document's parts. The engine takes no packet afterwards.
func (e *engine) finish(doc *Document) {
	e.joinRest()
	for _, d := range e.all {
		d.req.close()
		for d.toAck == nil && d.messages.n > 0 {
			d.outlast()
		}
		if d.resp != nil {
			d.resp.close()
		}
	}
	flows := e.flows()
	e.finishTotals(doc)
	doc.TimeScale = e.o.TimeScale
	doc.Flows = make([]Flow, 0, len(flows))
	for _, d := range flows {
		doc.Flows = append(doc.Flows, e.flow(d))
	}
	doc.Aggregate = e.aggregate(flows, doc.Flows)
	doc.Series = e.series(flows, doc.Flows)
	doc.Directions = e.directions()
	doc.Checks = []Check{}
}

// flows are the directions that carried data, by address, QP and life.
func (e *engine) flows() []*direction {
	var flows []*direction
	for _, d := range e.all {
		if d.carriesData() && d.key.dstQP != 1 {
			flows = append(flows, d)
		}
	}
	slices.SortFunc(flows, func(a, b *direction) int {
		if c := a.key.compare(&b.key); c != 0 {
			return c
		}
		return a.life - b.life
	})
	return flows
}

func (d *direction) id() string {
	if d.life > 1 {
		return fmt.Sprintf("%s#%d", d.key.id(), d.life)
	}
	return d.key.id()
}

func (e *engine) finishTotals(doc *Document) {
	t := e.totals
	t.CEPackets = t.CEDataPackets + t.CEAckPackets
	t.Opcodes = map[string]int64{}
	for op, n := range e.slots {
		if n > 0 {
			t.Opcodes[roce.Opcode(op).String()] = n
		}
	}
	for _, d := range e.all {
		t.RetransmittedPackets += d.req.retransmitted
		t.DuplicatePackets += d.req.duplicates
		if d.key.dstQP != 1 {
			t.LostBeforeTap += d.req.lost
		}
		if d.resp != nil {
			t.RetransmittedPackets += d.resp.retransmitted
			t.DuplicatePackets += d.resp.duplicates
			t.LostBeforeTap += d.resp.lost
		}
		if d.answers() && (d.peer == nil || !d.peer.carriesData()) && d.resp == nil {
			t.Unattributed.Acks += d.acks
			t.Unattributed.NAKs += d.naks.sum()
			t.Unattributed.CNPs += d.cnps
		}
	}
	t.ICRCChecked = e.icrcChecked
	if e.icrcChecked > 0 {
		bad := e.icrcBad
		t.ICRCBad = &bad
	}
	doc.Totals = t
	doc.Quality.OffloadMerged = e.merged
	if e.dedup != nil {
		doc.Quality.DuplicatesRemoved = e.dedup.removed
	}
}

func (e *engine) flow(d *direction) Flow {
	s := e.o.TimeScale
	f := Flow{
		ID: d.id(), Name: e.o.Names[d.key.src()], Incarnation: d.life,
		Src: d.key.src().String(), Dst: d.key.dst().String(), SrcPort: d.srcPort, DstQP: d.key.dstQP,
		Service: d.service.String(), Operations: d.ops,
		Packets: d.data.packets, PayloadBytes: d.data.payload, UniqueBytes: d.data.unique, WireBytes: d.data.wire,
		FirstNS: d.data.firstNS, LastNS: d.data.lastNS, CEPackets: d.data.ce, ECTPackets: d.data.ect,
		RetransmittedPackets: d.req.retransmitted, RetransmittedBytes: d.req.retransmittedBytes,
		DuplicatePackets: d.req.duplicates, OutOfOrderPackets: d.req.outOfOrder, LostBeforeTap: d.req.lost,
		RTTNS: d.rtt.latency(1), HWRTTNS: d.rtt.latency(s),
		DSCP: []int{}, Notes: []string{},
	}
	if r := d.resp; r != nil {
		f.RetransmittedPackets += r.retransmitted
		f.RetransmittedBytes += r.retransmittedBytes
		f.DuplicatePackets += r.duplicates
		f.OutOfOrderPackets += r.outOfOrder
		f.LostBeforeTap += r.lost
	}
	if seconds := float64(f.LastNS-f.FirstNS) / 1e9; seconds > 0 {
		f.GoodputBps = ptr(float64(f.UniqueBytes) * 8 / seconds)
		f.HWGoodputBps = ptr(*f.GoodputBps * s)
	}
	for m := d.data.dscp; m != 0; m &= m - 1 {
		f.DSCP = append(f.DSCP, bits.TrailingZeros64(m))
	}
	h, until := d.toAck, "ack"
	if h == nil {
		h, until = d.toLast, "last_packet"
	}
	f.MessageNS, f.HWMessageNS = h.messages(until, 1), h.messages(until, s)
	if d.key.srcQP != 0 {
		f.SrcQP = ptr(d.key.srcQP - 1)
	}
	if p := d.peer; p != nil {
		f.SrcQP = ptr(p.key.dstQP)
		f.CNPs = ptr(p.cnps)
		if d.service == roce.RC {
			f.Acks, f.NAKs = ptr(p.acks), ptr(p.naks)
		}
		if f.GoodputBps != nil {
			f.CNPRateHz = ptr(float64(p.cnps) / (float64(f.LastNS-f.FirstNS) / 1e9))
			f.HWCNPRateHz = ptr(*f.CNPRateHz * s)
		}
		if d.resp != nil {
			f.RequestID = ptr(p.id())
		}
	}
	f.State, f.Notes = d.judge()
	return f
}

// judge gives the state of a flow and what a reader must know about it.
func (d *direction) judge() (state string, notes []string) {
	state, notes = StateOK, []string{}
	worse := func(s, note string) {
		if state != StateFailed {
			state = s
		}
		notes = append(notes, note)
	}
	p := d.peer
	if p != nil {
		if n := p.naks.Invalid + p.naks.Access + p.naks.Remote + p.naks.InvalidRequest; n > 0 {
			worse(StateFailed, fmt.Sprintf("%d fatal NAK (invalid %d, access %d, remote %d): the QP is in error", n, p.naks.Invalid, p.naks.Access, p.naks.Remote))
		}
		if d.req.started && d.resendsNoAck >= 3 && d.ackedTo < d.req.next-1 {
			worse(StateFailed, fmt.Sprintf("not acknowledged after %d restarts: retries exhausted, or the capture ended before the answer", d.resendsNoAck))
		}
	}
	if d.peerNote != "" {
		notes = append(notes, d.peerNote)
	} else if d.resp != nil && p != nil && p.peerNote != "" {
		notes = append(notes, p.peerNote)
	}
	if d.nonReadRequests > 0 {
		if !d.firstOp.IsFirst() && !d.firstOp.IsAtomic() && !d.firstOp.IsReadRequest() {
			worse(StatePartial, "the capture begins in the middle of a message")
		}
		if op := d.lastHighOp; !op.IsLast() && !op.IsAtomic() && !op.IsReadRequest() {
			worse(StatePartial, "the capture ends in the middle of a message")
		} else if p != nil && d.service == roce.RC && d.ackedTo < d.req.next-1 && state == StateOK {
			worse(StatePartial, "its last packets were not acknowledged within the capture")
		}
		if p == nil && d.service == roce.RC {
			notes = append(notes, "no acknowledgement of it was captured: CNPs, NAKs and round-trip times are not measured")
		}
	}
	if d.resp != nil {
		if !d.respLastOp.IsLast() {
			worse(StatePartial, "the capture ends in the middle of a READ response")
		}
		if p == nil {
			notes = append(notes, "the READ requests were not captured")
		}
	}
	return state, notes
}

func (e *engine) series(flows []*direction, docs []Flow) Series {
	s := Series{BinNS: e.bins.width, StartNS: e.bins.origin, Flows: make([]FlowSeries, 0, len(flows))}
	if e.started {
		s.Bins = e.bins.last + 1
	}
	perBin := 8e9 / float64(e.bins.width)
	for i, d := range flows {
		from, to := d.firstBin, d.firstBin+len(d.cells)
		p := d.peer
		if p != nil && len(p.cells) > 0 {
			from, to = min(from, p.firstBin), max(to, p.firstBin+len(p.cells))
		}
		fs := FlowSeries{ID: docs[i].ID, FirstBin: from, GoodputBps: make([]float64, to-from), Packets: make([]int64, to-from),
			CE: make([]int64, to-from), Retransmits: make([]int64, to-from)}
		for j, c := range d.cells {
			k := d.firstBin + j - from
			fs.GoodputBps[k] = float64(c.unique) * perBin
			fs.Packets[k], fs.CE[k], fs.Retransmits[k] = int64(c.packets), int64(c.ce), int64(c.resent)
		}
		if p != nil {
			fs.CNPs = make([]int64, to-from)
			for j, c := range p.cells {
				fs.CNPs[p.firstBin+j-from] = int64(c.cnps)
			}
		}
		s.Flows = append(s.Flows, fs)
	}
	return s
}

// directions are the raw counts, all lives of a key together.
func (e *engine) directions() []Direction {
	all := slices.Clone(e.all)
	slices.SortStableFunc(all, func(a, b *direction) int {
		if c := a.key.compare(&b.key); c != 0 {
			return c
		}
		return a.life - b.life
	})
	out := []Direction{}
	for i, d := range all {
		if i == 0 || all[i-1].key != d.key {
			out = append(out, Direction{
				ID: d.key.id(), Src: d.key.src().String(), Dst: d.key.dst().String(), DstQP: d.key.dstQP,
				PSNFirst: d.psnFirst, Opcodes: map[string]int64{},
			})
		}
		o := &out[len(out)-1]
		o.Lives++
		o.Packets += d.packets
		o.CEPackets += d.ce
		for slot, n := range d.opcodes {
			if n > 0 {
				o.Opcodes[slotName(slot)] += n
			}
		}
		o.RequestPackets += d.requests
		o.ResponsePackets += d.responses
		o.UniquePSNs += d.req.unique
		o.DuplicatePackets += d.req.duplicates
		o.PSNLast = d.psnLast
		o.PSNBackwardSteps += d.backward
		o.PSNGaps += d.gaps
		o.Acks += d.acks
		o.NAKs.add(&d.naks)
		o.CNPs += d.cnps
		o.RETHBytes += d.rethBytes
		o.RETHCount += d.rethLen
	}
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

func ptr[T any](v T) *T { return &v }
