package spectest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Mutate makes one mistake, or something that looks like one, in a YAML file. how says which.
func Mutate(rng *rand.Rand, data []byte) (mutated []byte, how string) {
	if rng.IntN(5) == 0 {
		return mutateText(rng, string(data))
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil || len(doc.Content) == 0 {
		return mutateText(rng, string(data))
	}
	var all []place
	collect(doc.Content[0], &all)
	if len(all) == 0 {
		return mutateText(rng, string(data))
	}
	for range 100 {
		how = mutateTree(rng, all)
		if how == "" {
			continue
		}
		if rng.IntN(6) == 0 { // now and then two mistakes in one file
			if more := mutateTree(rng, all); more != "" {
				how += " + " + more
			}
		}
		var b bytes.Buffer
		e := yaml.NewEncoder(&b)
		e.SetIndent(2)
		if err := e.Encode(&doc); err != nil {
			continue
		}
		return b.Bytes(), how
	}
	return mutateText(rng, string(data))
}

// place is a value in its parent.
type place struct {
	parent *yaml.Node
	index  int // of the value in parent.Content
}

func (p place) value() *yaml.Node {
	if p.index >= len(p.parent.Content) {
		return nil // an earlier mutation took it away
	}
	return p.parent.Content[p.index]
}

func (p place) key() *yaml.Node {
	if p.parent.Kind != yaml.MappingNode || p.index >= len(p.parent.Content) {
		return nil
	}
	return p.parent.Content[p.index-1]
}

func collect(n *yaml.Node, out *[]place) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 1; i < len(n.Content); i += 2 {
			*out = append(*out, place{n, i})
			collect(n.Content[i], out)
		}
	case yaml.SequenceNode:
		for i := range n.Content {
			*out = append(*out, place{n, i})
			collect(n.Content[i], out)
		}
	}
}

// odd are scalars, as they would be typed, that take values out of their range, form or type.
var odd = []string{"0", "1", "-1", "7", "8", "26", "63", "64", "255", "1500", "4096", "65535", "65536", "70000", "1e3", "1.5", "5.0", "0.2", "1.0", "-0.5", "2", "010", "0x1F", "0o17", "1_000", "+5",
	".5", ".inf", ".nan", "1e999", "9007199254740993", "123456789012345678901234567890", "true", "True", "no", "on", "~", "null", `""`, `" "`, "x", "h1", "sw", "eth0", "softnic", "ingress", "Mlx5",
	"25Gbit/s", "25 Gb/s", "25GB/s", "25gbps", "025Gbit/s", "25", "0bit/s", "999999Tbit/s", "9999999Tbit/s", "64KiB", "64 KiB", "64kib", "64KB", "1.5MiB", "-1KiB", "4096B", "0", "1us", "1µs", "10", "1h", "1m30s", "30s1m",
	"0s", "1.5ms", "-1s", "11s", "1d", "192.0.2.11/24", "192.0.2.11", "192.0.2.300/24", "192.0.2.11/33", "10.0.0.1/8", "2001:db8::1/64", "2001:db8::1::2/64", "::1/128", "127.0.0.1/8", "2026-11-29", "12:30:45",
	"a b", "-oProxyCommand=x", "~/.ssh/id", "ünïcode", "[]", "{}", "[1]", "{a: b}", "!!str 5", "&a b", "'quoted'", `"12"`, `"true"`, "|\n  text", "UPPER", "a.b.c", "a-", "none"}

