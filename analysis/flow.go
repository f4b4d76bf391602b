package analysis

import (
	"fmt"
	"math/bits"

	"github.com/pcmlab/pcmlab/capture/roce"
)

func (r *run) flow(d *direction) Flow {
	s := r.o.TimeScale
	t := d.tx
	k := r.key(d)
	f := Flow{
		ID: r.id(d), Name: r.o.Names[k.src], Incarnation: int(d.life),
		Src: k.src.String(), Dst: k.dst.String(), SrcPort: d.srcPort, DstQP: d.dstQP,
		Service: d.service.String(), Operations: d.operations(),
		Packets: t.data.packets, PayloadBytes: t.data.payload, UniqueBytes: t.unique(), WireBytes: t.data.wire,
		FirstNS: t.data.firstNS, LastNS: t.data.lastNS, CEPackets: t.data.ce, ECTPackets: t.data.ect,
		CEShare: share(t.data.ce, t.data.packets), Recovery: r.recovery(d),
		DSCP: []int{}, PCP: []int{}, VLAN: []int{}, Notes: []string{},
	}
	for _, k := range []*psnTracker{&t.req, t.resp()} {
		o := k.disorderOf()
		f.RetransmittedPackets += o.retransmitted
		f.RetransmittedBytes += o.retransmittedBytes
		f.DuplicatePackets += o.duplicates
		f.SelectivePackets += o.selective
		f.OutOfOrderPackets += o.outOfOrder
		f.LostBeforeTap += o.lost
		f.MissedByTap += o.missed
	}
	if seconds := float64(f.LastNS-f.FirstNS) / 1e9; seconds > 0 {
		f.GoodputBps = ptr(float64(f.UniqueBytes) * 8 / seconds)
		f.HWGoodputBps = ptr(*f.GoodputBps * s)
	}
	r.times(&f, d)
	if g := t.tags(); g == nil {
		f.DSCP = append(f.DSCP, int(t.dscp))
	} else {
		for m := g.dscp; m != 0; m &= m - 1 {
			f.DSCP = append(f.DSCP, bits.TrailingZeros64(m))
		}
		for m := g.pcp; m != 0; m &= m - 1 {
			f.PCP = append(f.PCP, bits.TrailingZeros8(m))
		}
		for _, v := range g.vlans {
			f.VLAN = append(f.VLAN, int(v))
		}
	}
	if d.srcQP != 0 {
		f.SrcQP = ptr(d.srcQP - 1)
	}
	if d.is(dirByCM) {
		f.SrcQP = ptr(r.lanes[r.shared.intern.pair(d.id).lane].cm.named[d])
	}
	if p := d.peer; p != nil {
		f.SrcQP = ptr(p.dstQP)
		acks, cnps, naks := p.answered()
		f.CNPs = ptr(cnps)
		if d.service == roce.RC {
			f.Acks, f.NAKs = ptr(acks), ptr(naks)
		}
		if f.GoodputBps != nil {
			f.CNPRateHz = ptr(float64(cnps) / (float64(f.LastNS-f.FirstNS) / 1e9))
			f.HWCNPRateHz = ptr(*f.CNPRateHz * s)
		}
		if t.resp() != nil {
			f.RequestID = ptr(r.id(p))
		}
		if cnps > 0 {
			f.CNPGapNS = p.cnps().gaps.latency(1)
		}
		if f.Reaction == nil && cnps > 0 { // they all came before the pair was known
			f.Reaction = newReaction(0, int64(reactionWindow*s)).finish()
		}
	}
	f.State, f.Notes = d.judge()
	return f
}

// times fills in the distributions of a flow.
func (r *run) times(f *Flow, d *direction) {
	t, s := d.tx, r.o.TimeScale
	f.Reaction = t.reaction().finish()
	f.Bursts.GapNS = int64(burstGap * s)
	rtt := t.samples.of(sampleRTT)
	f.RTTNS, f.HWRTTNS = rtt.latency(1), rtt.latency(s)
	f.CNPDelayNS = t.samples.of(sampleDelay).latency(1)
	byKind, until := t.samples.messages()
	all := sum(byKind[:])
	f.MessageNS, f.HWMessageNS = all.messages(until, 1), all.messages(until, s)
	of := func(kind msgKind) *Messages {
		if byKind[kind] == nil {
			return nil
		}
		return ptr(byKind[kind].messages(until, 1))
	}
	f.CompletionNS = Completions{Write: of(msgWrite), Send: of(msgSend), Read: of(msgRead), Atomic: of(msgAtomic)}
	if b := t.samples.of(sampleBurst); b != nil {
		f.Bursts.Count = b.n
		f.Bursts.P50, f.Bursts.P99, f.Bursts.Max = ptr(b.quantile(0.5)), ptr(b.quantile(0.99)), ptr(b.max)
	}
}

// recovery is about the flow's resends; for READs those of the responses.
func (r *run) recovery(d *direction) *Recovery {
	if k := d.tx.resp(); k != nil && k.x != nil && !d.tx.req.started {
		return k.x.recovery()
	}
	return d.tx.req.disorderOf().recovery()
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
	p, t := d.peer, d.tx
	if p != nil {
		if k := p.naks(); k != nil {
			if n := k.Invalid + k.Access + k.Remote + k.InvalidRequest; n > 0 {
				worse(StateFailed, fmt.Sprintf("%d fatal NAK (invalid %d, access %d, remote %d): the QP is in error", n, k.Invalid, k.Access, k.Remote))
			}
		}
		if t.req.started && t.resendsNoAck >= 3 && t.ackedTo < t.req.next-1 {
			worse(StateFailed, fmt.Sprintf("not acknowledged after %d restarts: retries exhausted, or the capture ended before the answer", t.resendsNoAck))
		}
	}
	if t.note != joinSure {
		notes = append(notes, t.note.String())
	} else if t.resp() != nil && p != nil && p.tx != nil && p.tx.note != joinSure {
		notes = append(notes, p.tx.note.String())
	}
	if t.flags&txOthers != 0 {
		if !t.firstOp.IsFirst() && !t.firstOp.IsAtomic() && !t.firstOp.IsReadRequest() {
			worse(StatePartial, "the capture begins in the middle of a message")
		}
		if op := t.lastHighOp; !op.IsLast() && !op.IsAtomic() && !op.IsReadRequest() {
			worse(StatePartial, "the capture ends in the middle of a message")
		} else if p != nil && d.service == roce.RC && t.ackedTo < t.req.next-1 && state == StateOK {
			worse(StatePartial, "its last packets were not acknowledged within the capture")
		}
		if p == nil && d.service == roce.RC {
			notes = append(notes, "no acknowledgement of it was captured: CNPs, NAKs and round-trip times are not measured")
		}
	}
	if t.resp() != nil {
		if !t.respLastOp.IsLast() {
			worse(StatePartial, "the capture ends in the middle of a READ response")
		}
		if p == nil {
			notes = append(notes, "the READ requests were not captured")
		}
	}
	return state, notes
}
