package onep

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/nicbackends/cpu"
	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/handlers"
	"github.com/pcmlab/pcmlab/pcm/handlers/handlertest"
	"github.com/pcmlab/pcmlab/pcm/shell"
)

// record and result are the engine's struct in and struct out (testdata/engine.c).
type record struct {
	Flow, Serve, Now    uint64
	Packets, Bytes, RTT uint64
}

type result struct{ Window, Rate, Published, Stopped uint64 }

var freestanding = []string{"-std=c11", "-O2", "-ffreestanding", "-nostdlib", "-mgeneral-regs-only", "-Wall", "-Werror"}

func compile(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("cc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// load reads a package of the library in Q32.32.
func load(t *testing.T, name string) *pcm.Package {
	t.Helper()
	p, err := handlers.Load(name, pcm.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	p.Format = pcm.Q32
	return p
}

// build compiles p's source as a device has it, sees what it needs, and links it with the engine.
func build(t *testing.T, p *pcm.Package, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := Write(p, dir); err != nil {
		t.Fatal(err)
	}
	object, program := filepath.Join(dir, "pcm_onep.o"), filepath.Join(dir, "program")
	compile(t, append(append(slices.Clone(freestanding), flags...), "-c", filepath.Join(dir, "pcm_onep.c"), "-o", object)...)
	needs(t, p.Name, "nm", object)
	compile(t, append(append([]string{"-O2", "-Wall", "-Werror", "-I", dir}, flags...), "testdata/engine.c", object, "-o", program, "-lpthread")...)
	return program
}

// needs sees that an object needs nothing but what the adapter declares.
func needs(t *testing.T, name, nm, object string) {
	t.Helper()
	out, err := exec.Command(nm, "-u", object).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, symbol := range strings.Fields(strings.ReplaceAll(string(out), " U ", " ")) {
		if !slices.Contains([]string{"onep_set_window", "onep_set_rate", "onep_stopped"}, symbol) {
			t.Errorf("%s needs %s", name, symbol)
		}
	}
}

func run(t *testing.T, program string, records []record) ([]result, string) {
	t.Helper()
	var in, out, said bytes.Buffer
	if err := binary.Write(&in, binary.LittleEndian, records); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	results := make([]result, len(records))
	if err := binary.Read(&out, binary.LittleEndian, results); err != nil {
		t.Fatal(err)
	}
	return results, said.String()
}

// accepted are the library's packages that the platform takes.
func accepted(t *testing.T) (names []string) {
	t.Helper()
	pl, err := pcm.PlatformNamed("onep")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range handlers.Names() {
		p := load(t, name)
		refused := slices.ContainsFunc(pl.Gaps(p), func(g pcm.Gap) bool { return g.Support == pcm.Refused })
		if !refused && pl.Wakes(p) {
			names = append(names, name)
		}
	}
	return names
}

// traffic notes from none to five events before each serving; of round trips at most one, when it is to say what others say of all of them.
func traffic(rng *rand.Rand, servings int, oneRTT bool) (all []record) {
	now := uint64(5_000_000_000)
	for flow := range uint64(3) {
		all = append(all, record{Flow: flow, Serve: 1, Now: now})
	}
	for range servings {
		flow := rng.Uint64N(3)
		for i := range rng.IntN(6) {
			e := record{Flow: flow, Packets: rng.Uint64N(40), RTT: 9000 + rng.Uint64N(80_000)}
			e.Bytes = 4096 * e.Packets
			if rng.IntN(5) == 0 || oneRTT && i > 0 {
				e.RTT = 0
			}
			all = append(all, e)
		}
		now += rng.Uint64N(9000)
		all = append(all, record{Flow: flow, Serve: 1, Now: now})
	}
	return all
}

// TestShell_decidesAsTheCPU: what the handler decides of events that were noted before it was served is what the CPU's shell decides when
// all of them are flushed at once, for each package of the library that the platform takes.
func TestShell_decidesAsTheCPU(t *testing.T) {
	names := accepted(t)
	if len(names) < 8 {
		t.Errorf("only %v", names)
	}
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			p := load(t, name)
			// The CPU's shell is told the last round trip of several: one that keeps the least is given one.
			extremes := slices.ContainsFunc(p.Signals, func(s pcm.Signal) bool { return s.Source == pcm.RTT && s.Accum != pcm.Last })
			trace := traffic(rand.New(rand.NewPCG(uint64(i), 5)), 3000, extremes)
			results, _ := run(t, build(t, p), trace)
			same(t, p, trace, results)
		})
	}
}

