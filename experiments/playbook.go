package experiments

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

// Playbook is one checked playbook: what is done, with no word of where.
type Playbook struct {
	Name          string
	About         string
	File          string
	Source        []byte // as it was read; a bundle keeps it
	Roles         []Role
	Traffic       perftest.Params    // of every flow; what depends on host or flow is filled in by Plan
	Ports         perftest.PortRange // pool of each receiver
	RateTolerance float64            // how far from traffic.rate_limit a flow may be, as a part of it; 0: as far as it likes
	IPv6          bool               // between the ip6 addresses of NICs
	Handler       string             // of every sender in place of the lab's; "": the lab's, inventory.NoHandler: none
	Diagnostic    bool               // every invocation of a handler is logged
	Setup         []Setting          // changed before, put back after
	RDCC          *RDCC              // nil: the playbook does not speak of it
	Flows         []Flow
	Phases        []Phase
	Trims         Trims
	Bin           time.Duration
	Sample        *time.Duration // nil: as the lab is
	Analyze       string         // AnalyzeAuto, AnalyzeHere, AnalyzeThere
	FetchLimit    int64
	Captures      []Capture
	Expect        []Expectation

	Repeat     int     // runs of each cell
	Warmup     int     // runs of each cell before that are not counted
	Seed       uint64  // of a sweep's order and of what a lab draws
	Thresholds []Param // score and limit, as written
	Matrix     *Matrix // nil: one cell

	doc  *spec.Doc // for mistakes that only a lab brings to light
	file playbookFile
}

// Role is a part that hosts play.
type Role struct {
	Name  string
	Hosts []string
}

// Flow is one stream of messages from one host to another. It runs from the beginning of phase Start to the beginning
// of phase Stop (an index one past the last phase means the end).
type Flow struct {
	Name, From, To string
	Handler        string          // of it alone; "": the playbook's or the lab's
	Traffic        perftest.Params // the playbook's, with what the flow has of its own
	Start, Stop    int
	Duration       time.Duration
}

// Phase is one span of the schedule.
type Phase struct {
	Name  string
	Begin time.Duration // since the first phase began
	For   time.Duration
	Start []string // flows
	Stop  []string
	Flows []string // all that run in it
}

// Trims are the parts of each phase that are not measured.
type Trims struct{ Start, End Trim }

// Trim is a share of the phase or a time.
type Trim struct {
	Share float64 // 0..1
	Time  time.Duration
}

// Of is the trim of a phase of the given length.
func (t Trim) Of(phase time.Duration) time.Duration {
	if t.Time > 0 {
		return min(t.Time, phase)
	}
	return time.Duration(t.Share * float64(phase))
}

// Expectation is something that must hold.
type Expectation struct {
	Name  string
	Expr  *Expression
	Needs []nicbackends.Cap
	Skip  string // why it is not judged whatever is measured: a parameter took away what it speaks of
}

// LoadPlaybook reads and checks a playbook. The error lists every mistake with its place; it matches ErrInput.
func LoadPlaybook(path string) (*Playbook, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("playbook: %w: %w", ErrInput, err)
	}
	return ParsePlaybook(path, data)
}

// ParsePlaybook is LoadPlaybook for a text; name is what errors call it.
func ParsePlaybook(name string, data []byte) (*Playbook, error) {
	var f playbookFile
	doc, err := spec.Decode(name, data, &f)
	if err != nil && doc.Bad(spec.P()) && f.Playbook == "" && len(f.Phases) == 0 {
		return nil, inputError(err)
	}
	p := newPlaybook(&f, doc)
	p.File, p.Source = name, data
	if doc.Err() == nil {
		p.checkMatrix()
	}
	if err := doc.Err(); err != nil {
		return nil, inputError(err)
	}
	return p, nil
}

// inputErr marks an error as one of input without changing its text.
type inputErr struct{ error }

