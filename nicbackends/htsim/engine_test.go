package htsim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/nicbackends/cpu/glue/gluetest"
	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/handlers/handlertest"
)

// apart is p with an asynchronous shell.
func apart(t *testing.T, p *pcm.Package) *pcm.Package { return gluetest.Apart(t, p, "relaxed") }

// counter is a handler whose window is the number of packets acknowledged, a million more than that.
func counter(t *testing.T) *pcm.Package {
	return apart(t, handlertest.Written(t, "counter", `algorithm: {name: counter}
signals:
  - {name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_type: PCM_SIG_TRIGGER_DELTA, trigger_threshold: 1, reset_upon_trigger: "false"}
controls:
  - {name: W, type: PCM_CTRL_CWND, initial_value: 1000000}
`, "#include \"pcmh.h\"\n#include \"counter.h\"\nint algorithm_main()\n{\n\tset_control(W, 1000000 + get_signal(ACK));\n\treturn PCM_SUCCESS;\n}\n"))
}

// delays are those of an engine, ps.
type delays struct{ poll, handler, multiplier int }

func (d delays) env() []string {
	ns := func(ps int) string { return strconv.FormatFloat(float64(ps)/1000, 'f', -1, 64) }
	return []string{"PCM_POLL_NS=" + ns(d.poll), "PCM_HANDLER_NS=" + ns(d.handler), "PCM_MULTIPLIER=" + strconv.Itoa(d.multiplier)}
}

// happening is an acknowledgement of a flow, from 1 on, or after it the flow's end.
type happening struct {
	ns, flow int
	end      bool
}

// windows is the engine without any cleverness: it looks at one flow after the other, each look takes its time, and so does a run. The lines
// are those of the driver: when a new window counts, of which flow, and what it is.
func windows(d delays, flows int, all []happening) string {
	var ring []int
	for i := range flows {
		ring = append(ring, i+1)
	}
	acked, had := make([]int, flows+1), make([]int, flows+1)
	ended := make([]bool, flows+1)
	next, from := 0, 0
	happen := func(before int) { // all that happens before then
		for ; len(all) > 0 && all[0].ns*1000 < before; all = all[1:] {
			acked[all[0].flow]++
			if !all[0].end {
				continue
			}
			i := slices.Index(ring, all[0].flow)
			ended[all[0].flow] = true
			ring = slices.Delete(ring, i, i+1)
			if i < next {
				next--
			}
		}
		if next >= len(ring) {
			next = 0
		}
	}
	var b strings.Builder
	for {
		look := from + d.poll
		happen(look)
		if d.poll == 0 { // it looks all the time, and what has just happened is seen
			due := func() int {
				for k := range ring {
					if f := ring[(next+k)%len(ring)]; acked[f] != had[f] {
						return (next + k) % len(ring)
					}
				}
				return -1
			}
			for due() < 0 && len(all) > 0 {
				look = max(look, all[0].ns*1000)
				happen(look + 1)
			}
			if next = due(); next < 0 {
				return b.String()
			}
		} else if len(ring) == 0 || len(all) == 0 && !slices.ContainsFunc(ring, func(f int) bool { return acked[f] != had[f] }) {
			return b.String()
		}
		flow := ring[next]
		next = (next + 1) % len(ring)
		from = look
		if acked[flow] == had[flow] {
			continue
		}
		had[flow] = acked[flow]
		window := 1000000 + acked[flow]
		happen(look + d.handler)
		if !ended[flow] {
			fmt.Fprintln(&b, look+d.handler, flow, window)
		}
		from = look + d.multiplier*d.handler
	}
}