func mutateTree(rng *rand.Rand, all []place) string {
	p := all[rng.IntN(len(all))]
	v, k := p.value(), p.key()
	if v == nil {
		return ""
	}
	where := "[]"
	if k != nil {
		where = k.Value
	}
	switch rng.IntN(11) {
	case 0: // delete
		from := p.index
		if k != nil {
			from--
		}
		p.parent.Content = append(p.parent.Content[:from:from], p.parent.Content[p.index+1:]...)
		return "delete " + where
	case 1: // rename
		if k == nil {
			return ""
		}
		k.Value = typo(rng, k.Value)
		return fmt.Sprintf("rename %s to %s", where, k.Value)
	case 2: // duplicate
		if k == nil {
			p.parent.Content = append(p.parent.Content, v)
			return "duplicate item"
		}
		p.parent.Content = append(p.parent.Content, k, all[rng.IntN(len(all))].parent)
		if rng.IntN(2) == 0 {
			p.parent.Content[len(p.parent.Content)-1] = v
		}
		if contains(p.parent, p.parent, 0) {
			p.parent.Content[len(p.parent.Content)-1] = &yaml.Node{Kind: yaml.ScalarNode, Value: "x"}
		}
		return "duplicate " + where
	case 3: // exchange with another value
		other := all[rng.IntN(len(all))]
		w := other.value()
		if w == nil || contains(v, w, 0) || contains(w, v, 0) {
			return ""
		}
		p.parent.Content[p.index], other.parent.Content[other.index] = w, v
		return "exchange " + where
	case 4: // wrap
		kind, content := yaml.SequenceNode, []*yaml.Node{v}
		if rng.IntN(2) == 0 {
			kind, content = yaml.MappingNode, []*yaml.Node{{Kind: yaml.ScalarNode, Value: where}, v}
		}
		p.parent.Content[p.index] = &yaml.Node{Kind: kind, Content: content}
		return "wrap " + where
	case 5: // a key of another place
		other := all[rng.IntN(len(all))].key()
		if other == nil || p.parent.Kind != yaml.MappingNode {
			return ""
		}
		p.parent.Content = append(p.parent.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: other.Value}, scalarNode(odd[rng.IntN(len(odd))]))
		return "add " + other.Value
	case 6: // what means the same, or another good value of the same key
		if v.Kind != yaml.ScalarNode {
			v.Style ^= yaml.FlowStyle
			return "style of " + where
		}
		if v.ShortTag() == "!!str" && rng.IntN(2) == 0 {
			v.Style = yaml.DoubleQuotedStyle
			return "quote " + where
		}
		for range 50 {
			other := all[rng.IntN(len(all))]
			if ok, ov := other.key(), other.value(); k != nil && ok != nil && ok.Value == k.Value && ov != nil && ov.Kind == yaml.ScalarNode && ov.Value != v.Value {
				v.Value = ov.Value
				return "copy " + where
			}
		}
		return ""
	case 7: // another number
		if t := v.ShortTag(); t == "!!int" || t == "!!float" {
			v.Value = fmt.Sprint([]any{1, 2, 5, 10, 26, 50, 63, 64, 100, 1500, 4200, 9000, 0.5}[rng.IntN(13)])
			v.Tag = ""
			return "number " + where
		}
		return ""
	default: // another scalar, by far the most frequent mistake
		text := odd[rng.IntN(len(odd))]
		p.parent.Content[p.index] = scalarNode(text)
		return fmt.Sprintf("set %s to %s", where, text)
	}
}

// scalarNode is what the text means when it is typed into a file.
func scalarNode(text string) *yaml.Node {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.Content) == 0 {
		return &yaml.Node{Kind: yaml.ScalarNode, Value: text}
	}
	return doc.Content[0]
}

func contains(n, what *yaml.Node, depth int) bool {
	for _, c := range n.Content {
		if c == what || depth < 50 && contains(c, what, depth+1) {
			return true
		}
	}
	return depth >= 50
}

func typo(rng *rand.Rand, s string) string {
	r := []rune(s)
	if len(r) < 2 {
		return s + "x"
	}
	i := rng.IntN(len(r) - 1)
	switch rng.IntN(5) {
	case 0:
		r[i], r[i+1] = r[i+1], r[i]
	case 1:
		r = append(r[:i:i], r[i+1:]...)
	case 2:
		r = append(r[:i+1:i+1], r[i:]...)
	case 3:
		return strings.ToUpper(s)
	default:
		return s + "s"
	}
	return string(r)
}

// mutateText breaks the text itself: indentation, brackets, quotes, lines.
func mutateText(rng *rand.Rand, s string) ([]byte, string) {
	lines := strings.Split(s, "\n")
	i := rng.IntN(len(lines))
	for range 20 {
		if l := strings.TrimSpace(lines[i]); l != "" && l[0] != '#' {
			break
		}
		i = rng.IntN(len(lines))
	}
	how := ""
	switch rng.IntN(8) {
	case 0:
		lines, how = append(lines[:i:i], lines[i+1:]...), "line-deleted"
	case 1:
		lines, how = append(lines[:i+1:i+1], lines[i:]...), "line-doubled"
	case 2:
		lines[i], how = "  "+lines[i], "indent-more"
	case 3:
		lines[i], how = strings.TrimPrefix(lines[i], "  "), "indent-less"
	case 4:
		lines[i], how = "\t"+lines[i], "indent-tab"
	case 5:
		lines, how = lines[:i], "cut"
	default:
		l := lines[i]
		at := rng.IntN(len(l) + 1)
		const chars = `:{}[],"'#&*!|>-? .0x` + "\t"
		if rng.IntN(2) == 0 && at < len(l) {
			lines[i], how = l[:at]+l[at+1:], "char-deleted"
		} else {
			lines[i], how = l[:at]+string(chars[rng.IntN(len(chars))])+l[at:], "char-inserted"
		}
	}
	return []byte(strings.Join(lines, "\n")), how
}
