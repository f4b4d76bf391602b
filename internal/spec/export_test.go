package spec

import (
	"encoding/json"
	"strings"
)

// Tree is what a file says, for comparison with another YAML reader; ok is false when it was refused or holds a number
// that readers disagree on.
func Tree(data []byte) (v any, ok bool) {
	d := &Doc{File: "f"}
	root := d.tree(data)
	if root == nil || len(d.problems) > 0 {
		return nil, false
	}
	return root.generic()
}

func (n *node) generic() (any, bool) {
	switch n.kind {
	case mapping:
		out := map[string]any{}
		for _, e := range n.entries {
			v, ok := e.value.generic()
			if !ok {
				return nil, false
			}
			out[e.key.text] = v
		}
		return out, true
	case sequence:
		out := []any{}
		for _, i := range n.items {
			v, ok := i.generic()
			if !ok {
				return nil, false
			}
			out = append(out, v)
		}
		return out, true
	case null:
		return nil, true
	case boolean:
		return strings.EqualFold(n.text, "true"), true
	case number:
		return json.Number(n.text), plainNumber(n.text)
	}
	return n.text, n.kind == text
}

// Patterns are the regular expressions that the package compiles in.
var Patterns = map[string]string{"rate": RatePattern, "size": SizePattern, "duration": DurationPattern, "addr": AddrPattern, "prefix": PrefixPattern}
