package htsim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
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

var platform = gluetest.Platform{Name: "htsim", Write: Write, Include: "testdata/sim", Driver: "testdata/driver.cpp",
	Start: func(i int, t0 uint64) (uint64, uint64) { return t0, uint64(i + 1) }}

const mtu = 4150

// driver is compiled once: what a folder has of C++ is the same in all of them.
func driver(t *testing.T) string { return platform.DriverObject(t) }

func TestMain(m *testing.M) { os.Exit(platform.Main(m)) }

// TestWrite_refusals: what the platform lacks is named, for each package of the library, and nothing is written.
func TestWrite_refusals(t *testing.T) {
	platform.Refuses(t, "rtt_template", "platform htsim: control PROBE (PCM_CTRL_RTT_PROBE): round trips come")
}

// generator makes rows that the hook points can deliver.
type generator struct {
	*rand.Rand
	poll, next, now uint64
	cnp             uint64 // last one
	marked          bool
	rows            []gluetest.Row
}

func (g *generator) row(values map[string]uint64) {
	for ; g.poll != 0 && g.next <= g.now; g.next += g.poll {
		g.rows = append(g.rows, gluetest.Row{T: g.next})
	}
	g.rows = append(g.rows, gluetest.Row{T: g.now, Values: values})
}

// rows is a trace for a package of one kind: acknowledgements with and without marks, trims, timeouts, packets that are sent or want a path.
func rows(p *pcm.Package, flows, n int) []gluetest.Row {
	g := &generator{Rand: gluetest.Rand(p.Name), now: 5000, poll: gluetest.Poll(p)}
	g.next = g.now + g.poll
	if p.Kind == "receiver_cc" {
		targets := slices.Repeat([]uint64{100_000_000}, flows)
		for i := range n {
			g.now += g.Uint64N(3000)
			if g.IntN(3) == 0 {
				targets[i%flows] += g.Uint64N(300)
			}
			g.rows = append(g.rows, gluetest.Row{T: g.now, Values: map[string]uint64{"pull_target": targets[i%flows]}})
		}
		return g.rows
	}
	type mark struct {
		seen bool
		at   uint64
	}
	marks := make([]mark, flows) // CNPs are a flow's own
	for i := range n {
		if i > 0 {
			g.now += g.Uint64N(4000) // the first row is when the flows begin
		}
		v := map[string]uint64{"in_flight": g.Uint64N(200_000)}
		switch kind := g.IntN(100); {
		case kind < 50:
			bytes := 1 + g.Uint64N(20_000)
			v["data_tx"], v["ack"], v["ack_ev"] = bytes, (bytes+mtu-1)/mtu, g.Uint64N(64)
			if g.IntN(5) > 0 {
				v["rtt"] = 14_000 + g.Uint64N(60_000)
			}
			if g.IntN(4) == 0 {
				v["ecn"], v["ecn_ev"] = 1, v["ack_ev"]
			}
		case kind < 60:
			v["nack"], v["data_nacked"], v["nack_ev"] = 1, 64+g.Uint64N(mtu-64), g.Uint64N(64)
		case kind < 63:
			v["rto"] = 1
			if p.Kind == "lb" { // the simulator says path 0 when it does not know the path
				v["nack_ev"] = 0
			}
		case kind < 80:
			v["tx_bytes"], v["tx_backlog_bytes"] = 64+g.Uint64N(mtu-64), g.Uint64N(1<<20)
		default:
			v["tx_ready_pkts"], v["tx_backlog_bytes"] = 1, g.Uint64N(1<<20)
		}
		g.row(v)
		if v["ecn"] == 1 {
			m := &marks[(len(g.rows)-1)%flows]
			if !m.seen || g.now-m.at >= 50_000 {
				m.seen, m.at = true, g.now
				v["cnp"] = 1
			}
		}
	}
	return g.rows
}