// same holds results against the CPU's shell.
func same(t *testing.T, p *pcm.Package, trace []record, results []result) {
	t.Helper()
	so := filepath.Join(t.TempDir(), p.Name+".so")
	if err := cpu.Build(t.Context(), p, so, cpu.Options{}); err != nil {
		t.Fatal(err)
	}
	s, err := shell.Open(so)
	if err != nil {
		t.Fatal(err)
	}
	flows, noted, runs := map[uint64]*shell.Flow{}, map[uint64]*shell.Input{}, 0
	for n, e := range trace {
		if flows[e.Flow] == nil {
			if flows[e.Flow], err = s.NewFlow(e.Now, e.Flow); err != nil {
				t.Fatal(err)
			}
			defer flows[e.Flow].Close()
			noted[e.Flow] = &shell.Input{}
		}
		in := noted[e.Flow]
		if e.Serve == 0 {
			if e.Packets > 0 {
				in.Mask |= 1<<pcm.ACK | 1<<pcm.DataTX
				in.ACK, in.DataTX = in.ACK+e.Packets, in.DataTX+e.Bytes
			}
			if e.RTT > 0 {
				in.Mask, in.RTT = in.Mask|1<<pcm.RTT, e.RTT
			}
			continue
		}
		var out shell.Output
		in.Now = e.Now
		flows[e.Flow].Flush(in, &out)
		noted[e.Flow] = &shell.Input{}
		r := results[n]
		for _, c := range p.Controls {
			if c.Kind == pcm.CWND && r.Window != out.CWND || c.Kind == pcm.Rate && r.Rate != out.Rate {
				t.Fatalf("record %d, %+v: window %d, rate %d; the CPU has %d, %d", n, e, r.Window, r.Rate, out.CWND, out.Rate)
			}
		}
		if first := n < 3; (r.Published > 0) != (first || out.Fired != 0) {
			t.Fatalf("record %d: published %d controls, the CPU's handler was made to run by %b", n, r.Published, out.Fired)
		}
		if out.Fired != 0 {
			runs++
		}
	}
	if runs < 500 {
		t.Errorf("%d runs", runs)
	}
}

// TestShell_keepsExtremes: of round trips that come together, signals of minima and maxima have the least and the largest; and another clock
// than ns is converted.
func TestShell_keepsExtremes(t *testing.T) {
	p := handlertest.Written(t, "extremes", "algorithm: {name: extremes}\nsignals:\n  - {name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1}\n"+
		"  - {name: LEAST, type: PCM_SIG_RTT, accumulation: PCM_SIG_ACCUM_MIN, initial_value: 2**64 - 1}\n  - {name: MOST, type: PCM_SIG_RTT, accumulation: PCM_SIG_ACCUM_MAX}\n  - {name: NEW, type: PCM_SIG_RTT, accumulation: PCM_SIG_ACCUM_LAST}\n"+
		"controls:\n  - {name: CWND, type: PCM_CTRL_CWND}\n  - {name: RATE, type: PCM_CTRL_RATE}\n", "#include \"pcmh.h\"\n#include \"extremes.h\"\nint algorithm_main()\n{\n"+
		"\tset_control(CWND, get_signal(LEAST) << 32 | get_signal(MOST));\n\tset_control(RATE, get_signal(NEW));\n\treturn PCM_SUCCESS;\n}\n")
	trace := []record{{Serve: 1, Now: 1}, {Packets: 1, RTT: 700}, {Packets: 1, RTT: 300}, {Packets: 1, RTT: 900}, {Packets: 1, RTT: 500}, {Serve: 1, Now: 2}, {Packets: 1, RTT: 600}, {Serve: 1, Now: 3}}
	for ticks, scale := range map[string]uint64{"1000": 1, "10000": 10} {
		results, _ := run(t, build(t, p, "-DONEP_TICK_PS="+ticks), trace)
		if got, want := results[5], (result{scale*300<<32 | scale*900, scale * 500, 2, 0}); got != want {
			t.Errorf("ticks of %s ps: %+v, want %+v", ticks, got, want)
		}
		if got, want := results[7], (result{scale*600<<32 | scale*600, scale * 600, 2, 0}); got != want {
			t.Errorf("ticks of %s ps, after a reset: %+v, want %+v", ticks, got, want)
		}
	}
}

