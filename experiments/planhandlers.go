package experiments

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends"
)

// PlannedHandler is a PCM handler of a sender's NIC.
type PlannedHandler struct {
	Host string `json:"host"`
	nicbackends.Handler
	Flows []string `json:"flows"` // of the playbook that it decides for
}

// sender is a host that sends, with the rules that its NIC will have.
type sender struct {
	host  string
	nic   *inventory.NIC // a copy whose handlers are those of this run
	from  []origin       // of each of them
	flows []sent
}

// sent is a flow as its sender sees it.
type sent struct {
	name string
	to   netip.Addr
}

// origin is where a rule was written: in the playbook, or in the lab, as its rule number lab.
type origin struct {
	book spec.Path
	lab  int
}

// handlers resolves the handlers of all senders. Its mistakes speak of the file in which the rule stands; all come at once.
func (b *planner) handlers(backends nicbackends.Registry) error {
	b.Handlers = []PlannedHandler{}
	m := mistakes{lab: b.lab, doc: b.doc, unplaced: map[string][]string{}}
	senders := b.senders()
	for i := range b.Flows { // a NIC that only receives has nothing to decide
		f := &b.Flows[i]
		if len(f.toNIC.Handlers) > 0 && !slices.ContainsFunc(senders, func(s *sender) bool { return s.host == f.To }) {
			quiet := *f.toNIC
			quiet.Handlers, f.toNIC = nil, &quiet
		}
	}
	for _, s := range senders {
		b.rules(s, &m)
		b.replace(s)
		if !slices.ContainsFunc(s.nic.Handlers, isHandler) {
			s.nic.Handlers = nil // the NIC's own control loop decides, as without rules
			continue
		}
		backend, err := backends.Find(s.nic.Backend)
		if err != nil {
			return err
		}
		handled, ok := backend.(nicbackends.Handled)
		if !ok {
			m.add(s, noHandlers(backend, s.nic))
			continue
		}
		resolved, wrong := handled.Handlers(b.lab, s.nic)
		for _, w := range append(wrong, b.overlaps(s, resolved)...) {
			m.add(s, w)
		}
		if len(wrong) > 0 {
			continue
		}
		flows := b.leaveOut(s, resolved)
		if resolved, wrong = handled.Handlers(b.lab, s.nic); len(wrong) > 0 { // the files of a package have changed meanwhile
			return wrong[0]
		}
		if _, ok := backend.(nicbackends.Deployer); ok && s.nic.Handlers != nil {
			b.deploys(s)
		}
		if _, ok := backend.(nicbackends.Diagnosed); !ok && b.p.Diagnostic && s.nic.Handlers != nil {
			b.doc.Errorf(spec.P("diagnostic"), "leave it out", "a %s NIC does not log the calls of its handlers", backend.Name())
		}
		for i, h := range resolved {
			if h.Name != inventory.NoHandler {
				b.Handlers = append(b.Handlers, PlannedHandler{s.host, h, flows[i]})
				for _, l := range h.Limits {
					b.note("handler %s on a %s NIC: %s", h.Name, backend.Name(), l)
				}
			}
		}
	}
	return m.err()
}

// senders are the hosts that send, in the order of the flows.
func (b *planner) senders() []*sender {
	var all []*sender
	add := func(name, host string, nic, to *inventory.NIC) {
		i := slices.IndexFunc(all, func(s *sender) bool { return s.host == host })
		if i < 0 {
			own := *nic
			i, all = len(all), append(all, &sender{host: host, nic: &own})
		}
		all[i].flows = append(all[i].flows, sent{name, to.IP.Addr()})
	}
	for _, f := range b.Flows {
		add(f.Name, f.From, f.fromNIC, f.toNIC)
		if f.params.Bidirectional {
			add(f.Name, f.To, f.toNIC, f.fromNIC)
		}
	}
	return all
}

// replace has flows use the NIC whose handlers are those of this run.
func (b *planner) replace(s *sender) {
	for i := range b.Flows {
		f := &b.Flows[i]
		if f.From == s.host {
			f.fromNIC = s.nic
		}
		if f.To == s.host {
			f.toNIC = s.nic
		}
	}
}

