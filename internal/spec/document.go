package spec

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/token"
)

// Doc is a file that was read, with the place of every value and the mistakes found so far.
type Doc struct {
	File string

	tags     []string // that are read
	lines    []string
	root     *node
	problems []*Problem
	seen     map[Problem]bool
	wrong    map[string]bool // paths of structural problems
	holds    map[string]bool // paths that are wrong or hold one that is
}

// Path leads to a value: keys are strings, positions in lists are ints.
type Path []any

// P makes a path: P("hosts", "h1", "nics", 0, "ip").
func P(elems ...any) Path { return elems }

// With is the path of something beneath p; p is not changed.
func (p Path) With(elems ...any) Path { return append(p[:len(p):len(p)], elems...) }

// String is hosts.h1.nics[0].ip.
func (p Path) String() string {
	var b strings.Builder
	for _, e := range p {
		switch v := e.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", v)
		default:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			fmt.Fprint(&b, v)
		}
	}
	return b.String()
}

// keys are the texts of the path's own beginnings, from the root to p itself.
func (p Path) keys() []string {
	out := make([]string, 1, len(p)+1)
	for i, e := range p {
		out = append(out, fmt.Sprintf("%s\x00%v", out[i], e))
	}
	return out
}

// Pos is a place in the file, both from 1; columns count characters.
type Pos struct{ Line, Col int }

// lookup finds the value at p; when it is absent, the nearest one above it that is there.
func (d *Doc) lookup(p Path) (key, value *node, found bool) {
	key, value = d.root, d.root
	if d.root == nil {
		return &node{line: 1, col: 1, width: 1}, &node{line: 1, col: 1, width: 1}, false
	}
	for _, e := range p {
		next := (*node)(nil)
		switch v := e.(type) {
		case string:
			for _, en := range value.entries {
				if en.key.text == v {
					key, next = en.key, en.value
				}
			}
		case int:
			if v >= 0 && v < len(value.items) {
				next = value.items[v]
				key = next
			} else if v == 0 && value.kind != sequence { // OneOrMany written as one
				next = value
			}
		}
		if next == nil {
			return key, value, false
		}
		value = next
	}
	return key, value, true
}

// Pos is the place of the value at p, or of the nearest one above it when the file leaves it out.
func (d *Doc) Pos(p Path) Pos { _, v, _ := d.lookup(p); return Pos{v.line, v.col} }

// KeyPos is the place of the key of the value at p.
func (d *Doc) KeyPos(p Path) Pos { k, _, _ := d.lookup(p); return Pos{k.line, k.col} }

// Has says that the file holds a value at p.
func (d *Doc) Has(p Path) bool { _, _, ok := d.lookup(p); return ok }

// Text is the scalar at p as it is written, without quotes; "" for mappings, lists and absent values.
func (d *Doc) Text(p Path) string {
	if _, v, ok := d.lookup(p); ok {
		return v.text
	}
	return ""
}

// Wrong says that a mistake was found at p itself, or in something that holds it, while the file was decoded: the
// value in the struct is not the user's.
func (d *Doc) Wrong(p Path) bool {
	for _, k := range p.keys() {
		if d.wrong[k] {
			return true
		}
	}
	return false
}

// Bad says that a mistake was found at p, beneath it, or in something that holds it, while the file was decoded. A
// check that depends on the value then says nothing new.
func (d *Doc) Bad(p Path) bool {
	return d.holds[p.keys()[len(p)]] || d.Wrong(p)
}

// mark remembers that the value at p is wrong.
func (d *Doc) mark(p Path) {
	if d.wrong == nil {
		d.wrong, d.holds = map[string]bool{}, map[string]bool{}
	}
	keys := p.keys()
	d.wrong[keys[len(p)]] = true
	for _, k := range keys {
		d.holds[k] = true
	}
}

// Errorf adds a mistake at the value of p. fix says what would be right and may be empty.
func (d *Doc) Errorf(p Path, fix, format string, args ...any) {
	_, v, _ := d.lookup(p)
	d.add(v.line, v.col, v.width, Semantic, prefix(p)+fmt.Sprintf(format, args...), fix)
}

// KeyErrorf is Errorf at the key of p.
func (d *Doc) KeyErrorf(p Path, fix, format string, args ...any) {
	k, _, _ := d.lookup(p)
	d.add(k.line, k.col, k.width, Semantic, prefix(p)+fmt.Sprintf(format, args...), fix)
}

func prefix(p Path) string {
	if len(p) == 0 {
		return ""
	}
	return p.String() + ": "
}

// Err is nil, or *Errors with all mistakes sorted by place.
func (d *Doc) Err() error {
	if len(d.problems) == 0 {
		return nil
	}
	e := &Errors{Problems: append([]*Problem(nil), d.problems...)}
	e.sort()
	return e
}

// at reports a structural problem of the value n at path p.
func (d *Doc) at(p Path, n *node, kind Kind, message, fix string) {
	d.mark(p)
	d.add(n.line, n.col, n.width, kind, prefix(p)+message, fix)
}

func (d *Doc) addToken(t *token.Token, kind Kind, message, fix string) {
	line, col := 1, 1
	if t != nil && t.Position != nil {
		line, col = t.Position.Line, max(1, t.Position.Column)
	}
	d.add(line, col, 1, kind, message, fix)
}

// add keeps the place inside the file whatever the YAML library said.
func (d *Doc) add(line, col, width int, kind Kind, message, fix string) {
	line = min(max(1, line), max(1, len(d.lines)))
	source := ""
	if len(d.lines) > 0 {
		source = d.lines[line-1]
	}
	col = min(max(1, col), utf8.RuneCountInString(source)+1)
	p := Problem{File: d.File, Line: line, Col: col, Width: max(1, width), Kind: kind, Message: message, Fix: fix, source: source}
	if d.seen[p] { // a default that many entries take is one mistake
		return
	}
	if d.seen == nil {
		d.seen = map[Problem]bool{}
	}
	d.seen[p] = true
	d.problems = append(d.problems, &p)
}