func (e inputErr) Is(target error) bool { return target == ErrInput }
func (e inputErr) Unwrap() error        { return e.error }

func inputError(err error) error {
	if err == nil {
		return nil
	}
	return inputErr{err}
}

// SchemaPlaybook is the JSON Schema of playbooks.
func SchemaPlaybook() []byte { return spec.SchemaJSON("pcmlab playbook", playbookFile{}) }

func newPlaybook(f *playbookFile, doc *spec.Doc) *Playbook {
	p := &Playbook{Name: f.Playbook, About: f.About, Bin: f.Measure.Bin, Sample: f.Measure.Sample, Analyze: f.Measure.Analyze, FetchLimit: int64(f.Measure.FetchLimit), Ports: perftest.PortRange{First: f.Traffic.Port, Count: f.Traffic.Ports},
		Handler: bookHandler(doc.File, f.Handler), Diagnostic: f.Diag, Repeat: f.Repeat, Warmup: f.Warmup, Seed: f.Seed, doc: doc, file: *f}
	for _, t := range f.Thresholds {
		p.Thresholds = append(p.Thresholds, Param{t.Key, string(t.Value)})
	}
	hosts := map[string]bool{}
	for _, e := range f.Hosts {
		p.Roles = append(p.Roles, Role{e.Key, e.Value})
		for _, h := range e.Value {
			hosts[h] = true
		}
	}
	p.buildTraffic(f)
	p.buildSetup(f)
	p.buildFlows(f, hosts)
	p.buildPhases(f)
	p.buildRDCC(f, hosts)
	p.checkTool(f)
	p.Trims = Trims{parseTrim(f.Measure.TrimStart), parseTrim(f.Measure.TrimEnd)}
	for i, ph := range p.Phases {
		if p.Trims.Start.Of(ph.For)+p.Trims.End.Of(ph.For) >= ph.For {
			doc.Errorf(spec.P("measure", "trim_start"), "", "trims of %s and %s leave nothing of phase %q (%v)", f.Measure.TrimStart, f.Measure.TrimEnd, f.Phases[i].Name, ph.For)
		}
	}
	p.buildCaptures(f)
	p.buildExpectations(f)
	p.buildMatrix()
	return p
}

// bookHandler makes the relative path of a package one from the playbook's folder; names stay.
func bookHandler(file, h string) string {
	if !strings.ContainsAny(h, "/.") {
		return h
	}
	if h = inventory.ExpandHome(h); filepath.IsAbs(h) {
		return h
	}
	return filepath.Join(filepath.Dir(file), h)
}

func (p *Playbook) buildTraffic(f *playbookFile) {
	t := f.Traffic
	p.Traffic = perftest.Params{Tool: t.Tool, Size: int(t.Size), QPs: t.QPs, TxDepth: t.TxDepth, MTU: t.MTU, Margin: t.Margin, RDMACM: t.RDMACM,
		RateLimitGbps: float64(t.Rate) / 1e9, Burst: t.Burst}
	p.IPv6 = t.IPv6
	if t.Within != "" {
		percent, _ := strconv.ParseFloat(strings.TrimSuffix(t.Within, "%"), 64) // its pattern was checked
		p.RateTolerance = percent / 100
		if t.Rate == 0 {
			p.doc.Errorf(spec.P("traffic", "rate_tolerance"), "", "rate_tolerance belongs to rate_limit")
		}
		if p.RateTolerance == 0 {
			p.doc.Errorf(spec.P("traffic", "rate_tolerance"), "such as 10%", "rate_tolerance 0: no limiter is exact")
		}
	}
	if t.Timeout != nil {
		p.Traffic.Timeout = *t.Timeout
	}
	if t.MTU != 0 && !slices.Contains([]int{256, 512, 1024, 2048, 4096}, t.MTU) {
		p.doc.Errorf(spec.P("traffic", "mtu"), "one of 256, 512, 1024, 2048, 4096", "mtu %d: no RDMA path MTU", t.MTU)
	}
	args := make([]string, len(t.Args))
	for i, a := range t.Args {
		args[i] = string(a)
	}
	for i := 0; i < len(args); i++ {
		i += p.argument(args, i)
	}
}

