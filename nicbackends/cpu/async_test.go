package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/handlers"
	"github.com/pcmlab/pcmlab/pcm/shell"
)

// policies are builds of the asynchronous shell.
var policies = []Options{{Snapshot: "relaxed"}, {Snapshot: "zero-skew"}, {Snapshot: "bounded-skew", Skew: 2}}

// anything is an input of any of the sources, in the sizes that they have on a NIC.
func anything(rng *rand.Rand, now uint64) *shell.Input {
	in := &shell.Input{Now: now}
	for _, source := range pcm.Sources() {
		v := uint64(rng.IntN(4))
		switch source {
		case pcm.ElapsedTime:
			continue
		case pcm.RTT:
			v = 10_000 + rng.Uint64N(60_000)
		case pcm.DataTX, pcm.DataNACKed, pcm.TXBytes:
			v *= 4096
		case pcm.InFlight, pcm.Queue, pcm.TXBacklogBytes:
			v = rng.Uint64N(300_000)
		case pcm.ACKEV, pcm.ECNEV, pcm.NACKEV:
			v = rng.Uint64N(64)
		case pcm.PullTarget:
			v = now / 100
		}
		often := 2
		switch source {
		case pcm.NACK, pcm.RTO, pcm.DataNACKed, pcm.CNP:
			often = 20
		}
		if rng.IntN(often) == 0 {
			give(in, source, v)
		}
	}
	return in
}

// words are all that a flow holds, but for the clock, which is a signal of the synchronous shell alone.
func words(b *built, f *shell.Flow) []uint64 {
	var all []uint64
	for i, s := range b.Signals {
		if s.Source != pcm.ElapsedTime {
			all = append(all, f.Peek(shell.Signal, i))
		}
	}
	for i := range b.Controls {
		all = append(all, f.Peek(shell.Control, i))
	}
	for i := range b.Slots {
		all = append(all, f.Peek(shell.Variable, i))
	}
	return all
}

// TestAsync_equalsSync: in one thread, all kinds of shells of a handler decide the same, event for event, whether its halves are called
// one by one or at once. Every handler has every policy; of the other representations of fractions each has one of them, since what a policy
// adds does not know of fractions.
func TestAsync_equalsSync(t *testing.T) {
	for _, name := range handlers.Names() {
		p, err := handlers.Load(name, pcm.Deployment{})
		if err != nil {
			t.Fatal(err)
		}
		for i, format := range []pcm.Format{pcm.FormatFloat, pcm.Q32, pcm.Q42, pcm.Q16} {
			some := policies
			if i > 0 {
				some = policies[i-1 : i]
			}
			if i > 0 && !fractions(p) {
				break // it would be the same code
			}
			t.Run(fmt.Sprintf("%s/%s", name, format), func(t *testing.T) {
				t.Parallel()
				sync := buildPackage(t, p, Options{Frac: format.String(), Flags: []string{"-O0"}})
				for _, o := range some {
					o.Frac, o.Flags = format.String(), []string{"-O0"}
					equal(t, sync, buildPackage(t, p, o), o.Snapshot)
				}
			})
		}
	}
}

func equal(t *testing.T, sync, async *built, policy string) {
	t.Helper()
	newFlow := func(b *built) *shell.Flow {
		f, err := b.shell.NewFlow(1000, 7)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		return f
	}
	want, whole, halves := newFlow(sync), newFlow(async), newFlow(async)
	rng := rand.New(rand.NewPCG(11, uint64(len(sync.Signals))))
	now, runs := uint64(1000), 0
	for i := range 3000 {
		now += rng.Uint64N(4000)
		in := anything(rng, now)
		var a, b, c, again shell.Output
		want.Flush(in, &a)
		whole.Flush(in, &b)
		due := halves.Note(in)
		halves.Serve(now, &c)
		halves.Read(&again)
		if a != b || a != c {
			t.Fatalf("%s, event %d, %+v: synchronous %+v, asynchronous %+v, in halves %+v", policy, i, *in, a, b, c)
		}
		if due != (a.Fired != 0) {
			t.Fatalf("%s, event %d: due is %v, and %b fired", policy, i, due, a.Fired)
		}
		if again.Fired = a.Fired; again != a {
			t.Fatalf("%s, event %d: read again it is %+v, was %+v", policy, i, again, a)
		}
		if a.Fired != 0 {
			runs++
		}
	}
	for i, w := range words(sync, want) {
		if g, h := words(async, whole)[i], words(async, halves)[i]; w != g || w != h {
			t.Errorf("%s: word %d is %d, want %d; in halves %d", policy, i, g, w, h)
		}
	}
	if runs == 0 {
		t.Errorf("%s: the handler never ran", policy)
	}
}

