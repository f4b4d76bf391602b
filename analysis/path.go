package analysis

import (
	"net/netip"
	"slices"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// tapCounter counts the packets of upstream taps per direction of a QP. Every packet counts, whatever its PSN: a packet
// that was sent twice and lost once is one lost packet.
type tapCounter struct {
	dirs table[tapCount]
	all  []*tapCount
}

type tapCount struct {
	key           dirKey
	data, control int64
	taps          uint64 // bit per upstream file
}

func (c *tapCounter) frame(f *roce.Frame, tap int) {
	if f.Kind != roce.KindRoCE {
		return
	}
	k := keyOf(f)
	s := c.dirs.find(&k, k.hash())
	n := s.v
	if n == nil {
		n = &tapCount{key: k}
		c.all = append(c.all, n)
		c.dirs.put(s, &k, n)
	}
	n.taps |= 1 << (tap & 63)
	if isControl(f.BTH.Opcode) {
		n.control++
	} else {
		n.data++
	}
}

// isControl: acknowledgements, NAKs and CNPs; READ requests and responses are data.
func isControl(op roce.Opcode) bool { return op == roce.CNP || op.IsAck() || isAtomicAck(op) }

// path compares the upstream counts with what the judged taps saw.
func (e *engine) path(up *tapCounter) *Path {
	p := &Path{Flows: []PathFlow{}, Notes: []string{}}
	judged := map[dirKey]*tapCount{}
	var keys []dirKey
	seen := map[netip.Addr]bool{}
	for _, d := range e.all {
		seen[d.key.dst()] = true
		j := judged[d.key]
		if j == nil {
			j = &tapCount{key: d.key}
			judged[d.key] = j
			keys = append(keys, d.key)
		}
		for slot, n := range d.opcodes {
			if isControl(slotOpcode(slot)) {
				j.control += n
			} else {
				j.data += n
			}
		}
	}
	upstream := map[dirKey]*tapCount{}
	several := false
	for _, c := range up.all {
		upstream[c.key] = c
		several = several || c.taps&(c.taps-1) != 0
		if judged[c.key] == nil {
			keys = append(keys, c.key)
		}
	}
	upstreamSources := map[netip.Addr]bool{}
	for _, c := range up.all {
		upstreamSources[c.key.src()] = true
	}
	slices.SortFunc(keys, func(a, b dirKey) int { return a.compare(&b) })
	p.Data, p.Control = PathCount{JudgedPackets: ptr(int64(0)), LostPackets: ptr(int64(0))}, PathCount{JudgedPackets: ptr(int64(0)), LostPackets: ptr(int64(0))}
	blindSide := false
	for _, k := range keys {
		u, j := upstream[k], judged[k]
		if u == nil {
			if upstreamSources[k.src()] {
				p.Notes = append(p.Notes, "the upstream taps saw other packets of "+k.src().String()+" but none of "+k.id())
			}
			continue // its source is not behind an upstream tap
		}
		if j == nil {
			j = &tapCount{}
		}
		f := PathFlow{ID: k.id(), Src: k.src().String(), Dst: k.dst().String(), DstQP: k.dstQP}
		visible := seen[k.dst()]
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

// slotOpcode is an opcode of the slot, good enough to tell control from data.
func slotOpcode(slot int) roce.Opcode {
	switch slot {
	case slotUD:
		return roce.UDSendOnly
	case slotUDImm:
		return roce.UDSendOnlyImm
	case slotCNP:
		return roce.CNP
	}
	return roce.Opcode(slot)
}
