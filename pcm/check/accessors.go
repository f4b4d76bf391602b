package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/pcm"
)

// section is a part of a package, as a mask.
type section uint8

const (
	inSignals section = 1 << iota
	inControls
	inScalars
	inArrays
)

// accessor is one of the header's, with the objects that it is for.
type accessor struct {
	name    string
	on      section
	typ     pcm.Type
	any     bool // of every type
	args    int  // besides the object
	value   string
	writes  bool
	written int // the argument that is stored
}

// accessors are those of pcmh.h and pcm_arith.h. A test reads those files and misses what is not here.
var accessors = []accessor{
	{name: "get_signal", on: inSignals, any: true, value: "pcm_uint"},
	{name: "set_signal", on: inSignals, any: true, args: 1, writes: true},
	{name: "update_signal", on: inSignals, any: true, args: 1, writes: true},
	{name: "get_control", on: inControls, any: true, value: "pcm_uint"},
	{name: "set_control", on: inControls, any: true, args: 1, writes: true},
	{name: "get_var", on: inScalars, any: true, value: "pcm_uint"},
	{name: "set_var", on: inScalars, any: true, args: 1, writes: true},
	{name: "get_var_uint", on: inScalars, typ: pcm.Uint, value: "pcm_uint"},
	{name: "set_var_uint", on: inScalars, typ: pcm.Uint, args: 1, writes: true},
	{name: "get_var_int", on: inScalars, typ: pcm.Int, value: "pcm_int"},
	{name: "set_var_int", on: inScalars, typ: pcm.Int, args: 1, writes: true},
	{name: "get_var_float", on: inScalars, typ: pcm.Float, value: "pcm_float"},
	{name: "set_var_float", on: inScalars, typ: pcm.Float, args: 1, writes: true},
	{name: "get_var_frac", on: inScalars, typ: pcm.Frac, value: "pcm_frac"},
	{name: "set_var_frac", on: inScalars, typ: pcm.Frac, args: 1, writes: true},
	{name: "get_arr_uint", on: inArrays, typ: pcm.Uint, args: 1, value: "pcm_uint"},
	{name: "set_arr_uint", on: inArrays, typ: pcm.Uint, args: 2, writes: true, written: 1},
	{name: "get_arr_int", on: inArrays, typ: pcm.Int, args: 1, value: "pcm_int"},
	{name: "set_arr_int", on: inArrays, typ: pcm.Int, args: 2, writes: true, written: 1},
	{name: "get_arr_float", on: inArrays, typ: pcm.Float, args: 1, value: "pcm_float"},
	{name: "set_arr_float", on: inArrays, typ: pcm.Float, args: 2, writes: true, written: 1},
	{name: "get_arr_frac", on: inArrays, typ: pcm.Frac, args: 1, value: "pcm_frac"},
	{name: "set_arr_frac", on: inArrays, typ: pcm.Frac, args: 2, writes: true, written: 1},
}

// accessPrefix begins the names of the functions that stand for accessors in the parsed text.
const accessPrefix = "pcm_check_"

func accessorNamed(name string) *accessor {
	i := slices.IndexFunc(accessors, func(a accessor) bool { return a.name == name })
	if i < 0 {
		return nil
	}
	return &accessors[i]
}

// valueType is the C type that the argument is converted to.
func (a *accessor) valueType() string {
	switch {
	case a.any, a.typ == pcm.Uint:
		return "pcm_uint"
	case a.typ == pcm.Int:
		return "pcm_int"
	case a.typ == pcm.Float:
		return "pcm_float"
	}
	return "pcm_frac"
}

