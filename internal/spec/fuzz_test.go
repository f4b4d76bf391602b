package spec_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/internal/spec/spectest"
	"github.com/pcmlab/pcmlab/internal/units"
)

type leaf struct {
	Text  string         `yaml:"text,shorthand" pattern:"[^\\t]*"`
	Word  string         `yaml:"word" enum:"a,b" default:"a"`
	Int   int            `yaml:"int" min:"-5" max:"1000" default:"7"`
	Small *uint8         `yaml:"small"`
	Float float64        `yaml:"float" above:"-1" below:"1e6"`
	Bool  *bool          `yaml:"bool"`
	Rate  units.Rate     `yaml:"rate"`
	Size  units.Size     `yaml:"size"`
	Time  *time.Duration `yaml:"time"`
	IP    netip.Prefix   `yaml:"ip"`
	Addr  netip.Addr     `yaml:"addr"`
	Any   spec.Scalar    `yaml:"any"`
	Next  *leaf          `yaml:"next"`
}

type root struct {
	Name   string                 `yaml:"name,required"`
	Leaves spec.Map[leaf]         `yaml:"leaves" keys:"[a-z]+" maxitems:"5"`
	List   []leaf                 `yaml:"list" minitems:"1"`
	Some   spec.OneOrMany[string] `yaml:"some"`
	Grid   [][]int                `yaml:"grid" min:"0" max:"9"`
}

var equal = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	// Marshal leaves out what is empty and what is absent alike.
	cmp.Transformer("leaves", func(m spec.Map[leaf]) []spec.Entry[leaf] { return append([]spec.Entry[leaf]{}, m...) }),
	cmp.Transformer("some", func(m spec.OneOrMany[string]) []string { return append([]string{}, m...) }),
	cmp.Transformer("list", func(m []leaf) []*leaf {
		out := []*leaf{}
		for i := range m {
			out = append(out, &m[i])
		}
		return out
	}),
	cmp.Transformer("grid", func(m [][]int) []string {
		out := []string{}
		for _, r := range m {
			out = append(out, strings.Trim(strings.Join(strings.Fields(jsonText(r)), ""), "null"))
		}
		return out
	}),
}

func jsonText(v any) string { b, _ := json.Marshal(v); return string(b) }

func subject() spectest.Subject {
	return spectest.Subject{
		Schema: spec.SchemaJSON("fuzz", root{}),
		Load: func(file string, data []byte) error {
			var r root
			_, err := spec.Decode(file, data, &r)
			return err
		},
		LoaderOnly: []spec.Kind{spec.Syntax, spec.Duplicate, spec.Dialect, spec.Spelling, spec.Quantity, spec.Value},
	}
}

var seeds = []string{
	"name: x\nleaves: {a: {text: t, int: 5, small: 255, float: 0.5}, b: plain}\nlist: [x, {bool: false}]\nsome: one\ngrid: [[1, 2], []]\n",
	"name: \"q\\tx\"\nlist:\n  - text: |-\n      two\n      lines\n    rate: 1.5Gbit/s\n    size: 4096\n    time: 1m30s\n    ip: 2001:db8::1/64\n    any: 5\n    next: {next: {word: b}}\n",
	"# c\r\nname: 'it''s'\r\nsome: [a, b]\r\n", "name: a: b\n", "name: &x 1\nsome: *x\n", "name: {a: 1, a: 2}\n", "\tname: x\n", "name: 2026-11-29\nsome: 1_000\n", "{name: x, 'some':y}\n",
	"name: |\n  a\n\n  b\n", "? name\n: x\n", "name: x\n---\nname: y\n", "name: \xff\n", "name: ünï\nleaves: {ü: x}\n", "- - - 1\n", "name: x\nlist:\n  - \tx\n", "0: 00A\n1:0: > \n      00\n      0", "0x0\n: 0", "name: 1e999\n", "{name:x}\n", "name: a\tb\n", "name: ,\n",
}

// FuzzDecode: no panic; every mistake inside the file; what is accepted is read as another YAML reader reads it, is
// accepted by the schema, and survives Marshal and Decode unchanged.
func FuzzDecode(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	s := subject()
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4096 {
			return
		}
		tree, ok := spec.Tree(data)
		if _, mapping := tree.(map[string]any); ok && mapping { // a file that is no mapping is refused whatever it says
			if other, err := spectest.ToJSON(data); err == nil {
				if diff := cmp.Diff(normal(other), normal(tree)); diff != "" {
					t.Fatalf("read differently (-other +ours):\n%s\n%q", diff, data)
				}
			}
		}
		var got root
		_, err := spec.Decode("fuzz.yaml", data, &got)
		spectest.CheckPlaces(t, data, err)
		spectest.CheckOne(t, s, data)
		if err != nil {
			return
		}
		text, err := spec.Marshal(&got)
		if err != nil {
			t.Fatal(err)
		}
		var again root
		if _, err := spec.Decode("again.yaml", text, &again); err != nil {
			t.Fatalf("what Marshal writes is refused: %v\n%s", err, text)
		}
		if diff := cmp.Diff(got, again, equal); diff != "" {
			t.Fatalf("(-first +again):\n%s\n%s", diff, text)
		}
	})
}

