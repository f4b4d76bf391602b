package softnic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/nicbackends/cpu"
	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/calls"
	"github.com/pcmlab/pcmlab/pcm/handlers"
)

// deploy compiles the NIC's handlers for this lab, ships and loads them, and reads back that they are the ones, in their order.
func deploy(ctx context.Context, h remote.Host, lab *inventory.Lab, nic *inventory.NIC) error {
	bin, err := h.Binary(ctx)
	if err != nil {
		return err
	}
	folder := path.Join(path.Dir(path.Dir(bin)), "shells")
	if _, err := run(ctx, h, "make the folder of handlers", "mkdir", "-p", folder); err != nil {
		return err
	}
	args := []string{"pcmlab", "nic", "set", "--device", nic.Device}
	var names, hashes []string
	for i := range nic.Handlers {
		r := &nic.Handlers[i]
		setting := HandlerSetting{Shell: inventory.NoHandler, Match: r.Match}
		names, hashes = append(names, r.Handler), append(hashes, "")
		if r.Handler != inventory.NoHandler {
			p, mistakes := handlerPackage(fabricOf(lab, nic), i, r)
			if len(mistakes) > 0 {
				return fmt.Errorf("host %s: NIC %s: %w", h.Name(), nic.Device, mistakes[0])
			}
			object, hash, err := compiled(ctx, p)
			if err != nil {
				return err
			}
			setting.Shell = path.Join(folder, hash+".so")
			for _, s := range p.Signals {
				setting.Signals = append(setting.Signals, s.Name)
			}
			if !slices.Contains(hashes, hash) {
				if err := put(ctx, h, object, setting.Shell); err != nil {
					return err
				}
			}
			hashes[i] = hash
		}
		args = append(args, "handler="+setting.String())
	}
	if _, err := run(ctx, h, "load handlers "+strings.Join(names, ", ")+" into NIC "+nic.Device, args...); err != nil {
		return err
	}
	s, err := show(ctx, h, nic)
	if err != nil {
		return err
	}
	for i, hash := range hashes {
		if len(s.Handlers) != len(hashes) || s.Handlers[i].Hash != hash || s.Handlers[i].Match != nic.Handlers[i].Match.String() {
			return fmt.Errorf("host %s: NIC %s: handlers %s were set, but the NIC says that it runs %+v", h.Name(), nic.Device, strings.Join(names, ", "), s.Handlers)
		}
	}
	return nil
}

func put(ctx context.Context, h remote.Host, object, target string) error {
	f, err := os.Open(object)
	if err != nil {
		return err
	}
	defer f.Close()
	return h.Put(ctx, target, 0o644, f)
}

func show(ctx context.Context, h remote.Host, nic *inventory.NIC) (s Status, err error) {
	out, err := run(ctx, h, "ask NIC "+nic.Device, "pcmlab", "nic", "show", "--device", nic.Device, "-o", "json")
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	return s, err
}

// platform is what the NIC gives to handlers.
func platform() *pcm.Platform {
	pl, err := pcm.PlatformNamed("softnic")
	if err != nil {
		panic(err) // it is in this program
	}
	return pl
}

// limits says what the NIC makes of the package's signals, of each that it does not have as it is.
func limits(p *pcm.Package) []string {
	out := []string{}
	for _, g := range platform().Gaps(p) {
		switch g.Support {
		case pcm.Silent:
			out = append(out, fmt.Sprintf("%s (%s) keeps its initial value: %s", g.Name, g.Source, g.Why))
		case pcm.Adapted:
			out = append(out, fmt.Sprintf("%s (%s): %s", g.Name, g.Source, g.Why))
		}
	}
	return out
}

