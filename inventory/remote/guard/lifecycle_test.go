//go:build linux

package guard

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pcmlab/pcmlab/internal/testwait"
)

type interval int

func (i interval) d() time.Duration { return time.Duration(i) * time.Millisecond }

func TestLifecycle_walks(t *testing.T) {
	type in struct {
		at time.Duration
		ev event
	}
	sec := func(f float64) time.Duration { return time.Duration(f * float64(time.Second)) }
	start, finish, kill := action{kind: actStart}, action{kind: actFinish}, action{kind: actKill}
	signal := func(s string) action { return action{kind: actSignal, signal: s} }
	for _, tc := range []struct {
		name, why string
		o         timing
		in        []in
		want      []action
		phase     phase
		cause     Cause
	}{
		{"clean", "leftovers get TERM when the command has ended", timing{}, []in{{0, event{kind: evGo}}, {1, event{kind: evExit}}, {2, event{kind: evNone}}},
			[]action{start, signal("TERM"), finish}, ended, ""},
		{"stubborn_leftover", "KILL after 2 s, given up after 3 more", timing{kill: 3 * time.Second}, []in{{0, event{kind: evGo}}, {1, event{kind: evExit}}, {sec(2.1), event{}}, {sec(5.2), event{}}},
			[]action{start, signal("TERM"), kill, finish}, ended, ""},
		{"stop_then_exit", "the first cause stays", timing{}, []in{{0, event{kind: evGo}}, {1, event{kind: evStop, signal: "INT", cause: CauseStop}}, {2, event{kind: evExit}}, {3, event{kind: evNone}}},
			[]action{start, signal("INT"), finish}, ended, CauseStop},
		{"held_deadline", "the deadline holds for held commands too", timing{deadline: time.Second, silence: time.Hour}, []in{{sec(1), event{}}, {sec(2), event{kind: evGo}}},
			[]action{finish}, ended, CauseDeadline},
		{"never_met", "an owner that died while the guard started does not come back", timing{}, []in{{0, event{kind: evGo}}, {sec(1), event{kind: evLost}}, {sec(2), event{}}},
			[]action{start, signal("TERM")}, ending, CauseLost},
		{"lost", "grace after the end of the channel", timing{}, []in{{0, event{kind: evGo}}, {0, event{kind: evHeard}}, {sec(1), event{kind: evLost}}, {sec(5.9), event{}}, {sec(6), event{}}, {sec(8), event{}}, {sec(8), event{kind: evNone}}},
			[]action{start, signal("TERM"), kill, finish}, ended, CauseLost},
		{"silence", "silence, then grace", timing{silence: 3 * time.Second}, []in{{0, event{kind: evGo}}, {0, event{kind: evHeard}}, {sec(2.9), event{}}, {sec(3), event{}}, {sec(7.9), event{}}, {sec(8), event{}}},
			[]action{start, signal("TERM")}, ending, CauseLost},
		{"heard_again", "a channel that was only slow", timing{silence: 3 * time.Second}, []in{{0, event{kind: evGo}}, {0, event{kind: evHeard}}, {sec(4), event{}}, {sec(7), event{kind: evHeard}}, {sec(9), event{kind: evHeard}}, {sec(11), event{}}},
			[]action{start}, running, ""},
		{"attached", "the owner came back", timing{silence: 3 * time.Second}, []in{{0, event{kind: evHeard}}, {0, event{kind: evGo}}, {sec(1), event{kind: evLost}}, {sec(5), event{kind: evAttached}}, {sec(7), event{}}},
			[]action{start}, running, ""},
		{"start_failed", "nothing to end", timing{}, []in{{0, event{kind: evGo}}, {0, event{kind: evStartFailed}}}, []action{start, finish}, ended, CauseStart},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := lifecycle{o: tc.o.withDefaults()}
			var got []action
			for _, i := range tc.in {
				got = l.step(i.at, i.ev, got)
			}
			if d := cmp.Diff(tc.want, got, cmp.AllowUnexported(action{})); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, d)
			}
			if l.phase != tc.phase || l.cause != tc.cause {
				t.Errorf("phase %v cause %q, want %v %q", l.phase, l.cause, tc.phase, tc.cause)
			}
		})
	}
}

