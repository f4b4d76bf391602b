package check

func (r *ranges) optional(x *expr) {
	if x != nil {
		r.eval(x)
	}
}

// eval is what the value of x may be, with the effects of x on what is known.
func (r *ranges) eval(x *expr) interval {
	all := rangeOf(x.shape)
	switch x.kind {
	case exNumber:
		if x.big {
			return interval{top, top}
		}
		return interval{x.value, x.value}
	case exVariable:
		return r.value(x.v)
	case exAccess:
		return r.accessed(x, all)
	case exCall:
		return r.called(x, all)
	case exIndex:
		array, index := x.args[0], r.eval(x.args[1])
		r.optional(array)
		if length := array.shape.length; length > 0 && r.final && !r.quiet && r.e != nil {
			name := "the array"
			if array.v != nil {
				name = array.v.name
			}
			r.indexed(x.at, name, length, index)
		}
		return all
	case exAssign:
		return r.assigned(x)
	case exStep:
		old := r.eval(x.args[0])
		next := apply(x.op, old, interval{1, 1}).as(x.args[0].shape)
		if old.empty() {
			next = old
		}
		if t := x.args[0].plain(); t.kind == exVariable {
			r.assign(t.v, next)
		}
		if x.prefix {
			return next
		}
		return old
	case exChoice:
		r.eval(x.args[0])
		before := r.e.copy()
		r.assume(x.args[0], true)
		a := r.eval(x.args[1])
		then := r.e
		r.e = before
		r.assume(x.args[0], false)
		b := r.eval(x.args[2])
		r.e = meeting(then, r.e)
		return either(a.asIn(x.args[1], x), b.asIn(x.args[2], x))
	case exBinary:
		return r.operation(x)
	case exUnary:
		return r.unary(x, all)
	case exCast:
		i := r.eval(x.args[0])
		if !x.args[0].shape.integer || !x.shape.integer {
			return all
		}
		if i.empty() {
			return i
		}
		if x.shape.bits == 1 {
			return interval{0, 1}
		}
		return i.as(x.shape)
	case exBlock:
		return r.block(x, all)
	case exComma:
		var last interval
		for _, a := range x.args {
			last = r.eval(a)
		}
		return last
	}
	for _, a := range x.args {
		r.eval(a)
	}
	return all
}

// either joins two values, of which one may not be known to happen yet.
func either(a, b interval) interval {
	switch {
	case a.empty():
		return b
	case b.empty():
		return a
	}
	return a.join(b)
}

// asIn converts the value of an operand to the type of what it is part of.
func (i interval) asIn(part, whole *expr) interval {
	if !part.shape.integer || !whole.shape.integer {
		return rangeOf(whole.shape)
	}
	if i.empty() {
		return i
	}
	return i.as(whole.shape)
}

func (r *ranges) block(x *expr, all interval) interval {
	list := x.body.list
	for i, s := range list {
		if i == len(list)-1 && s.kind == stExpr && s.x != nil {
			return r.eval(s.x)
		}
		r.statement(s)
	}
	return all
}

func (r *ranges) accessed(x *expr, all interval) interval {
	a := accessorNamed(x.name)
	var last interval
	for i, arg := range x.args {
		v := r.eval(arg)
		if o := r.c.objects[x.object]; i == 0 && a != nil && a.on == inArrays && o != nil && o.length > 0 && r.final && !r.quiet && r.e != nil {
			r.indexed(x.at, x.object, int64(o.length), v)
		}
		last = v
	}
	if a == nil || x.v == nil {
		return all
	}
	if a.writes {
		r.assign(x.v, last)
		return all
	}
	if v := r.value(x.v); x.shape.integer && !v.empty() {
		return v.as(x.shape)
	}
	return r.value(x.v).meet(all)
}

func (r *ranges) called(x *expr, all interval) interval {
	for i, arg := range x.args {
		v := r.eval(arg)
		if x.fn != nil && i < len(x.fn.params) && !v.empty() {
			p := x.fn.params[i]
			if !arg.shape.integer {
				v = everything
			}
			r.grow(p, v.as(p.shape))
		}
	}
	if x.fn == nil {
		return all
	}
	r.forget(r.changedBy(x.fn))
	if i, ok := r.results[x.fn]; ok {
		return i
	}
	if x.fn.result.integer {
		return interval{1, 0}
	}
	return all
}

