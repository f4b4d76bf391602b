package pcm

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pcmlab/pcmlab/internal/spec"
)

// builder makes a package of its file.
type builder struct {
	*Package
	r     resolver
	taken map[string]string // name -> what it is
	set   map[string]string
}

// given is the text of a value, or what the deployment sets in its place.
func (b *builder) given(name string, text *spec.Scalar) *spec.Scalar {
	if v, ok := b.set[name]; ok {
		s := spec.Scalar(v)
		return &s
	}
	return text
}

// unknownSets refuses what sets nothing.
func (b *builder) unknownSets() {
	var known []string
	for name, what := range b.taken {
		if what != "signal" {
			known = append(known, name)
		}
	}
	slices.Sort(known)
	for name := range b.set {
		if !slices.Contains(known, name) {
			b.doc.Errorf(spec.P("constants"), spec.Suggest(name, known), "the deployment sets %s, which is no constant, variable or control of %s", name, b.Name)
		}
	}
}

// name notes a name, which no other object may have.
func (b *builder) name(name, what string, at spec.Path) {
	if name == "" {
		return
	}
	if other, ok := b.taken[name]; ok {
		b.doc.Errorf(at.With("name"), "give it another name", "%s %q: the name is taken by a %s", what, name, other)
		return
	}
	b.taken[name] = what
}

func (b *builder) constants(list []constantFile) {
	for i, c := range list {
		at := spec.P("constants", i)
		b.name(c.Name, "constant", at)
		b.r.add(c.Name, string(*b.given(c.Name, &c.Value)), at.With("value"))
	}
	b.r.resolve()
	for i, c := range list {
		t, _ := named(c.Type, numTypes)
		v := b.r.known[c.Name]
		if v.Int == nil && t == Uint || t == Int {
			if _, err := v.Bits(t); err != nil {
				b.doc.Errorf(spec.P("constants", i, "value"), "", "constant %q: %v", c.Name, err)
			}
		}
		b.Constants = append(b.Constants, Constant{c.Name, t, v, c.Description})
	}
}

func (b *builder) signals(list []signalFile) {
	triggers := false
	for i, s := range list {
		at := spec.P("signals", i)
		b.name(s.Name, "signal", at)
		out := Signal{Name: s.Name, Reset: true}
		var ok bool
		if out.Source, ok = named(s.Type, numSources); !ok && s.Type != "" {
			b.doc.Errorf(at.With("type"), spec.Suggest(s.Type, textsOf(Sources())), "no source %q", s.Type)
		}
		out.Accum, _ = named(s.Accum, numAccums)
		if out.Accum == Min {
			out.Initial = 1<<64 - 1
		}
		if v, ok := b.word(s.Initial, Uint, at.With("initial_value")); ok {
			out.Initial = v
		}
		switch strings.ToLower(string(s.Reset)) {
		case "true", "":
		case "false":
			out.Reset = false
		default:
			b.doc.Errorf(at.With("reset_upon_trigger"), `write "true" or "false"`, "%q is neither true nor false", s.Reset)
		}
		out.Trigger = b.trigger(s, at)
		triggers = triggers || out.Trigger != nil
		b.Signals = append(b.Signals, out)
	}
	if !triggers && len(list) > 0 {
		b.doc.Errorf(spec.P("signals"), "give one of them a trigger_threshold", "no signal has a trigger: the handler would never run (paper, section 5.1)")
	}
}

func (b *builder) trigger(s signalFile, at spec.Path) *Trigger {
	if s.Threshold == nil {
		for key, v := range map[string]string{"trigger_type": s.TriggerType, "trigger_op": s.TriggerOp} {
			if v != "" {
				b.doc.Errorf(at.With(key), "add trigger_threshold, or remove it", "signal %q: a %s without a threshold", s.Name, key)
			}
		}
		return nil
	}
	t := &Trigger{Mode: Raw, Op: ">="}
	if s.TriggerType != "" {
		t.Mode, _ = named(s.TriggerType, numModes)
	}
	if s.TriggerOp != "" {
		t.Op = Op(s.TriggerOp)
		if !slices.Contains(ops, t.Op) {
			b.doc.Errorf(at.With("trigger_op"), "one of > < >= <= == != & | ^ && ||", "no comparison %q", s.TriggerOp)
		}
	}
	t.Threshold, _ = b.word(s.Threshold, Uint, at.With("trigger_threshold"))
	if t.Mode == Delta && t.Op == ">=" && t.Threshold == 0 && !b.doc.Bad(at.With("trigger_threshold")) {
		b.doc.Errorf(at.With("trigger_threshold"), "write 1 or more", "signal %q: a change of 0 or more is always there: the handler would run at every check", s.Name)
	}
	if t.Mode != Raw && strings.EqualFold(string(s.Reset), "true") {
		b.doc.Errorf(at.With("trigger_type"), `add reset_upon_trigger: "false"`,
			"signal %q: it is reset when the handler runs, but the value that its change is counted from is not: the trigger would fire for ever", s.Name)
	}
	return t
}

