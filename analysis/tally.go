package analysis

import "slices"

// tally is the data of one direction in one bin, or in one piece of a phase; or its CNPs, which are packets, too.
type tally struct {
	index               int32
	packets, ce, resent uint32
	unique, wire        int64
}

func (t *tally) add(o *tally) {
	t.packets += o.packets
	t.ce += o.ce
	t.resent += o.resent
	t.unique += o.unique
	t.wire += o.wire
}

func (t *tally) sub(o *tally) {
	t.packets -= o.packets
	t.ce -= o.ce
	t.resent -= o.resent
	t.unique -= o.unique
	t.wire -= o.wire
}

// tallies are those that are not empty, by index.
type tallies []tally

// at gives the tally of an index, mostly the last one.
func (t *tallies) at(index int32) *tally {
	s := *t
	if n := len(s); n > 0 && s[n-1].index == index {
		return &s[n-1]
	}
	i := len(s)
	for i > 0 && s[i-1].index > index { // an older packet after a newer one
		i--
	}
	if i > 0 && s[i-1].index == index {
		return &s[i-1]
	}
	if cap(s) == 0 {
		s = make(tallies, 0, 1)
	}
	*t = slices.Insert(s, i, tally{index: index})
	return &(*t)[i]
}

// halve merges pairs of bins and returns how many lie between the first and the last, but one.
func (t *tallies) halve() (cells int) {
	s := *t
	n := 0
	for i := range s {
		v := s[i]
		v.index /= 2
		if n > 0 && s[n-1].index == v.index {
			s[n-1].add(&v)
			continue
		}
		s[n] = v
		n++
	}
	*t = slices.Clip(s[:n:n])
	if n == 0 {
		return 0
	}
	return int(s[n-1].index - s[0].index)
}

// A flow's data are counted once, in its totals. A tally is what these grew by while its bin was the current one: they are
// subtracted when the flow comes to the bin and added when it leaves it. A flow that stays in one bin needs none.

// turn leaves the bin and the piece of a flow's packets so far for those of now.
func (l *lane) turn(t *sender) {
	bin, piece := int32(l.bins.cur), l.pieces.cur
	if t.data.packets == 0 {
		t.bin, t.piece = bin, piece
		return
	}
	m, sum := t.needMore(), t.total(0)
	if bin != t.bin {
		m.bins.at(t.bin).add(&sum)
		l.bin(&m.bins).sub(&sum)
		t.bin = bin
	}
	if piece != t.piece {
		if t.piece >= 0 {
			m.pieces.at(t.piece).add(&sum)
		}
		if piece >= 0 {
			m.pieces.at(piece).sub(&sum)
		}
		t.piece = piece
	}
}

// total is all data of a flow so far, as a tally of index.
func (t *sender) total(index int32) tally {
	c := &t.data
	return tally{index: index, packets: uint32(c.packets), ce: uint32(c.ce), unique: t.unique(), wire: c.wire,
		resent: uint32(t.req.disorderOf().resentData + t.resp().disorderOf().resentData)}
}

// closeTallies leaves the bin and the piece of the last packet.
func (t *sender) closeTallies() {
	m := t.more
	if m == nil {
		return
	}
	sum := t.total(0)
	if len(m.bins) > 0 {
		m.bins.at(t.bin).add(&sum)
	}
	if len(m.pieces) > 0 && t.piece >= 0 {
		m.pieces.at(t.piece).add(&sum)
	}
}

// binned are the tallies per bin, and pieced those per piece, once they are closed.
func (t *sender) binned() tallies {
	switch {
	case t.more != nil && len(t.more.bins) > 0:
		return t.more.bins
	case t.data.packets > 0:
		return tallies{t.total(t.bin)}
	}
	return nil
}

func (t *sender) pieced() tallies {
	switch {
	case t.more != nil && len(t.more.pieces) > 0:
		return t.more.pieces
	case t.data.packets > 0 && t.piece >= 0:
		return tallies{t.total(t.piece)}
	}
	return nil
}