// owned are the tool's flags that playbook keys or pcmlab itself set.
var owned = map[string]string{
	"-d": "the NIC's device in the lab file", "-x": "gid_index of the NIC in the lab file", "-p": "traffic.port", "-s": "traffic.size",
	"-q": "traffic.qps", "-t": "traffic.tx_depth", "-m": "traffic.mtu", "-u": "traffic.timeout", "-f": "traffic.margin", "-R": "traffic.rdma_cm",
	"-D": "the phases' `for`", "-F": "pcmlab (always given)", "--report_gbits": "pcmlab (always given)", "--tclass": "dscp and ecn of the NIC in the lab file",
	"-T": "dscp and ecn of the NIC in the lab file", "--ipv6": "traffic.ipv6", "--rate_limit": "traffic.rate_limit", "--burst_size": "traffic.burst",
	"--rate_limit_type": "pcmlab (by the NIC's kind)", "--rate_units": "pcmlab (always Gbit/s)", "-i": "port of the NIC in the lab file", "--out_json": "pcmlab (it parses the table)",
}

// argument takes one further argument of the tool and says how many more words belonged to it.
func (p *Playbook) argument(args []string, i int) (more int) {
	at := spec.P("traffic", "args", i)
	name, value, joined := strings.Cut(args[i], "=")
	number := func(set func(int)) {
		if !joined {
			if i+1 == len(args) {
				p.doc.Errorf(at, "give a number behind it", "argument %s: needs a number", name)
				return
			}
			value, more = args[i+1], 1
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			p.doc.Errorf(at, "give a number behind it", "argument %s: %q is no number", name, value)
			return
		}
		set(n)
	}
	switch name {
	case "-a", "--all":
		p.Traffic.AllSizes = true
	case "-n", "--iters":
		number(func(n int) { p.Traffic.Iterations = n })
	case "-b", "--bidirectional":
		p.Traffic.Bidirectional = true
	case "-N", "--noPeak":
		p.Traffic.NoPeak = true
	case "-Q", "--cq-mod":
		number(func(n int) { p.Traffic.CQModeration = n })
	case "-l", "--post_list":
		number(func(n int) { p.Traffic.PostList = n })
	case "-I", "--inline_size":
		number(func(n int) { p.Traffic.Inline = &n })
	case "-S", "--sl":
		number(func(n int) { p.Traffic.ServiceLevel = &n })
	case "--retry_count":
		number(func(n int) { p.Traffic.RetryCount = &n })
	default:
		if by, ok := owned[name]; ok {
			p.doc.Errorf(at, "leave it out", "argument %s: is set by %s", name, by)
		} else {
			p.doc.Errorf(at, "known: -b, -N, -Q N, -l N, -I N, -S N, --retry_count=N", "argument %q: not known", args[i])
		}
	}
	return more
}

func (p *Playbook) buildFlows(f *playbookFile, hosts map[string]bool) {
	known := make([]string, 0, len(hosts))
	for h := range hosts {
		known = append(known, h)
	}
	slices.Sort(known)
	for _, e := range f.Flows {
		flow := Flow{Name: e.Key, From: e.Value.From, To: e.Value.To, Handler: bookHandler(p.doc.File, e.Value.Handler), Traffic: p.Traffic, Start: -1, Stop: len(f.Phases)}
		if p.Traffic.AllSizes && e.Value.Size != nil {
			p.doc.Errorf(spec.P("flows", e.Key, "size"), "leave one of them out", "traffic.args has -a: all sizes")
		}
		flow.Traffic.Size = orOwn(e.Value.Size, flow.Traffic.Size)
		flow.Traffic.QPs, flow.Traffic.TxDepth = orOwn(e.Value.QPs, flow.Traffic.QPs), orOwn(e.Value.TxDepth, flow.Traffic.TxDepth)
		for _, end := range []struct{ key, host string }{{"from", flow.From}, {"to", flow.To}} {
			if end.host != "" && !hosts[end.host] {
				p.doc.Errorf(spec.P("flows", e.Key, end.key), spec.Suggest(end.host, known), "host %q plays no role in hosts", end.host)
			}
		}
		if flow.From == flow.To && flow.From != "" {
			p.doc.Errorf(spec.P("flows", e.Key, "to"), "give another host", "flow %q goes from %q to itself", flow.Name, flow.From)
		}
		p.Flows = append(p.Flows, flow)
	}
}

