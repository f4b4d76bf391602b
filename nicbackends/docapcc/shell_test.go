package docapcc

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/shell"
)

// counting is a handler whose rate is the packets acknowledged so far, so that with a line of 2^20 the rate that is set counts them.
func counting(t *testing.T) *pcm.Package {
	t.Helper()
	p := written(t, "counting", "algorithm: {name: counting}\nsignals:\n  - {name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_type: PCM_SIG_TRIGGER_DELTA, trigger_threshold: 1, reset_upon_trigger: \"false\"}\n"+
		"controls:\n  - {name: RATE, type: PCM_CTRL_RATE, initial_value: 1}\n",
		"#include \"pcmh.h\"\n#include \"counting.h\"\nint algorithm_main()\n{\n\tset_control(RATE, get_signal(ACK) + 1);\n\treturn PCM_SUCCESS;\n}\n")
	p.Fabric = fabric(t, "FABRIC_LINK_RATE_GBPS", "1310.72")
	return p
}

// TestDevice_everyConstruct: minima, maxima, magnitudes, loopback, signals that are reset or set, arrays and random numbers, as the CPU's
// shell has them.
func TestDevice_everyConstruct(t *testing.T) {
	p := written(t, "everything", `algorithm: {name: everything}
constants:
  - {name: HALF, type: frac, value: 0.5}
signals:
  - {name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 40}
  - {name: BYTES, type: PCM_SIG_DATA_TX, accumulation: PCM_SIG_ACCUM_SUM, reset_upon_trigger: "false"}
  - {name: LEAST, type: PCM_SIG_RTT, accumulation: PCM_SIG_ACCUM_MIN, initial_value: 2**64 - 1}
  - {name: MOST, type: PCM_SIG_RTT, accumulation: PCM_SIG_ACCUM_MAX, trigger_op: ">", trigger_threshold: 90000}
  - {name: JUMP, type: PCM_SIG_RTT, accumulation: PCM_SIG_ACCUM_LAST, trigger_type: PCM_SIG_TRIGGER_MAGNITUDE, trigger_threshold: 20000, reset_upon_trigger: "false"}
  - {name: FLIGHT, type: PCM_SIG_IN_FLIGHT, accumulation: PCM_SIG_ACCUM_MAX, initial_value: 7}
  - {name: MORE, type: PCM_SIG_LOOPBACK, accumulation: PCM_SIG_ACCUM_LAST, trigger_threshold: 1, reset_upon_trigger: "false"}
  - {name: NOW, type: PCM_SIG_ELAPSED_TIME, accumulation: PCM_SIG_ACCUM_LAST, trigger_type: PCM_SIG_TRIGGER_DELTA, trigger_threshold: 300000, reset_upon_trigger: "false"}
controls:
  - {name: CWND, type: PCM_CTRL_CWND, initial_value: 5000}
  - {name: RATE, type: PCM_CTRL_RATE, initial_value: 2**64 - 1}
variables:
  - {name: RING, type: uint, arr_len: 8, initial_value: 3}
  - {name: SHARE, type: frac, initial_value: 1.25}
  - {name: N, type: uint}
`, `#include "pcmh.h"
#include "pcm_arith.h"
#include "everything.h"
int algorithm_main()
{
	pcm_uint fired = get_signal_trigger_mask(), n = get_var_uint(N) + 1;

	set_var_uint(N, n);
	set_arr_uint(RING, n & 7, RAND() ^ get_signal(LEAST));
	set_var_frac(SHARE, frac_mul(get_var_frac(SHARE), HALF) + FRAC(0.75));
	if (fired & ACK)
		set_signal(ACK, get_signal(ACK) & 7);
	if (fired & JUMP)
		update_signal(BYTES, 17);
	if (fired & NOW && n % 5 == 0)
		set_signal(NOW, 0);
	set_signal(MORE, n % 3 == 0);
	set_signal(FLIGHT, n);
	set_control(CWND, get_signal(BYTES) % 100000 + get_arr_uint(RING, fired & 7) % 4096 + get_signal(FLIGHT) + get_signal(MOST));
	set_control(RATE, frac_scale(get_arr_uint(RING, n & 7) % 9000, get_var_frac(SHARE)));
	return PCM_SUCCESS;
}
`)
	trace := traffic(rand.New(rand.NewPCG(11, 4)), 4, 8000)
	got, s := build(t, p, "-DPCM_DIAGNOSE").run(trace), shellOf(t, p)
	flows, reduced, seen := map[uint32]*shell.Flow{}, map[uint32]*reduction{}, uint64(0)
	for n, e := range trace {
		if got[n].Called == 0 {
			continue
		}
		if flows[e.Flow] == nil {
			f, err := s.NewFlow(e.Time, uint64(e.Flow))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			flows[e.Flow], reduced[e.Flow] = f, &reduction{mtu: 4096}
		}
		var out shell.Output
		flows[e.Flow].Flush(reduced[e.Flow].input(e), &out)
		if r := got[n]; r.Fired != out.Fired || r.CWND != out.CWND || r.ControlRate != out.Rate {
			t.Fatalf("event %d, %+v: fired %b, window %d, rate %d; the CPU %b, %d, %d", n, e, r.Fired, r.CWND, r.ControlRate, out.Fired, out.CWND, out.Rate)
		}
		seen |= out.Fired
	}
	if seen != 1<<0|1<<3|1<<4|1<<6|1<<7 {
		t.Errorf("fired %b: not every trigger did", seen)
	}
}

