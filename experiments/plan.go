package experiments

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

// Plan is exactly what a run will do: hosts, commands, ports, files and times. It is a pure value; making it touches
// nothing.
type Plan struct {
	Schema   string           `json:"schema"` // pcmlab/plan/v1
	Playbook string           `json:"playbook"`
	Lab      string           `json:"lab"`
	Scale    float64          `json:"time_scale"`
	Hosts    []PlannedHost    `json:"hosts"`
	Flows    []PlannedFlow    `json:"flows"`
	Captures []PlannedCapture `json:"captures"`
	Phases   []PlannedPhase   `json:"phases"`
	Checks   []PlannedCheck   `json:"checks"`
	Handlers []PlannedHandler `json:"handlers"`
	Settings []PlannedSetting `json:"settings,omitempty"`
	RDCC     *PlannedRDCC     `json:"rdcc,omitempty"` // nil: the playbook does not speak of it
	Notes    []string         `json:"notes"`
	Duration time.Duration    `json:"duration_ns"` // of all phases
	Sample   time.Duration    `json:"sample_ns"`   // how often counters and clocks are read during them; 0: at their borders
	// Bottleneck is the link into the receiver that all flows share, as built; "" and 0 when there is none to name.
	Bottleneck        string  `json:"bottleneck"`
	BottleneckRateBps float64 `json:"bottleneck_rate_bps"`
}

// PlannedHost is a host that takes part, with what for.
type PlannedHost struct {
	Name    string   `json:"name"`
	Address string   `json:"address"`
	Parts   []string `json:"parts"`
}

// PlannedFlow is one flow with the exact commands. A GID index that is resolved on the host when the run begins is
// shown as `-x <gid>`.
type PlannedFlow struct {
	Name     string        `json:"name"`
	From     string        `json:"from"`
	To       string        `json:"to"`
	Begin    time.Duration `json:"begin_ns"` // since the first phase begins
	Duration time.Duration `json:"duration_ns"`
	Port     int           `json:"port"`
	ServerAt string        `json:"server_host"` // To, but where the tool READs From: payload goes from From to To whatever the operation
	ClientAt string        `json:"client_host"`
	Server   []string      `json:"server"`
	Client   []string      `json:"client"`

	params  perftest.Params
	meet    netip.Addr // where the tool's ends exchange keys
	fromNIC *inventory.NIC
	toNIC   *inventory.NIC
}

// PlannedCapture is one tap.
type PlannedCapture struct {
	Tap     string          `json:"tap"`
	Host    string          `json:"host"`
	Iface   string          `json:"iface"`
	Judge   bool            `json:"judge"`
	Command []string        `json:"command"`
	File    string          `json:"file"` // in the bundle; of a ring its files have this with a number
	program capture.Program // "": the first that can
	options capture.TapOptions
	tap     *inventory.Tap
}

// PlannedPhase is one phase with the window that is measured.
type PlannedPhase struct {
	Name      string        `json:"name"`
	Begin     time.Duration `json:"begin_ns"`
	For       time.Duration `json:"for_ns"`
	TrimStart time.Duration `json:"trim_start_ns"`
	TrimEnd   time.Duration `json:"trim_end_ns"`
	Start     []string      `json:"start"`
	Stop      []string      `json:"stop"`
	Flows     []string      `json:"flows"`
}

// PlannedCheck is an expectation, with the reason when the lab's NICs or switches make it a SKIP.
type PlannedCheck struct {
	Name string `json:"name"`
	That string `json:"that"`
	Skip string `json:"skip,omitempty"`
}