// declarations make every accessor that the runtime has a call which carries the object's name.
func declarations(has func(name string) bool) string {
	var b strings.Builder
	for _, a := range accessors {
		if !has(a.name) {
			continue
		}
		result := a.value
		if a.writes {
			result = "void"
		}
		params, pass := []string{"S"}, []string{"#S"}
		types := []string{"const char *"}
		for i := range a.args {
			params = append(params, fmt.Sprintf("V%d", i))
			if a.writes && i == a.written {
				pass = append(pass, fmt.Sprintf("(%s)(V%d)", a.valueType(), i))
				types = append(types, a.valueType())
			} else {
				pass = append(pass, fmt.Sprintf("(V%d)", i))
				types = append(types, "...")
			}
		}
		proto := strings.Join(types, ", ")
		if strings.Contains(proto, "...") {
			proto = "const char *, ..." // an index keeps its own type
		}
		star, behind := "", ""
		if !a.writes { // what is read is a place in C, too: the checker says itself that nothing may be stored there
			star, behind = "*", "*"
		}
		fmt.Fprintf(&b, "#undef %s\n#define %s(%s) (%s%s%s(%s))\n%s %s%s%s(%s);\n", a.name, a.name, strings.Join(params, ", "), star, accessPrefix, a.name, strings.Join(pass, ", "),
			result, behind, accessPrefix, a.name, proto)
	}
	return b.String()
}

// object is one of the package.
type object struct {
	name    string
	section section
	what    string // a signal, a control, ...
	typ     pcm.Type
	length  int // of an array
	at      place
	read    bool
	written bool
	tested  bool // in the mask of what fired
	trigger bool
}

func objectsOf(p *pcm.Package) (map[string]*object, []*object) {
	byName := map[string]*object{}
	var order []*object
	add := func(o *object, path ...any) {
		if o.name == "" || byName[o.name] != nil {
			return
		}
		o.at = place{p.File, p.Pos(append(path, "name")...)}
		byName[o.name] = o
		order = append(order, o)
	}
	for i, s := range p.Signals {
		add(&object{name: s.Name, section: inSignals, what: "a signal", trigger: s.Trigger != nil}, "signals", i)
	}
	for i, c := range p.Controls {
		add(&object{name: c.Name, section: inControls, what: "a control"}, "controls", i)
	}
	for i, v := range p.Vars {
		o := &object{name: v.Name, section: inScalars, what: fmt.Sprintf("a variable of type %s", v.Type), typ: v.Type, length: v.Len}
		if v.Len > 0 {
			o.section, o.what = inArrays, fmt.Sprintf("an array of %s", v.Type)
		}
		add(o, "variables", i)
	}
	return byName, order
}

func (s section) String() string {
	var names []string
	for i, n := range []string{"signals", "controls", "variables", "arrays"} {
		if s&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return strings.Join(names, " and ")
}

// right names the accessor that fits an object.
func right(o *object, like *accessor) string {
	verb := "get"
	if like.writes {
		verb = "set"
	}
	switch o.section {
	case inSignals:
		return verb + "_signal"
	case inControls:
		return verb + "_control"
	case inArrays:
		return verb + "_arr_" + o.typ.String()
	}
	return verb + "_var_" + o.typ.String()
}

// access checks one use of an accessor, and notes it.
func (c *checker) access(x *expr) {
	a := accessorNamed(x.name)
	o := c.objects[x.object]
	if o == nil {
		var known []string
		for _, k := range c.order {
			if k.section&a.on != 0 {
				known = append(known, k.name)
			}
		}
		c.mistake(x.at, "unknown-object", spec.Suggest(x.object, known), "%s(%s): the package has no %s of that name", a.name, x.object, one(a.on))
		return
	}
	if a.writes {
		o.written = true
	} else {
		o.read = true
	}
	if a.name == "update_signal" {
		o.read = true
	}
	switch {
	case o.section&a.on == 0:
		c.mistake(x.at, "wrong-accessor", "use "+right(o, a), "%s(%s): %s is %s, and %s is for %s", a.name, o.name, o.name, o.what, a.name, a.on)
	case !a.any && o.typ != a.typ:
		c.mistake(x.at, "wrong-type", "use "+right(o, a), "%s(%s): %s is %s: its bits mean something else to %s", a.name, o.name, o.name, o.what, a.name)
	}
}

// stored refuses what writes to an accessor that reads.
func (c *checker) stored(x *expr) {
	to := x.args[0].plain()
	if to.kind != exAccess {
		return
	}
	fix := ""
	if o := c.objects[to.object]; o != nil {
		fix = "use " + right(o, &accessor{writes: true})
	}
	c.mistake(x.at, "stored", fix, "%s(%s) is read only: what is stored to it does not count", to.name, to.object)
}

func one(s section) string {
	switch s {
	case inSignals:
		return "signal"
	case inControls:
		return "control"
	case inScalars:
		return "variable"
	}
	return "array"
}