// TestDevice_countsWhatIsCoalesced: one event of n acknowledgements is n packets and n MTUs, at the edges of the field's 16 bits, and none
// is less than itself; the MTU is a parameter.
func TestDevice_countsWhatIsCoalesced(t *testing.T) {
	p := written(t, "bytes", "algorithm: {name: bytes}\nsignals:\n  - {name: ACKED, type: PCM_SIG_DATA_TX, accumulation: PCM_SIG_ACCUM_SUM, trigger_type: PCM_SIG_TRIGGER_DELTA, trigger_threshold: 1, reset_upon_trigger: \"false\"}\n"+
		"  - {name: N, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, reset_upon_trigger: \"false\"}\n  - {name: FLIGHT, type: PCM_SIG_IN_FLIGHT, accumulation: PCM_SIG_ACCUM_LAST, reset_upon_trigger: \"false\"}\n"+
		"controls:\n  - {name: CWND, type: PCM_CTRL_CWND}\n  - {name: RATE, type: PCM_CTRL_RATE}\n",
		"#include \"pcmh.h\"\n#include \"bytes.h\"\nint algorithm_main()\n{\n\tset_control(CWND, get_signal(ACKED));\n\tset_control(RATE, get_signal(N) << 32 | get_signal(FLIGHT));\n\treturn PCM_SUCCESS;\n}\n")
	var bytes, packets, sent uint64
	trace := []record{{Kind: tx, Time: 1, Count: 65535}}
	want := []uint64{0}
	sent = 65535 * 32
	var flight []uint64
	flight = append(flight, sent)
	mtu := uint64(4096)
	add := func(n uint32, counts uint64) {
		trace = append(trace, record{Kind: ack, Time: uint64(len(trace)) * 1000, Count: n})
		packets, bytes = packets+counts, bytes+counts*mtu
		sent -= min(sent, counts*mtu)
		want, flight = append(want, bytes), append(flight, sent)
	}
	add(1, 1)
	add(0, 1)
	add(63, 63)
	add(110, 110)
	add(65535, 65535)
	trace = append(trace, record{Kind: setParameter, Count: paramMTU, Flags: 1024})
	want, flight = append(want, bytes), append(flight, sent)
	mtu = 1024
	trace = append(trace, record{Kind: tx, Time: 1_000_000, Count: 64})
	want, flight, sent = append(want, bytes), append(flight, 2048), 2048
	add(1, 1)
	results := build(t, p, "-DPCM_DIAGNOSE").run(trace)
	for i, r := range results {
		if trace[i].Kind != ack {
			continue
		}
		if r.CWND != want[i] || r.ControlRate&(1<<32-1) != flight[i] {
			t.Errorf("event %d: %d bytes acknowledged and %d in flight, want %d and %d", i, r.CWND, r.ControlRate&(1<<32-1), want[i], flight[i])
		}
	}
	last := results[len(results)-1]
	if last.ControlRate>>32 != packets {
		t.Errorf("%d packets, want %d", last.ControlRate>>32, packets)
	}
	if got := uint64(last.Ctx[ctxSent+1])<<32 | uint64(last.Ctx[ctxSent]); got != sent {
		t.Errorf("the flow's 48 bytes say that %d are outstanding, want %d", got, sent)
	}
}