// handlerPackage is the package of a rule with its constants for the deployment, or what is wrong with it.
func handlerPackage(fabric *pcm.Fabric, rule int, r *inventory.HandlerRule) (*pcm.Package, []HandlerMistake) {
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
	pl := platform()
	gaps := pl.Gaps(p)
	slices.SortStableFunc(gaps, func(a, b pcm.Gap) int { return strings.Compare(a.Section, b.Section) }) // controls say more
	for _, g := range gaps {
		refuse(g, map[string]string{"controls": "sets", "signals": "reads"}[g.Section])
	}
	if len(mistakes) == 0 && !pl.Wakes(p) {
		wrong("handler", "", "handler %q would never run: no signal with a trigger ever comes to the software NIC", r.Handler)
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

// Handlers implements nicbackends.Handled.
func (Backend) Handlers(lab *inventory.Lab, nic *inventory.NIC) ([]nicbackends.Handler, []HandlerMistake) {
	var mistakes []HandlerMistake
	list := []nicbackends.Handler{}
	fabric := fabricOf(lab, nic)
	var infos []HandlerInfo
	for i := range nic.Handlers {
		r := &nic.Handlers[i]
		h := nicbackends.Handler{Name: r.Handler, Match: r.Match.String(), Controls: []string{}, Set: []string{}, Constants: map[string]string{}, Limits: []string{}}
		for _, c := range r.Set {
			h.Set = append(h.Set, c.Name+"="+c.Value)
		}
		if r.Handler != inventory.NoHandler {
			p, wrong := handlerPackage(fabric, i, r)
			if p != nil {
				h.Name = p.Name
				for _, c := range p.Controls {
					h.Controls = append(h.Controls, c.Kind.String())
					h.Mask |= 1 << c.Kind
				}
				h.Limits = limits(p)
				for _, c := range p.Constants {
					h.Constants[c.Name] = c.Value.String()
				}
			}
			if len(wrong) == 0 {
				var err error
				if h.Hash, err = p.Hash(); err != nil {
					wrong = []HandlerMistake{{Rule: i, Key: "handler", Message: err.Error()}}
				} else if strings.ContainsAny(r.Handler, "/.") {
					wrong = compiles(i, p, r.Handler)
				}
			}
			mistakes = append(mistakes, wrong...)
		}
		list, infos = append(list, h), append(infos, HandlerInfo{Name: h.Name})
	}
	for i, name := range CounterNames(infos) {
		list[i].Counter = name
	}
	return list, mistakes
}

// CounterNames are what counters of handlers end with: their names, with a number behind the second of a name.
func CounterNames(handlers []HandlerInfo) []string {
	seen := map[string]int{}
	var names []string
	for _, h := range handlers {
		name := h.Name
		if seen[h.Name]++; seen[h.Name] > 1 {
			name = fmt.Sprintf("%s_%d", h.Name, seen[h.Name])
		}
		names = append(names, name)
	}
	return names
}

// HandlerMistake is a mistake of a rule.
type HandlerMistake = nicbackends.HandlerMistake

// LogCalls implements nicbackends.Diagnosed.
func (Backend) LogCalls(ctx context.Context, h remote.Host, nic *inventory.NIC, on bool) error {
	state := "off"
	if on {
		state = "on"
	}
	_, err := run(ctx, h, "log the calls of handlers on NIC "+nic.Device, "pcmlab", "nic", "set", "--device", nic.Device, "diagnostic="+state)
	return err
}

// WriteCalls implements nicbackends.Diagnosed.
func (Backend) WriteCalls(ctx context.Context, h remote.Host, nic *inventory.NIC, file string) (head calls.Header, err error) {
	step := "write the calls of handlers on NIC " + nic.Device
	out, err := run(ctx, h, step, "pcmlab", "nic", "calls", "--device", nic.Device, "-w", file, "-o", "json")
	if err == nil {
		err = json.Unmarshal(out, &head)
	}
	return head, err
}

// compiles finds mistakes in the C of a package that is not of the library, before a lab is raised for it.
func compiles(rule int, p *pcm.Package, path string) []HandlerMistake {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, _, err := compiled(ctx, p)
	if err == nil {
		return nil
	}
	said, _, _ := strings.Cut(err.Error(), "\n") // what the compiler said follows, with places in a copy
	return []HandlerMistake{{Rule: rule, Key: "handler", Message: fmt.Sprintf("handler %q: %s", path, said), Fix: "pcmlab handler check " + path + " has its mistakes with their places"}}
}

// compiled builds the shell, or finds it in the user's cache.
func compiled(ctx context.Context, p *pcm.Package) (object, hash string, err error) {
	if hash, err = p.Hash(); err != nil {
		return "", "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", err
	}
	object = filepath.Join(cache, "pcmlab", "shells", hash+".so")
	if _, err := os.Stat(object); err == nil {
		return object, hash, nil
	}
	if err := os.MkdirAll(filepath.Dir(object), 0o755); err != nil {
		return "", "", err
	}
	return object, hash, cpu.Build(ctx, p, object, cpu.Options{})
}

// hostDelay is what software NICs and switches may add to a round trip besides their links, as built: it covers the lateness of their
// timers up to about the 99th percentile of a quiet machine. With less, a handler that aims at a delay takes the machine's pauses
// for congestion and leaves the link idle.
const hostDelay = 2 * time.Millisecond

// fabricOf derives the deployment constants from the lab, in hardware terms: rate and path MTU of the NIC, the longest way that two links
// make, and what software adds, which a time scale makes small.
func fabricOf(lab *inventory.Lab, nic *inventory.NIC) *pcm.Fabric {
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
