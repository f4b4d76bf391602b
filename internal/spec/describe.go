package spec

import (
	"reflect"
	"regexp"
	"strings"
	"sync"
)

// field is one key of a struct, from its tags.
type field struct {
	name                string
	index               []int
	typ                 reflect.Type
	doc, example, def   string
	required, shorthand bool
	rules               rules
}

// rules are the constraints of a value.
type rules struct {
	enum                   []string
	min, max, above, below string
	pattern                *regexp.Regexp
	patternText            string
	keys                   *regexp.Regexp
	keysText               string
	minItems, maxItems     int // 0: none
	example                string
}

var described sync.Map // reflect.Type -> []field

// fieldsOf reads the tags of a struct type. A mistake in them is the programmer's: it panics.
func fieldsOf(t reflect.Type) []field {
	if f, ok := described.Load(t); ok {
		return f.([]field)
	}
	var out []field
	for i := range t.NumField() {
		sf := t.Field(i)
		name, options, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		if name == "-" || !sf.IsExported() && !sf.Anonymous {
			continue
		}
		if sf.Anonymous && name == "" {
			for _, f := range fieldsOf(sf.Type) {
				f.index = append([]int{i}, f.index...)
				out = append(out, f)
			}
			continue
		}
		if name == "" {
			panic(bug(t, "field %s has no yaml tag", sf.Name))
		}
		f := field{name: name, index: []int{i}, typ: sf.Type, doc: sf.Tag.Get("doc"), example: sf.Tag.Get("example"), def: sf.Tag.Get("default")}
		for o := range strings.SplitSeq(options, ",") {
			switch o {
			case "":
			case "required":
				f.required = true
			case "shorthand":
				f.shorthand = true
			default:
				panic(bug(t, "field %s: yaml option %q", sf.Name, o))
			}
		}
		f.rules = rulesOf(t, sf)
		f.rules.example = f.example
		out = append(out, f)
	}
	described.Store(t, out)
	return out
}

func rulesOf(t reflect.Type, sf reflect.StructField) rules {
	r := rules{min: sf.Tag.Get("min"), max: sf.Tag.Get("max"), above: sf.Tag.Get("above"), below: sf.Tag.Get("below"),
		minItems: count(t, sf, "minitems"), maxItems: count(t, sf, "maxitems")}
	if e := sf.Tag.Get("enum"); e != "" {
		r.enum = strings.Split(e, ",")
	}
	if p := sf.Tag.Get("pattern"); p != "" {
		r.patternText = "^(" + p + ")$"
		r.pattern = regexp.MustCompile(r.patternText)
	}
	if p := sf.Tag.Get("keys"); p != "" {
		r.keysText = "^(" + p + ")$"
		r.keys = regexp.MustCompile(r.keysText)
	}
	return r
}

func count(t reflect.Type, sf reflect.StructField, tag string) int {
	s, n := sf.Tag.Get(tag), 0
	for _, c := range s {
		if c < '0' || c > '9' {
			panic(bug(t, "field %s: %s %q", sf.Name, tag, s))
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// shorthandOf is the field that stands for the whole struct, or nil.
func shorthandOf(fields []field) *field {
	for i := range fields {
		if fields[i].shorthand {
			return &fields[i]
		}
	}
	return nil
}

func names(fields []field) []string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = f.name
	}
	return out
}