// TestRate_edges: bits per 100 ns in 2^-20 of the line, rounded down, never nothing and never more than all of it.
func TestRate_edges(t *testing.T) {
	values := []uint64{0, 1, 2, 95, 96, 9999, 10000, 10001, 39999, 79999, 80000, 80001, 1 << 20, 1 << 44, 1<<64 - 1}
	var b strings.Builder
	for _, v := range values {
		fmt.Fprintf(&b, "UINT64_C(%d), ", v)
	}
	p := written(t, "edges", "algorithm: {name: edges}\nsignals:\n  - {name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1}\ncontrols:\n  - {name: RATE, type: PCM_CTRL_RATE, initial_value: 2**64 - 1}\nvariables:\n  - {name: I, type: uint}\n",
		"#include \"pcmh.h\"\n#include \"edges.h\"\nstatic const pcm_uint pcm_values[] = {"+b.String()+"};\nint algorithm_main()\n{\n\tset_control(RATE, pcm_values[get_var_uint(I) % "+strconv.Itoa(len(values))+"]);\n\tset_var_uint(I, get_var_uint(I) + 1);\n\treturn PCM_SUCCESS;\n}\n")
	e := build(t, p)
	for _, line := range []uint64{10000, 80000, 1, 1 << 20} {
		trace := []record{{Kind: setParameter, Count: paramLine, Flags: uint32(line)}, {Kind: tx, Time: 1}}
		for i := range values {
			trace = append(trace, record{Kind: ack, Time: uint64(i + 2), Count: 1})
		}
		results := e.run(trace)
		if results[0].Val != 0 {
			t.Fatalf("a line of %d is refused", line)
		}
		if results[1].Rate != 1<<20 {
			t.Errorf("line %d: a flow begins at %d", line, results[1].Rate)
		}
		for i, v := range values {
			want := uint64(1 << 20)
			if v < line {
				want = max(1, v<<20/line)
			}
			if got := results[i+2].Rate; uint64(got) != want {
				t.Errorf("%d bits of %d: %d, want %d", v, line, got, want)
			}
		}
	}
	// The parameter before the port's speed before the deployment's.
	trace := []record{{Kind: tx, Time: 1}}
	for range 6 { // 9999 bits
		trace = append(trace, record{Kind: ack, Time: 2, Count: 1})
	}
	speed := func(more ...record) uint32 { return e.run(append(more, trace...))[len(more)+6].Rate }
	if got, want := speed(), uint32(9999<<20/10000); got != want {
		t.Errorf("the deployment's line: %d, want %d", got, want)
	}
	if got, want := speed(record{Kind: portSpeed, Flags: 400}), uint32(9999<<20/40000); got != want {
		t.Errorf("a port of 400 Gbit/s: %d, want %d", got, want)
	}
	if got, want := speed(record{Kind: portSpeed, Flags: 400}, record{Kind: setParameter, Count: paramLine, Flags: 20000}), uint32(9999<<20/20000); got != want {
		t.Errorf("the parameter: %d, want %d", got, want)
	}
}

// TestParameters: what is out of range is refused whole, and flows of other slots are the library's.
func TestParameters(t *testing.T) {
	e := build(t, counting(t))
	for i, r := range e.run([]record{
		{Kind: setParameter, Count: paramMTU, Flags: 63}, {Kind: setParameter, Count: paramMTU, Flags: 16385}, {Kind: setParameter, Count: paramLine, Flags: 1<<20 + 1},
		{Kind: setParameter, Count: paramTimeout, Flags: 0}, {Kind: setParameter, Count: 3, Flags: 1},
	}) {
		if r.Val == 0 {
			t.Errorf("value %d was taken", i)
		}
	}
	if r := e.run([]record{{Kind: otherSlot, Time: 1}})[0]; r.Rate != 12345 || r.Ctx != [12]uint32{} {
		t.Errorf("a flow of another slot: rate %d, %v", r.Rate, r.Ctx)
	}
	if !strings.Contains(e.said, "handler counting, hash ") || !strings.Contains(e.said, "algorithm 0: pcm counting ") {
		t.Errorf("it does not say what it is: %q", e.said)
	}
}

