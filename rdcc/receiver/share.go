package receiver

// What is here shares the access link's rate among senders. Rates are renewed one by one, with each sender's next grant, and one that falls
// counts until what was allowed at it has arrived; so nobody can be given what others still have, only wait for it.

// activity counts the association among the active, or no more: those that have credit, or may have some, and those that did until a
// moment ago. Who is barred has no share.
func (r *Receiver) activity(a *association) {
	on := a.live > 0 || len(a.queue) > 0 && a.barredUntil == 0
	if on == a.isOn {
		return
	}
	a.isOn = on
	switch {
	case on && a.lingers:
		a.lingers = false
	case on:
		r.active++
	default:
		r.squeeze(a, false)
		a.lingers, a.leavesAt = true, uint32(ticksUp(r.now+lingerRTTs*r.cfg.Fabric.BaseRTT))
		if !a.leaving {
			a.leaving = true
			r.leaving.push(a.place)
		}
	}
}

// slowShare is the part of what it may have below which a sender waits for more.
const slowShare = 2

// lingerRTTs is for how long a sender that has nothing to send keeps its share. One that sends one message after the other
// needs a round trip to be told that it may; if its share had gone to others by then, it would have to wait until their rates had come down
// again, at each message.
const lingerRTTs = 2

// leave lets go of senders that had nothing to send for a while. Those that left last are last in the line.
func (r *Receiver) leave() {
	for r.leaving.some() {
		a := &r.assocs[r.leaving.first()]
		if a.lingers && int32(a.leavesAt-uint32(r.now>>tickBits)) > 0 {
			return
		}
		r.leaving.drop()
		a.leaving = false
		r.gone(a)
	}
}

// gone counts a sender that lingered no more.
func (r *Receiver) gone(a *association) {
	if a.lingers {
		a.lingers = false
		r.active--
	}
}

// squeeze notes whether a sender has less than an equal share because others have more. Until it has that, nobody gets more than an equal
// share again: rates are renewed one by one, and who has much would always find it free again.
func (r *Receiver) squeeze(a *association, yes bool) {
	if a.squeezed == yes {
		return
	}
	a.squeezed = yes
	if yes {
		r.squeezed++
	} else {
		r.squeezed--
	}
}

func (r *Receiver) othersSqueezed(a *association) bool {
	return r.squeezed > 1 || r.squeezed == 1 && !a.squeezed
}

// stepAside lets others be served before a sender whose part of the link others have still. They come down to an equal share with
// their next grants, which they would not get while it stood in front of them.
func (r *Receiver) stepAside(a *association) {
	a.blocked = true
	r.unready(a)
	if !a.inLine {
		a.inLine = true
		r.line.push(a.place)
	}
}

// callUp serves who stepped aside, first come, as some of the link's rate is given back.
func (r *Receiver) callUp() {
	for r.line.some() && r.capacity-r.liveRate >= r.capacity/int64(max(r.active, 1))/slowShare {
		a := &r.assocs[r.line.first()]
		r.line.drop()
		a.inLine = false
		r.unblock(a)
	}
}

// fifo is a line of associations, by their places. One that is gone may still be in it, or another in its place: whoever takes it out looks.
type fifo struct {
	all  []int32
	head int
}

func (f *fifo) some() bool   { return f.head < len(f.all) }
func (f *fifo) first() int32 { return f.all[f.head] }

func (f *fifo) drop() {
	if f.head++; f.head == len(f.all) {
		f.all, f.head = f.all[:0], 0
	}
}

func (f *fifo) push(place int32) {
	if len(f.all) == cap(f.all) && f.head > len(f.all)/2 { // rather than growing
		f.all, f.head = f.all[:copy(f.all, f.all[f.head:])], 0
	}
	f.all = append(f.all, place)
}
