package analysis

import (
	"fmt"
	"math"
	"slices"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// document turns what the lanes hold into the document. They take no packet afterwards.
func (r *run) document(up *tapCounter) *Document {
	r.settle()
	for _, l := range r.lanes {
		l.joinRest()
	}
	for d := range r.directions() {
		d.finish()
	}
	doc := &Document{Schema: Schema, Files: []File{}, TimeScale: r.o.TimeScale}
	flows := r.flows()
	r.totals(doc)
	doc.Flows = make([]Flow, 0, len(flows))
	for _, d := range flows {
		doc.Flows = append(doc.Flows, r.flow(d))
	}
	doc.Series = r.series(flows, doc.Flows)
	shares := curves(&doc.Series, doc.Flows)
	fair := fairnessOf(shares, doc.Series.StartNS, doc.Series.BinNS, doc.Series.Bins)
	doc.Series.Jain = fair.jain
	doc.Aggregate = r.aggregate(flows, doc)
	doc.Aggregate.Convergence = fair.convergence(shares)
	doc.Directions = r.rawDirections()
	doc.Congestion = r.congestion()
	doc.PFC = r.order.pauses.finish(r.endNS())
	doc.Connections = r.connections()
	doc.Distributions = r.distributions(flows)
	if up != nil {
		doc.Path = r.path(up)
	}
	if book := r.parsers[0].rdcc; book != nil {
		for _, x := range r.parsers[1:] {
			book.add(x.rdcc)
		}
		doc.RDCC = book.document(doc.Flows)
	}
	r.quality(doc)
	doc.Checks = checks(doc, &r.o)
	return doc
}

// endNS is the time of the last packet of the judged captures, whatever it was.
func (r *run) endNS() (end int64) {
	for _, s := range r.sources {
		if s.in.Role == Judged && s.file.LastNS != nil {
			end = max(end, *s.file.LastNS)
		}
	}
	return end
}

// settle brings all lanes to the same bins.
func (r *run) settle() {
	for _, l := range r.lanes {
		r.halved = max(r.halved, l.halved)
	}
	for {
		cells := 0
		for _, l := range r.lanes {
			l.widen(r.halved)
			cells += l.cells
		}
		if cells <= r.o.MaxCells {
			return
		}
		r.halved++
	}
}

// directions are all of them, lane by lane.
func (r *run) directions() func(yield func(*direction) bool) {
	return func(yield func(*direction) bool) {
		for _, l := range r.lanes {
			for d := range l.all.each {
				if !yield(d) {
					return
				}
			}
		}
	}
}

// finish closes what waits for packets that will not come.
func (d *direction) finish() {
	t := d.tx
	if t == nil {
		return
	}
	t.closeTallies()
	t.req.close(t.ackedTo)
	if _, until := t.samples.messages(); until != "ack" {
		for t.messages.len() > 0 {
			t.outlast()
		}
	}
	if k := t.resp(); k != nil {
		k.close(math.MinInt64)
	}
	if t.burst > 0 {
		t.samples.add(sampleBurst, t.burst)
	}
}

// key is a direction's name.
func (s *shared) key(pair pairID, dstQP, srcQP uint32) dirKey {
	return dirKey{s.intern.addr(s.intern.src(pair)), s.intern.addr(s.intern.dst(pair)), dstQP, srcQP}
}

func (r *run) key(d *direction) dirKey { return r.shared.key(d.id, d.dstQP, d.srcQP) }

// byKey sorts directions by address, QP and life.
func (r *run) byKey(dirs []*direction) {
	type named struct {
		d *direction
		k dirKey
	}
	all := make([]named, len(dirs))
	for i, d := range dirs {
		all[i] = named{d, r.key(d)}
	}
	slices.SortStableFunc(all, func(a, b named) int {
		if c := a.k.compare(&b.k); c != 0 {
			return c
		}
		return int(a.d.life - b.d.life)
	})
	for i := range all {
		dirs[i] = all[i].d
	}
}

// flows are the directions that carried data, by address, QP and life.
func (r *run) flows() []*direction {
	var flows []*direction
	for d := range r.directions() {
		if d.carriesData() && d.dstQP != 1 {
			flows = append(flows, d)
		}
	}
	r.byKey(flows)
	return flows
}

// id names the direction's life.
func (r *run) id(d *direction) string {
	k := r.key(d)
	if d.life > 1 {
		return fmt.Sprintf("%s#%d", k.id(), d.life)
	}
	return k.id()
}

func (r *run) totals(doc *Document) {
	x := r.order
	t := &doc.Totals
	t.Opcodes = map[string]int64{}
	t.Packets, t.TruncatedRoCE, t.PFCPauseFrames = x.packets-x.removed, x.truncated, x.pauseFrames
	t.MirroredPackets, t.CMPackets = x.mirrored, r.shared.cmPackets.Load()
	t.FECNPackets, t.BECNPackets = x.fecn, x.becn
	for op, n := range x.opcodes {
		if n > 0 {
			t.Opcodes[roce.Opcode(op).String()] = n
			t.RoCEPackets += n
		}
	}
	t.CNPPackets = x.opcodes[roce.CNP]
	for d := range r.directions() {
		c := d.counted()
		t.ECN.NotECT += c.ecn[roce.NotECT]
		t.ECN.ECT0 += c.ecn[roce.ECT0]
		t.ECN.ECT1 += c.ecn[roce.ECT1]
		t.ECN.CE += c.ecn[roce.CE]
		if d.dstQP == 1 && d.service == roce.UD {
			t.MADPackets += d.packets
		}
		acks, cnps, naks := d.answered()
		t.AckPackets += acks
		t.RNRNAKPackets += naks.RNR
		t.NAKPackets += naks.sum() - naks.RNR
		if d.answers() && (d.peer == nil || !d.peer.carriesData()) && !d.rx.responses {
			t.Unattributed.Acks += acks
			t.Unattributed.NAKs += naks.sum()
			t.Unattributed.CNPs += cnps
		}
		if d.tx == nil {
			continue
		}
		t.PayloadBytes += d.tx.data.payload
		t.UniqueBytes += d.tx.unique()
		for _, k := range []*psnTracker{&d.tx.req, d.tx.resp()} {
			o := k.disorderOf()
			t.RetransmittedPackets += o.retransmitted
			t.DuplicatePackets += o.duplicates
			if d.dstQP != 1 {
				t.LostBeforeTap += o.lost
				t.MissedByTap += o.missed
			}
		}
	}
	t.CEAckPackets = x.ceAcks
	t.CEPackets = t.ECN.CE
	t.CEDataPackets = t.CEPackets - t.CEAckPackets
	t.ICRCChecked = x.icrcChecked
	if x.icrcChecked > 0 {
		t.ICRCBad = ptr(x.icrcBad)
	}
	for _, l := range r.lanes {
		doc.Quality.OffloadMerged += l.offloadMerged
	}
	doc.Quality.DuplicatesRemoved = x.removed
}

func ptr[T any](v T) *T { return &v }
