package spec

import (
	"strings"
	"testing"
)

func TestSet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, path, text, want, why string }{
		{"text", "note", "hello", "note: hello", "a field"},
		{"number", "hosts.h1.0.dscp", "7", "unknown key", "elements of a list have names, not numbers"},
		{"named", "hosts.h1.eth1.dscp", "7", "dscp: 7", "an element of a list by its first field"},
		{"pointer", "hosts.h1.eth1.pmax", "0.5", "pmax: 0.5", "a value that was absent"},
		{"quantity", "buffer", "1MiB", "buffer: 1MiB", "sizes keep their unit"},
		{"list", "start", "h1, h2", "start:\n  - h1\n  - h2", "a list is split at commas"},
		{"unknown", "hosts.h1.eth1.dcsp", "7", `did you mean "hosts.h1.eth1.dscp"?`, "a typo is named"},
		{"not_scalar", "hosts", "x", "is no single value", "mappings cannot be given as text"},
		{"below_scalar", "note.x", "1", "note has nothing beneath it", "a path that goes too deep"},
		{"wrong_type", "hosts.h1.eth1.dscp", "seven", "need a whole number", "the text is read by the rules of files"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s sample
			if _, err := Decode("f", []byte(good), &s); err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := Set(&s, strings.Split(c.path, "."), c.text); err != nil {
				got = err.Error()
			} else if data, err := Marshal(s); err != nil {
				t.Fatal(err)
			} else {
				got = string(data)
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("Set(%s, %q): %s\nwant %q (%s)", c.path, c.text, got, c.want, c.why)
			}
		})
	}
}