// TestSync_inHalves: the synchronous shell has both halves, too, and they are a flush.
func TestSync_inHalves(t *testing.T) {
	b := build(t, "swift", nil, Options{})
	equal(t, b, b, "synchronous")
}

// TestOptions_snapshotIsPartOfTheHash: another policy, or another skew, is another shell.
func TestOptions_snapshotIsPartOfTheHash(t *testing.T) {
	p, err := handlers.Load("newreno", pcm.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, o := range append([]Options{{}, {Snapshot: "bounded-skew", Skew: 3}}, policies...) {
		q, err := o.Package(p)
		if err != nil {
			t.Fatal(err)
		}
		hash, err := q.Hash()
		if err != nil {
			t.Fatal(err)
		}
		this := fmt.Sprint(o.Snapshot, o.Skew)
		if other, ok := seen[hash]; ok {
			t.Errorf("%q and %q have one hash", this, other)
		}
		seen[hash] = this
	}
	if q, err := (Options{Snapshot: "synchronous"}).Package(p); err != nil {
		t.Error(err)
	} else if hash, _ := q.Hash(); seen[hash] != fmt.Sprint("", 0) {
		t.Error("synchronous is not the default")
	}
	for _, o := range []Options{{Snapshot: "torn"}, {Snapshot: "bounded-skew"}, {Snapshot: "zero-skew", Skew: 1}, {Skew: 1}} {
		if _, err := o.Package(p); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// TestOpen_saysTheKind holds what a shell says of itself.
func TestOpen_saysTheKind(t *testing.T) {
	for _, c := range []struct {
		o    Options
		kind shell.Kind
		skew uint64
	}{
		{Options{}, shell.Synchronous, 0},
		{Options{Snapshot: "relaxed"}, shell.Relaxed, 0},
		{Options{Snapshot: "zero-skew"}, shell.ZeroSkew, 0},
		{Options{Snapshot: "bounded-skew", Skew: math.MaxUint64}, shell.BoundedSkew, math.MaxUint64},
	} {
		if b := build(t, "newreno", nil, c.o); b.shell.Kind != c.kind || b.shell.Skew != c.skew {
			t.Errorf("%+v is %v with a skew of %d", c.o, b.shell.Kind, b.shell.Skew)
		}
	}
}

const everyTrigger = `algorithm: {name: every_trigger}
signals:
  - {name: A, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 3}
  - {name: B, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_type: PCM_SIG_TRIGGER_DELTA, trigger_op: "&", trigger_threshold: 4, reset_upon_trigger: "false"}
  - {name: C, type: PCM_SIG_QUEUE, accumulation: PCM_SIG_ACCUM_LAST, trigger_type: PCM_SIG_TRIGGER_MAGNITUDE, trigger_op: ">", trigger_threshold: 200000, reset_upon_trigger: "false"}
  - {name: D, type: PCM_SIG_NACK, accumulation: PCM_SIG_ACCUM_MAX, trigger_op: "&", trigger_threshold: 2}
  - {name: E, type: PCM_SIG_RTO, accumulation: PCM_SIG_ACCUM_SUM, trigger_type: PCM_SIG_TRIGGER_DELTA, trigger_op: ">", trigger_threshold: 0, reset_upon_trigger: "false"}
  - {name: F, type: PCM_SIG_LOOPBACK, accumulation: PCM_SIG_ACCUM_LAST, trigger_op: ">=", trigger_threshold: 3, reset_upon_trigger: "false"}
  - {name: G, type: PCM_SIG_RTT, accumulation: PCM_SIG_ACCUM_MIN, initial_value: 100000, trigger_op: "<", trigger_threshold: 12000}
  - {name: T, type: PCM_SIG_ELAPSED_TIME, accumulation: PCM_SIG_ACCUM_LAST, trigger_op: ">", trigger_threshold: 50000, reset_upon_trigger: "false"}
controls:
  - {name: CWND, type: PCM_CTRL_CWND}
variables:
  - {name: SEEN, type: uint, arr_len: 8}
`

const everyTriggerC = `#include "pcmh.h"
#include "every_trigger.h"
int algorithm_main()
{
	pcm_uint fired = get_signal_trigger_mask();
	for (int i = 0; i < 8; i++)
		set_arr_uint(SEEN, i, get_arr_uint(SEEN, i) + (fired >> i & 1));
	set_control(CWND, HASH(get_control(CWND) + get_signal(A) + get_signal(B) + get_signal(C) + get_signal(D) + get_signal(G) + fired));
	if (fired & C)
		update_signal(E, 1); /* fires at the next look, without an event */
	if (fired & F)
		set_signal(F, get_signal(F) - 1);
	if (fired & T)
		set_signal(T, 0);
	return PCM_SUCCESS;
}
`

// Every trigger fires on a change: such a shell is quick, and keeps neither baselines nor what is set back between flushes.
const everyChange = `algorithm: {name: every_change}
signals:
  - {name: A, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1}
  - {name: B, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_type: PCM_SIG_TRIGGER_DELTA, trigger_op: ">", trigger_threshold: 0, reset_upon_trigger: "false"}
  - {name: C, type: PCM_SIG_QUEUE, accumulation: PCM_SIG_ACCUM_LAST, trigger_type: PCM_SIG_TRIGGER_MAGNITUDE, trigger_op: "!=", trigger_threshold: 0, reset_upon_trigger: "false"}
  - {name: D, type: PCM_SIG_NACK, accumulation: PCM_SIG_ACCUM_MAX, trigger_op: ">", trigger_threshold: 0}
  - {name: E, type: PCM_SIG_RTO, accumulation: PCM_SIG_ACCUM_SUM, trigger_type: PCM_SIG_TRIGGER_DELTA, trigger_threshold: 1, reset_upon_trigger: "false"}
  - {name: F, type: PCM_SIG_LOOPBACK, accumulation: PCM_SIG_ACCUM_LAST, trigger_threshold: 1}
  - {name: G, type: PCM_SIG_RTT, accumulation: PCM_SIG_ACCUM_MIN, trigger_op: "!=", trigger_threshold: 2**64 - 1}
  - {name: H, type: PCM_SIG_TX_BYTES, accumulation: PCM_SIG_ACCUM_SUM, initial_value: 3}
  - {name: I, type: PCM_SIG_IN_FLIGHT, accumulation: PCM_SIG_ACCUM_LAST}
  - {name: J, type: PCM_SIG_CNP, accumulation: PCM_SIG_ACCUM_SUM, reset_upon_trigger: "false"}
  - {name: T, type: PCM_SIG_ELAPSED_TIME, accumulation: PCM_SIG_ACCUM_LAST, reset_upon_trigger: "false"}
controls:
  - {name: CWND, type: PCM_CTRL_CWND}
  - {name: RATE, type: PCM_CTRL_RATE, initial_value: 7}
variables:
  - {name: SEEN, type: uint, arr_len: 7}
`

const everyChangeC = `#include "pcmh.h"
#include "every_change.h"
int algorithm_main()
{
	pcm_uint fired = get_signal_trigger_mask();
	for (int i = 0; i < 7; i++)
		set_arr_uint(SEEN, i, get_arr_uint(SEEN, i) + (fired >> i & 1));
	set_control(CWND, HASH(get_control(CWND) + get_signal(A) + get_signal(B) + get_signal(C) + get_signal(D) + get_signal(G) + get_signal(H) + get_signal(I) + get_signal(J) + get_signal(T) + fired));
	if (get_control(CWND) % 16 == 0)
		set_control(RATE, get_signal(H));
	if (get_control(CWND) % 16 == 1)
		update_signal(E, 1); /* fires at the next look, without an event */
	if (get_control(CWND) % 16 == 2)
		set_signal(F, 1);
	if (get_control(CWND) % 16 == 3)
		update_signal(H, 5); /* is left for the next run */
	if (get_control(CWND) % 16 == 4)
		update_signal(A, -1);
	if (get_control(CWND) % 16 == 5)
		set_signal(T, 0);
	if (get_control(CWND) % 16 == 6)
		update_signal(A, -get_signal(A)); /* nothing is left */
	if (get_control(CWND) % 16 == 7)
		update_signal(B, 0);
	if (get_control(CWND) % 16 == 8)
		set_signal(C, get_signal(C) + 2);
	if (get_control(CWND) % 16 == 9)
		update_signal(J, 3);
	if (get_control(CWND) % 16 == 10)
		set_signal(G, 12345);
	return PCM_SUCCESS;
}
`

// TestSync_looksAtWhatMayFire: the synchronous shell looks at most triggers only when their signal was touched, and keeps little of what changes
// between two flushes when every change makes the handler run. In any order of flushes, notes, serves and what tests poke it decides as the
// asynchronous one, which looks at all of them each time.
func TestSync_looksAtWhatMayFire(t *testing.T) {
	for _, c := range []struct {
		name, spec, source string
		triggers           int
		quick              bool
	}{{"every_trigger", everyTrigger, everyTriggerC, 8, false}, {"every_change", everyChange, everyChangeC, 7, true}} {
		t.Run(c.name, func(t *testing.T) {
			sync, async := written(t, c.name, c.spec, c.source, Options{}), written(t, c.name, c.spec, c.source, Options{Snapshot: "zero-skew"})
			if text, err := sync.Shell(); err != nil || strings.Contains(text, "pcm_quick(") != c.quick {
				t.Errorf("the shell is quick: %v, want %v (%v)", !c.quick, c.quick, err)
			}
			inAnyOrder(t, sync, async, c.triggers)
		})
	}
}

func inAnyOrder(t *testing.T, sync, async *built, triggers int) {
	var flows [2]*shell.Flow
	for i, b := range []*built{sync, async} {
		f, err := b.shell.NewFlow(0, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		flows[i] = f
	}
	rng := rand.New(rand.NewPCG(5, 6))
	now := uint64(0)
	for i := range 20_000 {
		now += rng.Uint64N(3000)
		in, how := anything(rng, now), rng.IntN(8)
		if rng.IntN(2) == 0 { // few sources at once, as events are
			in.Mask &= 1<<rng.IntN(20) | 1<<rng.IntN(20)
		}
		poked, value := rng.IntN(2), rng.Uint64N(4)
		var out [2]shell.Output
		var due [2]bool
		for k, f := range flows {
			switch how {
			case 0:
				due[k] = f.Note(in)
			case 1:
				due[k] = f.Serve(now, &out[k])
			case 2:
				if i%8 == 0 {
					f.Poke(shell.Signal, poked, value)
				}
				f.Read(&out[k])
			default:
				f.Flush(in, &out[k])
			}
		}
		if out[0] != out[1] || due[0] != due[1] {
			t.Fatalf("call %d, way %d, %+v: synchronous %+v %v, asynchronous %+v %v", i, how, *in, out[0], due[0], out[1], due[1])
		}
		if a, b := words(sync, flows[0]), words(async, flows[1]); i%64 == 0 && !slices.Equal(a, b) {
			t.Fatalf("after call %d %v and %v", i, a, b)
		}
	}
	for i := range triggers {
		if n := flows[0].Peek(shell.Variable, i); n == 0 {
			t.Errorf("trigger %d never fired", i)
		}
	}
	if a, b := words(sync, flows[0]), words(async, flows[1]); !slices.Equal(a, b) {
		t.Errorf("at the end %v and %v", a, b)
	}
}

// TestFlows_areTakenAgain: a flow of a synchronous shell that is destroyed is the next one's memory, of which it sees nothing; each
// flow begins a cache line.
func TestFlows_areTakenAgain(t *testing.T) {
	b := loadCounted(t, Options{})
	s := buildPackage(t, b, Options{}).shell
	var flows []*shell.Flow
	seen := map[uintptr]bool{}
	for range 1000 {
		f, err := s.NewFlow(0, 1)
		if err != nil {
			t.Fatal(err)
		}
		if seen[f.Handle()] || f.Handle()%64 != 0 {
			t.Fatalf("a flow at %#x", f.Handle())
		}
		seen[f.Handle()] = true
		in, out := &shell.Input{}, shell.Output{}
		give(in, pcm.ACK, 1)
		give(in, pcm.TXBytes, 9)
		f.Flush(in, &out)
		f.Note(in)
		flows = append(flows, f)
	}
	for _, f := range flows {
		f.Close()
	}
	for range 1000 {
		f, err := s.NewFlow(0, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if !seen[f.Handle()] {
			t.Fatalf("a flow at %#x, which is new", f.Handle())
		}
		delete(seen, f.Handle())
		var out shell.Output
		if f.Read(&out); out.CWND != 0 || out.Failed != 0 || f.Peek(shell.Variable, 0) != 0 || f.Peek(shell.Signal, 1) != 5 || f.Serve(0, &out) || out.Fired != 0 {
			t.Fatalf("a new flow has %+v, %d runs, signal %d", out, f.Peek(shell.Variable, 0), f.Peek(shell.Signal, 1))
		}
	}
}
