package analysis

import (
	"slices"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// tapCounter counts the packets of upstream taps per direction of a QP. Every packet counts, whatever its PSN: a packet
// that was sent twice and lost once is one lost packet.
type tapCounter struct {
	dirs map[tapKey]*tapCount
}

type tapKey struct {
	pair         pairID
	dstQP, srcQP uint32
}

type tapCount struct {
	data, control int64
	taps          uint64 // bit per upstream file
}

func (c *tapCounter) see(r *record, tap int) {
	k := tapKey{r.pair, r.qp(), r.sourceQP()}
	n := c.dirs[k]
	if n == nil {
		n = &tapCount{}
		c.dirs[k] = n
	}
	n.taps |= 1 << (tap & 63)
	if isControl(r.op()) {
		n.control++
	} else {
		n.data++
	}
}

// isControl: acknowledgements, NAKs and CNPs; READ requests and responses are data.
func isControl(op roce.Opcode) bool { return op == roce.CNP || op.IsAck() || isAtomicAck(op) }

// path compares the upstream counts with what the judged taps saw.
func (r *run) path(up *tapCounter) *Path {
	p := &Path{Flows: []PathFlow{}, Notes: []string{}}
	judged := map[tapKey]*tapCount{}
	var keys []tapKey
	seen := map[addrID]bool{}
	for d := range r.directions() {
		seen[r.shared.intern.dst(d.id)] = true
		k := tapKey{d.id, d.dstQP, d.srcQP}
		j := judged[k]
		if j == nil {
			j = &tapCount{}
			judged[k] = j
			keys = append(keys, k)
		}
		for slot, n := range d.counted().opcodes {
			if isControl(slotOpcode(slot)) {
				j.control += n
			} else {
				j.data += n
			}
		}
	}
	several := false
	upstreamSources := map[addrID]bool{}
	for k, c := range up.dirs {
		several = several || c.taps&(c.taps-1) != 0
		upstreamSources[r.shared.intern.src(k.pair)] = true
		if judged[k] == nil {
			keys = append(keys, k)
		}
	}
	named := func(k tapKey) dirKey { return r.shared.key(k.pair, k.dstQP, k.srcQP) }
	slices.SortFunc(keys, func(a, b tapKey) int { x, y := named(a), named(b); return x.compare(&y) })
	p.Data, p.Control = PathCount{JudgedPackets: ptr(int64(0)), LostPackets: ptr(int64(0))}, PathCount{JudgedPackets: ptr(int64(0)), LostPackets: ptr(int64(0))}
	blindSide := false
	for _, k := range keys {
		u, j := up.dirs[k], judged[k]
		name := named(k)
		if u == nil {
			if upstreamSources[r.shared.intern.src(k.pair)] {
				p.Notes = append(p.Notes, "the upstream taps saw other packets of "+name.src.String()+" but none of "+name.id())
			}
			continue // its source is not behind an upstream tap
		}
		if j == nil {
			j = &tapCount{}
		}
		f := PathFlow{ID: name.id(), Src: name.src.String(), Dst: name.dst.String(), DstQP: k.dstQP}
		visible := seen[r.shared.intern.dst(k.pair)]
		blindSide = blindSide || !visible
		f.Data = compareCounts(u.data, j.data, visible, &p.Data)
		f.Control = compareCounts(u.control, j.control, visible, &p.Control)
		p.Flows = append(p.Flows, f)
	}
	if several {
		p.Notes = append(p.Notes, "some directions were seen by several upstream taps; their counts are added, which is right only for taps on different paths")
	}
	if blindSide {
		p.Notes = append(p.Notes, "directions whose destination the judged taps never saw have no loss: judged and lost are null, and they are not in the totals")
	}
	return p
}

func compareCounts(up, judged int64, visible bool, total *PathCount) PathCount {
	c := PathCount{UpstreamPackets: up}
	if !visible {
		return c
	}
	c.JudgedPackets, c.LostPackets = ptr(judged), ptr(up-judged)
	total.UpstreamPackets += up
	*total.JudgedPackets += judged
	*total.LostPackets += up - judged
	return c
}
