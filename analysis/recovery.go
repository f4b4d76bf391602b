package analysis

import "github.com/pcmlab/pcmlab/capture/roce"

// Triggers of a resend.
const (
	TriggerNAK     = "nak"
	TriggerRNR     = "rnr"
	TriggerTimeout = "timeout"
)

// trigger is one of these, for keeping.
type trigger uint8

const (
	byTimeout trigger = iota // no NAK was seen
	byNAK
	byRNR
	triggers
)

func (t trigger) String() string {
	return [...]string{TriggerTimeout, TriggerNAK, TriggerRNR}[t]
}

// nakSeen is a NAK on its way to the sender. The zero value is none.
type nakSeen struct {
	atNS    int64
	psn     uint32
	trigger trigger
}

// resend is a step back of the sender while it is followed.
type resend struct {
	atNS             int64
	nak              nakSeen
	from, high       uint32
	packets, skipped int32
	going            bool
	restart          bool // it went on from there through numbers seen before
	tail             bool // the highest number again, alone
	alone            bool // packets that came into holes were sent again, not overtaken
}

// recoveryLog is what is kept of a flow's resends.
type recoveryLog struct {
	events   []resend
	restarts [triggers]int64
	delay    *histogram
}

// refuse notes a NAK that names psn.
func (x *disorder) refuse(ts int64, psn uint32, by trigger) { x.nak = nakSeen{ts, psn, by} }

// startEvent notes a step back to ext.
func (x *disorder) startEvent(p *seen, ext, high int64) {
	if x.outer && !x.outerEvent.going {
		x.outerEvent = x.event
	} else {
		x.endEvent()
	}
	x.event = resend{going: true, atNS: p.ts, from: psnOf(ext), high: psnOf(high), packets: 1, nak: x.nak,
		tail: ext == high && (p.newer || !p.older && p.quiet > p.lateNS)}
}

// restarted says that the step back is a restart.
func (x *disorder) restarted() {
	x.endOuter() // another NAK or timeout came before the sender was through
	x.event.restart = true
}

// endOuter ends the restart that was interrupted.
func (x *disorder) endOuter() {
	if x.outerEvent.going {
		event := x.event
		x.event, x.outerEvent = x.outerEvent, resend{}
		x.endEvent()
		x.event = event
	}
}

// resumeEvent goes back to the restart that a lone packet interrupted, and that passed over skipped numbers meanwhile.
func (x *disorder) resumeEvent(skipped int64) {
	outer := x.outerEvent
	x.outerEvent = resend{}
	x.endEvent()
	x.event = outer
	x.event.skipped += int32(skipped)
}

// endEvent closes the books on a step back. What was merely overtaken or doubled leaves no trace.
func (x *disorder) endEvent() {
	e := &x.event
	if !e.going {
		return
	}
	if e.restart || e.tail || e.alone {
		x.note(e)
	}
	*e = resend{}
}

func (x *disorder) note(e *resend) {
	if x.log == nil {
		x.log = new(recoveryLog)
	}
	l := x.log
	if e.nak.trigger != byTimeout {
		add(&l.delay, e.delay())
		if x.nak == e.nak {
			x.nak = nakSeen{}
		}
	}
	if e.restart || e.tail {
		l.restarts[e.nak.trigger]++
	}
	if len(l.events) < MaxRecoveryEvents {
		l.events = append(l.events, *e)
	}
}

// delay is from the NAK to the first packet; a clock that steps back makes it 0.
func (e *resend) delay() int64 { return max(e.atNS-e.nak.atNS, 0) }

func (e *resend) event() RecoveryEvent {
	out := RecoveryEvent{TimeNS: e.atNS, Trigger: e.nak.trigger.String(), FromPSN: e.from, HighPSN: e.high, Packets: int64(e.packets), Skipped: int64(e.skipped)}
	if e.nak.trigger != byTimeout {
		out.NAKPSN, out.DelayNS = ptr(e.nak.psn), ptr(e.delay())
	}
	return out
}

func psnOf(ext int64) uint32 { return uint32(ext) & roce.PSNMask }

// recovery is what the document says of a flow's resends; null when there were none and nothing was refused.
func (x *disorder) recovery() *Recovery {
	if x.retransmitted == 0 && x.log == nil && x.rnrWaitNS == 0 && x.nak.trigger == byTimeout {
		return nil
	}
	r := &Recovery{Selective: x.selective, RNRWaitNS: x.rnrWaitNS, Events: []RecoveryEvent{}}
	if l := x.log; l != nil {
		r.ByNAK, r.ByRNR, r.ByTimeout = l.restarts[byNAK], l.restarts[byRNR], l.restarts[byTimeout]
		r.Restarts = r.ByNAK + r.ByRNR + r.ByTimeout
		r.DelayNS = l.delay.latency(1)
		for i := range l.events {
			r.Events = append(r.Events, l.events[i].event())
		}
	}
	return r
}