func text(all []happening) string {
	var b strings.Builder
	for _, h := range all {
		fmt.Fprint(&b, h.ns, " ", h.flow)
		if h.end {
			b.WriteString(" end")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestEngine_isASlowLoop: with all kinds of delays, flows that are seldom or always due, and flows that end, new windows count when they
// do with an engine that takes each look one by one.
func TestEngine_isASlowLoop(t *testing.T) {
	p := counter(t)
	program := platform.Link(t, driver(t), platform.Folder(t, p), p.Name)
	g := rand.New(rand.NewPCG(7, 7))
	runs := 0
	for i := range 60 {
		// Looks and runs end at even times, and packets come at odd ones: what happens at the same time has no order.
		d := delays{2000 * g.IntN(200), 2000 * g.IntN(1000), 1 + g.IntN(4)}
		if i%4 == 0 {
			d.poll = 0
		}
		if d.poll == 0 {
			d.handler += 2000
		}
		flows, gap := 1+g.IntN(6), 2*(1+g.IntN(3000))
		var all []happening
		ended := make([]bool, flows+1)
		for ns, n := 1, 0; n < 200; n++ {
			ns += 2 * g.IntN(gap)
			h := happening{ns, 1 + g.IntN(flows), g.IntN(100) == 0}
			if !ended[h.flow] {
				all = append(all, h)
				ended[h.flow] = h.end
			}
		}
		want := windows(d, flows, all)
		got := gluetest.RunIn(t, d.env(), text(all), program, "engine", strconv.Itoa(flows))
		if got != want {
			t.Fatalf("%+v, %d flows: the glue has\n%sone look after the other\n%sof\n%s", d, flows, got, want, text(all))
		}
		runs += strings.Count(want, "\n")
	}
	if runs < 1000 {
		t.Errorf("%d runs show little", runs)
	}
}

// TestEngine_rounds: flows that are always due are served in turn, one in P + N * T: the delay of the paper's section 7.3, step 3.
func TestEngine_rounds(t *testing.T) {
	p := counter(t)
	program := platform.Link(t, driver(t), platform.Folder(t, p), p.Name)
	for _, c := range []struct {
		flows int
		d     delays
	}{{1, delays{0, 1_137_500, 1}}, {8, delays{0, 1_137_500, 1}}, {1, delays{0, 1_137_500, 32}}, {3, delays{250_000, 1_000_000, 1}}, {5, delays{40_000, 1_000_000, 4}}} {
		var all []happening
		for ns := 1; ns < 200_000; ns += 100 {
			for f := range c.flows {
				all = append(all, happening{ns, f + 1, false})
			}
		}
		got := strings.Split(gluetest.RunIn(t, c.d.env(), text(all), program, "engine", strconv.Itoa(c.flows)), "\n")
		turn := c.d.poll + c.d.multiplier*c.d.handler
		first := 0
		for i := range 190_000_000 / turn {
			var at, flow, window int
			if _, err := fmt.Sscan(got[i], &at, &flow, &window); err != nil {
				t.Fatalf("%+v: %q: %v", c.d, got[i], err)
			}
			if i == 0 {
				first = at
			}
			if at != first+i*turn || flow != 1+i%c.flows {
				t.Fatalf("%+v, %d flows: run %d was over at %d ps and of flow %d, want %d and %d", c.d, c.flows, i, at, flow, first+i*turn, 1+i%c.flows)
			}
		}
	}
}

// TestEngine_opensTheWindow: what was decided counts when the run is over, and packets that it lets go leave then.
func TestEngine_opensTheWindow(t *testing.T) {
	p := apart(t, handlertest.Written(t, "grows", `algorithm: {name: grows}
signals:
  - {name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1}
controls:
  - {name: W, type: PCM_CTRL_CWND, initial_value: 4150}
`, "#include \"pcmh.h\"\n#include \"grows.h\"\nint algorithm_main()\n{\n\tset_control(W, 12450);\n\treturn PCM_SUCCESS;\n}\n"))
	got := gluetest.RunIn(t, delays{0, 5_000_000, 1}.env(), "", platform.Link(t, driver(t), platform.Folder(t, p), p.Name), "message", strconv.Itoa(5*mtu), "20000000")
	if want := "0\n20000\n25000\n25000\n40000\nmost 12450\n"; got != want {
		t.Errorf("packets leave at\n%s, want\n%s", got, want)
	}
}

// TestEngine_credit: senders get what they ask for and no more, when the engine has granted it.
func TestEngine_credit(t *testing.T) {
	p := apart(t, gluetest.Load(t, "eqds", nil))
	got := gluetest.RunIn(t, delays{0, 3_000_000, 1}.env(), "", platform.Link(t, driver(t), platform.Folder(t, p), p.Name), "turns")
	most := map[int]bool{}
	last := 0
	for line := range strings.Lines(got) {
		var at, pulled int
		if _, err := fmt.Sscan(line, &at, &pulled); err != nil {
			t.Fatal(err)
		}
		if at < 3_000_000 {
			t.Errorf("credit at %d ps, before the engine was done", at)
		}
		most[pulled] = true
		last = max(last, pulled)
	}
	if !most[5100] || !most[5200] || !most[5300] || last != 5300 {
		t.Errorf("pulled up to\n%s, want 5100, 5200 and 5300", got)
	}
}

// TestEngine_doesNotKeepTheSimulationGoing: a handler that is due for ever goes on while there is traffic.
func TestEngine_doesNotKeepTheSimulationGoing(t *testing.T) {
	p := apart(t, handlertest.Written(t, "forever", `algorithm: {name: forever}
signals:
  - {name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1, reset_upon_trigger: "false"}
controls:
  - {name: W, type: PCM_CTRL_CWND, initial_value: 4150}
`, "#include \"pcmh.h\"\n#include \"forever.h\"\nint algorithm_main()\n{\n\treturn PCM_SUCCESS;\n}\n"))
	got := gluetest.RunIn(t, delays{0, 1_000_000, 1}.env(), "", platform.Link(t, driver(t), platform.Folder(t, p), p.Name), "loops", "50500000")
	if got != "51000\n" { // the run that was going on
		t.Errorf("it went on for %s ns, with traffic for 50500", got)
	}
}

// TestEngine_settings: what is no delay is named, and so is one that nothing reads.
func TestEngine_settings(t *testing.T) {
	p := counter(t)
	program := platform.Link(t, driver(t), platform.Folder(t, p), p.Name)
	for _, c := range []struct{ reason, setting, want string }{
		{"no number", "PCM_HANDLER_NS=1us", "pcm: PCM_HANDLER_NS=1us is no number from 0 to 1e12"},
		{"time does not go back", "PCM_POLL_NS=-1", "pcm: PCM_POLL_NS=-1 is no number from 0"},
		{"a flow stands for itself at least", "PCM_MULTIPLIER=0", "pcm: PCM_MULTIPLIER=0 is no number from 1"},
	} {
		cmd := exec.Command(program, "engine", "1")
		cmd.Env = append(os.Environ(), c.setting)
		said, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(said), c.want) {
			t.Errorf("%s: %v: %s", c.reason, err, said)
		}
	}
	q := constant(t, "one", "  - {name: W, type: PCM_CTRL_CWND, initial_value: 4150}\n")
	cmd := exec.Command(platform.Link(t, driver(t), platform.Folder(t, q), q.Name), "engine", "1")
	cmd.Env = append(os.Environ(), "PCM_HANDLER_NS=1000")
	if said, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(said), "no handler of this program is asynchronous") {
		t.Errorf("a synchronous shell with a delay: %v: %s", err, said)
	}
}