// rules are those of the playbook's flows, and behind them the playbook's handler, or the lab's rules where it has none.
func (b *planner) rules(s *sender, m *mistakes) {
	lab := s.nic.Handlers
	s.nic.Handlers = nil
	put := func(r inventory.HandlerRule, from origin) {
		s.nic.Handlers, s.from = append(s.nic.Handlers, r), append(s.from, from)
	}
	seen := map[netip.Addr]*Flow{}
	for _, f := range s.flows {
		flow := b.p.flow(f.name)
		if other := seen[f.to]; other != nil {
			if other.Handler != flow.Handler {
				b.doc.Errorf(spec.P("flows", f.name, "handler"), "give both the same", "flow %q goes from %q to the same host as flow %q, whose handler is %s: the NIC cannot tell them apart", f.name, s.host, other.Name, orLab(other.Handler))
			}
			continue
		}
		seen[f.to] = flow
		if flow.Handler == "" {
			continue
		}
		at := origin{book: spec.P("flows", f.name, "handler")}
		match := inventory.HandlerMatch{To: []netip.Prefix{netip.PrefixFrom(f.to, f.to.BitLen())}}
		if flow.Handler != inventory.NoHandler {
			put(inventory.HandlerRule{Handler: flow.Handler, Match: match}, at)
		}
		put(inventory.HandlerRule{Handler: inventory.NoHandler, Match: match}, at) // it has this handler and no other
	}
	if b.p.Handler != "" {
		if b.p.Handler != inventory.NoHandler {
			put(inventory.HandlerRule{Handler: b.p.Handler}, origin{book: spec.P("handler")})
		}
		return
	}
	for i, r := range lab {
		at := origin{lab: i}
		if r.Match.Role != "" && !b.resolveRole(s, &r, at, m) {
			continue
		}
		put(r, at)
	}
}

func orLab(handler string) string {
	if handler == "" {
		return "that of the playbook or the lab"
	}
	return handler
}

