package spec

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync"
)

// ReadFile is Decode of a file.
func ReadFile(path string, into any) (*Doc, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes+1)) // one more than allowed, so that Decode sees that there is more
	if err != nil {
		return nil, err
	}
	return Decode(path, data, into)
}

// Decode reads data into the struct, or the Map, that into points to. file is the name in messages. It returns the document also
// when there are mistakes, so that the caller can look for more; the error is then *Errors, the same as Doc.Err().
// Values with a mistake keep their zero value.
func Decode(file string, data []byte, into any) (*Doc, error) {
	return decodeDoc(&Doc{File: file}, data, into)
}

// DecodeTagged is Decode for a format of others that marks some scalars with tags, such as !eval. The tags named are read
// and their values taken as they stand; use it with [Scalar] fields, which say no more about a value than its text.
func DecodeTagged(file string, data []byte, into any, tags ...string) (*Doc, error) {
	return decodeDoc(&Doc{File: file, tags: tags}, data, into)
}

func decodeDoc(d *Doc, data []byte, into any) (*Doc, error) {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct && !v.Type().Elem().Implements(orderedMapType) {
		panic(fmt.Sprintf("spec: Decode into %T, need a pointer to a struct or a Map", into))
	}
	d.root = d.tree(data)
	if d.root == nil {
		d.mark(P())
		return d, d.Err()
	}
	c := &context{doc: d}
	c.decode(P(), d.root, v.Elem(), &rules{})
	return d, d.Err()
}

// Scan reads one value as if it stood unquoted in a file: for settings on the command line. into is a pointer to any
// scalar type that a file may hold. The error has no place.
func Scan(text string, into any) error {
	d := &Doc{}
	(&context{doc: d}).decode(P(), plain(text), reflect.ValueOf(into).Elem(), &rules{})
	if len(d.problems) == 0 {
		return nil
	}
	p := d.problems[0]
	if p.Fix != "" {
		return fmt.Errorf("%s (%s)", p.Message, p.Fix)
	}
	return errors.New(p.Message)
}

type context struct{ doc *Doc }

func (c *context) wrongType(p Path, n *node, want, fix string) {
	got := n.kind.String()
	if n.kind == null {
		c.doc.at(p, n, Missing, "has no value, need "+want, fix)
		return
	}
	if n.text != "" {
		got = quote(n.text) + " is " + got
	} else {
		got = "found " + got
	}
	c.doc.at(p, n, Type, got+", need "+want, fix)
}

// decode fills v from n. v is addressable.
func (c *context) decode(p Path, n *node, v reflect.Value, r *rules) {
	if n.kind == refused {
		c.doc.mark(p)
		return
	}
	t := v.Type()
	if t.Kind() == reflect.Pointer {
		fresh := reflect.New(t.Elem())
		before := len(c.doc.problems)
		c.decode(p, n, fresh.Elem(), r)
		if len(c.doc.problems) == before || t.Elem().Kind() == reflect.Struct {
			v.Set(fresh)
		}
		return
	}
	if q := quantityOf(t); q != nil {
		q.decode(c, p, n, v, r)
		return
	}
	switch {
	case t == addrType:
		c.decodeText(p, n, addrRE, "an IPv4 or IPv6 address", "192.0.2.11", func(s string) error {
			a, err := netip.ParseAddr(s)
			v.Set(reflect.ValueOf(a))
			return cause(err)
		})
	case t == prefixType:
		c.decodeText(p, n, prefixRE, "an IPv4 or IPv6 address with prefix length", "192.0.2.11/24", func(s string) error {
			a, err := netip.ParsePrefix(s)
			v.Set(reflect.ValueOf(a))
			return cause(err)
		})
	case reflect.PointerTo(t).Implements(textType):
		x := v.Addr().Interface().(Text)
		pattern, example := x.TextPattern()
		c.decodeText(p, n, wholeText(pattern), "a "+strings.ToLower(t.Name()), example, func(s string) error { return x.UnmarshalText([]byte(s)) })
	case t == scalarType:
		if n.kind != text && n.kind != number && n.kind != boolean {
			c.wrongType(p, n, "text, a number, or true/false", r.fix("a scalar"))
			return
		}
		v.SetString(n.text)
	case t.Implements(orderedMapType):
		c.decodeMap(p, n, v, r)
	case t.Implements(oneOrManyType) && n.kind != sequence && n.kind != null:
		one := reflect.New(t.Elem()).Elem()
		c.decode(p, n, one, r)
		v.Set(reflect.Append(reflect.Zero(t), one))
	default:
		c.decodeKind(p, n, v, r)
	}
}

