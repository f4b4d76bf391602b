package spec

import (
	"encoding"
	"fmt"
	"reflect"
)

// Map is a mapping with free keys, in the order of the file.
type Map[T any] []Entry[T]

// Entry is one key of a Map and its value.
type Entry[T any] struct {
	Key   string
	Value T
}

func (Map[T]) orderedMap() {}

// Index is the position of key, or -1.
func (m Map[T]) Index(key string) int {
	for i := range m {
		if m[i].Key == key {
			return i
		}
	}
	return -1
}

// Get is the value of key, or nil.
func (m Map[T]) Get(key string) *T {
	if i := m.Index(key); i >= 0 {
		return &m[i].Value
	}
	return nil
}

// Keys are the keys in file order.
func (m Map[T]) Keys() []string {
	out := make([]string, len(m))
	for i := range m {
		out[i] = m[i].Key
	}
	return out
}

// OneOrMany is a list that may be written as its only element.
type OneOrMany[T any] []T

func (OneOrMany[T]) oneOrMany() {}

// Scalar is any scalar as it was written: text, number or true/false.
type Scalar string

// Text is a type with a notation of its own. Pattern is a regular expression that every accepted text matches (whole
// text; Go and ECMA 262 syntax) and an example; UnmarshalText may refuse more. Marshal needs encoding.TextMarshaler too.
type Text interface {
	encoding.TextUnmarshaler
	TextPattern() (pattern, example string)
}

var (
	orderedMapType = reflect.TypeFor[interface{ orderedMap() }]()
	oneOrManyType  = reflect.TypeFor[interface{ oneOrMany() }]()
	textType       = reflect.TypeFor[Text]()
	scalarType     = reflect.TypeFor[Scalar]()
)

func bug(t reflect.Type, format string, args ...any) string {
	return fmt.Sprintf("spec: %s: %s", t, fmt.Sprintf(format, args...))
}
