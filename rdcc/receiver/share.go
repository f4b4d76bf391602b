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
		a.lingers, a.leavesAt = true, r.now+lingerRTTs*r.cfg.Fabric.BaseRTT
		if !a.leaving {
			a.leaving = true
			r.leaving = append(r.leaving, a.id)
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
	for len(r.leaving) > 0 {
		i, ok := r.byID[r.leaving[0]]
		if ok {
			a := &r.assocs[i]
			if a.lingers && r.now < a.leavesAt {
				return
			}
			a.leaving = false
			r.gone(a)
		}
		r.leaving = r.leaving[1:]
	}
	r.leaving = nil
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
		r.line = append(r.line, a.id)
	}
}

// callUp serves who stepped aside, first come, as some of the link's rate is given back.
func (r *Receiver) callUp() {
	for len(r.line) > 0 && r.capacity-r.liveRate >= r.capacity/int64(max(r.active, 1))/slowShare {
		i, ok := r.byID[r.line[0]]
		r.line = r.line[1:]
		if ok {
			a := &r.assocs[i]
			a.inLine = false
			r.unblock(a)
		}
	}
}