// NewPlan joins a playbook and a lab. The error lists every mismatch at its place in the playbook.
func NewPlan(p *Playbook, lab *inventory.Lab, backends nicbackends.Registry) (*Plan, error) {
	copied := *p.doc // mistakes that this lab brings to light are not the playbook's own
	doc := &copied
	plan := &Plan{Schema: "pcmlab/plan/v1", Playbook: p.Name, Lab: lab.Name, Scale: lab.Scale().Factor(), Notes: []string{}}
	b := planner{plan, p, lab, doc, map[string][]string{}}
	b.checkHosts()
	b.flows()
	b.captures()
	for _, ph := range p.Phases {
		plan.Phases = append(plan.Phases, PlannedPhase{ph.Name, ph.Begin, ph.For, p.Trims.Start.Of(ph.For), p.Trims.End.Of(ph.For),
			listed(ph.Start), listed(ph.Stop), listed(ph.Flows)})
		plan.Duration += ph.For
	}
	plan.Sample = b.sampleOf()
	b.settings()
	b.bottleneck()
	caps, backendErr := b.capabilities(backends)
	if backendErr == nil {
		backendErr = errors.Join(b.handlers(backends), b.rdcc(backends))
		b.rdccCaps(caps)
		b.captureRDCC()
	}
	for _, e := range p.Expect {
		skip := e.Skip
		if skip == "" {
			skip = missingCaps(e.Needs, caps)
		}
		if skip == "" {
			skip = b.withoutRDCC(e)
		}
		if skip == "" && b.BottleneckRateBps == 0 && e.Expr.speaksOf("utilisation") {
			skip = "the lab file gives no rate for the link that the flows share (rate: of its link or NIC)"
		}
		plan.Checks = append(plan.Checks, PlannedCheck{e.Name, e.Expr.Text, skip})
	}
	for _, h := range lab.Hosts {
		if parts := b.parts[h.Name]; len(parts) > 0 {
			address := h.SSH.Address
			if address == "" {
				address = h.Name
			}
			plan.Hosts = append(plan.Hosts, PlannedHost{h.Name, address, parts})
		}
	}
	if err := doc.Err(); err != nil {
		backendErr = errors.Join(fmt.Errorf("%w\n(lab %s)", err, lab.File), backendErr)
	}
	if backendErr != nil {
		return nil, inputError(backendErr)
	}
	return plan, nil
}

type planner struct {
	*Plan
	p     *Playbook
	lab   *inventory.Lab
	doc   *spec.Doc
	parts map[string][]string
}

func (b *planner) takePart(host, what string) {
	if !slices.Contains(b.parts[host], what) {
		b.parts[host] = append(b.parts[host], what)
	}
}

func (b *planner) hostNames() []string {
	var names []string
	for _, h := range b.lab.Hosts {
		names = append(names, h.Name)
	}
	return names
}

func (b *planner) checkHosts() {
	for _, r := range b.p.Roles {
		for _, h := range r.Hosts {
			if b.lab.Host(h) == nil {
				b.doc.Errorf(spec.P("hosts", r.Name), spec.Suggest(h, b.hostNames()), "the lab has no host %q", h)
			}
		}
	}
}

// nic is the NIC of a host that carries its flows: the first one.
func (b *planner) nic(flow, end, host string) *inventory.NIC {
	h := b.lab.Host(host)
	if h == nil {
		return nil
	}
	if len(h.NICs) == 0 {
		b.doc.Errorf(spec.P("flows", flow, end), "give it one in the lab file", "host %q has no NIC in the lab", host)
		return nil
	}
	n := h.NICs[0]
	switch {
	case !b.p.IPv6 || n.IP.Addr().Is6():
		return n
	case !n.IP6.IsValid():
		b.doc.Errorf(spec.P("flows", flow, end), "give it ip6: in the lab file", "the NIC of host %q has no IPv6 address in the lab, which traffic.ipv6 asks for", host)
		return nil
	}
	v6 := *n
	v6.IP, v6.GIDIndex = n.IP6, nil // an index that the lab gives is that of the IPv4 address
	return &v6
}

