package inventory

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pcmlab/pcmlab/internal/spec"
)

// NoHandler in place of a handler's name leaves flows to the NIC's own control loop.
const NoHandler = "none"

// HandlerRule gives a PCM handler to those flows of a NIC that it matches. Rules are looked at in order: see ChooseHandlers.
type HandlerRule struct {
	Handler string              // a name of the library, the path of a package, or NoHandler: nothing decides, and no rule behind it is looked at
	Match   HandlerMatch        //
	Set     []HandlerConstant   // constants of the package that have another value
	places  map[string]spec.Pos // of its keys in the lab file; "" is the rule itself
}

// HandlerConstant is another value of a constant, as written: an expression.
type HandlerConstant struct{ Name, Value string }

// HandlerMatch says which flows a rule is for. What is zero matches all.
type HandlerMatch struct {
	To   []netip.Prefix `json:"to,omitempty"`   // where the flow goes: one of them
	DSCP *int           `json:"dscp,omitempty"` // of its data packets
	QP   QPRange        `json:"qp,omitzero"`    // which queue pair of its process
	Role string         `json:"role,omitempty"` // part that the playbook gives to the host where it goes; a plan turns it into addresses
}

// QPRange are queue pairs by their place among those that their process has made, from 1: numbers of queue pairs are drawn when they
// are made, and no file can know them. Zero is all.
type QPRange struct{ First, Last int }

// String is 2 or 2-4.
func (r QPRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// MarshalText implements encoding.TextMarshaler.
func (r QPRange) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *QPRange) UnmarshalText(b []byte) (err error) {
	*r, err = ParseQPRange(string(b))
	return err
}

// ParseQPRange reads 2 or 2-4.
func ParseQPRange(s string) (r QPRange, err error) {
	from, to, ranged := strings.Cut(s, "-")
	if !ranged {
		to = from
	}
	first, err1 := strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	if err1 != nil || err2 != nil || first < 1 || last < first || last > 1<<20 {
		return r, fmt.Errorf("%q names no queue pairs", s)
	}
	return QPRange{first, last}, nil
}

// FlowKey is what rules look at.
type FlowKey struct {
	To   netip.Addr
	DSCP int
	QP   int // from 1
}

// Matches says that the rule is for a flow. A role matches nothing before a plan has resolved it.
func (m *HandlerMatch) Matches(f FlowKey) bool {
	in := func(p netip.Prefix) bool { return p.Contains(f.To) }
	return m.Role == "" && (len(m.To) == 0 || slices.ContainsFunc(m.To, in)) && (m.DSCP == nil || *m.DSCP == f.DSCP) &&
		(m.QP == QPRange{} || f.QP >= m.QP.First && f.QP <= m.QP.Last)
}

// Covers says that every flow that o matches is matched by m, as far as that can be told without a playbook.
func (m *HandlerMatch) Covers(o *HandlerMatch) bool {
	inside := func(p netip.Prefix) bool {
		return slices.ContainsFunc(m.To, func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) })
	}
	outside := func(p netip.Prefix) bool { return !inside(p) }
	return (m.Role == "" || m.Role == o.Role) && (len(m.To) == 0 || len(o.To) > 0 && !slices.ContainsFunc(o.To, outside)) &&
		(m.DSCP == nil || o.DSCP != nil && *m.DSCP == *o.DSCP) &&
		(m.QP == QPRange{} || o.QP != QPRange{} && m.QP.First <= o.QP.First && o.QP.Last <= m.QP.Last)
}

// String is what `nic set` and checks say: "to 192.0.2.0/24, dscp 26, qp 2-4"; "" matches all.
func (m *HandlerMatch) String() string {
	var parts []string
	if len(m.To) > 0 {
		var to []string
		for _, p := range m.To {
			to = append(to, p.String())
		}
		parts = append(parts, "to "+strings.Join(to, " or "))
	}
	if m.Role != "" {
		parts = append(parts, "role "+m.Role)
	}
	if m.DSCP != nil {
		parts = append(parts, fmt.Sprintf("dscp %d", *m.DSCP))
	}
	if m.QP != (QPRange{}) {
		parts = append(parts, "qp "+m.QP.String())
	}
	return strings.Join(parts, ", ")
}

// Place is where the lab file has a key of the rule, such as "handler", "match.to" or "set.BETA", or what holds it; false: the rule is not
// in the file.
func (r *HandlerRule) Place(key string) (spec.Pos, bool) {
	for {
		if p, ok := r.places[key]; ok {
			return p, true
		}
		if key == "" {
			return spec.Pos{}, false
		}
		key = key[:max(strings.LastIndexByte(key, '.'), 0)]
	}
}

// same says that two rules say the same, wherever they stand.
func (r *HandlerRule) same(o *HandlerRule) bool {
	return r.Handler == o.Handler && slices.Equal(r.Set, o.Set) && slices.Equal(r.Match.To, o.Match.To) && r.Match.QP == o.Match.QP &&
		r.Match.Role == o.Match.Role && (r.Match.DSCP == nil) == (o.Match.DSCP == nil) && (r.Match.DSCP == nil || *r.Match.DSCP == *o.Match.DSCP)
}

// Rule is what ChooseHandlers looks at; an index stands for its handler.
type Rule struct {
	Match    *HandlerMatch
	Controls uint64 // a bit for each control that its handler sets; 0: NoHandler
}

