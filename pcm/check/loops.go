package check

import "fmt"

// maxRounds is the most that a loop may go round: what is more is no bound for a NIC.
const maxRounds = 1 << 16

// backward refuses jumps to labels that stand before them.
func (c *checker) backward(f *function, s *stmt) {
	if s.name == "*" {
		c.mistake(s.at, "loop", "jump to a label by its name", "a jump to a computed place: what runs cannot be bound")
		return
	}
	f.body.walk(func(l *stmt) {
		if l.kind == stLabel && l.name == s.name && l.at.file == s.at.file && (l.at.Line < s.at.Line || l.at.Line == s.at.Line && l.at.Col <= s.at.Col) {
			c.doubt(s.at, "loop", "write a for with a constant bound", "a jump back to %s: this loop has no static bound", s.name)
		}
	}, nil)
}

// loop decides how often s goes round, with what is known at its beginning.
func (c *checker) loop(r *ranges, s *stmt) {
	n, why := r.bound(s)
	switch {
	case n >= 0 && n <= maxRounds:
		return
	case n > maxRounds:
		why = fmt.Sprintf("it may go round %d times, more than %d", n, maxRounds)
	case s.x == nil || s.x.kind == exNumber && s.x.value != 0:
		if !leaves(s.body) {
			c.mistake(s.at, "loop", "give it a bound", "this loop never ends")
			return
		}
	}
	c.doubt(s.at, "loop", "for (i = 0; i < CONSTANT; i++), or while (condition && n++ < CONSTANT)", "this loop has no static bound: %s", why)
}

// leaves says that something in a body may end the loop.
func leaves(s *stmt) bool {
	found := breaksIn(s)
	s.walk(func(s *stmt) { found = found || s.kind == stReturn || s.kind == stGoto }, nil)
	return found
}

// change is one modification of a counter in a loop.
type change struct {
	x      *expr
	by     int64 // 0: not by a constant
	halves bool  // shrinks it to at most half
}

// changesTo lists what modifies v in the parts of a loop.
func changesTo(v *variable, s *stmt) []change {
	var out []change
	s.walk(func(st *stmt) {
		if st.kind == stSet && st.v == v && st.x != nil && st != s {
			out = append(out, change{})
		}
	}, func(x *expr) {
		if x.kind != exAssign && x.kind != exStep || x.args[0].plain().v != v || x.args[0].plain().kind != exVariable {
			return
		}
		out = append(out, changeBy(v, x))
	})
	return out
}

func changeBy(v *variable, x *expr) change {
	c := change{x: x}
	sign := map[string]int64{"+": 1, "-": -1}
	if x.kind == exStep {
		c.by = sign[x.op]
		return c
	}
	value := x.args[1].plain()
	op := x.op
	if op == "" && value.kind == exBinary && value.args[0].plain().v == v && value.args[0].plain().kind == exVariable {
		op, value = value.op, value.args[1].plain()
	}
	if value.kind != exNumber || value.big {
		// v &= v - 1 takes one bit away.
		c.halves = op == "&" && value.kind == exBinary && value.op == "-" && value.args[0].plain().v == v && value.args[1].plain().value == 1
		return c
	}
	switch op {
	case "+", "-":
		c.by = sign[op] * value.value
	case ">>":
		c.halves = value.value > 0
	case "/":
		c.halves = value.value > 1
	}
	return c
}

// conjuncts are the parts of a condition that must all hold for another round.
func conjuncts(x *expr) []*expr {
	if x == nil {
		return nil
	}
	if p := x.plain(); p.kind == exBinary && p.op == "&&" {
		return append(conjuncts(p.args[0]), conjuncts(p.args[1])...)
	}
	return []*expr{x.plain()}
}

// exits are conditions under which the body leaves the loop, where it always comes to them.
func exits(body *stmt) []*expr {
	var out []*expr
	if body == nil || body.kind != stBlock || continues(body) {
		return nil
	}
	for _, s := range body.list {
		if s.kind == stIf && s.other == nil && ends(s.then) {
			out = append(out, s.x)
		}
	}
	return out
}

func ends(s *stmt) bool {
	if s == nil {
		return false
	}
	if s.kind == stBlock && len(s.list) > 0 {
		return ends(s.list[len(s.list)-1])
	}
	return s.kind == stBreak || s.kind == stReturn
}

func continues(s *stmt) bool {
	found := false
	s.walk(func(s *stmt) { found = found || s.kind == stContinue }, nil)
	return found
}

// bound is the most rounds of a loop, or -1 and why none was found.
func (r *ranges) bound(s *stmt) (int64, string) {
	why := "no counter in its condition that only counts towards a constant"
	for _, part := range conjuncts(s.x) {
		n, reason := r.counted(s, part, false)
		if n >= 0 {
			return n, ""
		}
		if reason != "" {
			why = reason
		}
	}
	for _, part := range exits(s.body) {
		for _, or := range disjuncts(part) {
			if n, _ := r.counted(s, or, true); n >= 0 {
				return n, ""
			}
		}
	}
	return -1, why
}

func disjuncts(x *expr) []*expr {
	if p := x.plain(); p.kind == exBinary && p.op == "||" {
		return append(disjuncts(p.args[0]), disjuncts(p.args[1])...)
	}
	return []*expr{x.plain()}
}

