package experiments

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/rdcc/domain"
)

// RDCCKey switches credit control on and off: --set rdcc=off, or a matrix over rdcc: [on, off].
const RDCCKey = "rdcc"

// RDCC is what a playbook says of receiver-driven credit control.
type RDCC struct {
	Receivers []string      // that grant; all flows to them wait for credit
	Config    domain.Config // as written: what the lab says of the domain is not in it yet
	Flows     []RDCCFlow
}

// RDCCFlow is how the messages of a flow are asked for.
type RDCCFlow struct {
	Name, Hint    string
	Class, Weight *uint8
}

// rdccSpec is RDCC on disk.
type rdccSpec struct {
	Receiver spec.OneOrMany[string] `yaml:"receiver,required" example:"r1" doc:"the host that grants credit to all flows that come to it, or several"`
	Flows    spec.Map[rdccFlowSpec] `yaml:"flows" keys:"[a-z0-9][a-z0-9_-]*" doc:"class, weight and hint by flow, where they differ"`
	domain.Config
}

type rdccFlowSpec struct {
	Class  *uint8 `yaml:"class" min:"0" max:"7" doc:"traffic class of its messages, 0 is served first"`
	Weight *uint8 `yaml:"weight" min:"1" max:"255" doc:"within the class"`
	Hint   string `yaml:"hint" enum:"none,latency-sensitive,throughput-oriented" doc:"service hint of its messages"`
}

func (p *Playbook) buildRDCC(f *playbookFile, hosts map[string]bool) {
	if f.RDCC == nil {
		return
	}
	at := spec.P(RDCCKey)
	r := &RDCC{Receivers: f.RDCC.Receiver, Config: f.RDCC.Config}
	p.RDCC = r
	var flows, known []string
	for h := range hosts {
		known = append(known, h)
	}
	slices.Sort(known)
	for _, fl := range p.Flows {
		flows = append(flows, fl.Name)
	}
	for i, host := range r.Receivers {
		where := at.With("receiver", i)
		toHost := func(fl Flow) bool { return fl.To == host }
		switch {
		case !hosts[host]:
			p.doc.Errorf(where, spec.Suggest(host, known), "host %q plays no role in hosts", host)
		case slices.Contains(r.Receivers[:i], host):
			p.doc.Errorf(where, "name each once", "receiver %q is here twice", host)
		case !slices.ContainsFunc(p.Flows, toHost):
			p.doc.Errorf(where, "name a host that flows go to", "no flow goes to %q", host)
		}
	}
	for _, e := range f.RDCC.Flows {
		where := at.With("flows", e.Key)
		fl := p.flow(e.Key)
		switch {
		case fl == nil:
			p.doc.KeyErrorf(where, spec.Suggest(e.Key, flows), "no flow %q", e.Key)
			continue
		case !slices.Contains(r.Receivers, fl.To):
			p.doc.KeyErrorf(where, "add "+fl.To+" to receiver, or leave it out", "flow %q goes to %q, which grants nothing", e.Key, fl.To)
		}
		r.Flows = append(r.Flows, RDCCFlow{Name: e.Key, Hint: e.Value.Hint, Class: e.Value.Class, Weight: e.Value.Weight})
	}
	c := r.Config
	if c.Port == 0 {
		c.Port = domain.FirstDynamicPort // whether there is one shows when a lab is there
	}
	c.CheckIn(p.doc, at)
	if c.TimeScale != 0 {
		p.doc.Errorf(at.With("time_scale"), "leave it out", "time_scale is the lab's")
	}
	if len(c.Local) > 0 {
		p.doc.Errorf(at.With("local"), "leave it out", "each host's own addresses are in the lab file")
	}
}

// switchRDCC is --set rdcc=on or off.
func (f *playbookFile) switchRDCC(text string) error {
	var on bool
	switch strings.ToLower(text) {
	case "on", "true", "yes":
		on = true
	case "off", "false", "no":
	default:
		return fmt.Errorf("%q is neither on nor off", text)
	}
	if f.RDCC == nil {
		if on {
			return errors.New("the playbook has no rdcc: (add rdcc: {receiver: r1})")
		}
		return nil
	}
	f.RDCC.Off = !on
	return nil
}
