package inventory

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/internal/units"
)

// Setting is one --set KEY=VALUE.
type Setting struct{ Key, Value string }

// IsOverride says that a --set key speaks of the lab and not of the playbook: it starts with nic., link., switch. or
// virtual. .
func IsOverride(key string) bool {
	kind, _, dotted := strings.Cut(key, ".")
	_, known := overrides[kind]
	return known && dotted
}

// OverrideKeys lists the keys without the name of an object, sorted.
func OverrideKeys() []string {
	var out []string
	for kind, fields := range overrides {
		for name := range fields {
			out = append(out, kind+"."+name)
		}
	}
	sort.Strings(out)
	return out
}

// Override is OverrideAll of one setting.
func Override(l *Lab, key, value string) error { return OverrideAll(l, []Setting{{key, value}}) }

// OverrideAll changes a lab as --set does, in order, and checks the result as if it had been written so in the file.
// Keys name a setting of every NIC, link or switch (nic.dcqcn, link.rate, switch.ecn.kmin), or of one: nic.h1.dcqcn,
// nic.h1.eth1.mtu, link.h1.rate (the links at h1; a switch's name too), switch.sw.buffer. virtual.time_scale and
// virtual.max_lateness stand alone. When anything is refused the lab is unchanged.
func OverrideAll(l *Lab, settings []Setting) error {
	f := toFile(l)
	var mistakes []error
	for _, s := range settings {
		if err := apply(f, s); err != nil {
			mistakes = append(mistakes, fmt.Errorf("--set %s=%s: %w", s.Key, s.Value, err))
		}
	}
	if len(mistakes) > 0 {
		return errors.Join(mistakes...)
	}
	data, err := spec.Marshal(f)
	if err != nil {
		return err
	}
	changed, err := Parse(l.File, data)
	if err != nil {
		return overrideError(settings, err)
	}
	keepPlaces(l, changed)
	*l = *changed
	return nil
}

// overrideError speaks of the settings: the places are those of a text that the user never saw.
func overrideError(settings []Setting, err error) error {
	var all []string
	for _, s := range settings {
		all = append(all, s.Key+"="+s.Value)
	}
	var e *spec.Errors
	if !errors.As(err, &e) {
		return err
	}
	var mistakes []error
	for _, p := range e.Problems {
		text := p.Message
		if p.Fix != "" {
			text += " (" + p.Fix + ")"
		}
		mistakes = append(mistakes, fmt.Errorf("--set %s: %s", strings.Join(all, " "), text))
	}
	return errors.Join(mistakes...)
}

// target is one object of the lab that a setting can change, under the names that select it.
type target struct {
	names   []string
	nic     *fileNIC
	link    *fileLink
	sw      *fileSwitch
	virtual *fileVirtual
}

type setter func(t target, value string) error

var overrides = map[string]map[string]setter{
	"nic": {
		"dcqcn": func(t target, v string) error {
			if v == "default" {
				t.nic.DCQCN = nil
				return nil
			}
			return setSwitch(&t.nic.DCQCN, v)
		},
		"handler": func(t target, v string) error {
			t.nic.Handler, t.nic.Handlers = AbsoluteHandler(v), nil
			return nil
		},
		"ecn":       func(t target, v string) error { return setSwitch(&t.nic.ECN, v) },
		"mtu":       func(t target, v string) error { return set(&t.nic.MTU, v) },
		"dscp":      func(t target, v string) error { return set(&t.nic.DSCP, v) },
		"priority":  func(t target, v string) error { return set(&t.nic.Priority, v) },
		"gid_index": func(t target, v string) error { return set(&t.nic.GIDIndex, v) },
		"port":      func(t target, v string) error { return set(&t.nic.Port, v) },
		"rate":      func(t target, v string) error { return setValue(&t.nic.Rate, v) },
		"backend": func(t target, v string) error {
			t.nic.Backend = v
			if v != DOCAPCC {
				t.nic.BuildOn = "" // there is nothing to build
			}
			return nil
		},
		"device": func(t target, v string) error { t.nic.Device = v; return nil },
	},
	"link": {
		"rate":   func(t target, v string) error { return setValue(&t.link.Rate, v) },
		"delay":  func(t target, v string) error { return set(&t.link.Delay, v) },
		"buffer": func(t target, v string) error { return setLimit(&t.link.Buffer, v) },
	},
	"switch": {
		"buffer": func(t target, v string) error { return setValue(&t.sw.Buffer, v) },
		"ecn":    setECN,
		"ecn.kmin": func(t target, v string) error {
			return setValue(&t.ecn().KMin, v)
		},
		"ecn.kmax": func(t target, v string) error {
			return setValue(&t.ecn().KMax, v)
		},
		"ecn.pmax": func(t target, v string) error { return setValue(&t.ecn().PMax, v) },
		"pfc": func(t target, v string) error {
			if on, err := onOff(v); err != nil || on {
				return fmt.Errorf("%q cannot be set (write off; thresholds belong in the lab file)", v)
			}
			t.sw.PFC = nil
			return nil
		},
		"pfc.xoff": func(t target, v string) error { return setPFC(t, v, func(p *filePFC) *units.Size { return &p.XOff }) },
		"pfc.xon":  func(t target, v string) error { return setPFC(t, v, func(p *filePFC) *units.Size { return &p.XOn }) },
	},
	"virtual": {
		"time_scale":   func(t target, v string) error { return set(&t.virtual.TimeScale, v) },
		"max_lateness": func(t target, v string) error { return setValue(&t.virtual.MaxLateness, v) },
	},
}