func (c *context) decodeKind(p Path, n *node, v reflect.Value, r *rules) {
	switch v.Kind() {
	case reflect.Struct:
		c.decodeStruct(p, n, v)
	case reflect.Slice:
		c.decodeSlice(p, n, v, r)
	case reflect.String:
		c.decodeString(p, n, v, r)
	case reflect.Bool:
		c.decodeBool(p, n, v)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		c.decodeInt(p, n, v, r)
	case reflect.Float32, reflect.Float64:
		c.decodeFloat(p, n, v, r)
	default:
		panic(bug(v.Type(), "cannot be read from YAML"))
	}
}

func (c *context) decodeStruct(p Path, n *node, v reflect.Value) {
	fields := fieldsOf(v.Type())
	short := shorthandOf(fields)
	if n.kind != mapping {
		if short != nil && n.kind != null {
			c.defaults(fields, v, func(f *field) bool { return f == short })
			c.decode(p, n, v.FieldByIndex(short.index), &short.rules)
			return
		}
		fix := "keys: " + strings.Join(names(fields), ", ")
		if n.kind == null {
			fix = "write {} for all defaults; " + fix
		}
		c.wrongType(p, n, "a mapping", fix)
		return
	}
	seen := map[string]bool{}
	for _, e := range n.entries {
		f := find(fields, e.key.text)
		if f == nil {
			meant := Nearest(e.key.text, names(fields))
			c.doc.mark(p.With(e.key.text))
			c.doc.mark(p.With(meant))
			c.doc.add(e.key.line, e.key.col, e.key.width, Unknown, prefix(p)+fmt.Sprintf("unknown key %s", quote(e.key.text)), Suggest(e.key.text, names(fields)))
			seen[meant] = true // a misspelt required key is one mistake, not two
			continue
		}
		seen[f.name] = true
		c.decode(p.With(f.name), e.value, v.FieldByIndex(f.index), &f.rules)
	}
	c.defaults(fields, v, func(f *field) bool { return seen[f.name] })
	for _, f := range fields {
		if f.required && !seen[f.name] && !n.partial {
			c.doc.mark(p.With(f.name))
			c.doc.add(n.line, n.col, n.width, Missing, prefix(p)+fmt.Sprintf("required key %q is missing", f.name), addFix(f))
		}
	}
}

func addFix(f field) string {
	fix := "add " + f.name + ": " + f.example
	if f.example == "" {
		fix = "add " + f.name + ": …"
	}
	if f.doc != "" {
		fix += ", " + f.doc
	}
	return fix
}

func find(fields []field, name string) *field {
	for i := range fields {
		if fields[i].name == name {
			return &fields[i]
		}
	}
	return nil
}

// defaults fills the fields that the file leaves out.
func (c *context) defaults(fields []field, v reflect.Value, present func(*field) bool) {
	for i := range fields {
		f := &fields[i]
		switch {
		case present(f):
		case f.def != "":
			v.FieldByIndex(f.index).Set(f.defaultValue())
		case isMapping(f.typ): // a mapping that is left out has the defaults of an empty one
			c.defaults(fieldsOf(f.typ), v.FieldByIndex(f.index), func(*field) bool { return false })
		}
	}
}

