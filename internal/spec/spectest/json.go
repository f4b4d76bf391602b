package spectest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// ToJSON reads a YAML document as an editor does that has a JSON Schema for it. Of two equal keys the first counts.
func ToJSON(data []byte) (any, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	if doc.Kind == 0 || len(doc.Content) == 0 {
		return nil, errors.New("no document")
	}
	budget := 200_000 // aliases may multiply
	return toJSON(doc.Content[0], &budget)
}

func toJSON(n *yaml.Node, budget *int) (any, error) {
	if *budget--; *budget < 0 {
		return nil, errors.New("too many values")
	}
	switch n.Kind {
	case yaml.AliasNode:
		return toJSON(n.Alias, budget)
	case yaml.MappingNode:
		out := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			if k.Kind != yaml.ScalarNode {
				return nil, fmt.Errorf("line %d: key is no scalar", k.Line)
			}
			v, err := toJSON(n.Content[i+1], budget)
			if err != nil {
				return nil, err
			}
			if _, ok := out[k.Value]; !ok {
				out[k.Value] = v
			}
		}
		return out, nil
	case yaml.SequenceNode:
		out := []any{}
		for _, c := range n.Content {
			v, err := toJSON(c, budget)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case yaml.ScalarNode:
		return scalar(n)
	}
	return nil, fmt.Errorf("line %d: node of kind %d", n.Line, n.Kind)
}

func scalar(n *yaml.Node) (any, error) {
	switch n.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!bool":
		var b bool
		err := n.Decode(&b)
		return b, err
	case "!!int":
		var v any
		if err := n.Decode(&v); err != nil {
			return nil, err
		}
		return json.Number(fmt.Sprint(v)), nil
	case "!!float":
		var f float64
		if err := n.Decode(&f); err != nil {
			return nil, err
		}
		if math.IsInf(f, 0) || math.IsNaN(f) {
			return n.Value, nil // JSON has none
		}
		return json.Number(strconv.FormatFloat(f, 'g', -1, 64)), nil
	}
	return n.Value, nil // text, dates, binary
}
