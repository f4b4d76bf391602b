package guard

import "time"

// lifecycle decides what a guard does and when. It has no clock and does nothing itself: events go in with the time
// since the guard began, actions come out.
//
//	        go                exit, stop, lost, deadline       2 s
//	held ----------> running ---------------------------> ending -----> killing
//	  |                                                      |             |
//	  | stop, lost, deadline                                 | none left   | none left, or 6 s
//	  +------------------------------> ended <---------------+-------------+
type lifecycle struct {
	o     timing
	phase phase
	cause Cause

	heard  time.Duration // when the owner was last heard
	met    bool          // the owner has been heard at all
	lost   bool          // the channel has ended, or nothing was heard for o.lost
	lostAt time.Duration
	nextAt time.Duration // end of ending or killing
}

// timing holds the guard's times.
type timing struct {
	deadline time.Duration // for the whole command; 0: none
	grace    time.Duration // for an owner that was lost to come back
	silence  time.Duration // without a word from the owner it is lost
	term     time.Duration // between TERM and KILL
	kill     time.Duration // then what is left is given up
}

func (t timing) withDefaults() timing {
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{{&t.grace, DefaultGrace}, {&t.silence, Silence}, {&t.term, TermWait}, {&t.kill, killWait}} {
		if *d.v == 0 {
			*d.v = d.d
		}
	}
	return t
}

// Times of a guard. An owner that dies ends its channel, which is noticed at once. Silence is for a path that was cut
// or an owner that was stopped; it is long since an orchestrator on a busy machine, with the virtual lab beside it, was
// seen to be late by more than ten seconds.
const (
	DefaultGrace   = 5 * time.Second
	HeartbeatEvery = time.Second
	Silence        = 20 * time.Second
	TermWait       = 2 * time.Second
	killWait       = 6 * time.Second // a killed process still needs the processor to die
	unmetGrace     = time.Second
	restoreWait    = 90 * time.Second // for several settings, each of which may take 20 s (inventory/remote/knobs)
)

type phase int

const (
	held phase = iota
	running
	ending
	killing
	ended
)

func (p phase) String() string {
	return [...]string{"held", "running", "ending", "killing", "ended"}[p]
}

type eventKind int

const (
	evTick        eventKind = iota
	evGo                    // the owner releases the command
	evHeard                 // the owner said something
	evLost                  // the channel has ended
	evAttached              // an owner came back
	evStop                  // with signal and cause
	evExit                  // the command itself has ended
	evStartFailed           // it could not be started
	evNone                  // no descendant is left
)

type event struct {
	kind   eventKind
	signal string
	cause  Cause
}

type actionKind int

const (
	actStart  actionKind = iota // start the command
	actSignal                   // signal every descendant
	actKill                     // KILL every descendant, again and again until none is left
	actFinish                   // nothing is left, or no more can be done
)

type action struct {
	kind   actionKind
	signal string
}

// step feeds one event at time now and appends what to do to out.
func (l *lifecycle) step(now time.Duration, ev event, out []action) []action {
	switch ev.kind {
	case evGo:
		if l.phase == held {
			l.phase = running
			out = append(out, action{kind: actStart})
		}
	case evHeard, evAttached:
		l.heard, l.lost, l.met = now, false, true
	case evLost:
		if !l.lost {
			l.lost, l.lostAt = true, now
		}
	case evStop:
		out = l.end(now, ev.cause, ev.signal, out)
	case evExit:
		if l.phase == running {
			out = l.end(now, "", "TERM", out)
		}
	case evStartFailed:
		if l.phase == running {
			l.phase, l.cause = ended, CauseStart
			out = append(out, action{kind: actFinish})
		}
	case evNone:
		if l.phase == ending || l.phase == killing {
			l.phase = ended
			out = append(out, action{kind: actFinish})
		}
	case evTick:
	}
	return l.timeouts(now, out)
}

// end begins the end of a held or running command. In later phases the first cause stays.
func (l *lifecycle) end(now time.Duration, cause Cause, signal string, out []action) []action {
	switch l.phase {
	case held:
		l.phase, l.cause = ended, cause
		return append(out, action{kind: actFinish})
	case running:
		l.phase, l.cause, l.nextAt = ending, cause, now+l.o.term
		return append(out, action{kind: actSignal, signal: signal})
	default:
		return out
	}
}

func (l *lifecycle) timeouts(now time.Duration, out []action) []action {
	if !l.lost && now-l.heard >= l.o.silence {
		l.lost, l.lostAt = true, now
	}
	if l.phase == held || l.phase == running {
		switch {
		case l.o.deadline > 0 && now >= l.o.deadline:
			out = l.end(now, CauseDeadline, "TERM", out)
		case l.abandoned(now):
			out = l.end(now, CauseLost, "TERM", out)
		}
	}
	if l.phase == ending && now >= l.nextAt {
		l.phase, l.nextAt = killing, now+l.o.kill
		out = append(out, action{kind: actKill})
	}
	if l.phase == killing && now >= l.nextAt {
		l.phase = ended
		out = append(out, action{kind: actFinish})
	}
	return out
}

// deadline is when the next evTick is due.
func (l *lifecycle) deadline() time.Duration {
	next := l.heard + l.o.silence
	if l.lost {
		next = l.lostAt + l.patience()
	}
	switch l.phase {
	case held, running:
		if l.o.deadline > 0 {
			next = min(next, l.o.deadline)
		}
	case ending, killing:
		next = l.nextAt
	case ended:
	}
	return next
}

// patience is how long a lost owner is waited for. One that was gone before its first word was most likely killed
// while the guard started, and is given less.
func (l *lifecycle) patience() time.Duration {
	if !l.met {
		return min(unmetGrace, l.o.grace)
	}
	return l.o.grace
}

// abandoned reports whether the owner has been lost for longer than the grace.
func (l *lifecycle) abandoned(now time.Duration) bool {
	return l.lost && now-l.lostAt >= l.patience()
}