// TestTicks is the paper's example (figure 4): a device that counts 10 ns makes 1510 of them 151 PCM ticks, which is above 150, and cuts off
// what is left of 1509.
func TestTicks(t *testing.T) {
	p := written(t, "high", "algorithm: {name: high}\nsignals:\n  - {name: HIGH_RTT, type: PCM_SIG_RTT, accumulation: PCM_SIG_ACCUM_LAST, trigger_op: \">\", trigger_threshold: 150}\n"+
		"controls:\n  - {name: RATE, type: PCM_CTRL_RATE}\n", "#include \"pcmh.h\"\n#include \"high.h\"\nint algorithm_main()\n{\n\tset_control(RATE, get_signal(HIGH_RTT));\n\treturn PCM_SUCCESS;\n}\n")
	p.Fabric = fabric(t, "time_unit", "tick", "FABRIC_BRTT", "140")
	e := build(t, p, "-DPCM_TICK_PS=10000", "-DPCM_DIAGNOSE")
	e.ticks = "100"
	trace := []record{{Kind: tx, Time: 100_000}}
	for i, ticks := range []uint32{1500, 1509, 1510, 1519} {
		at := uint64(200_000 + 10_000*i)
		trace = append(trace, record{Kind: rtt, Time: at, Sent: uint32(at) - ticks})
	}
	for i, want := range []uint64{0, 0, 0, 151, 151} {
		if r := e.run(trace)[i]; i > 0 && (r.Fired != want/151 || r.ControlRate != want) {
			t.Errorf("event %d: fired %d, %d PCM ticks, want %d", i, r.Fired, r.ControlRate, want)
		}
	}
}

// TestFailure_stopsItsFlowOnly: a handler that fails is named once, with flow and value; its flow keeps its rate and asks for no more
// probes, and other flows go on.
func TestFailure_stopsItsFlowOnly(t *testing.T) {
	p := written(t, "fails", "algorithm: {name: fails}\nsignals:\n  - {name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1, reset_upon_trigger: \"false\"}\n  - {name: RTT, type: PCM_SIG_RTT, accumulation: PCM_SIG_ACCUM_LAST}\n"+
		"controls:\n  - {name: CWND, type: PCM_CTRL_CWND, initial_value: 65536}\n", "#include \"pcmh.h\"\n#include \"fails.h\"\nint algorithm_main()\n{\n\tset_control(CWND, 4096 * get_signal(ACK));\n\treturn get_signal(ACK) == 3 ? 42 : PCM_SUCCESS;\n}\n")
	e := build(t, p)
	trace := []record{{Flow: 1, Kind: tx, Time: 10}, {Flow: 2, Kind: tx, Time: 20}}
	for i := range uint64(6) {
		trace = append(trace, record{Flow: 1, Kind: ack, Time: 100 + 10*i, Count: 1}, record{Flow: 2, Kind: ack, Time: 105 + 10*i, Count: 4})
	}
	trace = append(trace, record{Flow: 1, Kind: rtt, Time: 100_000, Sent: 50_000}, record{Flow: 2, Kind: rtt, Time: 100_001, Sent: 50_001})
	results, counts := e.counters(trace)
	kept := results[4].Rate // after two acknowledgements
	for i, r := range results[6 : len(results)-2] {
		if trace[i+6].Flow == 1 && r.Rate != kept {
			t.Errorf("event %d: the stopped flow has rate %d, had %d", i+6, r.Rate, kept)
		}
		if trace[i+6].Flow == 2 && r.Rate == results[3].Rate {
			t.Errorf("event %d: the other flow stays at %d", i+6, r.Rate)
		}
	}
	one, two := results[len(results)-2], results[len(results)-1]
	if one.Rate != kept || one.Probe != 0 || one.Ctx[ctxFailed] != 42 {
		t.Errorf("the stopped flow, at a round trip: rate %d, probe %d, failed %d", one.Rate, one.Probe, one.Ctx[ctxFailed])
	}
	if two.Probe != 1 || two.Ctx[ctxFailed] != 0 {
		t.Errorf("the other flow: probe %d, failed %d", two.Probe, two.Ctx[ctxFailed])
	}
	if counts[handlersFailed] != 1 || strings.Count(e.said, "handler fails failed on flow 0x1: it returned 42") != 1 || strings.Contains(e.said, "0x2") {
		t.Errorf("counted %d, said %q", counts[handlersFailed], e.said)
	}
}