// normal makes numbers comparable however they were written.
func normal(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range x {
			out[k] = normal(e)
		}
		return out
	case []any:
		out := []any{}
		for _, e := range x {
			out = append(out, normal(e))
		}
		return out
	case json.Number:
		f, err := strconv.ParseFloat(x.String(), 64)
		if err != nil {
			return x.String()
		}
		return f
	case string: // readers differ in spaces at the end of the lines of block text
		var lines []string
		for l := range strings.SplitSeq(strings.TrimRight(x, " \t\n"), "\n") {
			lines = append(lines, strings.TrimRight(l, " \t"))
		}
		return strings.Join(lines, "\n")
	}
	return v
}

func TestMarshal_roundTrips(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(rapid.StringMatching(`[ -~]{0,20}`), rapid.SampledFrom([]string{"", "on", "1e3", "0x1", "2026-11-29", "~", "- a", "a: b", "#", "a #b", "x\ny\n", "\n", "ü\u2028", "1_0", ".5", "-", "?", "'", "\\", " a ", "null", "1.2.3.4"}))
	rapid.Check(t, func(t *rapid.T) {
		make := rapid.Custom(func(t *rapid.T) leaf {
			d := time.Duration(rapid.Int64Range(0, 1e15).Draw(t, "time"))
			u := rapid.Uint8().Draw(t, "small")
			return leaf{Text: text.Draw(t, "text"), Word: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "word"), Int: rapid.IntRange(-5, 1000).Draw(t, "int"), Small: &u,
				Float: rapid.Float64Range(-0.999, 999999).Draw(t, "float"), Rate: units.Rate(rapid.Int64Range(0, 1e15).Draw(t, "rate")),
				Size: units.Size(rapid.Int64Range(0, 1e15).Draw(t, "size")), Time: &d, IP: netip.MustParsePrefix("2001:db8::1/64"), Any: spec.Scalar(text.Draw(t, "any"))}
		})
		l := make.Draw(t, "next")
		want := root{Name: text.Draw(t, "name"), List: rapid.SliceOfN(make, 1, 3).Draw(t, "list"), Leaves: spec.Map[leaf]{{Key: "k", Value: leaf{Word: "a", Int: 7, Next: &l}}},
			Some: rapid.SliceOfN(text, 1, 3).Draw(t, "some"), Grid: [][]int{{1, 2}, {9}}}
		b, err := spec.Marshal(&want)
		if err != nil {
			t.Fatal(err)
		}
		var got root
		if _, err := spec.Decode("f", b, &got); err != nil {
			t.Fatalf("%v\n%s", err, b)
		}
		if diff := cmp.Diff(want, got, equal); diff != "" {
			t.Fatalf("(-want +got):\n%s\n%s", diff, b)
		}
	})
}

// The mutations of the seeds agree too, on types that lab files do not have.
func TestSchema_agreesWithDecode(t *testing.T) {
	t.Parallel()
	s := subject()
	s.Seeds = map[string][]byte{"a": []byte(seeds[0]), "b": []byte(seeds[1])}
	r := spectest.Compare(t, s, 1000, 7)
	t.Log(r)
	for _, d := range r.Disagreements {
		t.Error(d)
	}
}

// Every text that a pattern accepts is read, and no digits overflow.
func TestPatterns_acceptOnlyWhatIsRead(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"rate": "rate", "size": "size", "duration": "time"} {
		pattern := strings.NewReplacer("^", "", "$", "").Replace(spec.Patterns[name])
		rapid.Check(t, func(t *rapid.T) {
			s := rapid.StringMatching(pattern).Draw(t, name)
			var l leaf
			_, err := spec.Decode("f", []byte(key+": "+strconv.Quote(s)), &l)
			if err != nil && len(s) >= 2 {
				t.Fatalf("%q matches %s and is refused: %v", s, pattern, err)
			}
		})
	}
}

func TestReadFile_saysWhatTheSystemSays(t *testing.T) {
	t.Parallel()
	var r root
	if _, err := spec.ReadFile(filepath.Join(t.TempDir(), "none.yaml"), &r); !os.IsNotExist(err) {
		t.Errorf("got %v, want not exist", err)
	}
	if doc, err := spec.ReadFile(t.TempDir(), &r); doc != nil || err == nil {
		t.Errorf("a folder: got %v, %v", doc, err)
	}
}

// The YAML library's time grows with the square of some inputs; the limits keep the worst files to a second or two.
func TestDecode_hostileFilesAreBounded(t *testing.T) {
	t.Parallel()
	for _, s := range []string{":", "\"", "[]", "\n", "- ", "&a ", "a: |\n x\n"} {
		data := []byte(strings.Repeat(s, spec.MaxBytes/len(s)))
		start := time.Now()
		var r root
		_, err := spec.Decode("hostile", data, &r)
		if err == nil {
			t.Errorf("%q repeated is accepted", s)
		}
		if took := time.Since(start); took > 20*time.Second { // far above what a busy machine needs
			t.Errorf("%q repeated took %v", s, took)
		}
		spectest.CheckPlaces(t, data, err)
	}
	var r root
	if _, err := spec.Decode("large", []byte(strings.Repeat("#", spec.MaxBytes+1)), &r); err == nil || !strings.Contains(err.Error(), "at most 262144") {
		t.Errorf("got %v", err)
	}
}
