package opaque

import "slices"

// MaxHoles bounds what an Inbound keeps: this many separate ranges above what has arrived in order. What would make another
// one is not taken, and comes again.
const MaxHoles = 512

// Inbound is one message at its receiver: which of its octets have arrived.
type Inbound struct {
	length uint64
	below  uint64  // all octets below have arrived
	above  []Range // what has arrived above, in order, apart from each other
	last   Range   // what the newest packet belongs to
	seen   uint64  // one past the highest octet that has arrived
	got    uint64  // octets

	packets, ce uint32
	stamp       uint32
}

// NewInbound is a message of which nothing has arrived.
func NewInbound(length uint64) *Inbound { return &Inbound{length: length} }

// Octets is how many different ones have arrived.
func (in *Inbound) Octets() uint64 { return in.got }

// Complete says that all have.
func (in *Inbound) Complete() bool { return in.got == in.length }

// Take takes a DATA packet. It appends to fresh the ranges of octets that had not arrived before and says how many octets
// were skipped to get here. Not ok means that the packet is not taken, and must come again.
func (in *Inbound) Take(p *Packet, ce bool, fresh []Range) (_ []Range, gap uint64, ok bool) {
	r := Range{p.Offset, p.Offset + uint64(len(p.Payload))}
	if p.Length != in.length || r.End > in.length {
		return fresh, 0, false
	}
	// Those that touch r become one with it.
	i := 0
	for i < len(in.above) && in.above[i].End < r.First {
		i++
	}
	j, from, joined := i, max(r.First, in.below), r
	for ; j < len(in.above) && in.above[j].First <= r.End; j++ {
		joined = Range{min(joined.First, in.above[j].First), max(joined.End, in.above[j].End)}
	}
	if i == j && r.First > in.below && len(in.above) >= MaxHoles {
		return fresh, 0, false
	}
	for _, known := range in.above[i:j] {
		if known.First > from {
			fresh = append(fresh, Range{from, min(known.First, r.End)})
			in.got += min(known.First, r.End) - from
		}
		from = max(from, known.End)
	}
	if from < r.End {
		fresh = append(fresh, Range{from, r.End})
		in.got += r.End - from
	}
	if r.First > in.seen {
		gap = r.First - in.seen
	}
	in.seen = max(in.seen, r.End)
	switch {
	case joined.First <= in.below:
		in.below = max(in.below, joined.End)
		in.above = slices.Delete(in.above, i, j)
		for len(in.above) > 0 && in.above[0].First <= in.below {
			in.below = max(in.below, in.above[0].End)
			in.above = slices.Delete(in.above, 0, 1)
		}
		in.last = Range{}
	default:
		in.above = slices.Replace(in.above, i, j, joined)
		in.last = joined
	}
	in.packets++
	if ce {
		in.ce++
	}
	in.stamp = p.Stamp
	return fresh, gap, true
}

// Ack fills in what an acknowledgement says.
func (in *Inbound) Ack(p *Packet) {
	p.Data, p.Cumulative, p.Stamp, p.Packets, p.CE, p.NumRanges = false, in.below, in.stamp, in.packets, in.ce, 0
	add := func(r Range) {
		if p.NumRanges < MaxRanges {
			p.Ranges[p.NumRanges] = r
			p.NumRanges++
		}
	}
	if in.last.End > in.below {
		add(in.last)
	}
	for _, r := range in.above {
		if r != in.last {
			add(r)
		}
	}
}
