package cpu

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/handlers"
	"github.com/pcmlab/pcmlab/pcm/shell"
)

// vectors is a file of golden vectors.
type vectors struct {
	Constants map[string]any
	Cases     []vectorCase
}

type vectorCase struct {
	Name, Profile string
	Init          map[string]any
	Steps         []struct {
		I any // an object, or the name of an event
		O map[string]any
	}
}

func loadVectors(t *testing.T, name string, to any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "reference", "vectors", name))
	if err != nil {
		t.Skipf("golden vectors: %v", err)
	}
	if err := json.Unmarshal(data, to); err != nil {
		t.Fatal(err)
	}
}

// law says how the cases of one file are put to one handler. Names of the file are lower case, those of the handler upper case.
type law struct {
	file, handler string
	only          func(vectorCase) string                          // why a case is left out; "" is not
	set           func(vectors, vectorCase) map[string]string      // constants
	init          map[string]string                                // objects that a case sets before its first step
	in            map[string]pcm.Source                            // what a step adds to the signals
	totals        bool                                             // the file gives totals, not what a step adds
	out           map[string]string                                // what is held against the file after a step; a control is held against the output, too
	scale         map[string]float64                               // a value of the file is so many of the handler
	tolerance     func(name string, want float64) (allows float64) // in floating point; nil: exact, up to the digits of the file
	feed          func(r *run, step any) *shell.Input              // makes an input of a step in place of in; nil: the step only adds
	before        func(r *run, c vectorCase)                       // after init
	after         func(r *run, step any, want map[string]any)      // looks at what else a step expects
}