// orOwn is the flow's own value, or the playbook's.
func orOwn[T ~int | ~int64](own *T, book int) int {
	if own == nil {
		return book
	}
	return int(*own)
}

func (p *Playbook) buildPhases(f *playbookFile) {
	var names []string
	for _, fl := range p.Flows {
		names = append(names, fl.Name)
	}
	begin := time.Duration(0)
	first := map[string]int{}
	for i, ps := range f.Phases {
		ph := Phase{Name: ps.Name, Begin: begin, For: ps.For, Start: ps.Start, Stop: ps.Stop}
		if j, ok := first[ps.Name]; ok && ps.Name != "" {
			p.doc.Errorf(spec.P("phases", i, "name"), "give each phase its own name", "phase %q: the name is taken by phase %d", ps.Name, j+1)
		}
		first[ps.Name] = i
		for key, list := range map[string][]string{"start": ph.Start, "stop": ph.Stop} {
			for _, name := range list {
				flow := p.flow(name)
				at := spec.P("phases", i, key)
				switch {
				case flow == nil:
					p.doc.Errorf(at, spec.Suggest(name, names), "no flow %q", name)
				case key == "start" && flow.Start >= 0:
					p.doc.Errorf(at, "a flow runs once: give the second run a flow of its own", "flow %q is started by phase %q already", name, f.Phases[flow.Start].Name)
				case key == "start":
					flow.Start = i
				case flow.Stop < len(f.Phases):
					p.doc.Errorf(at, "leave it out", "flow %q is stopped by phase %q already", name, f.Phases[flow.Stop].Name)
				default:
					flow.Stop = i
				}
			}
		}
		begin += ps.For
		p.Phases = append(p.Phases, ph)
	}
	for i := range p.Flows {
		flow := &p.Flows[i]
		switch {
		case flow.Start < 0:
			p.doc.Errorf(spec.P("flows", flow.Name), "start it in a phase, or leave it out", "flow %q is started by no phase", flow.Name)
			continue
		case flow.Stop <= flow.Start:
			p.doc.Errorf(spec.P("phases", flow.Stop, "stop"), "stop it in a later phase", "flow %q is stopped before it started", flow.Name)
			continue
		}
		for j := flow.Start; j < flow.Stop; j++ {
			p.Phases[j].Flows = append(p.Phases[j].Flows, flow.Name)
			flow.Duration += p.Phases[j].For
		}
	}
	for i, ph := range p.Phases {
		if len(ph.Flows) == 0 {
			p.doc.Errorf(spec.P("phases", i), "start a flow in it, or leave it out", "phase %q has no flow", ph.Name)
		}
	}
}

// checkTool asks the driver what the tool would refuse, before anything is started, and points at the lines.
func (p *Playbook) checkTool(f *playbookFile) {
	seen := map[string]bool{}
	for _, flow := range p.Flows {
		if flow.Start < 0 || flow.Duration == 0 {
			continue
		}
		params := flow.Traffic
		params.Duration = flow.Duration
		if params.AllSizes {
			params.Size = 0
		}
		for _, problem := range params.Check() {
			at, also := p.place(f, flow, problem.Fields)
			text := problem.Message
			if seen[text] {
				continue
			}
			seen[text] = true
			for _, other := range also {
				if line := p.doc.Pos(other).Line; line > 0 {
					text += fmt.Sprintf("; see %s in line %d", other, line)
				}
			}
			p.doc.Errorf(at, "", "%s: %s", strings.Join(problem.Fields, ", "), text)
		}
	}
}

