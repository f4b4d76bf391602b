package experiments

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/rdcc/domain"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
)

// PlannedRDCC is the credit control of a run.
type PlannedRDCC struct {
	Off       bool          `json:"off"`
	Receivers []string      `json:"receivers"`
	Given     domain.Config `json:"given"`        // in the playbook
	Lab       bool          `json:"lab_has_rdcc"` // whose values count where the playbook gives none
	Hosts     []PlannedGate `json:"hosts"`
}

// PlannedGate is the gate in one host's NIC.
type PlannedGate struct {
	Host    string        `json:"host"`
	Sends   []string      `json:"sends"`    // flows that wait for credit
	Grants  []string      `json:"grants"`   // flows that it gives credit to
	Config  domain.Config `json:"config"`   // all that the NIC is told
	Amounts *RDCCAmounts  `json:"resolved"` // what it amounts to; nil while credit control is off

	nic     *inventory.NIC
	backend nicbackends.Credited
}

// RDCCAmounts are the parameters as numbers. Times are those of hardware, and as the lab builds them where the name says so.
type RDCCAmounts struct {
	LineRateBps  int64 `json:"line_rate_bps"`
	BaseRTTNS    int64 `json:"base_rtt_ns"`
	BDP          int64 `json:"bdp_bytes"`
	G            int64 `json:"g_bytes"`
	Gs           int64 `json:"gs_bytes"`
	Gu           int64 `json:"gu_bytes"`
	U            int64 `json:"u_bytes"`
	JNS          int64 `json:"j_ns"`
	LifetimeNS   int64 `json:"lifetime_ns"`
	Backlog      int64 `json:"backlog_bytes"`
	CreditUnit   int64 `json:"credit_unit_bytes"`
	Segment      int64 `json:"segment_bytes"` // 0: as the NIC likes
	Senders      int   `json:"expected_senders"`
	PacketBytes  int64 `json:"packet_bytes"`      // on the link
	CapacityBps  int64 `json:"capacity_bps"`      // of payload
	BuiltRTTNS   int64 `json:"built_base_rtt_ns"` // with the lab's time scale
	BuiltJNS     int64 `json:"built_j_ns"`
	BuiltLifeNS  int64 `json:"built_lifetime_ns"`
	BuiltLineBps int64 `json:"built_line_rate_bps"`
}

// on says that the run is under credit control.
func (r *PlannedRDCC) on() bool { return r != nil && !r.Off }

// port is the domain's; 0: credit control is off.
func (p *Plan) port() uint16 {
	if !p.RDCC.on() || len(p.RDCC.Hosts) == 0 {
		return 0
	}
	return p.RDCC.Hosts[0].Config.Port
}

// gate finds the gate of a host, or nil.
func (r *PlannedRDCC) gate(host string) *PlannedGate {
	if r != nil {
		for i := range r.Hosts {
			if r.Hosts[i].Host == host {
				return &r.Hosts[i]
			}
		}
	}
	return nil
}

// rdcc resolves credit control for the lab: who asks, who grants, and what the parameters amount to.
func (b *planner) rdcc(backends nicbackends.Registry) error {
	book := b.p.RDCC
	if book == nil {
		return nil
	}
	config := b.ofDomain(book.Config)
	b.RDCC = &PlannedRDCC{Off: config.Off, Receivers: book.Receivers, Given: book.Config, Lab: b.lab.RDCC != nil, Hosts: []PlannedGate{}}
	for i := range b.Flows {
		f := &b.Flows[i]
		if !slices.Contains(book.Receivers, f.To) {
			b.note("flow %s waits for no credit: rdcc names no receiver %s", f.Name, f.To)
			continue
		}
		from := b.addGate(f.From, f.fromNIC)
		from.Sends = append(from.Sends, f.Name)
		to := b.addGate(f.To, f.toNIC)
		to.Grants = append(to.Grants, f.Name)
	}
	var said []string
	for i := range b.RDCC.Hosts {
		g := &b.RDCC.Hosts[i]
		backend, err := backends.Find(g.nic.Backend)
		if err != nil {
			return nil // said by whoever looks for capabilities
		}
		credited, ok := backend.(nicbackends.Credited)
		if !ok {
			b.doc.KeyErrorf(spec.P(RDCCKey), "leave rdcc out, or use software NICs", "the %s NIC of %s obeys no credit control", backend.Name(), g.Host)
			continue
		}
		g.backend = credited
		if config.Off {
			g.Config = domain.Config{Off: true}
			continue
		}
		g.Config = b.ofFlows(g, config)
		g.Config.Local = []netip.Addr{g.nic.IP.Addr()}
		g.Config = credited.Path(b.lab, g.nic, g.Config)
		wrong := b.resolveRDCC(g)
		if wrong == nil {
			continue
		}
		if text := wrong.Error(); !slices.Contains(said, text) { // once, whatever hosts have it
			said = append(said, text)
			b.doc.KeyErrorf(spec.P(RDCCKey), "", "on %s: %s", g.Host, strings.ReplaceAll(text, "\n", "; "))
		}
	}
	if !config.Off {
		b.rdccNotes(config)
	}
	return nil
}

