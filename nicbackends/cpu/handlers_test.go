package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/handlers"
	"github.com/pcmlab/pcmlab/pcm/handlers/handlertest"
	"github.com/pcmlab/pcmlab/pcm/shell"
)

// written builds a package from its texts.
func written(t *testing.T, name, yaml, c string, o Options) *built {
	t.Helper()
	return buildPackage(t, handlertest.Written(t, name, yaml, c), o)
}

// TestTriggers_vectors: each case is a package of its own, whose handler notes what it sees, in each kind of shell.
func TestTriggers_vectors(t *testing.T) {
	type signal struct {
		Accum, Mode string
		Init        uint64
		Thr         *uint64
	}
	var v struct {
		Cases []struct {
			Name    string
			Signals map[string]signal
			Steps   []struct {
				I any
				O struct {
					Mask     uint64
					Fired    []string
					Snapshot map[string]uint64
				}
			}
		}
	}
	loadVectors(t, "triggers.json", &v)
	sources := map[string]pcm.Source{"ACK": pcm.ACK, "RTT": pcm.RTT, "RTT_MIN": pcm.RTT, "RTT_MAX": pcm.RTT, "NEEDS_MORE": pcm.Loopback, "PULL_TARGET": pcm.PullTarget,
		"Q": pcm.Queue, "NACK": pcm.NACK, "RTO": pcm.RTO, "ACK_BYTES": pcm.DataTX, "HIGH_RTT": pcm.RTT}
	// The order of declaration, which JSON's objects do not keep, follows from the masks of the file.
	order := []string{"ACK", "RTT", "RTT_MIN", "RTT_MAX", "NEEDS_MORE", "PULL_TARGET", "Q", "NACK", "RTO", "ACK_BYTES", "HIGH_RTT"}
	for _, c := range v.Cases {
		t.Run(c.Name, func(t *testing.T) {
			var yaml, body, vars strings.Builder
			fmt.Fprintf(&yaml, "algorithm: {name: noted}\nsignals:\n")
			for _, name := range order {
				s, ok := c.Signals[name]
				if !ok {
					continue
				}
				fmt.Fprintf(&yaml, "  - {name: %s, type: %s, accumulation: PCM_SIG_ACCUM_%s, initial_value: %d, reset_upon_trigger: \"false\"", name, sources[name], s.Accum, s.Init)
				if s.Thr != nil {
					fmt.Fprintf(&yaml, ", trigger_type: PCM_SIG_TRIGGER_%s, trigger_threshold: %d", s.Mode, *s.Thr)
				}
				fmt.Fprintf(&yaml, "}\n")
				fmt.Fprintf(&vars, "  - {name: SEEN_%s, type: uint}\n", name)
				fmt.Fprintf(&body, "\tset_var_uint(SEEN_%s, get_signal(%s));\n", name, name)
			}
			for _, o := range append([]Options{{}}, policies...) {
				b := written(t, "noted", yaml.String()+"variables:\n"+vars.String(), "#include \"pcmh.h\"\n#include \"noted.h\"\nint algorithm_main()\n{\n"+body.String()+"\treturn PCM_SUCCESS;\n}\n", o)
				f, err := b.shell.NewFlow(0, 1)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(f.Close)
				r := &run{T: t, built: b, flow: f}
				in := &shell.Input{}
				for i, step := range c.Steps {
					if step.I == "poll" {
						f.Flush(in, &r.seen)
						in = &shell.Input{}
						if r.seen.Fired != step.O.Mask {
							t.Errorf("%s, poll %d: mask %b, want %b %v", o.Snapshot, i, r.seen.Fired, step.O.Mask, step.O.Fired)
						}
						for name, want := range step.O.Snapshot {
							part, at := r.at(name)
							if got := f.Peek(part, at); got != want {
								t.Errorf("%s, poll %d: %s is %d, want %d", o.Snapshot, i, name, got, want)
							}
							part, at = r.at("SEEN_" + name)
							if got := f.Peek(part, at); r.seen.Fired != 0 && got != want {
								t.Errorf("%s, poll %d: the handler saw %s as %d, want %d", o.Snapshot, i, name, got, want)
							}
						}
						continue
					}
					// A flush checks triggers, too. So what has one waits for the poll, as a datapath that coalesces holds it back, and the rest goes in at once.
					now := &shell.Input{}
					for name, v := range step.I.(map[string]any)["ev"].(map[string]any) {
						source, n := sources[name], uint64(v.(float64))
						switch s := c.Signals[name]; {
						case s.Thr == nil:
							give(now, source, n)
						case s.Accum == "SUM" && in.Mask&(1<<source) != 0:
							give(in, source, in.ACK+n) // of the file's signals with sums, only ACK comes twice
						default:
							give(in, source, n)
						}
					}
					f.Flush(now, &r.seen)
					if r.seen.Fired != 0 && now.Mask != 0 {
						t.Errorf("%s, step %d: fired %b without a trigger", o.Snapshot, i, r.seen.Fired)
					}
				}
			}
		})
	}
}