// TestProbes_lost: one probe is on its way. When it does not leave with three bursts, or no answer comes, there is another, later each time;
// an answer to one that was given up is a sample that starts no second one.
func TestProbes_lost(t *testing.T) {
	e := build(t, load(t, "swift", nil, nil))
	us := uint64(1000)
	type step struct {
		record
		probe uint32
		why   string
	}
	steps := []step{
		{record{Kind: tx, Time: 100 * us}, 1, "a flow begins with a probe"},
		{record{Kind: tx, Time: 110 * us}, 0, "it did not leave yet"},
		{record{Kind: tx, Time: 120 * us}, 0, "nor now"},
		{record{Kind: tx, Time: 130 * us}, 1, "three bursts without it: asked for again"},
		{record{Kind: tx, Time: 140 * us, Flags: probeLeft}, 0, "it leaves"},
		{record{Kind: tx, Time: 430 * us}, 0, "290 us are not too long"},
		{record{Kind: tx, Time: 445 * us}, 1, "305 us are: lost"},
		{record{Kind: tx, Time: 450 * us, Flags: probeLeft}, 0, "the second leaves"},
		{record{Kind: tx, Time: 1040 * us}, 0, "590 us: the timeout has doubled"},
		{record{Kind: tx, Time: 1060 * us}, 1, "610 us: lost"},
		{record{Kind: tx, Time: 1070 * us, Flags: probeLeft}, 0, "the third leaves"},
		{record{Kind: rtt, Time: 1080 * us, Sent: uint32(449 * us)}, 0, "a late answer to the second"},
		{record{Kind: rtt, Time: 1090 * us, Sent: uint32(1069 * us)}, 1, "the third's answer: the next one"},
		{record{Kind: tx, Time: 1100 * us, Flags: probeLeft}, 0, "it leaves"},
		{record{Kind: tx, Time: 1405 * us}, 1, "305 us: the timeout is the first again"},
		{record{Kind: rtt, Time: 1410 * us, Sent: uint32(1099 * us)}, 0, "a late answer, while another one is asked for"},
		{record{Kind: tx, Time: 1420 * us, Flags: probeLeft}, 0, "it leaves"},
		{record{Kind: rtt, Time: 1421 * us, Sent: uint32(1421 * us), Received: 5, Answered: 9000}, 1, "an answer that measures nothing: the next one"},
		{record{Kind: rtt, Time: 1440 * us, Sent: uint32(1422 * us)}, 1, "an answer before the burst was reported that it left with"},
	}
	var trace []record
	for _, s := range steps {
		trace = append(trace, s.record)
	}
	results, counts := e.counters(trace)
	for i, s := range steps {
		if results[i].Probe != s.probe {
			t.Errorf("step %d at %d us: probe %d, want %d: %s", i, s.Time/us, results[i].Probe, s.probe, s.why)
		}
	}
	if counts[rttTimeouts] != 3 || counts[rttSamples] != 4 || counts[rttNotValid] != 1 {
		t.Errorf("%d timeouts, %d samples, %d that are not valid; want 3, 4, 1", counts[rttTimeouts], counts[rttSamples], counts[rttNotValid])
	}
	if last := results[len(results)-1]; last.Ctx[ctxRTT] != 18_000 {
		t.Errorf("the flow's 48 bytes have a round trip of %d", last.Ctx[ctxRTT])
	}
}

// TestProbes_asTheHandlerSays: a handler with the control asks itself, once for each run that sets it.
func TestProbes_asTheHandlerSays(t *testing.T) {
	e := build(t, load(t, "rtt_template", nil, nil))
	us := uint64(1000)
	steps := []struct {
		record
		probe uint32
	}{
		{record{Kind: tx, Time: 100 * us, Count: 1}, 0},                       // the handler runs, and says that its first one is on the way
		{record{Kind: cnp, Time: 110 * us, Count: 1}, 0},                      // runs: no probe
		{record{Kind: rtt, Time: 120 * us, Sent: uint32(105 * us)}, 1},        // an answer: the next one
		{record{Kind: 1, Time: 125 * us}, 0},                                  // does not run: what it said last is not said again
		{record{Kind: tx, Time: 130 * us, Count: 1}, 0},                       // a burst
		{record{Kind: tx, Time: 900 * us, Count: 1, Flags: 0}, 1},             // its timeout
		{record{Kind: nack, Time: 910 * us, Count: 1}, 0},                     // runs: no probe
		{record{Kind: rtt, Time: 930 * us, Sent: uint32(930*us - 15_000)}, 1}} // the next one
	var trace []record
	for _, s := range steps {
		trace = append(trace, s.record)
	}
	for i, r := range e.run(trace) {
		if r.Probe != steps[i].probe {
			t.Errorf("step %d: probe %d, want %d", i, r.Probe, steps[i].probe)
		}
	}
	// A handler that sees neither round trips nor windows has no use for one.
	if r := build(t, counting(t)).run([]record{{Kind: tx, Time: 1}, {Kind: tx, Time: 2}, {Kind: tx, Time: 3}, {Kind: tx, Time: 4}, {Kind: tx, Time: 5}}); r[0].Probe+r[1].Probe+r[4].Probe != 0 {
		t.Errorf("probes for nobody: %v", r)
	}
}

