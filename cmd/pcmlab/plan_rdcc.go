package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/internal/units"
)

// printPlannedRDCC says who asks, who grants, and what the parameters amount to in this lab.
func (e *env) printPlannedRDCC(p *experiments.PlannedRDCC) error {
	if p == nil {
		return nil
	}
	if p.Off {
		_, err := fmt.Fprintln(e.stdout, "rdcc is off: all flows go without credit")
		return err
	}
	t := e.newTable("credit control", "grants to", "waits with", "class", "weight")
	for _, g := range p.Hosts {
		class, weight := "-", "-"
		if len(g.Sends) > 0 {
			class, weight = fmt.Sprint(g.Config.Class), fmt.Sprint(max(g.Config.Weight, 1))
		}
		t.row(g.Host, orNone(g.Grants), orNone(g.Sends), class, weight)
	}
	if err := t.print(); err != nil {
		return err
	}
	t = e.newTable("parameter", "of", "is", "as written", "built")
	for _, g := range p.Hosts {
		if len(g.Grants) > 0 {
			rdccRows(t, p, g)
		}
	}
	if err := t.print(); err != nil {
		return err
	}
	c := p.Hosts[0].Config
	_, err := fmt.Fprintf(e.stdout, "rdcc: UDP port %d, protection: %s\n", c.Port, c.Protection)
	return err
}

func rdccRows(t *tableOut, p *experiments.PlannedRDCC, g experiments.PlannedGate) {
	a, given := g.Amounts, p.Given
	size := func(name string, n int64, written fmt.Stringer) {
		times := ""
		if a.BDP > 0 {
			times = fmt.Sprintf(" (%.2f BDP)", float64(n)/float64(a.BDP))
		}
		t.row(name, g.Host, fmt.Sprintf("%d B%s", n, times), asWritten(written), "-")
	}
	span := func(name string, ns, built int64, written fmt.Stringer) {
		t.row(name, g.Host, fmt.Sprint(time.Duration(ns)), asWritten(written), fmt.Sprint(time.Duration(built)))
	}
	t.row("line rate", g.Host, units.Rate(a.LineRateBps).String(), "-", units.Rate(a.BuiltLineBps).String())
	span("base RTT", a.BaseRTTNS, a.BuiltRTTNS, given.BaseRTT)
	t.row("BDP", g.Host, fmt.Sprintf("%d B", a.BDP), "-", "-")
	size("G", a.G, given.G)
	size("Gu", a.Gu, given.Gu)
	size("Gs", a.Gs, nil)
	size("U", a.U, given.U)
	span("J", a.JNS, a.BuiltJNS, given.J)
	span("lifetime", a.LifetimeNS, a.BuiltLifeNS, given.Lifetime)
	size("backlog", a.Backlog, given.Backlog)
	if a.Segment > 0 {
		size("segment", a.Segment, given.Segment)
	}
	t.row("credit unit", g.Host, fmt.Sprintf("%d B", a.CreditUnit), "-", "-")
	t.row("expected senders", g.Host, fmt.Sprint(a.Senders), "-", "-")
}

func asWritten(v fmt.Stringer) string {
	if v == nil || v.String() == "" {
		return "-"
	}
	return v.String()
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "-"
	}
	return strings.Join(names, " ")
}

// shellLine quotes words that a shell would take apart.
func shellLine(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		if words[i] = a; strings.ContainsRune(a, ' ') {
			words[i] = "'" + a + "'"
		}
	}
	return strings.Join(words, " ")
}