// counted is the bound that one condition gives; leaving means that the loop ends where it holds.
func (r *ranges) counted(s *stmt, x *expr, leaving bool) (int64, string) {
	left, op, right := x, "!=", &expr{kind: exNumber, shape: x.shape}
	if x.kind == exBinary && comparison(x.op) {
		left, op, right = x.args[0].plain(), x.op, x.args[1].plain()
		if counter(right) != nil && counter(left) == nil {
			left, op, right = right, mirrored[op], left
		}
	}
	if leaving {
		op = opposite[op]
	}
	v := counter(left)
	if v == nil || !v.shape.integer {
		return -1, ""
	}
	if v.loose {
		return -1, fmt.Sprintf("%s may be changed elsewhere", v.name)
	}
	whole := &stmt{kind: stBlock, list: []*stmt{{kind: stExpr, x: s.x}, s.step, s.body}}
	whole.list = compact(whole.list)
	changes := changesTo(v, whole)
	if len(changes) == 0 {
		return -1, fmt.Sprintf("nothing in it changes %s", v.name)
	}
	start := r.value(v)
	if n, ok := halving(s, x, changes, leaving); ok {
		return n, ""
	}
	step, every := int64(0), false
	for _, ch := range changes {
		if ch.by == 0 || step != 0 && (ch.by > 0) != (step > 0) {
			return -1, fmt.Sprintf("%s changes by more than a constant in one direction", v.name)
		}
		if step == 0 || magnitude(ch.by) < magnitude(step) {
			step = ch.by
		}
		every = every || ch.x == left || s.always(ch.x)
	}
	if !every {
		return -1, fmt.Sprintf("%s does not change in every round", v.name)
	}
	if changesAny(r.changesOf(whole), right) {
		return -1, fmt.Sprintf("the limit of %s changes in it", v.name)
	}
	limit := r.eval(right)
	if step > 0 && (op == "<" || op == "<=" || op == "!=" && step == 1) {
		if op == "!=" && (start.hi > limit.lo || limit.lo != limit.hi) {
			return -1, fmt.Sprintf("%s may begin behind its limit", v.name)
		}
		if v.shape.bits < 64 && plus(limit.hi, step) > rangeOf(v.shape).hi {
			return -1, fmt.Sprintf("%s may begin again from its least value before it comes to its limit", v.name)
		}
		return rounds(start.lo, limit.hi, step, v, "limit")
	}
	if step < 0 && (op == ">" || op == ">=" || op == "!=" && step == -1) {
		if !v.shape.signed && op == ">=" && limit.lo <= 0 {
			return -1, fmt.Sprintf("%s is unsigned, so it is never below 0", v.name)
		}
		if op == "!=" && (start.lo < limit.hi || limit.lo != limit.hi) {
			return -1, fmt.Sprintf("%s may begin below its limit", v.name)
		}
		return rounds(negate(start.hi), negate(limit.lo), -step, v, "beginning")
	}
	return -1, fmt.Sprintf("%s counts away from its limit", v.name)
}

// rounds counts from one number to another, and one more for a test behind the count.
func rounds(from, to, step int64, v *variable, what string) (int64, string) {
	if from == bottom || from == top || to == top || to == bottom {
		return -1, fmt.Sprintf("the %s of %s is not known", what, v.name)
	}
	if to < from {
		return 1, ""
	}
	return (to-from)/step + 1, ""
}

// halving: a value that loses half, or a bit, in every round is gone after 64.
func halving(s *stmt, x *expr, changes []change, leaving bool) (int64, bool) {
	nonzero := x.kind == exVariable || x.kind == exBinary && (x.op == "!=" || x.op == ">") && x.args[1].plain().kind == exNumber && x.args[1].plain().value == 0
	every := false
	for _, c := range changes {
		if !c.halves {
			return 0, false
		}
		every = every || s.always(c.x)
	}
	return 64, nonzero && every && !leaving
}

// counter is the variable that a side of a condition reads, or counts on the way.
func counter(x *expr) *variable {
	switch x.kind {
	case exVariable:
		return x.v
	case exStep:
		if t := x.args[0].plain(); t.kind == exVariable {
			return t.v
		}
	}
	return nil
}

// always says that x is evaluated in every round: in the step, in front of a condition, or in the body itself where nothing continues.
func (s *stmt) always(x *expr) bool {
	direct := func(top *expr) bool {
		for top != nil && top.kind == exComma {
			for _, a := range top.args {
				if a == x {
					return true
				}
			}
			return false
		}
		return top == x
	}
	if s.step != nil && direct(s.step.x) {
		return true
	}
	if s.x != nil && len(conjuncts(s.x)) > 0 {
		if first := conjuncts(s.x)[0]; first == x || len(first.args) > 0 && (first.args[0].plain() == x || first.kind == exBinary && !isLogic(first.op) && first.args[1].plain() == x) {
			return true
		}
	}
	if s.body == nil || continues(s.body) {
		return false
	}
	if s.body.kind == stExpr {
		return direct(s.body.x)
	}
	for _, b := range s.body.list {
		if b.kind == stExpr && direct(b.x) {
			return true
		}
	}
	return false
}

func isLogic(op string) bool { return op == "&&" || op == "||" }

func compact(list []*stmt) []*stmt {
	var out []*stmt
	for _, s := range list {
		if s != nil {
			out = append(out, s)
		}
	}
	return out
}