// laws are all handlers that have golden vectors, but the load balancers (vectors_lb_test.go).
var laws = []law{
	{
		file: "swift.json", handler: "swift",
		only: profiles("P100", "HTSIM"), set: swiftConstants,
		init: map[string]string{"cwnd": "CWND", "rtt_est": "RTT_EST", "t_last_dec": "T_LAST_DEC", "retx": "RETX"},
		in:   map[string]pcm.Source{"rtt": pcm.RTT, "ack_bytes": pcm.DataTX, "nack": pcm.NACK, "rto": pcm.RTO},
		out:  map[string]string{"cwnd": "CWND", "rtt_est": "RTT_EST", "t_last_dec": "T_LAST_DEC", "retx": "RETX"},
	},
	{
		file: "swift.json", handler: "swift_divide",
		only: profiles("P100", "HTSIM"), set: swiftConstants,
		init: map[string]string{"cwnd": "CWND", "rtt_est": "RTT_EST", "t_last_dec": "T_LAST_DEC", "retx": "RETX"},
		in:   map[string]pcm.Source{"rtt": pcm.RTT, "ack_bytes": pcm.DataTX, "nack": pcm.NACK, "rto": pcm.RTO},
		out:  map[string]string{"cwnd": "CWND", "rtt_est": "RTT_EST", "t_last_dec": "T_LAST_DEC", "retx": "RETX"},
	},
	{
		file: "swift.json", handler: "swift_uccl",
		only: profiles("UCCL"),
		init: map[string]string{"cwnd": "CWND", "rtt_est": "RTT_EST"},
		in:   map[string]pcm.Source{"rtt": pcm.RTT, "ack_bytes": pcm.DataTX},
		out:  map[string]string{"cwnd": "CWND", "rtt_est": "RTT_EST"},
	},
	{
		file: "mp_rdma.json", handler: "mp_rdma",
		set: func(_ vectors, c vectorCase) map[string]string {
			return map[string]string{"ECN_DIV": text(c.Init["ecn_div"])}
		},
		init:   map[string]string{"cwnd": "CWND"},
		in:     map[string]pcm.Source{"acked": pcm.DataTX, "nacked": pcm.DataNACKed, "ecn": pcm.ECN},
		totals: true,
		out:    map[string]string{"cwnd": "CWND", "mask": fired, "prev_acked": "PREV_ACKED_BYTES", "prev_nacked": "PREV_NACKED_BYTES", "prev_ecn": "PREV_ECN"},
	},
	{
		file: "newreno.json", handler: "newreno",
		init:   map[string]string{"cwnd_bytes": "CWND", "cwnd_pkts": "W", "ssthresh": "SSTHRESH", "tot_acked": "TOT_ACKED", "in_fr": "IN_FR"},
		in:     map[string]pcm.Source{"ack": pcm.ACK, "nack": pcm.NACK, "rto": pcm.RTO},
		totals: true,
		out:    map[string]string{"cwnd_bytes": "CWND", "cwnd_pkts": "W", "ssthresh": "SSTHRESH", "tot_acked": "TOT_ACKED", "in_fr": "IN_FR"},
	},
	{
		file: "dctcp.json", handler: "dctcp",
		init: map[string]string{"cwnd_bytes": "CWND", "cwnd_pkts": "W", "ssthresh": "SSTHRESH", "tot_acked": "TOT_ACKED", "in_fr": "IN_FR",
			"alpha": "ALPHA", "tgt": "EPOCH_TARGET"},
		in:     map[string]pcm.Source{"ack": pcm.ACK, "nack": pcm.NACK, "rto": pcm.RTO, "ecn": pcm.ECN},
		totals: true,
		out: map[string]string{"cwnd_bytes": "CWND", "cwnd_pkts": "W", "ssthresh": "SSTHRESH", "tot_acked": "TOT_ACKED", "in_fr": "IN_FR",
			"alpha": "ALPHA", "epoch_acked": "EPOCH_ACKED", "epoch_ecn": "EPOCH_ECN", "epoch_target": "EPOCH_TARGET"},
	},
	{
		file: "cubic.json", handler: "cubic",
		set: func(vectors, vectorCase) map[string]string {
			return map[string]string{"MAX_W": "100000.0"} // one case is of a wide area
		},
		init: map[string]string{"cwnd": "W", "ssthresh": "SSTHRESH", "w_max": "W_MAX", "epoch": "EPOCH", "K": "K", "w_est": "W_EST", "started": "STARTED",
			"t_dec": "T_DEC"},
		in:  map[string]pcm.Source{"rtt": pcm.RTT, "ack": pcm.ACK, "nack": pcm.NACK, "rto": pcm.RTO, "ecn": pcm.ECN},
		out: map[string]string{"cwnd": "W", "cwnd_bytes": "CWND", "w_max": "W_MAX", "K": "K", "w_est": "W_EST", "ssthresh": "SSTHRESH"},
	},
	{
		file: "smartt.json", handler: "smartt",
		init: map[string]string{"cwnd": "CWND", "wend": "WINDOW_END", "acked": "ACKED"},
		before: func(r *run, c vectorCase) {
			r.set("TRIGGER_WIN", c.Init["cwnd"].(float64))
		},
		in: map[string]pcm.Source{"rtt": pcm.RTT, "acked": pcm.DataTX, "nacked": pcm.DataNACKed, "ecn": pcm.ECN, "inflight": pcm.InFlight},
		out: map[string]string{"cwnd": "CWND", "need_qa": "NEED_QA", "window_end": "WINDOW_END", "acked": "ACKED", "ignore_for": "IGNORE_FOR",
			"ignored": "IGNORED", "fast_cnt": "FAST_CNT"},
	},
	{
		file: "nscc.json", handler: "nscc",
		init: map[string]string{"cwnd": "CWND", "qend": "QA_END", "tadj": "T_ADJ", "avg": "AVG_DELAY"},
		in:   map[string]pcm.Source{"rtt": pcm.RTT, "acked": pcm.DataTX, "nacked": pcm.DataNACKed, "ecn": pcm.ECN, "inflight": pcm.InFlight},
		out: map[string]string{"cwnd": "CWND", "inc": "INC", "avg_delay": "AVG_DELAY", "achieved": "ACHIEVED", "received": "RECEIVED", "qa_end": "QA_END",
			"bytes_to_ignore": "TO_IGNORE", "bytes_ignored": "IGNORED", "t_adj": "T_ADJ", "t_dec": "T_DEC"},
		tolerance: func(name string, want float64) float64 {
			if name == "cwnd" {
				return max(16, 1e-4*want)
			}
			return 1e-4 * want
		},
	},
}

// fired in a law's out is the mask of signals that made the handler run.
const fired = "(fired)"

func profiles(names ...string) func(vectorCase) string {
	return func(c vectorCase) string {
		if slices.Contains(names, c.Profile) {
			return ""
		}
		return "profile " + c.Profile + " is another handler's"
	}
}

func swiftConstants(v vectors, c vectorCase) map[string]string {
	k := v.Constants[c.Profile].(map[string]any)
	set := map[string]string{"INT_DIV": map[bool]string{true: "1", false: "0"}[k["INT_DIV"].(bool)]}
	for _, name := range []string{"BASE", "HOPS", "H", "FS_RANGE", "FS_MIN", "FS_MAX", "FS_ALPHA", "FS_BETA", "AI", "BETA", "MAX_MDF", "RETX_RESET", "MSS", "MIN_CWND", "MAX_CWND"} {
		set[name] = text(k[name])
	}
	return set
}