const counting = "algorithm: {name: counting}\nsignals:\n  - {name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_type: PCM_SIG_TRIGGER_DELTA, trigger_threshold: 1, reset_upon_trigger: \"false\"}\n" +
	"  - {name: BYTES, type: PCM_SIG_DATA_TX, accumulation: PCM_SIG_ACCUM_SUM}\ncontrols:\n  - {name: CWND, type: PCM_CTRL_CWND}\n  - {name: RATE, type: PCM_CTRL_RATE}\nvariables:\n  - {name: TOTAL, type: uint}\n"

// TestShell_losesNothingOnThreads: four threads note while another one serves; packets, which are never reset, and bytes, which are at each
// run, add up in the end. The thread sanitizer sees no access that is not ordered.
func TestShell_losesNothingOnThreads(t *testing.T) {
	p := handlertest.Written(t, "counting", counting, "#include \"pcmh.h\"\n#include \"counting.h\"\nint algorithm_main()\n{\n\tset_var_uint(TOTAL, get_var_uint(TOTAL) + get_signal(BYTES));\n"+
		"\tset_control(CWND, get_var_uint(TOTAL));\n\tset_control(RATE, get_signal(ACK));\n\treturn PCM_SUCCESS;\n}\n")
	dir := t.TempDir()
	if _, err := Write(p, dir); err != nil {
		t.Fatal(err)
	}
	const events = 50_000
	want := fmt.Sprintf("window %d rate %d ", events*(1+2+3+4)+5, 4*events+1)
	for _, flags := range [][]string{{"-O1", "-g", "-fsanitize=thread"}, {"-O2"}} {
		program := filepath.Join(dir, "program")
		compile(t, append(slices.Clone(flags), "-std=c11", "-Wall", "-Werror", "-I", dir, filepath.Join(dir, "pcm_onep.c"), "testdata/engine.c", "-o", program, "-lpthread")...)
		ran := false
		for _, command := range [][]string{{"setarch", "-R", program}, {program}} { // the sanitizer's shadow memory may want addresses that are not random
			out, err := exec.Command(command[0], append(command[1:], "4", fmt.Sprint(events))...).CombinedOutput()
			if strings.Contains(string(out), "failed to set personality") || strings.Contains(string(out), "unexpected memory mapping") {
				continue
			}
			ran = true
			if err != nil || !strings.HasPrefix(string(out), want) {
				t.Errorf("%v: %v, want %q\n%s", command, err, want, out)
			}
			break
		}
		if !ran {
			t.Logf("%v cannot run here", flags)
		}
	}
}

