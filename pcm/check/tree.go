package check

import (
	"fmt"
	"slices"
	"strings"

	"modernc.org/cc/v4"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/pcm"
)

// tree checks the parsed handler.
func (c *checker) tree(ast *cc.AST, s *sources) {
	c.low = &lowering{files: s, functions: map[string]*function{}, variables: map[cc.Node]*variable{}, scalars: map[string]*variable{}}
	initial := c.scalars()
	c.low.unit(ast)
	if c.low.functions["__algorithm_main"] == nil || c.low.functions["__algorithm_main"].body == nil {
		c.mistake(place{c.p.C[0], spec.Pos{Line: 1, Col: 1}}, "no-entry", "define int algorithm_main() { ... return PCM_SUCCESS; }", "there is no algorithm_main, with which the handler begins")
	}
	ours := slices.DeleteFunc(slices.Clone(c.low.order), func(f *function) bool { return !f.ours })
	c.recursion(ours)
	for _, f := range ours {
		f.body.walk(func(st *stmt) { c.statement(f, st) }, func(x *expr) { c.expression(x) })
	}
	for _, g := range c.low.globals {
		g.walk(func(st *stmt) { c.globalVariable(st) }, func(x *expr) { c.expression(x) })
	}
	if !c.o.Platform.Float {
		c.floats(ours)
	}
	c.ranges(initial)
}

// scalars makes variables of the package's own, with their first values.
func (c *checker) scalars() map[*variable]interval {
	first := map[*variable]interval{}
	for i := range c.p.Vars {
		v := &c.p.Vars[i]
		if v.Len > 0 || c.low.scalars[v.Name] != nil {
			continue
		}
		s := shape{integer: true, bits: 64, signed: v.Type == pcm.Int, length: -1}
		out := &variable{name: v.Name, shape: s, object: true, loose: v.Type != pcm.Uint && v.Type != pcm.Int}
		c.low.scalars[v.Name] = out
		if bits, err := v.Initial.Bits(v.Type); err == nil && !out.loose {
			first[out] = wordInterval(bits, s.signed)
		} else {
			out.loose = true
		}
	}
	for _, ctl := range c.p.Controls {
		if c.low.scalars[ctl.Name] == nil {
			v := &variable{name: ctl.Name, shape: shape{integer: true, bits: 64, length: -1}, object: true}
			c.low.scalars[ctl.Name] = v
			first[v] = wordInterval(ctl.Initial, false)
		}
	}
	return first
}

func wordInterval(bits uint64, signed bool) interval {
	if !signed && bits > top {
		return interval{top, top}
	}
	return interval{int64(bits), int64(bits)}
}

func (c *checker) ranges(initial map[*variable]interval) {
	r := &ranges{c: c, callee: map[*function]map[*variable]bool{}}
	for _, f := range c.low.order {
		if f.ours {
			f.body.walk(nil, func(x *expr) {
				if x.kind == exNumber && !x.big && x.value > 0 && x.value < maxRounds*16 {
					r.steps = append(r.steps, x.value-1, x.value, x.value+1)
				}
			})
		}
	}
	slices.Sort(r.steps)
	r.steps = slices.Compact(r.steps)
	worst := map[place]bool{}
	r.indexed = func(at place, name string, length int64, i interval) {
		if i.empty() || i.lo >= 0 && i.hi < length || r.fn != nil && !r.fn.ours {
			return
		}
		if worst[at] {
			return
		}
		worst[at] = true
		mask := ""
		if length&(length-1) == 0 {
			mask = fmt.Sprintf("mask it with & %d, or test it before", length-1)
		} else {
			mask = fmt.Sprintf("write %% %d, or test it before", length)
		}
		if i.lo >= length || i.hi < 0 {
			c.mistake(at, "index", mask, "%s has %d elements, the index is %s", name, length, i)
			return
		}
		c.doubt(at, "index", mask, "%s has %d elements, and the index is not proven to be below: it may be %s", name, length, i)
	}
	loops := map[place]bool{}
	r.loopSeen = func(s *stmt) {
		if r.fn == nil || !r.fn.ours || loops[s.at] {
			return
		}
		loops[s.at] = true
		c.loop(r, s)
	}
	r.solve(initial)
}

var heap = strings.Fields("malloc calloc realloc reallocarray free alloca __builtin_alloca aligned_alloc posix_memalign memalign valloc strdup strndup asprintf vasprintf mmap munmap brk sbrk")

// builtins that need nothing behind them.
func needsNothing(name string) bool {
	return strings.HasPrefix(name, "__builtin_") || strings.HasPrefix(name, "__atomic_") || strings.HasPrefix(name, "__sync_")
}

// expression checks one node of the handler.
func (c *checker) expression(x *expr) {
	switch x.kind {
	case exAccess:
		c.access(x)
	case exCall:
		c.call(x)
	case exAssign, exStep, exAddress:
		c.stored(x)
	case exBinary:
		if x.op == "&" {
			c.maskTest(x)
		}
	case exNumber:
		c.bareName(x)
	}
}