func (b *planner) flows() {
	next := map[string]int{}
	for _, f := range b.p.Flows {
		from, to := b.nic(f.Name, "from", f.From), b.nic(f.Name, "to", f.To)
		serverAt, clientAt := f.To, f.From
		if f.Traffic.ToolName() == perftest.ReadBW {
			serverAt, clientAt = f.From, f.To
		}
		port := b.p.Ports.First + next[serverAt]
		if next[serverAt]++; next[serverAt] > b.p.Ports.Count {
			b.doc.Errorf(spec.P("traffic", "ports"), "raise traffic.ports", "host %q has more servers of flows than its pool has ports (%d)", serverAt, b.p.Ports.Count)
		}
		if from == nil || to == nil {
			continue
		}
		pf := PlannedFlow{Name: f.Name, From: f.From, To: f.To, Begin: b.p.Phases[f.Start].Begin, Duration: f.Duration, Port: port,
			ServerAt: serverAt, ClientAt: clientAt, fromNIC: from, toNIC: to}
		pf.params = f.Traffic
		pf.params.Port, pf.params.Duration = port, f.Duration
		server, client := pf.ends()
		pf.meet = b.meet(&pf)
		pf.params.IPv6Exchange = pf.meet.Is6() && server.Backend != perftest.SoftBackend
		pf.Server, pf.Client = shownArgs(pf.params.On(server).ServerArgs(), server), shownArgs(pf.params.On(client).ClientArgs(pf.meet.String()), client)
		b.takePart(f.From, "sends "+f.Name)
		b.takePart(f.To, "receives "+f.Name)
		b.Flows = append(b.Flows, pf)
	}
}

// meet is the address at which the tool's ends exchange keys. Where the flow is between IPv6 addresses and the server has one of IPv4 too, it is
// the latter: the GIDs alone say what the data take, and the tool that distributions ship (perftest 4.5) meets on IPv4 only. With -R there is no
// such exchange.
func (b *planner) meet(f *PlannedFlow) netip.Addr {
	server, _ := f.ends()
	if lab := b.lab.Host(f.ServerAt).NICs[0]; server.Backend != perftest.SoftBackend && !f.params.RDMACM && lab.IP.IsValid() && lab.IP.Addr().Is4() {
		return lab.IP.Addr()
	}
	return server.IP.Addr()
}

// ends are the NICs of the tool's server and client.
func (f *PlannedFlow) ends() (server, client *inventory.NIC) {
	if f.ServerAt == f.From {
		return f.fromNIC, f.toNIC
	}
	return f.toNIC, f.fromNIC
}

func shownArgs(argv []string, nic *inventory.NIC) []string {
	if nic.GIDIndex != nil {
		return argv
	}
	for i, a := range argv {
		if a == "-d" && i+2 <= len(argv) {
			return slices.Insert(slices.Clone(argv), i+2, "-x", "<gid>")
		}
	}
	return argv
}

func (b *planner) captures() {
	var names []string
	for _, t := range b.lab.Taps {
		names = append(names, t.Name)
	}
	for i, c := range b.p.Captures {
		tap := b.lab.Tap(c.Tap)
		if tap == nil {
			if c.Optional {
				b.Notes = append(b.Notes, fmt.Sprintf("tap %s: not in lab %s, left out", c.Tap, b.lab.Name))
				continue
			}
			b.doc.Errorf(spec.P("captures", i, "tap"), spec.Suggest(c.Tap, names), "the lab has no tap %q", c.Tap)
			continue
		}
		pc := PlannedCapture{Tap: c.Tap, Host: tap.Host, Iface: tap.Iface, Judge: c.Judge, File: "captures/" + c.Tap + cmp.Or(c.Program, capture.Own).Ext(), program: c.Program, tap: tap,
			options: capture.TapOptions{Iface: tap.Iface, Snaplen: c.Snaplen, Filter: cmp.Or(c.Filter, "roce"), FileSize: c.FileSize, Files: c.Files, Hardware: c.Hardware}}
		pc.Command = pc.command("<run>")
		b.takePart(tap.Host, "captures "+c.Tap)
		b.Captures = append(b.Captures, pc)
	}
	if hosts := captureHosts(b.Captures); b.p.Analyze == AnalyzeThere && len(hosts) > 1 {
		b.doc.Errorf(spec.P("measure", "analyze"), "write here or auto, or leave out taps", "analyze: there: the captures lie on several hosts (%s), and are analysed together", strings.Join(hosts, ", "))
	}
	if len(b.Captures) == 0 {
		b.Notes = append(b.Notes, "no capture: what the wire carried is not measured")
	}
	for _, s := range b.lab.Switches {
		if s.Host != "" {
			b.takePart(s.Host, "counters of switch "+s.Name)
		}
	}
}

func captureHosts(captures []PlannedCapture) (hosts []string) {
	for _, c := range captures {
		if !slices.Contains(hosts, c.Host) {
			hosts = append(hosts, c.Host)
		}
	}
	return hosts
}