func apply(f *fileLab, s Setting) error {
	kind, rest, _ := strings.Cut(s.Key, ".")
	fields, ok := overrides[kind]
	if !ok {
		return fmt.Errorf("unknown key (%s)", spec.Suggest(s.Key, OverrideKeys()))
	}
	field, object := splitKey(rest, fields)
	if field == "" {
		return fmt.Errorf("unknown key (%s)", suggestKey(kind, rest, fields))
	}
	targets := f.targets(kind)
	var names []string
	hit := false
	for _, t := range targets {
		match := object == ""
		for _, n := range t.names {
			match = match || n == object
		}
		names = append(names, t.names...)
		if !match {
			continue
		}
		hit = true
		if err := fields[field](t, s.Value); err != nil {
			return err
		}
	}
	switch {
	case hit:
		return nil
	case len(targets) == 0 && kind == "virtual":
		return errors.New("the lab is not virtual (add virtual: to the lab file)")
	case len(targets) == 0:
		return fmt.Errorf("the lab has no %s", kind)
	}
	return fmt.Errorf("no %s is called %q (%s)", kind, object, spec.Suggest(object, unique(names)))
}

// splitKey takes the longest field name off the end of a key; what is before it selects an object.
func splitKey(rest string, fields map[string]setter) (field, object string) {
	for name := range fields {
		if len(name) <= len(field) {
			continue
		}
		if rest == name {
			field, object = name, ""
		} else if before, ok := strings.CutSuffix(rest, "."+name); ok && before != "" {
			field, object = name, before
		}
	}
	return field, object
}

// suggestKey compares the end of an unknown key, so that an object's name in it does not hide the typo.
func suggestKey(kind, rest string, fields map[string]setter) string {
	var known []string
	for name := range fields {
		known = append(known, name)
	}
	word, object := rest, ""
	if i := strings.IndexByte(rest, '.'); i >= 0 && spec.Nearest(rest, known) == "" {
		object, word = rest[:i+1], rest[i+1:]
	}
	for i, k := range known {
		known[i] = kind + "." + object + k
	}
	return spec.Suggest(kind+"."+object+word, known)
}

func (f *fileLab) targets(kind string) []target {
	var out []target
	switch kind {
	case "nic":
		for i := range f.Hosts {
			for j := range f.Hosts[i].Value.NICs {
				n := &f.Hosts[i].Value.NICs[j]
				out = append(out, target{names: []string{f.Hosts[i].Key, f.Hosts[i].Key + "." + n.Netdev}, nic: n})
			}
		}
	case "link":
		for i := range f.Links {
			k := &f.Links[i]
			from, _, _ := strings.Cut(k.From, ".")
			to, _, _ := strings.Cut(k.To, ".")
			out = append(out, target{names: unique([]string{from, k.From, to, k.To}), link: k})
		}
	case "switch":
		for i := range f.Switches {
			out = append(out, target{names: []string{f.Switches[i].Key}, sw: &f.Switches[i].Value})
		}
	case "virtual":
		if f.Virtual != nil {
			out = append(out, target{virtual: f.Virtual})
		}
	}
	return out
}

func unique(list []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, s := range list {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

func (t target) ecn() *fileECN {
	if t.sw.ECN == nil {
		t.sw.ECN = &fileECN{}
	}
	return t.sw.ECN
}

// setECN reads off, or a whole curve: KMIN,KMAX,PMAX.
func setECN(t target, v string) error {
	if on, err := onOff(v); err == nil && !on {
		t.sw.ECN = nil
		return nil
	}
	parts := strings.Split(v, ",")
	if len(parts) != 3 {
		return fmt.Errorf("%q is not a marking curve (write off, or KMIN,KMAX,PMAX such as 100KiB,400KiB,0.2)", v)
	}
	t.sw.ECN = &fileECN{}
	return errors.Join(setValue(&t.sw.ECN.KMin, parts[0]), setValue(&t.sw.ECN.KMax, parts[1]),
		setValue(&t.sw.ECN.PMax, parts[2]))
}

func setPFC(t target, v string, field func(*filePFC) *units.Size) error {
	if t.sw.PFC == nil {
		return errors.New("PFC is off on this switch (add pfc: to the lab file)")
	}
	return setValue(field(t.sw.PFC), v)
}

// set and setValue read text by the rules of lab files.
func set[T any](p **T, text string) error {
	var v T
	if err := spec.Scan(text, &v); err != nil {
		return err
	}
	*p = &v
	return nil
}

func setValue[T any](p *T, text string) error {
	var v T
	if err := spec.Scan(text, &v); err != nil {
		return err
	}
	*p = v
	return nil
}

func setSwitch(p **bool, text string) error {
	v, err := onOff(text)
	if err == nil {
		*p = &v
	}
	return err
}

func onOff(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "on", "true", "yes":
		return true, nil
	case "off", "false", "no":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither on nor off", s)
}

// setLimit reads a size, or off.
func setLimit(p *units.Size, text string) error {
	if text == "off" {
		*p = 0
		return nil
	}
	return setValue(p, text)
}