func (r *ranges) assigned(x *expr) interval {
	target := x.args[0]
	v := r.eval(x.args[1])
	switch {
	case !x.args[1].shape.integer:
		v = rangeOf(target.shape)
	case x.op != "":
		old := r.eval(target)
		if old.empty() || v.empty() {
			v = interval{1, 0}
		} else {
			v = apply(x.op, old.as(target.shape), v)
		}
	}
	if !v.empty() {
		v = v.as(target.shape)
	}
	if t := target.plain(); t.kind == exVariable {
		r.assign(t.v, v)
	} else if x.op == "" {
		r.eval(target)
	}
	return v
}

func (r *ranges) operation(x *expr) interval {
	if x.op == "&&" || x.op == "||" {
		r.eval(x.args[0])
		before := r.e.copy()
		r.assume(x.args[0], x.op == "&&")
		r.eval(x.args[1])
		r.e = meeting(before, r.e)
		return interval{0, 1}
	}
	a, b := r.eval(x.args[0]), r.eval(x.args[1])
	switch {
	case a.empty() || b.empty():
		return interval{1, 0}
	case !x.shape.integer || !x.args[0].shape.integer || !x.args[1].shape.integer:
		if comparison(x.op) {
			return interval{0, 1}
		}
		return rangeOf(x.shape)
	case comparison(x.op):
		return interval{0, 1}
	case x.op == "<<" || x.op == ">>":
		return apply(x.op, a.as(x.shape), b).as(x.shape)
	}
	return apply(x.op, a.as(x.shape), b.as(x.shape)).as(x.shape)
}

func comparison(op string) bool { _, ok := opposite[op]; return ok }

func (r *ranges) unary(x *expr, all interval) interval {
	i := r.eval(x.args[0])
	switch {
	case x.op == "!":
		return interval{0, 1}
	case i.empty() || !x.shape.integer || !x.args[0].shape.integer:
		return all
	case x.op == "-":
		return interval{negate(i.hi), negate(i.lo)}.as(x.shape)
	case x.op == "+":
		return i.as(x.shape)
	}
	return all
}

// assume narrows what is known where x is true, or false.
func (r *ranges) assume(x *expr, is bool) {
	if r.e == nil {
		return
	}
	x = x.plain()
	switch x.kind {
	case exUnary:
		if x.op == "!" {
			r.assume(x.args[0], !is)
		}
	case exVariable, exAccess:
		if v := r.narrowable(x); v != nil {
			op := "!="
			if !is {
				op = "=="
			}
			r.narrow(v, x, op, interval{0, 0}, x.shape)
		}
	case exBinary:
		switch {
		case x.op == "&&" && is, x.op == "||" && !is:
			r.assume(x.args[0], is)
			r.assume(x.args[1], is)
		case comparison(x.op):
			op := x.op
			if !is {
				op = opposite[op]
			}
			r.compare(x.args[0], op, x.args[1])
			r.compare(x.args[1], mirrored[op], x.args[0])
		}
	}
}

// narrowable is the variable that x reads and nothing else.
func (r *ranges) narrowable(x *expr) *variable {
	x = x.plain()
	switch {
	case x.kind == exVariable && !x.v.loose:
		return x.v
	case x.kind == exAccess && x.v != nil && !x.v.loose:
		if a := accessorNamed(x.name); a != nil && !a.writes {
			return x.v
		}
	}
	return nil
}

func (r *ranges) compare(a *expr, op string, b *expr) {
	v := r.narrowable(a)
	if v == nil || !a.shape.integer || !b.shape.integer || !pure(b) && b.plain().kind != exAccess {
		return
	}
	common := commonShape(a.shape, b.shape)
	quiet := r.quiet
	r.quiet = true
	other := r.eval(b)
	r.quiet = quiet
	if other.empty() {
		return
	}
	r.narrow(v, a, op, other.as(common), common)
}

// narrow keeps what "v op other" leaves of v, if v keeps its value in the type that is compared in.
func (r *ranges) narrow(v *variable, _ *expr, op string, other interval, common shape) {
	if r.e == nil {
		return
	}
	now := r.value(v)
	if now.empty() || !now.within(rangeOf(common)) {
		return
	}
	next := narrowed(now, op, other)
	if next.empty() {
		r.e = nil // cannot be
		return
	}
	r.e[v] = next
}

// commonShape is the type that two integers are compared in.
func commonShape(a, b shape) shape {
	promote := func(s shape) shape {
		if s.bits < 32 {
			return shape{integer: true, signed: true, bits: 32, length: -1}
		}
		return s
	}
	a, b = promote(a), promote(b)
	switch {
	case a.bits > b.bits:
		return a
	case b.bits > a.bits:
		return b
	case !a.signed:
		return a
	}
	return b
}