// TestPool: a flow without a place is left at line rate and counted, gets one when another flow was idle for long, and begins anew then; so
// does the one that lost it; and a flow whose queue pair is new begins anew, too.
func TestPool(t *testing.T) {
	e := build(t, counting(t), "-DPCM_FLOWS=3", "-DPCM_IDLE_US=1000", "-DPCM_RETRY_US=100")
	var trace []record
	var want []uint32
	ms := uint64(1_000_000)
	send := func(flow uint32, at uint64, rate uint32) {
		trace, want = append(trace, record{Flow: flow, Kind: ack, Time: at, Count: 1}), append(want, rate)
	}
	for flow := range uint32(3) {
		send(flow, 100, 2)
		send(flow, 200, 3)
	}
	send(3, 300, 1<<20)
	send(4, 400, 1<<20)
	send(3, 500, 1<<20)     // not looked for again so soon, nor counted again
	send(3, 200_300, 1<<20) // looked for in vain
	send(0, 2*ms, 4)        // stays
	send(3, 2*ms+1, 2)      // takes the place of 1 or 2, which are idle
	send(3, 2*ms+2, 3)      //
	send(4, 2*ms+3, 2)      // takes the other one
	send(1, 2*ms+4, 1<<20)  // lost its own, and there is none
	send(0, 2*ms+5, 5)      //
	send(1, 4*ms, 2)        // takes one of those that are idle now
	send(2, 4*ms+1, 2)      //
	send(1, 4*ms+2, 3)      //
	trace, want = append(trace, record{Flow: 1, Kind: newFlow}), append(want, 0)
	send(1, 4*ms+3, 2) // another queue pair in the same 48 bytes: the third place
	results, counts := e.counters(trace)
	for i, r := range results {
		if trace[i].Kind == ack && r.Rate != want[i] {
			t.Errorf("step %d, flow %d at %d: rate %d, want %d", i, trace[i].Flow, trace[i].Time, r.Rate, want[i])
		}
	}
	// Without a place: 3 and 4 at first, and 1 when it came back.
	if counts[flowsGiven] != 8 || counts[placesReclaimed] != 5 || counts[flowsWithout] != 3 {
		t.Errorf("%d places given, %d of them again, %d flows without; want 8, 5, 3", counts[flowsGiven], counts[placesReclaimed], counts[flowsWithout])
	}
}

// TestPool_foreignContext: what another program left in the 48 bytes is no place of this one's.
func TestPool_foreignContext(t *testing.T) {
	e := build(t, counting(t), "-DPCM_FLOWS=3")
	for _, left := range []uint32{1, 2, 3, 4, 77, 0x80000000, 0xffffffff} {
		results := e.run([]record{{Flow: 1, Kind: ack, Time: 5_000_000_000, Count: 5}, {Flow: 2, Kind: newFlow, Flags: left}, {Flow: 2, Kind: ack, Time: 5_000_000_100, Count: 1},
			{Flow: 2, Kind: ack, Time: 5_000_000_200, Count: 1}, {Flow: 1, Kind: ack, Time: 5_000_000_300, Count: 1}})
		if results[2].Rate != 2 || results[3].Rate != 3 || results[4].Rate != 7 || results[3].Ctx[ctxPlace] == results[4].Ctx[ctxPlace] {
			t.Errorf("words of %#x: rates %d, %d and %d of the other flow, want 2, 3, 7; places %d and %d", left, results[2].Rate, results[3].Rate, results[4].Rate, results[3].Ctx[ctxPlace], results[4].Ctx[ctxPlace])
		}
	}
}

