package check

import "maps"

// env is what is known of variables at one point, narrower than what they may hold at all. nil: the point is never reached.
type env map[*variable]interval

func (e env) copy() env { return maps.Clone(e) }

// meeting is what holds where two ways join.
func meeting(a, b env) env {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	out := env{}
	for v, i := range a {
		if j, ok := b[v]; ok {
			out[v] = i.join(j)
		}
	}
	return out
}

// ranges is the abstract interpretation of the handler. cells hold what a variable may be at any time; they grow until nothing changes.
type ranges struct {
	c        *checker
	cells    map[*variable]interval
	results  map[*function]interval
	steps    []int64 // constants of the program: what grows goes on to the next of them
	rounds   int
	changed  bool
	final    bool
	e        env
	fn       *function
	callee   map[*function]map[*variable]bool // what a call may change
	indexed  func(at place, name string, length int64, i interval)
	loopSeen func(s *stmt)
	quiet    bool // what is not stable yet is not reported
	ways     []*way
}

// widenAfter is the number of rounds in which bounds grow one by one.
const widenAfter = 4

func (r *ranges) solve(initial map[*variable]interval) {
	r.cells, r.results = initial, map[*function]interval{}
	for r.rounds = 0; ; r.rounds++ {
		r.changed = false
		r.pass()
		if !r.changed {
			break
		}
	}
	r.final = true
	r.pass()
}

func (r *ranges) pass() {
	for _, g := range r.c.low.globals {
		r.e = env{}
		r.statement(g)
	}
	for _, f := range r.c.low.order {
		r.fn, r.e = f, env{}
		r.statement(f.body)
	}
}

// grow says that v may be i, too.
func (r *ranges) grow(v *variable, i interval) {
	if v.loose || i.empty() {
		return
	}
	old, ok := r.cells[v]
	next := i
	if ok {
		if i.within(old) {
			return
		}
		next = r.widen(old, old.join(i), v.shape)
	}
	r.cells[v], r.changed = next, true
}

// widen jumps to the next constant of the program after some rounds, and then to the end of the type, so that there is an end.
func (r *ranges) widen(old, next interval, s shape) interval {
	if r.rounds < widenAfter {
		return next
	}
	whole := rangeOf(s)
	if next.hi > old.hi {
		hi := whole.hi
		for _, s := range r.steps {
			if s >= next.hi && s < hi {
				hi = s
			}
		}
		if r.rounds > widenAfter+2*len(r.steps)+8 {
			hi = whole.hi
		}
		next.hi = hi
	}
	if next.lo < old.lo {
		lo := whole.lo
		if whole.lo < 0 && next.lo >= 0 {
			lo = 0
		}
		next.lo = lo
	}
	return next
}

// value is what a variable may be here.
func (r *ranges) value(v *variable) interval {
	all := rangeOf(v.shape)
	if v.loose {
		return all
	}
	cell, ok := r.cells[v]
	if !ok {
		cell = interval{1, 0} // nothing has been assigned yet
	}
	if here, ok := r.e[v]; ok {
		if cell.empty() {
			return here
		}
		return here.meet(cell)
	}
	return cell
}

func (r *ranges) assign(v *variable, i interval) {
	if v == nil {
		return
	}
	i = i.as(v.shape)
	r.grow(v, i)
	if r.e != nil && !v.loose {
		if i.empty() {
			delete(r.e, v)
			return
		}
		r.e[v] = i
	}
}

// forget drops what is known here of variables.
func (r *ranges) forget(vs map[*variable]bool) {
	for v := range vs {
		delete(r.e, v)
	}
}

// changes are the variables that x or s may assign to.
func (r *ranges) changesOf(parts ...*stmt) map[*variable]bool {
	out := map[*variable]bool{}
	for _, s := range parts {
		s.walk(func(s *stmt) {
			if s.kind == stSet && s.v != nil {
				out[s.v] = true
			}
		}, func(x *expr) { r.changesIn(x, out) })
	}
	return out
}

func (r *ranges) changesIn(x *expr, out map[*variable]bool) {
	switch x.kind {
	case exAssign, exStep:
		if t := x.args[0].plain(); t.kind == exVariable {
			out[t.v] = true
		}
	case exAccess:
		if a := accessorNamed(x.name); a != nil && a.writes && x.v != nil {
			out[x.v] = true
		}
	case exCall:
		if x.fn != nil {
			maps.Copy(out, r.changedBy(x.fn))
		}
	}
}

// changedBy are the variables of the package that a function may change.
func (r *ranges) changedBy(f *function) map[*variable]bool {
	if known, ok := r.callee[f]; ok {
		return known
	}
	out := map[*variable]bool{}
	r.callee[f] = out // a circle of calls is a mistake of its own
	f.body.walk(nil, func(x *expr) { r.changesIn(x, out) })
	for v := range out {
		if !v.object && !v.global {
			delete(out, v)
		}
	}
	return out
}

func jumpsIn(s *stmt) (labels bool) {
	s.walk(func(s *stmt) {
		if s.kind == stLabel {
			labels = true
		}
	}, nil)
	return labels
}

func breaksIn(s *stmt) bool {
	found := false
	var look func(s *stmt)
	look = func(s *stmt) {
		switch {
		case s == nil || s.kind == stLoop || s.kind == stSwitch:
		case s.kind == stBreak:
			found = true
		default:
			for _, p := range s.parts() {
				look(p)
			}
		}
	}
	look(s)
	return found
}

