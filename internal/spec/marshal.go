package spec

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// flowWidth is the longest mapping or list that Marshal writes on one line.
const flowWidth = 140

// Marshal writes v, a struct as Decode fills it, as YAML that Decode reads back to an equal value. Keys come in the
// order of the fields; what equals its default is left out; small things are written on one line.
func Marshal(v any) ([]byte, error) {
	rv := reflect.ValueOf(v)
	for rv.Kind() == reflect.Pointer {
		rv = rv.Elem()
	}
	if rv.Kind() != reflect.Struct {
		return nil, fmt.Errorf("spec: marshal %T: need a struct", v)
	}
	var w writer
	if pairs := w.pairs(rv); len(pairs) > 0 {
		w.block(pairs, "")
	} else {
		w.b.WriteString("{}\n")
	}
	if w.err != nil {
		return nil, w.err
	}
	return []byte(w.b.String()), nil
}

type writer struct {
	b   strings.Builder
	err error
}

type pair struct {
	key   string
	value reflect.Value
}

func isScalar(t reflect.Type) bool {
	if quantityOf(t) != nil || t == addrType || t == prefixType || reflect.PointerTo(t).Implements(textType) {
		return true
	}
	k := t.Kind()
	return k != reflect.Struct && k != reflect.Slice && k != reflect.Pointer
}

func deref(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	return v
}

// pairs are the keys to write of a struct or Map.
func (w *writer) pairs(v reflect.Value) []pair {
	var out []pair
	if v.Type().Implements(orderedMapType) {
		for i := range v.Len() {
			out = append(out, pair{v.Index(i).Field(0).String(), v.Index(i).Field(1)})
		}
		return out
	}
	for _, f := range fieldsOf(v.Type()) {
		fv := v.FieldByIndex(f.index)
		if fv.Kind() == reflect.Pointer && fv.IsNil() || !f.required && equalDefault(fv, &f) {
			continue
		}
		if f.required && fv.IsZero() && (fv.Type() == addrType || fv.Type() == prefixType) {
			continue // nothing to write: Decode names it as missing
		}
		out = append(out, pair{f.name, fv})
	}
	return out
}

// equalDefault says that leaving v out means the same. An absent list and an empty one are the same.
func equalDefault(v reflect.Value, f *field) bool {
	if v.Kind() == reflect.Slice {
		return v.Len() == 0
	}
	return v.Kind() != reflect.Pointer && reflect.DeepEqual(v.Interface(), f.defaultValue().Interface())
}

func (w *writer) block(pairs []pair, indent string) {
	for _, p := range pairs {
		w.b.WriteString(indent + scalarText(p.key) + ":")
		w.value(deref(p.value), indent)
	}
}

// value writes what follows "key:" or "-".
func (w *writer) value(v reflect.Value, indent string) {
	if isScalar(v.Type()) {
		w.b.WriteString(" " + w.scalar(v) + "\n")
		return
	}
	if s := w.flow(v); indent != "" && len(s)+len(indent) <= flowWidth || s == "{}" || s == "[]" {
		w.b.WriteString(" " + s + "\n")
		return
	}
	w.b.WriteString("\n")
	if v.Kind() == reflect.Slice && !v.Type().Implements(orderedMapType) {
		for i := range v.Len() {
			item := deref(v.Index(i))
			w.b.WriteString(indent + "  -")
			if s := w.flow(item); len(s)+len(indent) <= flowWidth {
				w.b.WriteString(" " + s + "\n")
				continue
			}
			w.value(item, indent+"  ")
		}
		return
	}
	w.block(w.pairs(v), indent+"  ")
}

func (w *writer) flow(v reflect.Value) string {
	v = deref(v)
	if isScalar(v.Type()) {
		return w.scalar(v)
	}
	var parts []string
	if v.Kind() == reflect.Slice && !v.Type().Implements(orderedMapType) {
		for i := range v.Len() {
			parts = append(parts, w.flow(v.Index(i)))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	for _, p := range w.pairs(v) {
		parts = append(parts, scalarText(p.key)+": "+w.flow(p.value))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func (w *writer) scalar(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return strings.ReplaceAll(x.String(), "µ", "u")
	case Scalar:
		if n := plain(string(x)); n.kind != text {
			return string(x)
		}
		return scalarText(string(x))
	case encoding.TextMarshaler:
		b, err := x.MarshalText()
		if err != nil && w.err == nil {
			w.err = fmt.Errorf("spec: marshal %s: %w", v.Type(), err)
		}
		return scalarText(string(b))
	}
	switch {
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10)
	case v.CanUint():
		return strconv.FormatUint(v.Uint(), 10)
	case v.CanFloat():
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	case v.Kind() == reflect.Bool:
		return strconv.FormatBool(v.Bool())
	}
	return scalarText(v.String())
}

// bare is text that every YAML reader takes for text without quotes, in flow mappings too.
var bare = regexp.MustCompile(`^[A-Za-z~/_.0-9][A-Za-z0-9_./~@+-]*$`)

var reserved = regexp.MustCompile(`^(?i:true|false|null|yes|no|on|off|y|n|~|\.inf|\.nan)$`)

// scalarText writes text, in quotes where it needs them.
func scalarText(s string) string {
	if bare.MatchString(s) && !reserved.MatchString(s) && !startsLikeNumber(s) {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == '\u2028' || r == '\u2029' || r == '\ufeff':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// startsLikeNumber is wide on purpose: dates, 1_000, 0x and version numbers go in quotes, rates and addresses do not.
func startsLikeNumber(s string) bool {
	if numberLike.MatchString(s) {
		return true
	}
	return s[0] >= '0' && s[0] <= '9' && strings.Trim(s, "0123456789-_:.") == "" && strings.Count(s, ".") != 3 || s[0] == '.' && len(s) > 1 && s[1] != '/'
}
