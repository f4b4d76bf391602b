package analysis

import "github.com/pcmlab/pcmlab/capture/roce"

// Triggers of a resend.
const (
	TriggerNAK     = "nak"
	TriggerRNR     = "rnr"
	TriggerTimeout = "timeout"
)

// nakSeen is a NAK on its way to the sender. The zero value is none.
type nakSeen struct {
	atNS    int64
	psn     int64
	trigger string
}

// resend is a step back of the sender while it is followed.
type resend struct {
	going   bool
	restart bool // it went on from there through numbers seen before
	tail    bool // the highest number again, alone
	alone   bool // packets that came into holes were sent again, not overtaken

	atNS, from, high int64
	packets, skipped int64
	nak              nakSeen
}

// recoveryLog is what is kept of a flow's resends.
type recoveryLog struct {
	events                            []RecoveryEvent
	restarts, byNAK, byRNR, byTimeout int64
	delay                             *histogram
}

// refuse notes a NAK that names ext.
func (x *disorder) refuse(ts, ext int64, trigger string) { x.nak = nakSeen{ts, ext, trigger} }

// startEvent notes a step back to ext.
func (x *disorder) startEvent(p *seen, ext, high int64) {
	if x.outer {
		x.outerEvent = x.event
	} else {
		x.endEvent()
	}
	x.event = resend{going: true, atNS: p.ts, from: ext, high: high, packets: 1, nak: x.nak,
		tail: ext == high && (p.newer || !p.older && p.quiet > x.lateNS)}
}

// restarted says that the step back is a restart.
func (x *disorder) restarted() {
	if x.outerEvent.going { // another NAK or timeout before the sender was through
		event := x.event
		x.event = x.outerEvent
		x.endEvent()
		x.event = event
	}
	x.event.restart = true
}

// resumeEvent goes back to the restart that a lone packet interrupted, and that passed over skipped numbers meanwhile.
func (x *disorder) resumeEvent(skipped int64) {
	outer := x.outerEvent
	x.outerEvent = resend{}
	x.endEvent()
	x.event = outer
	x.event.skipped += skipped
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
	trigger := TriggerTimeout
	if e.nak.trigger != "" {
		trigger = e.nak.trigger
		add(&l.delay, e.atNS-e.nak.atNS)
		if x.nak == e.nak {
			x.nak = nakSeen{}
		}
	}
	if e.restart || e.tail {
		l.restarts++
		switch trigger {
		case TriggerNAK:
			l.byNAK++
		case TriggerRNR:
			l.byRNR++
		default:
			l.byTimeout++
		}
	}
	if len(l.events) >= MaxRecoveryEvents {
		return
	}
	out := RecoveryEvent{TimeNS: e.atNS, Trigger: trigger, FromPSN: psnOf(e.from), HighPSN: psnOf(e.high), Packets: e.packets, Skipped: e.skipped}
	if e.nak.trigger != "" {
		out.NAKPSN, out.DelayNS = ptr(psnOf(e.nak.psn)), ptr(e.atNS-e.nak.atNS)
	}
	l.events = append(l.events, out)
}

func psnOf(ext int64) uint32 { return uint32(ext) & roce.PSNMask }

// recovery is what the document says of a flow's resends; null when there were none and nothing was refused.
func (x *disorder) recovery() *Recovery {
	if x.log == nil && x.rnrWaitNS == 0 && x.nak.trigger == "" {
		return nil
	}
	r := &Recovery{Selective: x.selective, RNRWaitNS: x.rnrWaitNS, Events: []RecoveryEvent{}}
	if l := x.log; l != nil {
		r.Restarts, r.ByNAK, r.ByRNR, r.ByTimeout = l.restarts, l.byNAK, l.byRNR, l.byTimeout
		r.DelayNS = l.delay.latency(1)
		r.Events = append(r.Events, l.events...)
	}
	return r
}