// resolveRole puts addresses in place of a role, those within the rule's networks. It is false when none is left. A role that nobody
// plays stays, so that what else is wrong with the rule is said too.
func (b *planner) resolveRole(s *sender, r *inventory.HandlerRule, at origin, m *mistakes) bool {
	var names []string
	var to []netip.Prefix
	found := false
	for _, role := range b.p.Roles {
		names = append(names, role.Name)
		if role.Name != r.Match.Role {
			continue
		}
		found = true
		for _, name := range role.Hosts {
			h := b.lab.Host(name)
			if h == nil || len(h.NICs) == 0 {
				continue // said already, or not part of any flow
			}
			a := h.NICs[0].IP.Addr()
			within := func(p netip.Prefix) bool { return p.Contains(a) }
			if len(r.Match.To) == 0 || slices.ContainsFunc(r.Match.To, within) {
				to = append(to, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	if !found {
		m.addAt(s, at, r, nicbackends.HandlerMistake{Key: "match.role", Message: fmt.Sprintf("handler %q: playbook %q gives no host the role %q", r.Handler, b.p.Name, r.Match.Role), Fix: spec.Suggest(r.Match.Role, names)})
		return true
	}
	if len(to) == 0 {
		b.note("handler %s on %s decides for no flow: no host of role %s is within its networks", r.Handler, s.host, r.Match.Role)
		return false
	}
	r.Match.Role, r.Match.To = "", to
	return true
}

func (b *planner) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(b.Notes, text) {
		b.Notes = append(b.Notes, text)
	}
}

// overlaps holds the lab's rules of a sender against each other; those of the playbook are meant to come before them.
func (b *planner) overlaps(s *sender, resolved []nicbackends.Handler) []nicbackends.HandlerMistake {
	first := slices.IndexFunc(s.from, func(o origin) bool { return o.book == nil })
	if first < 0 {
		return nil
	}
	out := nicbackends.Overlaps(s.nic.Handlers[first:], resolved[first:])
	for i := range out {
		out[i].Rule += first
		out[i].Other += first
	}
	return out
}

// leaveOut takes away the rules that decide for no flow of the playbook, and gives the flows of the others.
func (b *planner) leaveOut(s *sender, resolved []nicbackends.Handler) (flows [][]string) {
	var rules []inventory.Rule
	for i, h := range resolved {
		rules = append(rules, inventory.Rule{Match: &s.nic.Handlers[i].Match, Controls: h.Mask})
	}
	decides := make([][]string, len(resolved))
	for _, f := range s.flows {
		for pair := range b.p.flow(f.name).Traffic.QPs {
			for _, i := range inventory.ChooseHandlers(rules, inventory.FlowKey{To: f.to, DSCP: s.nic.DSCP, QP: pair + 1}) {
				if !slices.Contains(decides[i], f.name) {
					decides[i] = append(decides[i], f.name)
				}
			}
		}
	}
	all := s.nic.Handlers
	s.nic.Handlers = nil
	for i, h := range resolved {
		if len(decides[i]) == 0 && h.Name != inventory.NoHandler {
			b.note("handler %s on %s (%s) is left out: it decides for no flow of this playbook", h.Name, s.host, orAll(h.Match))
			continue
		}
		s.nic.Handlers, flows = append(s.nic.Handlers, all[i]), append(flows, listed(decides[i]))
	}
	if !slices.ContainsFunc(s.nic.Handlers, isHandler) {
		s.nic.Handlers = nil
	}
	return flows
}

func isHandler(r inventory.HandlerRule) bool { return r.Handler != inventory.NoHandler }

func orAll(match string) string {
	if match == "" {
		return "all flows"
	}
	return match
}

// CheckHandlers resolves the handlers of every NIC of a lab without a playbook. Roles are not looked at.
func CheckHandlers(lab *inventory.Lab, backends nicbackends.Registry) error {
	m := mistakes{lab: lab, unplaced: map[string][]string{}}
	for _, h := range lab.Hosts {
		for _, nic := range h.NICs {
			s := &sender{host: h.Name, nic: nic}
			for i := range nic.Handlers {
				s.from = append(s.from, origin{lab: i})
			}
			backend, err := backends.Find(nic.Backend)
			if err != nil || len(nic.Handlers) == 0 {
				continue // a backend that is not known is a mistake for whoever runs on it
			}
			handled, ok := backend.(nicbackends.Handled)
			if !ok {
				m.add(s, noHandlers(backend, nic))
				continue
			}
			resolved, wrong := handled.Handlers(lab, nic)
			for _, w := range append(wrong, nicbackends.Overlaps(nic.Handlers, resolved)...) {
				m.add(s, w)
			}
		}
	}
	return inputError(m.err())
}

func noHandlers(backend nicbackends.Backend, nic *inventory.NIC) nicbackends.HandlerMistake {
	return nicbackends.HandlerMistake{Key: "handler", Message: fmt.Sprintf("a %s NIC runs no PCM handlers (handler: %s)", backend.Name(), nic.Handlers[0].Handler)}
}

// mistakes gathers what is wrong with rules. One that stands once is said once, whatever NICs have it.
type mistakes struct {
	lab      *inventory.Lab
	doc      *spec.Doc // of the playbook; nil: none
	placed   []*spec.Problem
	unplaced map[string][]string // text -> hosts
	order    []string
}

func (m *mistakes) add(s *sender, w nicbackends.HandlerMistake) {
	if w.Other > 0 {
		if p, ok := m.place(s, s.from[w.Other-1], &s.nic.Handlers[w.Other-1], "handler"); ok {
			w.Message += fmt.Sprintf(" (%s:%d:%d)", m.lab.File, p.Line, p.Col)
		}
	}
	m.addAt(s, s.from[w.Rule], &s.nic.Handlers[w.Rule], w)
}

func (m *mistakes) place(s *sender, at origin, r *inventory.HandlerRule, key string) (spec.Pos, bool) {
	if at.book != nil {
		return m.doc.Pos(at.book), m.doc.Has(at.book)
	}
	return r.Place(key)
}

// addAt says a mistake at its place; one of a setting has none.
func (m *mistakes) addAt(s *sender, at origin, r *inventory.HandlerRule, w nicbackends.HandlerMistake) {
	p, ok := m.place(s, at, r, w.Key)
	switch {
	case !ok && at.book != nil:
		m.say(fmt.Sprintf("%s=%s: %s", at.book, r.Handler, w.Error()), "")
	case !ok:
		m.say(w.Error(), fmt.Sprintf("%s, NIC %s", s.host, s.nic.Device))
	case at.book != nil:
		m.doc.Errorf(at.book, w.Fix, "%s", w.Message)
	default:
		problem := &spec.Problem{File: m.lab.File, Line: p.Line, Col: p.Col, Width: 1, Kind: spec.Semantic, Message: w.Message, Fix: w.Fix}
		if !slices.ContainsFunc(m.placed, func(q *spec.Problem) bool { return q.Error() == problem.Error() }) {
			m.placed = append(m.placed, problem)
		}
	}
}

func (m *mistakes) say(text, host string) {
	if _, ok := m.unplaced[text]; !ok {
		m.order = append(m.order, text)
	}
	if host != "" {
		m.unplaced[text] = append(m.unplaced[text], host)
	} else {
		m.unplaced[text] = nil
	}
}

func (m *mistakes) err() error {
	var errs []error
	if len(m.placed) > 0 {
		slices.SortStableFunc(m.placed, func(a, b *spec.Problem) int { return (a.Line-b.Line)*4096 + a.Col - b.Col })
		errs = append(errs, &spec.Errors{Problems: m.placed})
	}
	for _, text := range m.order {
		if hosts := m.unplaced[text]; len(hosts) > 0 {
			text = fmt.Sprintf("%s: host %s: %s", m.lab.File, strings.Join(hosts, "; "), text)
		}
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}
