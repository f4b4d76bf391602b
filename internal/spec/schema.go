package spec

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
)

// Schema is the JSON Schema (draft 2020-12) of what Decode accepts into v, up to what a schema cannot say: see
// Kind.Structural.
func Schema(title string, v any) map[string]any {
	t := reflect.TypeOf(v)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	s := &schemer{defs: map[string]any{}, names: map[reflect.Type]string{}}
	out := s.object(t)
	out["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	out["title"] = title
	if len(s.defs) > 0 {
		out["$defs"] = s.defs
	}
	return out
}

// SchemaJSON is Schema as indented JSON with a newline at its end; the same types give the same bytes.
func SchemaJSON(title string, v any) []byte {
	b, err := json.MarshalIndent(Schema(title, v), "", "  ")
	if err != nil {
		panic("spec: schema: " + err.Error())
	}
	return append(b, '\n')
}

type schemer struct {
	defs  map[string]any
	names map[reflect.Type]string
}

func (s *schemer) object(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	fields := fieldsOf(t)
	for i := range fields {
		f := &fields[i]
		p := s.value(f.typ, &f.rules)
		if f.doc != "" {
			p["description"] = f.doc
		}
		if f.def != "" {
			p["default"] = jsonScalar(f.def)
		}
		if f.example != "" {
			p["examples"] = []any{jsonScalar(f.example)}
		}
		properties[f.name] = p
		if f.required {
			required = append(required, f.name)
		}
	}
	out := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

// jsonScalar is a default or example as its YAML form would be in JSON.
func jsonScalar(s string) any {
	n := plain(s)
	switch n.kind {
	case number:
		if intRE.MatchString(s) || floatRE.MatchString(s) {
			return json.Number(s)
		}
	case boolean:
		return strings.EqualFold(s, "true")
	}
	return s
}

func (s *schemer) value(t reflect.Type, r *rules) map[string]any {
	if t.Kind() == reflect.Pointer {
		return s.value(t.Elem(), r)
	}
	if q := quantityOf(t); q != nil {
		text := map[string]any{"type": "string", "pattern": q.pattern}
		if q.minLen > 1 {
			text["minLength"] = q.minLen
		}
		if q.integer {
			return map[string]any{"anyOf": []any{map[string]any{"type": "integer", "minimum": 0, "maximum": int64(MaxInt)}, text}}
		}
		return text
	}
	switch {
	case t == addrType:
		return map[string]any{"type": "string", "pattern": AddrPattern}
	case t == prefixType:
		return map[string]any{"type": "string", "pattern": PrefixPattern}
	case reflect.PointerTo(t).Implements(textType):
		pattern, _ := reflect.New(t).Interface().(Text).TextPattern()
		return map[string]any{"type": "string", "pattern": "^(" + pattern + ")$"}
	case t == scalarType:
		return map[string]any{"type": []string{"string", "number", "boolean"}}
	case t.Implements(orderedMapType):
		each := *r
		each.minItems, each.maxItems, each.keys = 0, 0, nil
		out := map[string]any{"type": "object", "additionalProperties": s.value(t.Elem().Field(1).Type, &each)}
		if r.keys != nil {
			out["propertyNames"] = map[string]any{"pattern": r.keysText}
		}
		setCount(out, "minProperties", r.minItems)
		setCount(out, "maxProperties", r.maxItems)
		return out
	case t.Implements(oneOrManyType):
		each := *r
		each.minItems, each.maxItems = 0, 0
		return map[string]any{"anyOf": []any{s.value(t.Elem(), &each), s.list(t, r)}}
	}
	return s.kind(t, r)
}

func (s *schemer) list(t reflect.Type, r *rules) map[string]any {
	each := *r
	each.minItems, each.maxItems = 0, 0
	out := map[string]any{"type": "array", "items": s.value(t.Elem(), &each)}
	setCount(out, "minItems", r.minItems)
	setCount(out, "maxItems", r.maxItems)
	return out
}

func setCount(out map[string]any, key string, n int) {
	if n > 0 {
		out[key] = n
	}
}

func (s *schemer) kind(t reflect.Type, r *rules) map[string]any {
	switch t.Kind() {
	case reflect.Struct:
		return s.ref(t)
	case reflect.Slice:
		return s.list(t, r)
	case reflect.String:
		out := map[string]any{"type": "string"}
		if len(r.enum) > 0 {
			out["enum"] = r.enum
		}
		if r.pattern != nil {
			out["pattern"] = r.patternText
		}
		return out
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		out := map[string]any{"type": "number"}
		setLimits(out, r)
		return out
	case reflect.Int, reflect.Int64:
		out := map[string]any{"type": "integer", "minimum": int64(-MaxInt), "maximum": int64(MaxInt)}
		setLimits(out, r)
		return out
	case reflect.Int8, reflect.Int16, reflect.Int32:
		out := map[string]any{"type": "integer", "minimum": -(int64(1) << (t.Bits() - 1)), "maximum": int64(1)<<(t.Bits()-1) - 1}
		setLimits(out, r)
		return out
	case reflect.Uint, reflect.Uint64:
		out := map[string]any{"type": "integer", "minimum": 0, "maximum": int64(MaxInt)}
		setLimits(out, r)
		return out
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		out := map[string]any{"type": "integer", "minimum": 0, "maximum": int64(1)<<t.Bits() - 1}
		setLimits(out, r)
		return out
	}
	panic(bug(t, "cannot be read from YAML"))
}

func setLimits(out map[string]any, r *rules) {
	for key, limit := range map[string]string{"minimum": r.min, "maximum": r.max, "exclusiveMinimum": r.above, "exclusiveMaximum": r.below} {
		if limit != "" {
			mustFloat(limit)
			out[key] = json.Number(limit)
		}
	}
}

// ref puts a struct into $defs once, so that types may hold themselves.
func (s *schemer) ref(t reflect.Type) map[string]any {
	name, ok := s.names[t]
	if !ok {
		name = defName(t)
		for i := 2; s.defs[name] != nil; i++ {
			name = defName(t) + strconv.Itoa(i)
		}
		s.names[t] = name
		s.defs[name] = map[string]any{} // taken, while its own fields are described
		def := s.object(t)
		if short := shorthandOf(fieldsOf(t)); short != nil {
			def = map[string]any{"anyOf": []any{s.value(short.typ, &short.rules), def}}
		}
		s.defs[name] = def
	}
	return map[string]any{"$ref": "#/$defs/" + name}
}

func defName(t reflect.Type) string {
	name := strings.TrimPrefix(t.Name(), "file")
	if name == "" {
		return "object"
	}
	return strings.ToLower(name[:1]) + name[1:]
}