// xxh64 is XXH64 with seed 0 of fewer than 32 bytes, as its specification has it.
func xxh64(b []byte) uint64 {
	const p1, p2, p3, p4, p5 = 11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261
	h := uint64(p5) + uint64(len(b))
	for ; len(b) >= 8; b = b[8:] {
		h ^= bits.RotateLeft64(binary.LittleEndian.Uint64(b)*p2, 31) * p1
		h = bits.RotateLeft64(h, 27)*p1 + p4
	}
	for ; len(b) >= 4; b = b[4:] {
		h ^= uint64(binary.LittleEndian.Uint32(b)) * p1
		h = bits.RotateLeft64(h, 23)*p2 + p3
	}
	for _, c := range b {
		h ^= uint64(c) * p5
		h = bits.RotateLeft64(h, 11) * p1
	}
	h ^= h >> 33
	h *= p2
	h ^= h >> 29
	h *= p3
	return h ^ h>>32
}

// TestHash_isXXH64: the oracle is held against values that XXH64 is known by, and HASH against the oracle.
func TestHash_isXXH64(t *testing.T) {
	for text, want := range map[string]uint64{"": 0xef46db3751d8e999, "a": 0xd24ec4f1a98c6e5b, "abc": 0x44bc2cf5ad770999} {
		if got := xxh64([]byte(text)); got != want {
			t.Fatalf("the oracle gives %#x for %q, want %#x", got, text, want)
		}
	}
	b := written(t, "hashed", "algorithm: {name: hashed}\nsignals:\n  - {name: Q, type: PCM_SIG_QUEUE, accumulation: PCM_SIG_ACCUM_LAST}\n"+
		"  - {name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1}\nvariables:\n  - {name: H, type: uint}\n",
		"#include \"pcmh.h\"\n#include \"hashed.h\"\nint algorithm_main()\n{\n\tset_var_uint(H, HASH(get_signal(Q)));\n\treturn PCM_SUCCESS;\n}\n", Options{})
	f, err := b.shell.NewFlow(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	values := []uint64{0, 1, math.MaxUint64, 0x0123456789abcdef}
	for range 1000 {
		values = append(values, rng.Uint64())
	}
	var out shell.Output
	for _, v := range values {
		f.Flush(&shell.Input{Mask: 1<<pcm.Queue | 1<<pcm.ACK, Queue: v, ACK: 1}, &out)
		if got, want := f.Peek(shell.Variable, 0), xxh64(binary.LittleEndian.AppendUint64(nil, v)); got != want {
			t.Fatalf("HASH(%#x) is %#x, want %#x", v, got, want)
		}
	}
}

// TestRandom_followsTheSeed: the same seed gives the same paths, another one others, and a constant expression may take its place.
func TestRandom_followsTheSeed(t *testing.T) {
	b := build(t, "ops", map[string]string{"PATHS": "64"}, Options{})
	paths := func(seed uint64) (all []uint64) {
		f, err := b.shell.NewFlow(0, seed)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var out shell.Output
		for range 256 {
			f.Flush(&shell.Input{Mask: 1 << pcm.TXReadyPackets, TXReadyPackets: 1}, &out)
			all = append(all, out.EV)
		}
		return all
	}
	first := paths(7)
	if !slices.Equal(first, paths(7)) {
		t.Error("one seed, two sequences")
	}
	if slices.Equal(first, paths(8)) {
		t.Error("two seeds, one sequence")
	}
	for round := range 4 { // each takes every path once
		seen := map[uint64]bool{}
		for _, p := range first[64*round : 64*round+64] {
			seen[p] = true
		}
		if len(seen) != 64 {
			t.Errorf("round %d took %d paths of 64", round, len(seen))
		}
	}
}

// TestHandlers_areFreestanding: without floating point, C library or compiler library, every handler of the library compiles without a
// warning and needs nothing else, in both formats that have its range.
func TestHandlers_areFreestanding(t *testing.T) {
	dir := t.TempDir()
	for name, data := range pcm.RuntimeHeaders() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range handlers.Names() {
		p, err := handlers.Load(name, pcm.Deployment{})
		if err != nil {
			t.Fatal(err)
		}
		source, err := p.ReadFile(p.C[0])
		if err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{p.Name + ".h": p.Header(), p.Name + ".c": string(source)} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		formats := []pcm.Format{pcm.Q32, pcm.Q42}
		if !fractions(p) {
			formats = formats[:1]
		}
		for _, f := range formats {
			unit, object := filepath.Join(dir, "unit.c"), filepath.Join(dir, "unit.o")
			text := fmt.Sprintf("#define PCM_NO_LIBC\n#define PCM_NO_FLOAT\n%s#include \"%s.c\"\nint entry(pcm_uint *s, pcm_uint *v);\nint entry(pcm_uint *s, pcm_uint *v) { return __algorithm_main(s, v); }\n",
				fracDefines(f), p.Name)
			if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			args := []string{"-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-ffreestanding", "-mgeneral-regs-only", "-I", dir, "-c", unit, "-o", object}
			if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
				t.Errorf("%s in %v: %v\n%s", name, f, err, out)
				continue
			}
			if out, err := exec.Command("nm", "-u", object).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s in %v needs %s (%v)", name, f, out, err)
			}
		}
	}
}