// ChooseHandlers are the rules, by index, whose handlers decide for a flow. Rules are taken in order, and the first that sets a control
// keeps it: a handler that sets a control of one before it is passed over for this flow, as a whole, because half of a policy is none.
func ChooseHandlers(rules []Rule, f FlowKey) (chosen []int) {
	var taken uint64
	for i, r := range rules {
		if !r.Match.Matches(f) {
			continue
		}
		if r.Controls == 0 {
			break
		}
		if r.Controls&taken == 0 {
			chosen = append(chosen, i)
			taken |= r.Controls
		}
	}
	return chosen
}

// handlerRules reads handler: and handlers: of a NIC, or of the defaults where it has none.
func (b *builder) handlerRules(own *nicSettings, at spec.Path, def *nicSettings) []HandlerRule {
	s, p := own, at
	if own.Handler == "" && len(own.Handlers) == 0 && !b.doc.Has(at.With("handlers")) {
		s, p = def, spec.P("defaults", "nic")
	}
	if s.Handler != "" && len(s.Handlers) > 0 {
		b.doc.KeyErrorf(p.With("handler"), "keep one: handler: NAME is short for handlers: [{handler: NAME}]", "handlers: is there, too")
	}
	if s.Handler != "" && len(s.Handlers) == 0 {
		if s.Handler == NoHandler {
			return nil
		}
		at := b.doc.Pos(p.With("handler"))
		return []HandlerRule{{Handler: b.handlerPath(s.Handler), places: map[string]spec.Pos{"": at, "handler": at}}}
	}
	var rules []HandlerRule
	for i := range s.Handlers {
		rules = append(rules, b.handlerRule(&s.Handlers[i], p.With("handlers", i)))
	}
	return rules
}

func (b *builder) handlerRule(f *fileHandler, at spec.Path) HandlerRule {
	r := HandlerRule{Handler: b.handlerPath(f.Handler), places: map[string]spec.Pos{}}
	note := func(key string, elems ...any) {
		if p := at.With(elems...); b.doc.Has(p) {
			r.places[key] = b.doc.Pos(p)
		}
	}
	note("")
	note("handler", "handler")
	for _, c := range f.Set {
		r.Set = append(r.Set, HandlerConstant{c.Key, string(c.Value)})
		note("set."+c.Key, "set", c.Key)
	}
	if f.Handler == NoHandler && len(f.Set) > 0 {
		b.doc.KeyErrorf(at.With("set"), "leave it out", "handler: none has no constants")
	}
	m := f.Match
	if m == nil {
		return r
	}
	for _, key := range []string{"to", "dscp", "qp", "role"} {
		note("match."+key, "match", key)
	}
	r.Match = HandlerMatch{To: slices.Clone([]netip.Prefix(m.To)), DSCP: pick(m.DSCP, nil), Role: m.Role}
	for i, p := range m.To {
		if p.IsValid() && p != p.Masked() {
			b.doc.Errorf(at.With("match", "to", i), fmt.Sprintf("write %s for the network, or %s/%d for the host", p.Masked(), p.Addr(), p.Addr().BitLen()),
				"%s has bits of a host", p)
		}
	}
	if m.QP != "" {
		var err error
		if r.Match.QP, err = ParseQPRange(string(m.QP)); err != nil {
			b.doc.Errorf(at.With("match", "qp"), "which queue pair of its process, from 1: 2, or 2-4", "%v", err)
		}
	}
	return r
}

// handlerPath makes the relative path of a package one from the lab file's folder; names stay.
func (b *builder) handlerPath(h string) string {
	if !strings.ContainsAny(h, "/.") {
		return h
	}
	return b.path(ExpandHome(h))
}

// ExpandHome puts the user's home folder in place of ~.
func ExpandHome(path string) string {
	rest, ok := strings.CutPrefix(path, "~/")
	if home, err := os.UserHomeDir(); ok && err == nil {
		return filepath.Join(home, rest)
	}
	return path
}

// AbsoluteHandler makes the path of a package absolute, from the working directory; names stay.
func AbsoluteHandler(h string) string {
	if abs, err := filepath.Abs(ExpandHome(h)); err == nil && strings.ContainsAny(h, "/.") {
		return abs
	}
	return h
}

// writeHandlers is the short form where it says all.
func writeHandlers(f *nicSettings, rules []HandlerRule) {
	if len(rules) == 1 && rules[0].same(&HandlerRule{Handler: rules[0].Handler}) && rules[0].Handler != NoHandler {
		f.Handler = rules[0].Handler
		return
	}
	for i := range rules {
		r := &rules[i]
		w := fileHandler{Handler: r.Handler}
		for _, c := range r.Set {
			w.Set = append(w.Set, spec.Entry[spec.Scalar]{Key: c.Name, Value: spec.Scalar(c.Value)})
		}
		if m := &r.Match; m.String() != "" {
			w.Match = &fileHandlerMatch{To: slices.Clone(m.To), DSCP: pick(m.DSCP, nil), Role: m.Role}
			if m.QP != (QPRange{}) {
				w.Match.QP = spec.Scalar(m.QP.String())
			}
		}
		f.Handlers = append(f.Handlers, w)
	}
}

// keepPlaces gives rules that an override did not change the places that they had: those of the text in between are nobody's.
func keepPlaces(before, after *Lab) {
	for _, h := range after.Hosts {
		old := before.Host(h.Name)
		for i, n := range h.NICs {
			for j := range n.Handlers {
				r := &n.Handlers[j]
				r.places = nil
				if old != nil && i < len(old.NICs) && j < len(old.NICs[i].Handlers) && r.same(&old.NICs[i].Handlers[j]) {
					r.places = old.NICs[i].Handlers[j].places
				}
			}
		}
	}
}
