package uccl

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/nicbackends/cpu/glue/gluetest"
	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/handlers"
	"github.com/pcmlab/pcmlab/pcm/handlers/handlertest"
)

// Flows begin at 0 by their own clock, which is the trace's, and are numbered as they are made.
var platform = gluetest.Platform{Name: "uccl", Write: Write, Include: "testdata/transport", Driver: "testdata/driver.cpp",
	Start: func(i int, _ uint64) (uint64, uint64) { return 0, uint64(i) }}

func TestMain(m *testing.M) { os.Exit(platform.Main(m)) }

const mtu = 4096

// TestWrite_refusals: what the platform lacks is named, for each package of the library, and nothing is written.
func TestWrite_refusals(t *testing.T) {
	platform.Refuses(t, "rtt_template", "platform uccl: control PROBE (PCM_CTRL_RTT_PROBE): it measures")
	marks := handlertest.Written(t, "marks", "algorithm: {name: marks}\nsignals:\n  - {name: ECN, type: PCM_SIG_ECN, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1}\n",
		"#include \"pcmh.h\"\n#include \"marks.h\"\nint algorithm_main()\n{\n\treturn PCM_SUCCESS;\n}\n")
	if _, err := Write(marks, filepath.Join(t.TempDir(), "marks")); err == nil || !strings.Contains(err.Error(), "marks would never run") {
		t.Errorf("a handler that only marks wake: %v", err)
	}
}

// TestWrite_silent: what never comes is said, and what does, from where.
func TestWrite_silent(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(platform.Folder(t, gluetest.Load(t, "dctcp", nil)), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| ECN | PCM_SIG_ECN | never: its fabric carries no ECN |", "| ACK | PCM_SIG_ACK | packets of the chunks"} {
		if !strings.Contains(string(readme), want) {
			t.Errorf("README.md has no line %q", want)
		}
	}
}

// rows is a trace that the hook points can deliver: acknowledgements of chunks, retransmissions, timeouts, chunks that leave or want a path.
func rows(p *pcm.Package, flows, n int) (all []gluetest.Row) {
	g := gluetest.Rand(p.Name)
	if p.Kind == "receiver_cc" {
		targets, now := slices.Repeat([]uint64{100_000_000}, flows), uint64(0)
		for i := range n {
			now += g.Uint64N(3000)
			if g.IntN(4) == 0 {
				targets[i%flows] += 64 * g.Uint64N(5) // whole quanta
			}
			all = append(all, gluetest.Row{T: now, Values: map[string]uint64{"pull_target": targets[i%flows]}})
		}
		return all
	}
	poll, looked := gluetest.Poll(p), make([]uint64, flows)
	now := uint64(10_000)
	for range n {
		now += g.Uint64N(4000)
		// The transport looks at clocks when it asks what may leave.
		flow := len(all) % flows
		v := map[string]uint64{"in_flight": g.Uint64N(200_000)}
		switch kind := g.IntN(100); {
		case kind < 50:
			bytes := 1 + g.Uint64N(5*65536)
			v["data_tx"], v["ack"] = bytes, (bytes+mtu-1)/mtu
			if g.IntN(8) > 0 {
				v["ack_ev"] = g.Uint64N(32)
			}
			if g.IntN(5) > 0 {
				v["rtt"] = 5_000 + g.Uint64N(150_000)
			}
		case kind < 60:
			bytes := 1 + g.Uint64N(65536)
			v["nack"], v["data_nacked"], v["nack_ev"] = (bytes+mtu-1)/mtu, bytes, g.Uint64N(32)
		case kind < 63:
			v["rto"], v["nack_ev"] = 1, g.Uint64N(32)
		case kind < 75 && poll != 0:
			if now-looked[flow] < poll {
				continue
			}
			looked[flow], v = now, nil
		case kind < 80:
			if poll != 0 && now-looked[flow] >= poll { // a look of its own comes before what leaves
				looked[flow] = now
				all = append(all, gluetest.Row{T: now})
				continue
			}
			v["tx_bytes"] = 1 + g.Uint64N(mtu)
			v["tx_backlog_bytes"], v["in_flight"] = 0, v["tx_bytes"]
		default:
			v["tx_ready_pkts"] = 1
		}
		if v["tx_ready_pkts"] == 1 && p.Kind != "lb" {
			continue // nobody asks for a path
		}
		all = append(all, gluetest.Row{T: now, Values: v})
	}
	return all
}

// TestGlue_equalsTheShell: every package that the platform takes, three flows side by side, on the same trace. Asynchronous shells that are served at
// once decide as synchronous ones.
func TestGlue_equalsTheShell(t *testing.T) {
	object := platform.DriverObject(t)
	for _, name := range handlers.Names() {
		if name == "rtt_template" {
			continue // refused
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := gluetest.Load(t, name, nil)
			const flows = 3
			csv := gluetest.CSV(rows(p, flows, 600))
			want, calls := platform.Want(t, p, csv, flows, false)
			mode := "trace"
			if p.Kind == "receiver_cc" {
				mode = "credit"
			}
			for _, p := range []*pcm.Package{p, apart(t, p)} {
				got := gluetest.RunIn(t, []string{"PCM_WORKER=off"}, csv, platform.Link(t, object, platform.Folder(t, p), name), mode, strconv.Itoa(flows))
				switch name {
				case "ecmp", "dcqcn", "scala_nic": // one path a flow; without marks their controls do not move
					if !slices.Equal(strings.Fields(got), strings.Fields(strings.Join(want, " "))) {
						t.Errorf("%v: the glue has\n%s\nthe shell has\n%s", p.Snapshot, got, strings.Join(want, "\n"))
					}
				default:
					gluetest.Same(t, csv, got, want, calls)
				}
			}
		})
	}
}