func (r *ranges) statement(s *stmt) {
	if s == nil {
		return
	}
	if r.e == nil && s.kind != stLabel && s.kind != stCase && !jumpsIn(s) && !casesIn(s) {
		return // never reached
	}
	switch s.kind {
	case stExpr:
		r.optional(s.x)
	case stBlock:
		for _, p := range s.list {
			r.statement(p)
		}
	case stSet:
		if s.x == nil {
			if s.v.shape.integer && r.e != nil { // not set yet: reading it would be a mistake that the compiler sees
				delete(r.e, s.v)
			}
			return
		}
		r.assign(s.v, r.eval(s.x))
	case stIf:
		r.branch(s)
	case stLoop:
		r.loop(s)
	case stSwitch:
		r.choose(s)
	case stLabel:
		r.e = env{}
		r.statement(s.body)
	case stCase:
		r.e = env{}
		r.statement(s.body)
	case stReturn:
		if s.x != nil {
			v := r.eval(s.x)
			if r.fn != nil && !v.empty() {
				r.returned(v.as(r.fn.result))
			}
		}
		r.e = nil
	case stBreak, stContinue:
		r.leave(s.kind == stBreak)
		r.e = nil
	case stGoto:
		r.e = nil
	}
}

func casesIn(s *stmt) bool {
	found := false
	s.walk(func(s *stmt) { found = found || s.kind == stCase }, nil)
	return found
}

func (r *ranges) returned(i interval) {
	old, ok := r.results[r.fn]
	next := i
	if ok {
		if i.within(old) {
			return
		}
		next = r.widen(old, old.join(i), r.fn.result)
	}
	r.results[r.fn], r.changed = next, true
}

func (r *ranges) branch(s *stmt) {
	r.eval(s.x)
	before := r.e.copy()
	r.assume(s.x, true)
	r.statement(s.then)
	then := r.e
	r.e = before
	if r.e != nil {
		r.assume(s.x, false)
	}
	r.statement(s.other)
	r.e = meeting(then, r.e)
	if jumpsIn(s) {
		r.e = env{}
	}
}

// way is where break and continue lead.
type way struct {
	loop           bool
	broken, onward env
}

// loop finds what holds at the head of every round: what held before, joined with what a round leaves, until that is stable.
func (r *ranges) loop(s *stmt) {
	r.statement(s.init)
	if r.final && !r.quiet && r.loopSeen != nil {
		before := r.e
		r.e = before.copy()
		r.loopSeen(s)
		r.e = before
	}
	if r.e == nil { // a label inside
		r.e = env{}
	}
	head, quiet := r.e, r.quiet
	r.quiet = true
	for turn := 0; ; turn++ {
		r.round(s, head)
		next := meeting(head, r.e)
		if maps.Equal(head, next) {
			break
		}
		if turn >= 3 { // what still moves is what the variable may hold at all
			for v, i := range next {
				if i != head[v] {
					delete(next, v)
				}
			}
		}
		head = next
	}
	r.quiet = quiet
	broken := r.round(s, head)
	out := head.copy()
	if s.after {
		out = meeting(nil, r.e)
	}
	if s.x == nil {
		out = nil
	} else if out != nil {
		r.e = out
		if !s.after { // a round has tested already
			r.eval(s.x)
			r.assume(s.x, false)
		}
		out = r.e
	}
	r.e = meeting(out, broken)
	if jumpsIn(s) {
		r.e = env{}
	}
}

// round is one from the head of a loop on; it leaves what holds when the next begins, and gives what holds where it is broken off.
func (r *ranges) round(s *stmt, head env) env {
	r.e = head.copy()
	if !s.after && s.x != nil {
		r.eval(s.x)
		r.assume(s.x, true)
	}
	w := &way{loop: true}
	r.ways = append(r.ways, w)
	r.statement(s.body)
	r.ways = r.ways[:len(r.ways)-1]
	r.e = meeting(r.e, w.onward)
	if s.after && s.x != nil && r.e != nil {
		r.eval(s.x)
	}
	r.statement(s.step)
	if jumpsIn(s) {
		r.e = env{}
	}
	return w.broken
}

// leave notes what holds at a break or continue.
func (r *ranges) leave(isBreak bool) {
	for i := len(r.ways) - 1; i >= 0; i-- {
		switch w := r.ways[i]; {
		case isBreak:
			w.broken = meeting(w.broken, r.e)
			return
		case w.loop:
			w.onward = meeting(w.onward, r.e)
			return
		}
	}
}

// changesAny says that one of the variables in x is among vs.
func changesAny(vs map[*variable]bool, x *expr) bool {
	found := false
	x.walk(nil, func(x *expr) { found = found || x.v != nil && vs[x.v] })
	return found
}

func (r *ranges) choose(s *stmt) {
	r.eval(s.x)
	r.forget(r.changesOf(s.body))
	before := r.e.copy()
	r.e = nil
	r.ways = append(r.ways, &way{})
	r.inside(s.body, before)
	r.ways = r.ways[:len(r.ways)-1]
	r.e = before
	if jumpsIn(s.body) {
		r.e = env{}
	}
}

// inside walks the body of a switch: each case begins with what held before it.
func (r *ranges) inside(s *stmt, before env) {
	if s == nil {
		return
	}
	if s.kind == stBlock {
		for _, p := range s.list {
			r.inside(p, before)
		}
		return
	}
	if s.kind == stCase {
		r.e = before.copy()
		r.inside(s.body, before)
		return
	}
	r.statement(s)
}