// TestGlue_equalsTheShell: every package that the platform takes, three flows side by side, on the same trace. With an engine that takes no time
// asynchronous shells decide as synchronous ones.
func TestGlue_equalsTheShell(t *testing.T) {
	object := driver(t)
	for _, name := range handlers.Names() {
		if name == "rtt_template" {
			continue // refused
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := gluetest.Load(t, name, nil)
			const flows = 3
			csv := gluetest.CSV(rows(p, flows, 600))
			want, calls := platform.Want(t, p, csv, flows, true)
			mode := "trace"
			if p.Kind == "receiver_cc" {
				mode = "credit"
			}
			for _, p := range []*pcm.Package{p, apart(t, p)} {
				got := gluetest.Run(t, csv, platform.Link(t, object, platform.Folder(t, p), name), mode, strconv.Itoa(flows))
				if name == "ecmp" {
					if !slices.Equal(strings.Fields(got), strings.Fields(strings.Join(want, " "))) {
						t.Errorf("%v: the glue has\n%s\nthe shell has\n%s", p.Snapshot, got, strings.Join(want, "\n"))
					}
					continue // one path a flow: its controls do not move
				}
				gluetest.Same(t, csv, got, want, calls)
			}
		})
	}
}

// TestGlue_asReadmeSays compiles a folder, with another one beside it, as their READMEs say, and runs both on one flow under the sanitizers. One
// shell is asynchronous, and the other one is not.
func TestGlue_asReadmeSays(t *testing.T) {
	swift, reps := gluetest.Load(t, "swift", nil), gluetest.Load(t, "reps", nil)
	dirs := []string{platform.Folder(t, apart(t, swift)), platform.Folder(t, reps)}
	out := t.TempDir()
	main := filepath.Join(out, "main.cpp")
	driver, err := os.ReadFile(platform.Driver)
	if err != nil {
		t.Fatal(err)
	}
	text := "#include \"swift_handler.h\"\n#include \"reps_handler.h\"\n" + string(driver)
	if err := os.WriteFile(main, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	sane := []string{"-fsanitize=address,undefined", "-fno-sanitize-recover=all"}
	args := append(append(platform.CXX(dirs[0], dirs[1], platform.RowsHeader(t)), sane...), "-o", filepath.Join(out, "both"), main)
	for i, name := range []string{"swift", "reps"} {
		object := filepath.Join(out, name+".o")
		gluetest.Compile(t, "gcc", append(sane, "-std=gnu11", "-O1", "-fno-math-errno", "-ffp-contract=off", "-c", filepath.Join(dirs[i], name+"_shell.c"), "-o", object)...)
		args = append(args, object)
	}
	gluetest.Compile(t, "g++", append(args, "-lm")...)
	both := filepath.Join(out, "both")
	csv := gluetest.CSV(rows(swift, 1, 300))
	window, _ := platform.Want(t, swift, csv, 1, true)
	got := strings.Split(strings.TrimSpace(gluetest.Run(t, csv, both, "trace", "1")), "\n")
	paths := map[string]bool{}
	for i, line := range got {
		f := strings.Fields(line)
		if want := strings.Fields(window[i])[0]; f[0] != want {
			t.Fatalf("row %d: window %s beside reps, %s alone", i+1, f[0], want)
		}
		paths[f[2]] = true
	}
	if len(paths) < 10 {
		t.Errorf("reps chose %d paths", len(paths))
	}
	gluetest.Run(t, "", both, "edges")
	gluetest.Run(t, "", both, "message", "415000", "20000000")
}

func constant(t *testing.T, name, controls string) *pcm.Package {
	return handlertest.Written(t, name, "algorithm: {name: "+name+"}\nsignals:\n  - {name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1}\ncontrols:\n"+controls,
		"#include \"pcmh.h\"\n#include \""+name+".h\"\nint algorithm_main()\n{\n\treturn PCM_SUCCESS;\n}\n")
}

// TestGlue_windowAndPace: a window of three packets is never exceeded and used; at 50 Gbit/s packets of 4150 bytes leave every 664 ns; a
// window below a packet lets one go.
func TestGlue_windowAndPace(t *testing.T) {
	object := driver(t)
	run := func(name, controls string) (times []int, most int) {
		p := constant(t, name, controls)
		out := gluetest.Run(t, "", platform.Link(t, object, platform.Folder(t, p), name), "message", fmt.Sprint(20*mtu), "20000000")
		for line := range strings.Lines(out) {
			f := strings.Fields(line)
			v, err := strconv.Atoi(f[len(f)-1])
			if err != nil {
				t.Fatal(err)
			}
			if f[0] == "most" {
				most = v
			} else {
				times = append(times, v)
			}
		}
		if len(times) != 20 {
			t.Fatalf("%s: %d packets of 20", name, len(times))
		}
		return times, most
	}
	if times, most := run("three", "  - {name: W, type: PCM_CTRL_CWND, initial_value: 12450}\n"); most != 3*mtu || times[2] != 0 || times[3] != 20_000 || times[19] != 120_000 {
		t.Errorf("window of three packets: at most %d bytes in flight, packets at %v", most, times)
	}
	if times, most := run("tiny", "  - {name: W, type: PCM_CTRL_CWND, initial_value: 100}\n"); most != mtu || times[19] != 19*20_000 {
		t.Errorf("window below a packet: at most %d bytes in flight, packets at %v", most, times)
	}
	times, _ := run("half", "  - {name: R, type: PCM_CTRL_RATE, initial_value: 5000}\n")
	for i, at := range times {
		if at != i*664 {
			t.Fatalf("50 Gbit/s: packets at %v, want one every 664 ns", times)
		}
	}
	times, most := run("both", "  - {name: R, type: PCM_CTRL_RATE, initial_value: 5000}\n  - {name: W, type: PCM_CTRL_CWND, initial_value: 12450}\n")
	if most != 3*mtu || times[1] != 664 || times[2] != 1328 || times[3] != 20_000 || times[4] != 20_664 {
		t.Errorf("both: at most %d bytes in flight, packets at %v", most, times)
	}
}

// TestGlue_edges: before a flow begins and after it has ended nobody is called, and the simulator's own balancer chooses paths; a timeout's
// window is the handler's.
func TestGlue_edges(t *testing.T) {
	p := constant(t, "four", "  - {name: W, type: PCM_CTRL_CWND, initial_value: 16600}\n")
	got := gluetest.Run(t, "", platform.Link(t, driver(t), platform.Folder(t, p), "four"), "edges")
	if want := "before 0 77\nrunning 1 window 16600\ntimeout 16600 16600 16600\nafter 0\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestGlue_turnsOfCredit: senders take turns, each pull packet has at most 64 units, and the pace is that of what was granted.
func TestGlue_turnsOfCredit(t *testing.T) {
	p := gluetest.Load(t, "eqds", nil)
	got := gluetest.Run(t, "", platform.Link(t, driver(t), platform.Folder(t, p), "eqds"), "turns")
	want, at := "", 0
	// What three senders that ask for 100, 200 and 300 units get, round after round.
	left := []int{100, 200, 300}
	given := []int{0, 0, 0}
	for left[0]+left[1]+left[2] > 0 {
		for i := range left {
			if left[i] == 0 {
				continue
			}
			g := min(64, left[i])
			left[i], given[i] = left[i]-g, given[i]+g
			want += fmt.Sprintln(at, 5000+given[i])
			at += g * 20480
		}
	}
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestGlue_overlap: two handlers of one control do not start.
func TestGlue_overlap(t *testing.T) {
	a, b := platform.Folder(t, gluetest.Load(t, "swift", nil)), platform.Folder(t, gluetest.Load(t, "dctcp", nil))
	out := t.TempDir()
	main := filepath.Join(out, "main.cpp")
	if err := os.WriteFile(main, []byte("#include \"swift_handler.h\"\n#include \"dctcp_handler.h\"\nint main() {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	args := append(platform.CXX(a, b), "-o", filepath.Join(out, "two"), main)
	for name, dir := range map[string]string{"swift": a, "dctcp": b} {
		object := filepath.Join(out, name+".o")
		gluetest.Compile(t, "gcc", "-std=gnu11", "-c", filepath.Join(dir, name+"_shell.c"), "-o", object)
		args = append(args, object)
	}
	gluetest.Compile(t, "g++", append(args, "-lm")...)
	said, err := exec.Command(filepath.Join(out, "two")).CombinedOutput()
	if err == nil || !strings.Contains(string(said), "set the same control") {
		t.Errorf("%v: %s", err, said)
	}
}