// captureRDCC has the taps keep control datagrams, too.
func (b *planner) captureRDCC() {
	port := b.port()
	if port == 0 {
		return
	}
	for i := range b.Captures {
		c := &b.Captures[i]
		if own := b.p.capture(c.Tap); own == nil || own.Filter == "" {
			c.options.Filter = fmt.Sprintf("roce or udp port %d", port)
		}
		c.Command = c.command("<run>")
	}
}

// command is what captures, into a folder.
func (c *PlannedCapture) command(dir string) []string {
	program := cmp.Or(c.program, capture.Own)
	return program.Args(c.into(program, dir))
}

// into are the options with the file that a program writes in a folder.
func (c *PlannedCapture) into(program capture.Program, dir string) capture.TapOptions {
	o := c.options
	o.File = path.Join(dir, c.Tap+program.Ext())
	return o
}

// sampleOf is how often counters are read during phases: the software of a virtual lab is disturbed by whatever else runs.
func (b *planner) sampleOf() time.Duration {
	switch {
	case b.p.Sample != nil:
		return *b.p.Sample
	case b.lab.Virtual != nil:
		return 0
	}
	return DefaultSample
}

// bottleneck is the link into the only receiver; with several receivers there is no one link to name.
func (b *planner) bottleneck() {
	receivers := map[string]*inventory.NIC{}
	for _, f := range b.Flows {
		receivers[f.To] = f.toNIC
	}
	if len(receivers) != 1 {
		return
	}
	for host, nic := range receivers {
		rate := nic.Rate
		for _, l := range b.lab.Links {
			for _, end := range []inventory.End{l.A, l.B} {
				if end.Host == host && end.Netdev == nic.Netdev && l.Rate > 0 && (rate == 0 || l.Rate < rate) {
					rate = l.Rate
				}
			}
		}
		b.Bottleneck = host + "." + nic.Netdev
		b.BottleneckRateBps = float64(b.lab.Scale().Rate(rate))
	}
}

// capabilities are those that every NIC of the run has, and those of the switches.
func (b *planner) capabilities(backends nicbackends.Registry) (map[nicbackends.Cap]string, error) {
	missing := map[nicbackends.Cap]string{}
	for _, c := range []nicbackends.Cap{nicbackends.ECN, nicbackends.CNP, nicbackends.CC, nicbackends.PFC} {
		for _, f := range b.Flows {
			for _, end := range []struct {
				host string
				nic  *inventory.NIC
			}{{f.From, f.fromNIC}, {f.To, f.toNIC}} {
				backend, err := backends.Find(end.nic.Backend)
				if err != nil {
					return nil, fmt.Errorf("%s: host %s: NIC %s: %w", b.lab.File, end.host, end.nic.Device, err)
				}
				switch {
				case !slices.Contains(backend.Caps(), c):
					missing[c] = fmt.Sprintf("the %s NIC of %s has no %s", backend.Name(), end.host, c)
				case c == nicbackends.ECN && !end.nic.ECN:
					missing[c] = fmt.Sprintf("ecn is off on the NIC of %s", end.host)
				case (c == nicbackends.CC || c == nicbackends.CNP) && end.nic.DCQCN != nil && !*end.nic.DCQCN:
					missing[c] = fmt.Sprintf("dcqcn is off on the NIC of %s", end.host)
				}
			}
		}
	}
	marks := false
	pauses := false
	for _, s := range b.lab.Switches {
		marks = marks || s.ECN != nil
		pauses = pauses || s.PFC != nil
	}
	if !marks && missing[nicbackends.ECN] == "" {
		missing[nicbackends.ECN] = "no switch of the lab marks"
	}
	if !pauses && missing[nicbackends.PFC] == "" {
		missing[nicbackends.PFC] = "no switch of the lab has PFC"
	}
	return missing, nil
}

func missingCaps(needs []nicbackends.Cap, missing map[nicbackends.Cap]string) string {
	var reasons []string
	for _, n := range needs {
		if r := missing[n]; r != "" && !slices.Contains(reasons, r) {
			reasons = append(reasons, r)
		}
	}
	return strings.Join(reasons, "; ")
}

func listed(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