// TestSwift_breaksInQ16 shows what Q16.16 lacks, which is range: with the window in fractions it wraps at 32 KiB and begins again at
// one packet, in the very sequence of the reference (ALGORITHMS.md, C.5); the other formats do not.
func TestSwift_breaksInQ16(t *testing.T) {
	var v struct {
		Loop map[string]any `json:"ai_loop_60_acks"`
	}
	loadVectors(t, "fixedpoint.json", &v)
	// In ticks of 100 ns, so that delays have the range that windows lack.
	ticks := map[string]string{"BASE": "140", "FS_RANGE": "701", "MIN_CWND": "4150", "CWND": "4150", "MSS": "4096"}
	windows := map[pcm.Format][]float64{}
	for name, f := range map[string]pcm.Format{"double": pcm.FormatFloat, "q16_16": pcm.Q16, "q32_32": pcm.Q32, "q42_22": pcm.Q42} {
		b := build(t, "swift_divide", ticks, Options{Frac: f.String()})
		flow, err := b.shell.NewFlow(0, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer flow.Close()
		var out shell.Output
		for i, want := range v.Loop[name].([]any) {
			flow.Flush(&shell.Input{Mask: 1<<pcm.DataTX | 1<<pcm.RTT, Now: uint64(i) * 150, DataTX: 4096, RTT: 150}, &out)
			windows[f] = append(windows[f], float64(out.CWND))
			if math.Abs(float64(out.CWND)-want.(float64)) > 2 {
				t.Errorf("%v: after %d packets the window is %d, want %v", f, i+1, out.CWND, want)
			}
		}
	}
	wrapped := slices.Index(windows[pcm.Q16][1:], 4150) + 1
	if wrapped == 0 || windows[pcm.Q16][wrapped-1] < 32000 || slices.Max(windows[pcm.Q16]) >= 32768 {
		t.Errorf("Q16.16 does not wrap at 32 KiB: %v", windows[pcm.Q16])
	}
	if slices.Max(windows[pcm.Q42]) < 45000 || slices.Max(windows[pcm.Q32]) < 45000 {
		t.Error("the other formats do not reach 45 kB")
	}
}

// TestSwift_driftsLittle runs a closed loop with Swift's noise of a queue for 10^4 steps: fixed point stays within 1e-4 of floating point
// (ALGORITHMS.md, C.5).
func TestSwift_driftsLittle(t *testing.T) {
	trajectory := func(f pcm.Format) []uint64 {
		b := build(t, "swift", nil, Options{Frac: f.String()})
		flow, err := b.shell.NewFlow(0, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer flow.Close()
		rng := rand.New(rand.NewPCG(3, 4))
		var all []uint64
		out := shell.Output{CWND: 4150}
		now := uint64(0)
		for range 10_000 {
			rtt := uint64(14_023+rng.IntN(20_000)) + max(out.CWND, 100_000)/10 // the queue grows with the window
			now += 2_000
			flow.Flush(&shell.Input{Mask: 1<<pcm.DataTX | 1<<pcm.RTT, Now: now, DataTX: 4096, RTT: rtt}, &out)
			all = append(all, out.CWND)
		}
		return all
	}
	want := trajectory(pcm.FormatFloat)
	for _, f := range []pcm.Format{pcm.Q32, pcm.Q42} {
		worst := 0.0
		for i, w := range trajectory(f) {
			worst = max(worst, math.Abs(float64(w)-float64(want[i]))/float64(want[i]))
		}
		t.Logf("%v: at most %.2g off floating point", f, worst)
		if worst > 1e-4 {
			t.Errorf("%v is %.2g off floating point", f, worst)
		}
	}
	if lo, hi := slices.Min(want[1000:]), slices.Max(want[1000:]); lo == hi {
		t.Error("the window never moved")
	}
}

// TestFormat_isPartOfTheHash: another representation is another shell, for packages that have fractions.
func TestFormat_isPartOfTheHash(t *testing.T) {
	hash := func(name, format string) string {
		p, err := handlers.Load(name, pcm.Deployment{})
		if err != nil {
			t.Fatal(err)
		}
		if p, err = (Options{Frac: format}).Package(p); err != nil {
			t.Fatal(err)
		}
		h, err := p.Hash()
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	seen := map[string]string{}
	for _, f := range pcm.Formats() {
		h := hash("swift", f.String())
		if other, ok := seen[h]; ok {
			t.Errorf("%v and %s have one hash", f, other)
		}
		seen[h] = f.String()
		if hash("newreno", f.String()) != hash("newreno", "") {
			t.Errorf("newreno has no fractions, but %v changes its hash", f)
		}
	}
	if hash("swift", "") != hash("swift", "float") {
		t.Error("float is not the default")
	}
	if _, err := (Options{Frac: "q8.8"}).Package(nil); err == nil || !strings.Contains(err.Error(), "q32.32") {
		t.Errorf("q8.8 is no representation: %v", err)
	}
	b := build(t, "swift", nil, Options{Frac: "q32.32"})
	if b.shell.Hash != hash("swift", "q32.32") {
		t.Error("the shell does not say the hash of its representation")
	}
}

// bbrPath is what BBR made of a path.
type bbrPath struct {
	goodput, waiting float64 // bits per tick, ns in the queue on average
	modes            map[float64]bool
}

// overPath runs BBR over a path of 10 Gbit/s and 1 ms whose acknowledgements come in bursts, so far apart (0: at once).
func overPath(t *testing.T, burst float64, set map[string]string) bbrPath {
	const capacity, delay, step = 1000.0, 1e6, 20e3 // bits per tick, ns, ns
	b := build(t, "bbr", set, Options{})
	f, err := b.shell.NewFlow(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := &run{T: t, built: b, flow: f}
	samples, modes := 0.0, map[float64]bool{}
	arrived := make([]float64, int(delay/step)) // bytes on their way back
	var queue, inFlight, delivered, queued, held float64
	r.seen = shell.Output{CWND: 10 * 4096, Rate: 10000}
	for i := range int(11e9 / step) {
		sent := min(float64(r.seen.Rate)*step/100/8, max(0, float64(r.seen.CWND)-inFlight))
		inFlight += sent
		out := min(queue+sent, capacity*step/100/8)
		queue += sent - out
		held += arrived[i%len(arrived)]
		arrived[i%len(arrived)] = out
		acked := 0.0
		if burst == 0 || i%int(burst/step) == 0 {
			acked, held = held, 0
		}
		inFlight -= acked
		in := &shell.Input{Now: uint64(float64(i) * step)}
		if acked >= 1 {
			give(in, pcm.DataTX, uint64(acked))
			longer := 0.0 // another path after half a second: the least delay is not seen again
			if float64(i)*step > 5e8 {
				longer = 5000
			}
			give(in, pcm.RTT, uint64(delay+longer+queue*8*100/capacity))
			give(in, pcm.InFlight, uint64(max(inFlight, 0)))
		}
		f.Flush(in, &r.seen)
		modes[r.get("MODE")] = true
		if s := float64(i) * step; s > 1e9 && s < 9e9 {
			delivered += acked
			queued += queue
			samples++
		}
	}
	p := bbrPath{delivered * 8 * 100 / 8e9, queued / samples * 8 * 100 / capacity, modes}
	t.Logf("goodput %.1f of %.0f bits per tick, %.0f us in the queue on average", p.goodput, capacity, p.waiting/1000)
	if p.goodput < 0.95*capacity {
		t.Errorf("goodput %.1f of %.0f", p.goodput, capacity)
	}
	return p
}

// wideArea are BBR's times of the Internet, which a path of 1 ms in the library's data centre does not have.
var wideArea = map[string]string{"MIN_RTT_WINDOW": "10000000 * FABRIC_US", "PROBE_RTT_TIME": "200000 * FABRIC_US"}

// TestBBR_findsTheBottleneck: it takes the bandwidth with little queue, and looks for the least delay after ten seconds.
func TestBBR_findsTheBottleneck(t *testing.T) {
	p := overPath(t, 0, wideArea)
	if p.waiting > 0.5e6 {
		t.Errorf("%.0f us in the queue on average, of a path of 1000", p.waiting/1000)
	}
	for mode, name := range map[float64]string{0: "startup", 1: "drain", 2: "probing for bandwidth", 3: "probing for delay"} {
		if !p.modes[mode] {
			t.Errorf("never in %s", name)
		}
	}
}

// TestBBR_burstsOfAcknowledgements: where acknowledgements come together, three round trips apart, a window of two round trips lets the path
// run empty, and the bandwidth that is measured then makes the next window smaller.
func TestBBR_burstsOfAcknowledgements(t *testing.T) {
	overPath(t, 3e6, wideArea)
}

// TestWindows_areBounded: a source that is slower than its window lets it grow at every acknowledgement, up to what the deployment calls the
// largest window and not beyond. A window of hours of acknowledgements would take as long to react.
func TestWindows_areBounded(t *testing.T) {
	own := map[string]uint64{
		"swift_uccl": 1 << 20, // that transport's
		"bbr":        600_000, // 2.885 times the bandwidth that it measures, some packets, and what acknowledgements brought together
	}
	for _, name := range handlers.Names() {
		p, err := handlers.Load(name, pcm.Deployment{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(p.Controls, func(c pcm.Control) bool { return c.Kind == pcm.CWND }) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			b := build(t, name, nil, Options{})
			f, err := b.shell.NewFlow(0, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var out shell.Output
			for i := range uint64(100_000) {
				in := &shell.Input{Now: (i + 1) * 5000}
				give(in, pcm.ACK, 1)
				give(in, pcm.DataTX, 4096)
				give(in, pcm.RTT, 14100) // of an idle fabric
				give(in, pcm.InFlight, 8192)
				f.Flush(in, &out)
			}
			most := own[name]
			if most == 0 {
				most = 262926 // FABRIC_MAX_CWND of the library
			}
			if out.CWND > most {
				t.Errorf("the window is %d bytes after 100000 packets of a source with two under way, the largest one is %d", out.CWND, most)
			}
		})
	}
}