func (c *checker) call(x *expr) {
	name := strings.TrimPrefix(x.name, "__builtin_")
	switch {
	case x.name == "":
		c.mistake(x.at, "pointer-call", "call functions by their names", "a call through a pointer: how deep it goes cannot be told")
	case x.fn != nil:
	case slices.Contains(heap, name), slices.Contains(heap, x.name):
		c.mistake(x.at, "heap", "keep state in variables of the package", "%s: a handler has no heap", name)
	case needsNothing(x.name):
	case !c.o.Platform.Libc && c.declared(x.name):
		c.add(Refusal, x.at, "libc", "", "platform %s has no C library: %s", c.o.Platform.Name, friendly(x.name))
	}
}

// friendly is what the author wrote where a macro of the library calls something else.
func friendly(name string) string {
	if name == "__assert_fail" {
		return "assert"
	}
	return name
}

// declared: what is declared nowhere has been named by the compiler.
func (c *checker) declared(name string) bool {
	for _, f := range c.report.Findings {
		if f.Rule == "c-Wimplicit-function-declaration" && strings.Contains(f.Message, "'"+name+"'") {
			return false
		}
	}
	return true
}

// maskTest: the mask of what fired only ever holds signals with a trigger.
func (c *checker) maskTest(x *expr) {
	for i, side := range x.args {
		o := c.objects[side.plain().name]
		if side.plain().kind != exNumber || o == nil || o.section != inSignals || !c.isMask(x.args[1-i]) {
			continue
		}
		o.tested = true
		if !o.trigger {
			c.add(Warning, x.at, "mask", "give it a trigger_threshold, or read it with get_signal", "signal %s has no trigger: it is never in the mask of what fired, so this is never true", o.name)
		}
	}
}

// isMask says that x reads the mask of what fired, itself or through a variable that is set from it.
func (c *checker) isMask(x *expr) bool {
	x = x.plain()
	switch x.kind {
	case exIndex:
		return x.args[0].v != nil && x.args[0].v.name == "pcm_snapshot"
	case exVariable:
		for _, f := range c.low.order {
			found := false
			f.body.walk(func(s *stmt) {
				if s.kind == stSet && s.v == x.v && s.x != nil && s.x.plain().kind == exIndex {
					found = found || c.isMask(s.x)
				}
			}, nil)
			if found {
				return true
			}
		}
	}
	return false
}

// bareName: outside accessors the name of a control or a variable is a mere number.
func (c *checker) bareName(x *expr) {
	o := c.objects[x.name]
	if x.name == "" || o == nil || o.section == inSignals {
		return
	}
	c.doubt(x.at, "bare-name", "use "+right(o, &accessor{})+"("+o.name+")", "%s is %s: alone it is only its number", o.name, o.what)
}

func (c *checker) statement(f *function, s *stmt) {
	if s.kind == stGoto {
		c.backward(f, s)
	}
	if s.kind == stSet && s.v != nil && s.v.global {
		c.globalVariable(s)
	}
}

// globalVariable: state outside the package's variables is shared by all flows, and is not there on devices.
func (c *checker) globalVariable(s *stmt) {
	if s.kind == stSet && s.v != nil && s.v.global && s.v.loose && !s.v.constant {
		c.add(Warning, s.at, "global", "make it a variable of the package, or const", "%s is shared by all flows of the handler", s.v.name)
	}
}

// recursion names every function that may call itself.
func (c *checker) recursion(all []*function) {
	for _, f := range all {
		seen := map[*function]bool{}
		var path []string
		var reach func(g *function) (place, bool)
		reach = func(g *function) (place, bool) {
			for _, call := range g.calls {
				if call.to == f {
					return call.at, true
				}
				if !seen[call.to] {
					seen[call.to] = true
					if at, ok := reach(call.to); ok {
						path = append([]string{shown(call.to.name)}, path...)
						if g != f {
							return at, true
						}
						return call.at, true
					}
				}
			}
			return place{}, false
		}
		if at, ok := reach(f); ok {
			through := ""
			if len(path) > 0 {
				through = " through " + strings.Join(path, ", ")
			}
			c.mistake(at, "recursion", "write a loop with a bound", "%s calls itself%s: a handler has no stack for that", shown(f.name), through)
		}
	}
}

func shown(name string) string {
	if name == "__algorithm_main" {
		return "algorithm_main"
	}
	return name
}

// floats names each line in which something is computed in floating point.
func (c *checker) floats(all []*function) {
	seen := map[string]bool{}
	name := func(at place, what string) {
		if key := fmt.Sprint(at.file, ":", at.Line); !seen[key] {
			seen[key] = true
			c.add(Refusal, at, "float", "use frac, which is fixed point there", "platform %s has no floating point: %s", c.o.Platform.Name, what)
		}
	}
	var look func(x *expr)
	look = func(x *expr) {
		if x == nil || x.kind == exNumber {
			return // folded by the compiler
		}
		if x.shape.float {
			what := "this is computed in it"
			switch {
			case x.kind == exVariable:
				what = x.v.name + " is of a type of it"
			case x.kind == exFloat:
				what = "a constant of it"
			case x.kind == exAccess:
				what = fmt.Sprintf("%s(%s)", x.name, x.object)
			case x.kind == exCall && x.name != "":
				what = x.name
			}
			name(x.at, what)
		}
		for _, a := range x.args {
			look(a)
		}
	}
	for _, f := range all {
		if f.result.float {
			name(f.at, shown(f.name)+" returns it")
		}
		f.body.walk(func(s *stmt) {
			if s.kind == stSet && s.v.shape.float {
				name(s.at, s.v.name+" is of a type of it")
			}
			s.each(look)
		}, nil)
	}
}