func constant(t *testing.T, name, controls string) *pcm.Package {
	return handlertest.Written(t, name, "algorithm: {name: "+name+"}\nsignals:\n  - {name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1}\ncontrols:\n"+controls,
		"#include \"pcmh.h\"\n#include \""+name+".h\"\nint algorithm_main()\n{\n\treturn PCM_SUCCESS;\n}\n")
}

// TestGlue_budget: what may leave is bounded by the window, the chunk, the flow and the engine, and is no smaller than it need be.
func TestGlue_budget(t *testing.T) {
	object := platform.DriverObject(t)
	run := func(name, controls string, args ...string) []string {
		p := constant(t, name, controls)
		return strings.Split(strings.TrimSpace(gluetest.Run(t, "", platform.Link(t, object, platform.Folder(t, p), name), append([]string{"budget"}, args...)...)), "\n")
	}
	const k = 1024
	cases := []struct {
		reason             string
		left, flow, engine int
		want               string
	}{
		{"a whole chunk", 500 * k, 0, 0, "65536"},
		{"the rest of a message", 1000, 0, 0, "1000"},
		{"the rest of the window", 500 * k, 90 * k, 90 * k, "10240"},
		{"the window is full", 500 * k, 100 * k, 100 * k, "0"},
		{"and over-full, as after a decrease", 500 * k, 120 * k, 120 * k, "0"},
		{"less than a packet is not worth it", 500 * k, 99 * k, 99 * k, "0"},
		{"but the rest of a message is", 1000, 99 * k, 99 * k, "1000"},
		{"the engine is full", 500 * k, 0, 768 * k, "0"},
		{"the engine is nearly full, the flow is within its share", 500 * k, 0, 600 * k, "65536"},
		{"the engine is nearly full, the flow has its share", 500 * k, 95 * k, 700 * k, "5120"},
	}
	var args []string
	for _, c := range cases {
		args = append(args, strconv.Itoa(c.left), strconv.Itoa(c.flow), strconv.Itoa(c.engine))
	}
	got := run("w100", "  - {name: W, type: PCM_CTRL_CWND, initial_value: 102400}\n", args...)
	for i, c := range cases {
		if got[i] != c.want {
			t.Errorf("%s: %s bytes, want %s", c.reason, got[i], c.want)
		}
	}
	if last := got[len(got)-1]; last != "queued 0 at 0 path 31" {
		t.Errorf("a window paces nothing and leaves paths to the transport: %s", last)
	}
	if got := run("tiny", "  - {name: W, type: PCM_CTRL_CWND, initial_value: 100}\n", "500000", "0", "0", "500000", "4096", "4096"); got[0] != "4096" || got[1] != "0" {
		t.Errorf("a window below a packet: %v", got)
	}
	// 1000 bits in 100 ns are 1.25 GB/s; path 37 of 32 is 5.
	if got := run("both", "  - {name: R, type: PCM_CTRL_RATE, initial_value: 1000}\n  - {name: E, type: PCM_CTRL_EV, initial_value: 37}\n", "500000", "0", "0"); got[0] != "65536" || got[1] != "queued 1 at 1250000000 path 5" {
		t.Errorf("a rate and a path: %v", got)
	}
}

// TestWrite_anyName: a package may have the name of a function of its shell.
func TestWrite_anyName(t *testing.T) {
	object := platform.DriverObject(t)
	for _, name := range []string{"one", "flush", "info"} {
		p := constant(t, name, "  - {name: W, type: PCM_CTRL_CWND, initial_value: 4096}\n")
		if got := gluetest.Run(t, "", platform.Link(t, object, platform.Folder(t, p), name), "budget", "500000", "0", "0"); !strings.HasPrefix(got, "4096\n") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestGlue_asReadmeSays compiles a folder as its README says and runs it under the sanitizers.
func TestGlue_asReadmeSays(t *testing.T) {
	p := gluetest.Load(t, "swift_uccl", nil)
	dir, out := platform.Folder(t, p), t.TempDir()
	driver, err := os.ReadFile(platform.Driver)
	if err != nil {
		t.Fatal(err)
	}
	main, object := filepath.Join(out, "main.cpp"), filepath.Join(out, "shell.o")
	if err := os.WriteFile(main, append([]byte("#include \"swift_uccl_handler.h\"\n"), driver...), 0o644); err != nil {
		t.Fatal(err)
	}
	sane := []string{"-fsanitize=address,undefined", "-fno-sanitize-recover=all"}
	gluetest.Compile(t, "gcc", append(sane, "-std=gnu11", "-O3", "-fPIC", "-fno-math-errno", "-ffp-contract=off", "-c", filepath.Join(dir, "swift_uccl_shell.c"), "-o", object)...)
	program := filepath.Join(out, "driver")
	gluetest.Compile(t, "g++", append(append(platform.CXX(dir, platform.RowsHeader(t)), sane...), "-o", program, main, object, "-lm")...)
	csv := gluetest.CSV(rows(p, 2, 300))
	want, calls := platform.Want(t, p, csv, 2, false)
	gluetest.Same(t, csv, gluetest.Run(t, csv, program, "trace", "2"), want, calls)
}