// place maps fields of the driver's parameters to places in the playbook.
func (p *Playbook) place(f *playbookFile, flow Flow, fields []string) (at spec.Path, also []spec.Path) {
	for i, field := range fields {
		var path spec.Path
		switch field {
		case "duration":
			path = spec.P("phases", flow.Start, "for")
		case "sizes":
			path = spec.P("traffic", "args")
			for j, a := range f.Traffic.Args {
				if a == "-a" || a == "--all" {
					path = spec.P("traffic", "args", j)
				}
			}
		case "iterations", "bidirectional", "no_peak", "cq_mod", "post_list", "inline", "sl", "retry_count":
			path = spec.P("traffic", "args")
		default:
			if path = spec.P("flows", flow.Name, field); !p.doc.Has(path) {
				path = spec.P("traffic", field)
			}
		}
		if i == 0 {
			at = path
		} else {
			also = append(also, path)
		}
	}
	return at, also
}

func (p *Playbook) flow(name string) *Flow {
	for i := range p.Flows {
		if p.Flows[i].Name == name {
			return &p.Flows[i]
		}
	}
	return nil
}

func (p *Playbook) buildExpectations(f *playbookFile) {
	known := []nicbackends.Cap{nicbackends.ECN, nicbackends.CNP, nicbackends.CC, nicbackends.PFC, nicbackends.RDCC, nicbackends.WithoutRDCC}
	for i, e := range f.Expect {
		x, err := CompileExpression(e.That)
		if err != nil {
			var ee *ExpressionError
			if errors.As(err, &ee) {
				p.doc.Errorf(spec.P("expect", i, "that"), "pcmlab help expectations", "%q: column %d: %s", e.That, ee.Col+1, ee.Message)
			} else {
				p.doc.Errorf(spec.P("expect", i, "that"), "pcmlab help expectations", "%v", err)
			}
			continue
		}
		p.checkNames(spec.P("expect", i, "that"), x)
		out := Expectation{Name: e.Name, Expr: x}
		if out.Name == "" {
			out.Name = e.That
		}
		for _, n := range e.Needs {
			if !slices.Contains(known, nicbackends.Cap(n)) {
				p.doc.Errorf(spec.P("expect", i, "needs"), "known: ecn, cnp, cc, pfc, rdcc, without_rdcc", "no capability %q", n)
			}
			out.Needs = append(out.Needs, nicbackends.Cap(n))
		}
		p.Expect = append(p.Expect, out)
	}
}

// checkNames finds phases and flows in an expectation that the playbook does not have.
func (p *Playbook) checkNames(at spec.Path, x *Expression) {
	var phases, flows []string
	for _, ph := range p.Phases {
		phases = append(phases, ph.Name)
	}
	for _, f := range p.Flows {
		flows = append(flows, f.Name)
	}
	_, asked := x.queries()
	for _, q := range asked {
		if q.Phase != "" && q.Phase != "*" && !slices.Contains(phases, q.Phase) {
			p.doc.Errorf(at, spec.Suggest(q.Phase, phases), "no phase %q", q.Phase)
		}
		if q.Flow != "" && q.Flow != "*" && !slices.Contains(flows, q.Flow) {
			p.doc.Errorf(at, spec.Suggest(q.Flow, flows), "no flow %q", q.Flow)
		}
	}
}

func parseTrim(s string) Trim {
	if n, ok := strings.CutSuffix(s, "%"); ok {
		v, _ := strconv.Atoi(n)
		return Trim{Share: float64(v) / 100}
	}
	d, _ := time.ParseDuration(s)
	return Trim{Time: d}
}
