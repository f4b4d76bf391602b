package spec

import (
	"fmt"
	"reflect"
	"strings"
)

// Set changes one value beneath into, a pointer to a struct as Decode fills it. The path is that of String without brackets:
// keys, and for an element of a list the value of its first field (phases.one.for). text is read as if it stood unquoted in a
// file; that of a list of scalars is split at commas. What the tags allow is checked where the result is decoded again, as
// after Marshal.
func Set(into any, path []string, text string) error {
	v := reflect.ValueOf(into)
	for i, name := range path {
		for v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		next, known := child(v, name)
		if !next.IsValid() {
			if len(known) == 0 {
				return fmt.Errorf("%s has nothing beneath it", strings.Join(path[:i], "."))
			}
			before := strings.Join(path[:i], ".")
			if before != "" {
				before += "."
			}
			return fmt.Errorf("unknown key (%s)", Suggest(before+name, under(before, known)))
		}
		v = next
	}
	return setText(v, text)
}

func under(before string, names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = before + n
	}
	return out
}

// child is what lies at name directly beneath v, or the names of all that does.
func child(v reflect.Value, name string) (reflect.Value, []string) {
	var known []string
	switch t := v.Type(); {
	case t.Implements(orderedMapType):
		for i := range v.Len() {
			if known = append(known, v.Index(i).Field(0).String()); known[i] == name {
				return v.Index(i).Field(1), nil
			}
		}
	case isMapping(t):
		for _, f := range fieldsOf(t) {
			if f.name == name {
				return v.FieldByIndex(f.index), nil
			}
			known = append(known, f.name)
		}
	case v.Kind() == reflect.Slice && isMapping(t.Elem()):
		for i := range v.Len() {
			key := v.Index(i).FieldByIndex(fieldsOf(t.Elem())[0].index)
			if key.Kind() != reflect.String || key.String() == "" {
				continue
			}
			if key.String() == name {
				return v.Index(i), nil
			}
			known = append(known, key.String())
		}
	}
	return reflect.Value{}, known
}

func setText(v reflect.Value, text string) error {
	t := v.Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Implements(orderedMapType) || isMapping(t):
		return fmt.Errorf("is no single value (name one beneath it)")
	case t.Kind() == reflect.Slice && !isScalar(t.Elem()):
		return fmt.Errorf("is no single value (name one beneath it)")
	case t.Kind() == reflect.Slice:
		out := reflect.MakeSlice(t, 0, 1)
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part == "" {
				continue
			}
			one := reflect.New(t.Elem())
			if err := Scan(part, one.Interface()); err != nil {
				return err
			}
			out = reflect.Append(out, one.Elem())
		}
		v.Set(out)
		return nil
	}
	fresh := reflect.New(t)
	if err := Scan(text, fresh.Interface()); err != nil {
		return err
	}
	if v.Kind() == reflect.Pointer {
		v.Set(fresh)
	} else {
		v.Set(fresh.Elem())
	}
	return nil
}