// isMapping says that values of t are read from a mapping of known keys.
func isMapping(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t != addrType && t != prefixType && quantityOf(t) == nil && !reflect.PointerTo(t).Implements(textType)
}

// defaultValue is the value of a default tag, or the zero value.
func (f *field) defaultValue() reflect.Value {
	v := reflect.New(f.typ).Elem()
	if f.def == "" {
		return v
	}
	d := &Doc{File: "default of " + f.name}
	(&context{doc: d}).decode(P(f.name), plain(f.def), v, &f.rules)
	if err := d.Err(); err != nil {
		panic("spec: " + err.Error())
	}
	return v
}

// plain is the node of an unquoted scalar.
func plain(s string) *node {
	n := &node{kind: text, text: s, line: 1, col: 1, width: 1}
	switch {
	case numberLike.MatchString(s):
		n.kind = number
	case strings.EqualFold(s, "true") || strings.EqualFold(s, "false"):
		n.kind = boolean
	}
	return n
}

func (c *context) decodeSlice(p Path, n *node, v reflect.Value, r *rules) {
	if n.kind != sequence {
		fix := "write it as [a, b] or one \"- \" line each"
		if n.kind == text || n.kind == number || n.kind == boolean {
			fix = "write [" + n.text + "]"
		}
		c.wrongType(p, n, "a list", fix)
		return
	}
	if !c.counted(p, n, len(n.items), r, "entries") {
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	each := *r
	each.minItems, each.maxItems = 0, 0
	for i, item := range n.items {
		c.decode(p.With(i), item, out.Index(i), &each)
	}
	v.Set(out)
}

func (c *context) counted(p Path, n *node, have int, r *rules, what string) bool {
	if r.minItems > 0 && have < r.minItems {
		c.doc.at(p, n, Range, fmt.Sprintf("has %d %s", have, what), fmt.Sprintf("at least %d", r.minItems))
		return false
	}
	if r.maxItems > 0 && have > r.maxItems {
		c.doc.at(p, n, Range, fmt.Sprintf("has %d %s", have, what), fmt.Sprintf("at most %d", r.maxItems))
		return false
	}
	return true
}

func (c *context) decodeMap(p Path, n *node, v reflect.Value, r *rules) {
	if n.kind != mapping {
		fix := "write name: value, one a line"
		if n.kind == null {
			fix = "leave the key out, or write {}"
		}
		c.wrongType(p, n, "a mapping of names", fix)
		return
	}
	if !n.partial && !c.counted(p, n, len(n.entries), r, "entries") {
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.entries), len(n.entries))
	each := *r
	each.minItems, each.maxItems, each.keys = 0, 0, nil
	for i, e := range n.entries {
		if r.keys != nil && !r.keys.MatchString(e.key.text) {
			c.doc.at(p.With(e.key.text), e.key, Pattern, fmt.Sprintf("name %s has the wrong form", quote(e.key.text)),
				"must match "+r.keysText[2:len(r.keysText)-2])
		}
		out.Index(i).Field(0).SetString(e.key.text)
		c.decode(p.With(e.key.text), e.value, out.Index(i).Field(1), &each)
	}
	v.Set(out)
}

var compiled sync.Map // pattern -> *regexp.Regexp

func wholeText(pattern string) *regexp.Regexp {
	if re, ok := compiled.Load(pattern); ok {
		return re.(*regexp.Regexp)
	}
	re := regexp.MustCompile("^(" + pattern + ")$")
	compiled.Store(pattern, re)
	return re
}

// cause is the reason without the text that the message shows already.
func cause(err error) error {
	if err == nil {
		return nil
	}
	s := err.Error()
	if i := strings.LastIndex(s, "): "); i >= 0 {
		s = s[i+3:]
	} else if i := strings.LastIndex(s, `": `); i >= 0 {
		s = s[i+3:]
	}
	s, _, _ = strings.Cut(s, " (at ") // where in the text, in netip's words
	return errors.New(s)
}