func (b *planner) addGate(host string, nic *inventory.NIC) *PlannedGate {
	if g := b.RDCC.gate(host); g != nil {
		return g
	}
	b.RDCC.Hosts = append(b.RDCC.Hosts, PlannedGate{Host: host, Sends: []string{}, Grants: []string{}, nic: nic})
	return &b.RDCC.Hosts[len(b.RDCC.Hosts)-1]
}

// ofDomain fills in what the lab file says of the domain, and demands what it has to say.
func (b *planner) ofDomain(c domain.Config) domain.Config {
	if c.Off {
		return c
	}
	if l := b.lab.RDCC; l != nil {
		if c.Port == 0 {
			c.Port = uint16(l.Port)
		}
		if c.Protection == "" {
			c.Protection = string(l.Protection)
		}
		if len(c.CRNs) == 0 {
			c.CRNs = l.CRNs
		}
		point := func(own **uint8, lab *int) {
			if *own == nil && lab != nil {
				v := uint8(*lab)
				*own = &v
			}
		}
		point(&c.DSCP.Control, l.DSCP.Control)
		point(&c.DSCP.Unscheduled, l.DSCP.Unscheduled)
		d := &c.DSCP
		for class, own := range [...]**uint8{&d.Class0, &d.Class1, &d.Class2, &d.Class3, &d.Class4, &d.Class5, &d.Class6, &d.Class7} {
			point(own, l.DSCP.Classes[class])
		}
	}
	const fix = "add rdcc: {port: 50321, protection: filtered} to the lab file, with a port of your own"
	if c.Port == 0 {
		b.doc.KeyErrorf(spec.P(RDCCKey), fix, "no port: the specification assigns none, and lab %s gives none", b.lab.Name)
		c.Port = domain.FirstDynamicPort
	} else if c.Protection == "" {
		b.doc.KeyErrorf(spec.P(RDCCKey), fix, "nothing says what keeps forged datagrams away from port %d: esp or filtered", c.Port)
	}
	return c
}

// ofFlows gives a host's gate the class, weight and hint of its flows. A NIC asks for all messages alike.
func (b *planner) ofFlows(g *PlannedGate, c domain.Config) domain.Config {
	first, has := "", false
	own := c
	for _, name := range g.Sends {
		mine := c
		for _, f := range b.p.RDCC.Flows {
			if f.Name != name {
				continue
			}
			if f.Class != nil {
				mine.Class = *f.Class
			}
			if f.Weight != nil {
				mine.Weight = *f.Weight
			}
			if f.Hint != "" {
				mine.Hint = f.Hint
			}
		}
		if has && (mine.Class != own.Class || mine.Weight != own.Weight || mine.Hint != own.Hint) {
			b.doc.KeyErrorf(spec.P(RDCCKey, "flows"), "give both the same, or send them from two hosts", "flows %q and %q leave from %s, whose NIC asks for all its messages alike", first, name, g.Host)
			return c
		}
		if !has {
			first, own, has = name, mine, true
		}
	}
	return own
}

