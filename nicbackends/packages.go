package nicbackends

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/handlers"
)

// Packages resolves the handlers of NICs of one platform.
type Packages struct {
	Platform *pcm.Platform
	NIC      string // in messages: "the software NIC"
}

// Limits says what the platform makes of a package's signals and controls, of each that it does not have as it is.
func (k Packages) Limits(p *pcm.Package) []string {
	out := []string{}
	for _, g := range k.Platform.Gaps(p) {
		switch g.Support {
		case pcm.Silent:
			out = append(out, fmt.Sprintf("%s (%s) keeps its initial value: %s", g.Name, g.Source, g.Why))
		case pcm.Adapted:
			out = append(out, fmt.Sprintf("%s (%s): %s", g.Name, g.Source, g.Why))
		}
	}
	return out
}

// Load is the package of a rule with its constants for the deployment, or what is wrong with it.
func (k Packages) Load(fabric *pcm.Fabric, rule int, r *inventory.HandlerRule) (*pcm.Package, []HandlerMistake) {
	var mistakes []HandlerMistake
	wrong := func(key, fix, format string, args ...any) {
		mistakes = append(mistakes, HandlerMistake{Rule: rule, Key: key, Message: fmt.Sprintf(format, args...), Fix: fix})
	}
	load := func(set map[string]string) (*pcm.Package, error) {
		d := pcm.Deployment{Fabric: fabric, Set: set}
		if strings.ContainsAny(r.Handler, "/.") {
			return pcm.Load(r.Handler, d)
		}
		return handlers.Load(r.Handler, d)
	}
	if names := handlers.Names(); !strings.ContainsAny(r.Handler, "/.") && !slices.Contains(names, r.Handler) {
		wrong("handler", spec.Suggest(r.Handler, names)+"; a package of your own is given by its path", "handler %q: not in the library", r.Handler)
		return nil, mistakes
	}
	p, err := load(nil)
	if err != nil {
		wrong("handler", "", "handler %q: %v", r.Handler, err)
		return nil, mistakes
	}
	var known []string
	for _, c := range p.Constants {
		known = append(known, c.Name)
	}
	for _, v := range p.Vars {
		known = append(known, v.Name)
	}
	for _, c := range p.Controls {
		known = append(known, c.Name)
	}
	if len(p.Controls) == 0 {
		wrong("handler", "", "handler %q sets nothing", r.Handler)
	}
	said := map[string]bool{} // what has no entropy has neither its controls nor its signals: once is enough
	refuse := func(g pcm.Gap, does string) {
		if g.Support == pcm.Refused && !said[g.Why] {
			said[g.Why] = true
			wrong("handler", "", "handler %q %s %s, and %s", r.Handler, does, g.Source, g.Why)
		}
	}
	gaps := k.Platform.Gaps(p)
	slices.SortStableFunc(gaps, func(a, b pcm.Gap) int { return strings.Compare(a.Section, b.Section) }) // controls say more
	for _, g := range gaps {
		refuse(g, map[string]string{"controls": "sets", "signals": "reads"}[g.Section])
	}
	if len(mistakes) == 0 && !k.Platform.Wakes(p) {
		wrong("handler", "", "handler %q would never run: no signal with a trigger ever comes to %s", r.Handler, k.NIC)
	}
	set := map[string]string{}
	for _, c := range r.Set {
		if !slices.Contains(known, c.Name) {
			wrong("set."+c.Name, spec.Suggest(c.Name, known), "handler %q has no constant %q", r.Handler, c.Name)
			continue
		}
		if _, err := load(map[string]string{c.Name: c.Value}); err != nil {
			wrong("set."+c.Name, "", "handler %q: %s = %q: %s", r.Handler, c.Name, c.Value, firstMessage(err))
			continue
		}
		set[c.Name] = c.Value
	}
	if len(mistakes) > 0 {
		return p, mistakes
	}
	if p, err = load(set); err != nil {
		wrong("set", "", "handler %q: %s", r.Handler, firstMessage(err))
	}
	return p, mistakes
}

// firstMessage is a mistake of a package without its place, which is not where the user wrote.
func firstMessage(err error) string {
	var e *spec.Errors
	if errors.As(err, &e) && len(e.Problems) > 0 {
		_, message, _ := strings.Cut(e.Problems[0].Message, ": ") // behind the path within the package
		return message
	}
	return err.Error()
}