// text is a number of the file as an expression.
func text(v any) string {
	f := v.(float64)
	if f == math.Trunc(f) {
		return fmt.Sprint(int64(f))
	}
	return fmt.Sprintf("%.12f", f)
}

// TestVectors puts every golden vector to its handler in every representation of fractions. What fixed point may differ by is
// 2 bytes of a window, and of other integers 2 as well (ALGORITHMS.md, C.5), and 1e-5 of fractions. Q16.16 lacks the range for the library's units; see
// TestSwift_breaksInQ16.
func TestVectors(t *testing.T) {
	for _, l := range laws {
		t.Run(l.handler, func(t *testing.T) { l.test(t) })
	}
}

func (l law) test(t *testing.T) {
	var v vectors
	loadVectors(t, l.file, &v)
	p, err := handlers.Load(l.handler, pcm.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	formats := []pcm.Format{pcm.FormatFloat, pcm.Q32, pcm.Q42}
	if !fractions(p) {
		formats = formats[:1] // the others would be the same code
	}
	for _, format := range formats {
		built := map[string]*built{} // by constants: many cases share them
		for _, c := range v.Cases {
			if l.only != nil && l.only(c) != "" {
				continue
			}
			t.Run(format.String()+"/"+c.Name, func(t *testing.T) {
				set := map[string]string{}
				if l.set != nil {
					set = l.set(v, c)
				}
				key := fmt.Sprint(set)
				if built[key] == nil {
					built[key] = build(t, l.handler, set, Options{Frac: format.String(), Flags: injectRandom(t)})
				}
				l.run(t, built[key], v, c, format)
				if format != pcm.FormatFloat {
					return
				}
				// The asynchronous shell holds them, too: the policies take turns, since TestAsync_equalsSync has all of them.
				if key += " in halves"; built[key] == nil {
					o := policies[len(built)/2%len(policies)]
					o.Flags = injectRandom(t)
					built[key] = build(t, l.handler, set, o)
				}
				l.run(t, built[key], v, c, format)
			})
		}
	}
}

func (l law) run(t *testing.T, b *built, v vectors, c vectorCase, format pcm.Format) {
	f, err := b.shell.NewFlow(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := &run{T: t, built: b, flow: f, format: format, law: l, prev: map[string]float64{}}
	for key, name := range l.init {
		if x, ok := c.Init[key]; ok && x != nil {
			r.set(name, x.(float64)*l.scaled(key))
		}
	}
	if l.before != nil {
		l.before(r, c)
	}
	feed := l.feed
	if feed == nil {
		feed = (*run).input
	}
	for i, step := range c.Steps {
		in := feed(r, step.I)
		if in == nil {
			continue
		}
		f.Flush(in, &r.seen)
		if r.seen.Failed != 0 {
			t.Fatalf("step %d: the handler returned %d", i, r.seen.Failed)
		}
		for key, name := range l.out {
			want, ok := step.O[key].(float64)
			if !ok {
				continue
			}
			got := r.get(name) / l.scaled(key)
			if allowed := l.allowed(key, name, want, r); math.Abs(got-want) > allowed {
				t.Errorf("step %d, %v: %s is %.12g, want %.12g within %.3g", i, step.I, key, got, want, allowed)
			}
		}
		if l.after != nil {
			l.after(r, step.I, step.O)
		}
	}
}

func (l law) scaled(key string) float64 {
	if s, ok := l.scale[key]; ok {
		return s
	}
	return 1
}

// allowed is how far off a value may be. The files have nine digits behind the point, and their fractions are cut there.
func (l law) allowed(key, name string, want float64, r *run) float64 {
	allowed := 0.0
	if l.tolerance != nil {
		allowed = l.tolerance(key, want)
	}
	if r.isFrac(name) {
		allowed = max(allowed, 1e-9*max(1, math.Abs(want)))
	}
	if r.format != pcm.FormatFloat && name != fired {
		if r.isFrac(name) {
			allowed = max(allowed, 1e-6, 1e-5*math.Abs(want))
		} else {
			allowed = max(allowed, 2)
		}
	}
	return allowed
}

// built is a package of the library with its shell.
type built struct {
	*pcm.Package
	shell *shell.Shell
	path  string
}

func build(t *testing.T, name string, set map[string]string, o Options) *built {
	t.Helper()
	p, err := handlers.Load(name, pcm.Deployment{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	return buildPackage(t, p, o)
}

func buildPackage(t *testing.T, p *pcm.Package, o Options) *built {
	t.Helper()
	dir, err := os.MkdirTemp(tempDir, "shell-") // not the test's: cases share shells
	if err != nil {
		t.Fatal(err)
	}
	o.Flags = append([]string{"-O1", "-Wextra", "-Werror"}, o.Flags...) // -O1: hundreds of shells are built
	b := &built{Package: p, path: filepath.Join(dir, p.Name+".so")}
	if err := Build(t.Context(), p, b.path, o); err != nil {
		t.Fatal(err)
	}
	if b.shell, err = shell.Open(b.path); err != nil {
		t.Fatal(err)
	}
	return b
}

func fractions(p *pcm.Package) bool {
	return slices.ContainsFunc(p.Constants, func(c pcm.Constant) bool { return c.Type == pcm.Frac }) ||
		slices.ContainsFunc(p.Vars, func(v pcm.Var) bool { return v.Type == pcm.Frac })
}

// tempDir holds the shells of this run of the tests.
var tempDir string

func TestMain(m *testing.M) {
	var err error
	if tempDir, err = os.MkdirTemp("", "pcmlab-vectors-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := 0
	if file := os.Getenv(sdkChild); file != "" {
		code = sdkChildMain(file)
	} else {
		code = m.Run()
	}
	os.RemoveAll(tempDir)
	os.Exit(code)
}

// run is one case on its way. Objects are reached by name and seen as numbers.
type run struct {
	*testing.T
	*built
	law    law
	flow   *shell.Flow
	format pcm.Format
	now    uint64
	prev   map[string]float64 // totals of the file
	seen   shell.Output
	adds   *shell.Input // of steps that only add
	count  int
}

func (r *run) at(name string) (shell.Part, int) {
	r.Helper()
	if i := slices.IndexFunc(r.Controls, func(c pcm.Control) bool { return c.Name == name }); i >= 0 {
		return shell.Control, i
	}
	if i := slices.IndexFunc(r.Signals, func(s pcm.Signal) bool { return s.Name == name }); i >= 0 {
		return shell.Signal, i
	}
	name, index, array := strings.Cut(name, "[")
	i := slices.IndexFunc(r.Vars, func(v pcm.Var) bool { return v.Name == name })
	if i < 0 {
		r.Fatalf("%s has no %s", r.Package.Name, name)
	}
	slot := r.Vars[i].Slot
	if array {
		var n int
		if _, err := fmt.Sscanf(index, "%d]", &n); err != nil {
			r.Fatal(err)
		}
		slot += n
	}
	return shell.Variable, slot
}

func (b *built) isFrac(name string) bool {
	return slices.ContainsFunc(b.Vars, func(v pcm.Var) bool { return v.Name == name && v.Type == pcm.Frac })
}

func (r *run) get(name string) float64 {
	r.Helper()
	if name == fired {
		return float64(r.seen.Fired)
	}
	part, i := r.at(name)
	word := r.flow.Peek(part, i)
	if part == shell.Control {
		kind := r.Controls[i].Kind
		if out := []uint64{r.seen.CWND, r.seen.Rate, r.seen.EV, r.seen.PullNo, r.seen.RTTProbe}[kind]; out != word {
			r.Errorf("%s is %d inside and %d in the output", name, word, out)
		}
	}
	if r.isFrac(name) {
		return r.format.Float(word)
	}
	return float64(word)
}

func (r *run) set(name string, v float64) {
	r.Helper()
	part, i := r.at(name)
	word := uint64(v)
	if r.isFrac(name) {
		word = r.format.Word(v)
	}
	r.flow.Poke(part, i, word)
}

// input makes an input of a step that is an object; now is in it in ns, or stays.
func (r *run) input(step any) *shell.Input {
	given := step.(map[string]any)
	in := &shell.Input{}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		v, ok := given[key].(float64)
		source, known := r.law.in[key]
		switch {
		case key == "now" && ok:
			r.now = uint64(v)
		case key == "rnd" && ok:
			r.inject(uint64(v))
		case known && ok:
			if r.law.totals {
				v, r.prev[key] = v-r.prev[key], v
			}
			give(in, source, uint64(v))
		}
	}
	in.Now = r.now
	return in
}

// give sets a field of an input.
func give(in *shell.Input, source pcm.Source, v uint64) {
	fields := []*uint64{&in.ACK, &in.RTO, &in.NACK, &in.ECN, &in.RTT, &in.DataTX, &in.DataNACKed, &in.InFlight, &in.ElapsedTime, &in.ACKEV, &in.ECNEV, &in.NACKEV,
		&in.TXReadyPackets, &in.TXBacklogBytes, &in.CNP, &in.TXBytes, &in.Queue, &in.PullTarget, &in.Loopback}
	*fields[source] = v
	in.Mask |= 1 << source
}