var flowLine = regexp.MustCompile(`(?m)^flow (\d+) rate (\d+) (\d+) \d+ \d+ \d+ \d+ \d+ \d+ (\d+)`)

// TestPool_threads: threads reserve places at once, and again when all flows were idle and as many new ones come. No two flows have one
// place under one lease, and each flow's count is its own, without one lost. The thread sanitizer sees no access that is not ordered.
func TestPool_threads(t *testing.T) {
	const threads, flows, events = 4, 64, 8000
	for _, places := range []int{flows, flows / 2, 8} {
		t.Run(strconv.Itoa(places), func(t *testing.T) {
			out := onThreads(t, places, "1000", strconv.Itoa(threads), strconv.Itoa(flows), strconv.Itoa(events))
			owners, placed, without := map[string]string{}, 0, 0
			for _, m := range flowLine.FindAllStringSubmatch(out, -1) {
				flow, rate, place, lease := m[1], m[2], m[3], m[4]
				if place == "0" {
					if rate != strconv.Itoa(1<<20) {
						t.Errorf("flow %s has no place and rate %s", flow, rate)
					}
					without++
					continue
				}
				placed++
				if n, _ := strconv.Atoi(place); n > places {
					t.Errorf("flow %s has place %s of %d", flow, place, places)
				}
				key := place + " lease " + lease
				if owners[key] != "" {
					t.Errorf("flows %s and %s both have place %s", owners[key], flow, key)
				}
				owners[key] = flow
				if places == flows && rate != strconv.Itoa(expected(flow, threads, flows, events)) {
					t.Errorf("flow %s counted to %s, want %d", flow, rate, expected(flow, threads, flows, events))
				}
			}
			if placed+without != flows {
				t.Fatalf("%d flows of %d\n%s", placed+without, flows, out)
			}
			if places == flows && without > 0 {
				t.Errorf("%d flows without a place though there are enough", without)
			}
			if places == 8 && without == 0 {
				t.Error("every flow has a place though there are too few")
			}
		})
	}
}

// onThreads runs the emulator's threads under the thread sanitizer, whose shadow memory may want that addresses are not random; a machine
// that lets it have neither runs them without.
func onThreads(t *testing.T, places int, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := Write(counting(t), dir); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"-O1", "-g", "-fsanitize=thread"}, {"-O2"}} {
		program := filepath.Join(dir, "program")
		compile(t, append(flags, "-std=c11", "-Wall", "-Werror", "-I", "testdata/doca", "-DPCM_IDLE_US=1000000", "-DPCM_FLOWS="+strconv.Itoa(places),
			filepath.Join(dir, "device", "pcm_dev.c"), emulatorObject(t, flags...), "-o", program, "-lpthread")...)
		for _, before := range [][]string{{"setarch", "-R"}, nil} {
			command := append(append(before, program), args...)
			out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
			if strings.Contains(string(out), "failed to set personality") || strings.Contains(string(out), "unexpected memory mapping") {
				t.Logf("%v: %s", command, out)
				continue
			}
			if err != nil {
				t.Fatalf("%v: %v\n%s", command, err, out)
			}
			return string(out)
		}
	}
	t.Fatal("the threads cannot be run")
	return ""
}

// expected is the count of a flow that always had its place: those of the first half send in each round, those of the second half in
// every second one of the later half.
func expected(flow string, threads, flows, events int) int {
	n, _ := strconv.Atoi(flow)
	n %= flows / threads
	half, count := flows/threads/2, 1
	for i := range events {
		f := i % half
		if i >= events/2 && i/half%2 == 1 {
			f += half
		}
		if f == n {
			count++
		}
	}
	return count
}

// TestCounters_changes: a run that made another rate is counted, the first one of a flow not, which only begins it.
func TestCounters_changes(t *testing.T) {
	e := build(t, counting(t))
	var trace []record
	for i := range uint64(6) {
		trace = append(trace, record{Flow: 1, Kind: ack, Time: 1000 * (i + 1), Count: 1})
	}
	trace = append(trace, record{Flow: 1, Kind: tx, Time: 9000, Count: 1}) // runs nothing
	if _, counts := e.counters(trace); counts[handlerRuns] != 6 || counts[rateChanges] != 5 {
		t.Errorf("%d runs, %d changes; want 6 and 5", counts[handlerRuns], counts[rateChanges])
	}
}