// Resolve is all rules of a NIC, as Handled.Handlers gives them. builds finds what is wrong with a package that the platform takes; nil: nothing.
func (k Packages) Resolve(fabric *pcm.Fabric, nic *inventory.NIC, builds func(rule int, p *pcm.Package) []HandlerMistake) ([]Handler, []HandlerMistake) {
	var mistakes []HandlerMistake
	list := []Handler{}
	var names []string
	for i := range nic.Handlers {
		r := &nic.Handlers[i]
		h := Handler{Name: r.Handler, Match: r.Match.String(), Controls: []string{}, Set: []string{}, Constants: map[string]string{}, Limits: []string{}}
		for _, c := range r.Set {
			h.Set = append(h.Set, c.Name+"="+c.Value)
		}
		if r.Handler != inventory.NoHandler {
			p, wrong := k.Load(fabric, i, r)
			if p != nil {
				h.Name = p.Name
				for _, c := range p.Controls {
					h.Controls = append(h.Controls, c.Kind.String())
					h.Mask |= 1 << c.Kind
				}
				h.Limits = k.Limits(p)
				for _, c := range p.Constants {
					h.Constants[c.Name] = c.Value.String()
				}
			}
			if len(wrong) == 0 {
				var err error
				if h.Hash, err = p.Hash(); err != nil {
					wrong = []HandlerMistake{{Rule: i, Key: "handler", Message: err.Error()}}
				} else if builds != nil {
					wrong = builds(i, p)
				}
			}
			mistakes = append(mistakes, wrong...)
		}
		list, names = append(list, h), append(names, h.Name)
	}
	for i, name := range CounterNames(names) {
		list[i].Counter = name
	}
	return list, mistakes
}

// CounterNames are what counters of handlers end with: their names, with a number behind the second of a name.
func CounterNames(handlers []string) []string {
	seen := map[string]int{}
	var names []string
	for _, h := range handlers {
		name := h
		if seen[h]++; seen[h] > 1 {
			name = fmt.Sprintf("%s_%d", h, seen[h])
		}
		names = append(names, name)
	}
	return names
}

// Fabric derives the deployment constants from the lab, in hardware terms: rate and path MTU of the NIC, the longest way that two links
// make, and what the hosts' software adds to a round trip as built, which a time scale makes small.
func Fabric(lab *inventory.Lab, nic *inventory.NIC, hostDelay time.Duration) *pcm.Fabric {
	const hops, headers = 2, 54
	mss := 1024
	for _, m := range []int{2048, 4096} {
		if nic.MTU >= m+headers+10 {
			mss = m
		}
	}
	rate := nic.Rate
	var delay time.Duration
	for _, l := range lab.Links {
		delay = max(delay, l.Delay)
		if rate == 0 || l.Rate > 0 && l.Rate < rate {
			rate = l.Rate
		}
	}
	rtt := 2*hops*delay + hops*rate.Transmit(mss+headers) + time.Duration(float64(hostDelay)/lab.Scale().Factor())
	bdp := int64(float64(rate) / 8 * rtt.Seconds())
	f := &pcm.Fabric{File: lab.File, Values: map[string]pcm.Number{}, TimeUnitPS: 1000}
	set := func(name string, v int64) {
		f.Names = append(f.Names, name)
		f.Values[name] = pcm.IntNumber(v)
	}
	set("FABRIC_HOP_COUNT", hops)
	set("FABRIC_LINK_MSS", int64(mss))
	set("FABRIC_LINK_MTU", int64(mss+headers))
	set("FABRIC_BDP", bdp)
	set("FABRIC_MIN_CWND", int64(mss+headers))
	set("FABRIC_MAX_CWND", max(bdp*3/2, int64(4*mss)))
	set("FABRIC_BRTT", rtt.Nanoseconds())
	set("FABRIC_TRTT", rtt.Nanoseconds()*7/4)
	f.Names = append(f.Names, "FABRIC_LINK_RATE_GBPS")
	f.Values["FABRIC_LINK_RATE_GBPS"] = pcm.Number{Float: float64(rate) / float64(8*units.GbitPerSec)}
	return f
}