func (b *builder) controls(list []controlFile) {
	kinds := map[ControlKind]string{}
	for i, c := range list {
		at := spec.P("controls", i)
		b.name(c.Name, "control", at)
		kind, ok := named(c.Type, numControls)
		switch {
		case !ok && c.Type != "":
			b.doc.Errorf(at.With("type"), spec.Suggest(c.Type, textsOf(Controls())), "no control %q", c.Type)
		case kinds[kind] != "":
			b.doc.Errorf(at.With("type"), "one control of a kind", "control %q: %s is set by %q already", c.Name, c.Type, kinds[kind])
		default:
			kinds[kind] = c.Name
		}
		initial, _ := b.word(b.given(c.Name, c.Initial), Uint, at.With("initial_value"))
		b.Controls = append(b.Controls, Control{c.Name, kind, initial})
	}
}

// maxSlots bounds the state of a flow.
const maxSlots = 1 << 16

func (b *builder) vars(list []variableFile) {
	for i, v := range list {
		at := spec.P("variables", i)
		b.name(v.Name, "variable", at)
		t, _ := named(v.Type, numTypes)
		out := Var{Name: v.Name, Type: t, Slot: b.Slots, Initial: IntNumber(0)}
		if text := b.given(v.Name, v.Initial); text != nil {
			out.Initial, _ = b.r.value(string(*text), at.With("initial_value"))
			if _, err := out.Initial.Bits(t); err != nil {
				b.doc.Errorf(at.With("initial_value"), "", "variable %q: %v", v.Name, err)
			}
		}
		slots := 1
		if v.Len != nil {
			n, ok := b.word(v.Len, Uint, at.With("arr_len"))
			if ok && (n == 0 || n > maxSlots) {
				b.doc.Errorf(at.With("arr_len"), fmt.Sprintf("1 to %d", maxSlots), "array %q of %d elements", v.Name, n)
			} else {
				out.Len, slots = int(n), int(n)
			}
		}
		b.Slots += slots
		b.Vars = append(b.Vars, out)
	}
}

func (b *builder) sources(more []string) {
	dir := filepath.Dir(b.File)
	b.C = append(b.C, strings.TrimSuffix(b.File, filepath.Ext(b.File))+".c")
	for i, s := range more {
		if filepath.IsAbs(s) || !filepath.IsLocal(s) || filepath.Ext(s) != ".c" {
			b.doc.Errorf(spec.P("sources", i), "a .c file beside this one", "%q is no C file of this folder", s)
			continue
		}
		b.C = append(b.C, filepath.Join(dir, s))
	}
}

// kind follows from the controls.
func (b *builder) kind() string {
	for _, c := range b.Controls {
		switch c.Kind {
		case EV:
			return "lb"
		case PullNo:
			return "receiver_cc"
		}
	}
	return "sender_cc"
}

// word is the value of an optional scalar as a 64-bit word.
func (b *builder) word(s *spec.Scalar, t Type, at spec.Path) (v uint64, ok bool) {
	if s == nil {
		return 0, false
	}
	n, ok := b.r.value(string(*s), at)
	if !ok {
		return 0, false
	}
	v, err := n.Bits(t)
	if err != nil {
		b.doc.Errorf(at, "", "%v", err)
		return 0, false
	}
	return v, true
}

// Controls lists all kinds in order.
func Controls() []ControlKind {
	all := make([]ControlKind, numControls)
	for i := range all {
		all[i] = ControlKind(i)
	}
	return all
}

func textsOf[T fmt.Stringer](all []T) []string {
	var out []string
	for _, v := range all {
		out = append(out, v.String())
	}
	return out
}

func isIdentifier(s string) bool {
	for i := range len(s) {
		if !word(s[i]) || i == 0 && s[i] >= '0' && s[i] <= '9' {
			return false
		}
	}
	return s != ""
}