// resolveRDCC turns parameters into numbers: the gate is told numbers alone, so that what the plan shows is what it has.
func (b *planner) resolveRDCC(g *PlannedGate) error {
	c := &g.Config
	if len(g.Grants) > 0 && c.ExpectedSenders == 0 {
		c.ExpectedSenders = b.sendersTo(g.Host)
	}
	hardware := *c
	hardware.TimeScale = 1
	path := hardware.Fabric(receiver.Fabric{})
	if err := c.Check(c.Fabric(receiver.Fabric{})); err != nil {
		return err
	}
	r := hardware.Receiver(path)
	bdp := path.BDP()
	a := &RDCCAmounts{LineRateBps: path.LineRate, BaseRTTNS: int64(path.BaseRTT), BDP: bdp, CapacityBps: path.Capacity(), PacketBytes: int64(path.Wire), Senders: max(c.ExpectedSenders, 1),
		G: orDefault(r.G, 2*bdp), CreditUnit: orDefault(r.CreditUnit, int64(path.Payload)), JNS: int64(orDefault(r.Jitter, path.BaseRTT)),
		LifetimeNS: int64(r.Lifetime), Backlog: orDefault(int64(r.Backlog), 2*bdp), Segment: c.Segment.Of(bdp)}
	switch {
	case r.Gu < 0:
	case r.Gu == 0:
		a.Gu = a.G / 4
	default:
		a.Gu = r.Gu
	}
	a.Gs = a.G - a.Gu
	if a.Gu > 0 {
		a.U = orDefault(r.U, min(a.Gu/int64(a.Senders), bdp))
	}
	scale := b.lab.Scale()
	a.BuiltRTTNS, a.BuiltJNS, a.BuiltLifeNS = int64(scale.Time(path.BaseRTT)), int64(scale.Time(time.Duration(a.JNS))), int64(scale.Time(r.Lifetime))
	a.BuiltLineBps = int64(scale.Rate(c.LineRate))
	c.G, c.Gu, c.U = domain.Octets(a.G), domain.Octets(a.Gu), domain.Octets(a.U)
	c.J, c.Lifetime, c.Backlog = domain.Time(time.Duration(a.JNS)), domain.Time(r.Lifetime), domain.Octets(a.Backlog)
	if a.Segment > 0 {
		c.Segment = domain.Octets(a.Segment)
	}
	g.Amounts = a
	return nil
}

func orDefault[T ~int64](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

func (b *planner) sendersTo(host string) int {
	seen := map[string]bool{}
	for _, f := range b.Flows {
		if f.To == host {
			seen[f.From] = true
		}
	}
	return len(seen)
}

// rdccNotes says what is allowed and not advisable.
func (b *planner) rdccNotes(c domain.Config) {
	for _, w := range c.Warnings() {
		b.note("%s", w.Error())
	}
	for _, g := range b.RDCC.Hosts {
		a := g.Amounts
		if a == nil || len(g.Grants) == 0 {
			continue
		}
		if a.G < a.BDP {
			b.note("rdcc: G of %s (%d B) is less than a bandwidth-delay product (%d B): the link will be idle between grants", g.Host, a.G, a.BDP)
		}
		if a.Gu > a.G/4 {
			b.note("rdcc: Gu of %s (%d B) is more than a quarter of G (%d B)", g.Host, a.Gu, a.G)
		}
		if a.U*int64(a.Senders) > a.Gu && a.Gu > 0 {
			b.note("rdcc: %d senders with U = %d B need more than Gu of %s (%d B): the last ones get less", a.Senders, a.U, g.Host, a.Gu)
		}
		for _, s := range b.lab.Switches {
			if s.Buffer > 0 && a.G > int64(s.Buffer) {
				b.note("rdcc: G of %s (%d B) is more than the buffer of switch %s (%v)", g.Host, a.G, s.Name, s.Buffer)
			}
		}
	}
}

// rdccCaps says which expectations speak of runs of the other kind.
func (b *planner) rdccCaps(missing map[nicbackends.Cap]string) {
	switch {
	case b.RDCC.on():
		missing[nicbackends.WithoutRDCC] = "rdcc is on"
	default:
		missing[nicbackends.RDCC] = b.whyNoRDCC()
	}
}

func (b *planner) whyNoRDCC() string {
	if b.RDCC == nil {
		return "the playbook has no rdcc:"
	}
	return "rdcc is off"
}

// withoutRDCC says why an expectation about credit control is not judged.
func (b *planner) withoutRDCC(e Expectation) string {
	if b.RDCC.on() {
		return ""
	}
	for _, name := range e.Expr.uses {
		if strings.HasPrefix(name, RDCCKey+".") {
			return b.whyNoRDCC()
		}
	}
	return ""
}