// TestShell_failureStopsItsFlowOnly: said once, with the value; its controls stay, and other flows go on.
func TestShell_failureStopsItsFlowOnly(t *testing.T) {
	p := handlertest.Written(t, "counting", counting, "#include \"pcmh.h\"\n#include \"counting.h\"\nint algorithm_main()\n{\n\tset_control(CWND, get_signal(BYTES));\n\tset_control(RATE, get_signal(ACK));\n"+
		"\treturn get_signal(ACK) == 13 ? 42 : PCM_SUCCESS;\n}\n")
	trace := []record{{Serve: 1, Now: 1}, {Flow: 1, Serve: 1, Now: 1}, {Packets: 12}, {Serve: 1, Now: 2}, {Packets: 1}, {Serve: 1, Now: 3}, {Packets: 1}, {Serve: 1, Now: 4}, {Flow: 1, Packets: 14}, {Flow: 1, Serve: 1, Now: 5}}
	results, said := run(t, build(t, p), trace)
	if r := results[7]; r.Rate != 12 || r.Stopped != 42 || r.Published != 0 {
		t.Errorf("the stopped flow: %+v", r)
	}
	if r := results[9]; r.Rate != 14 || r.Stopped != 0 {
		t.Errorf("the other flow: %+v", r)
	}
	if said != "counting stopped on flow 0: 42\n" {
		t.Errorf("said %q", said)
	}
}

// TestWrite_refuses: objects that the transport is not known to have, sums of values, and contexts that are too small.
func TestWrite_refuses(t *testing.T) {
	sum := handlertest.Written(t, "sums", "algorithm: {name: sums}\nsignals:\n  - {name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1}\n  - {name: TIMES, type: PCM_SIG_RTT, accumulation: PCM_SIG_ACCUM_SUM}\n"+
		"controls:\n  - {name: CWND, type: PCM_CTRL_CWND}\n", "")
	for want, p := range map[string]*pcm.Package{
		"rtt_template/rtt_template.yaml:29:25: platform onep: control PROBE (PCM_CTRL_RTT_PROBE): nothing public says": load(t, "rtt_template"),
		"ops/ops.yaml:14:24: platform onep: control PATH (PCM_CTRL_EV): no entropy":                                    load(t, "ops"),
		"sums.yaml:4:52: platform onep: signal TIMES (PCM_SIG_RTT): of round trips that come together":                 sum,
	} {
		dir := t.TempDir()
		if _, err := Write(p, dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%v were written", left)
		}
	}
	dir := t.TempDir()
	if _, err := Write(load(t, "swift"), dir); err != nil {
		t.Fatal(err)
	}
	args := append(slices.Clone(freestanding), "-DONEP_CONTEXT_BYTES=128", "-c", filepath.Join(dir, "pcm_onep.c"), "-o", "/dev/null")
	if out, err := exec.Command("cc", args...).CombinedOutput(); err == nil || !strings.Contains(string(out), "the engine keeps too little for a flow of this handler") {
		t.Errorf("128 bytes for a flow: %v\n%s", err, out)
	}
}

// TestWrite_compilesForRISCV: a processor without floating point, where the compiler for one is.
func TestWrite_compilesForRISCV(t *testing.T) {
	const cc = "riscv64-linux-gnu-gcc"
	if _, err := exec.LookPath(cc); err != nil {
		t.Skipf("%v", err)
	}
	for _, name := range []string{"swift", "cubic", "bbr"} {
		dir := t.TempDir()
		if _, err := Write(load(t, name), dir); err != nil {
			t.Fatal(err)
		}
		object := filepath.Join(dir, "pcm_onep.o")
		args := []string{"-std=c11", "-O2", "-ffreestanding", "-nostdlib", "-march=rv64ima", "-mabi=lp64", "-Wall", "-Werror", "-c", filepath.Join(dir, "pcm_onep.c"), "-o", object}
		if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		needs(t, name, "riscv64-linux-gnu-nm", object)
	}
}

// TestAdapter_saysThatItIsAStandIn: whoever opens the header, or the folder's source, reads it first.
func TestAdapter_saysThatItIsAStandIn(t *testing.T) {
	dir := t.TempDir()
	if _, err := Write(load(t, "swift"), dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "onep_adapter.h"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(text), "/*\n * A STAND-IN. Nothing about the programming interface of Microsoft's 1P NIC is public") {
		t.Error("it does not")
	}
}