// TestLifecycle_everyEventInEveryPhase says what each pair does; what is not listed changes neither phase nor acts.
func TestLifecycle_everyEventInEveryPhase(t *testing.T) {
	moves := map[phase]map[eventKind]phase{
		held:    {evGo: running, evStop: ended},
		running: {evStop: ending, evExit: ending, evStartFailed: ended},
		ending:  {evNone: ended},
		killing: {evNone: ended},
		ended:   {},
	}
	for from, to := range moves {
		for kind := evTick; kind <= evNone; kind++ {
			l := lifecycle{o: timing{}.withDefaults(), phase: from, nextAt: time.Hour}
			acts := l.step(time.Millisecond, event{kind: kind, signal: "TERM", cause: CauseStop}, nil)
			want, ok := to[kind]
			if !ok {
				want = from
			}
			if l.phase != want || (len(acts) > 0) != ok {
				t.Errorf("%v on event %d: %v with actions %v, want %v", from, kind, l.phase, acts, want)
			}
		}
	}
}

// TestLifecycle_alwaysEnds: whatever happens, from the moment the owner is lost for good it takes no longer than
// silence + grace + TERM + KILL until all is over, and start and finish happen at most once.
func TestLifecycle_alwaysEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := timing{deadline: 20 * time.Second}.withDefaults()
		l := lifecycle{o: o}
		now := time.Duration(0)
		var acts []action
		for range rapid.IntRange(0, 40).Draw(t, "events") {
			now += rapid.SampledFrom([]interval{1, 50, 900, 2500}).Draw(t, "wait").d()
			ev := event{kind: eventKind(rapid.IntRange(0, int(evStartFailed)).Draw(t, "event")), signal: "TERM", cause: CauseStop}
			acts = l.step(now, ev, acts)
		}
		last := now
		for l.phase != ended {
			next := l.deadline()
			if next > last+o.silence+o.grace+o.term+o.kill {
				t.Fatalf("in phase %v at %v, next deadline %v: too late", l.phase, now, next)
			}
			now = max(now, next)
			acts = l.step(now, event{}, acts)
		}
		count := map[actionKind]int{}
		for _, a := range acts {
			count[a.kind]++
		}
		if count[actStart] > 1 || count[actFinish] != 1 || count[actKill] > 1 {
			t.Fatalf("actions %v: started %d, finished %d, killed %d times", acts, count[actStart], count[actFinish], count[actKill])
		}
	})
}

func TestOutbox_keepsUntilAcknowledged(t *testing.T) {
	b := newOutbox()
	b.output(Stdout, []byte("one"))
	b.output(Stdout, []byte("two"))
	no := func() bool { return false }
	if f, ok := b.get(1, no); !ok || string(f[headerLen:]) != "two" {
		t.Errorf("frame 1: %q, %v", f, ok)
	}
	b.ack(1)
	if _, ok := b.rewind(0); ok {
		t.Error("a frame that was acknowledged is promised again")
	}
	if n, ok := b.rewind(1); !ok || n != 1 {
		t.Errorf("rewind(1) = %d, %v", n, ok)
	}
	if _, ok := b.rewind(3); ok {
		t.Error("a frame from the future is promised")
	}

	full := make(chan struct{})
	go func() {
		defer close(full)
		b.output(Stderr, make([]byte, 3*window)) // waits for room
	}()
	testwait.For(t, 5*time.Second, "the window to fill", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.bytes >= window })
	select {
	case <-full:
		t.Error("output beyond the window did not wait")
	default:
	}
	b.closeOutput()
	<-full
	if d := b.droppedBytes(); d < window || d > 3*window {
		t.Errorf("%d bytes dropped", d)
	}
	n := b.control(Exit, []byte("{}"))
	if b.acked(n) {
		t.Error("exit is acknowledged before it was")
	}
	b.ack(n + 1)
	if !b.acked(n) {
		t.Error("exit is not acknowledged")
	}
}
