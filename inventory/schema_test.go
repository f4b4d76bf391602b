package inventory

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/internal/spec/spectest"
)

var update = flag.Bool("update", false, "write schema.json and testdata from what the code does now")

// refuseUpdateInCI: a gate that rewrites what it compares with is none.
func refuseUpdateInCI(t *testing.T) {
	t.Helper()
	if *update && os.Getenv("CI") != "" {
		t.Fatal("-update is refused when CI is set")
	}
}

func TestSchemaJSON_isThatOfTheTypes(t *testing.T) {
	t.Parallel()
	refuseUpdateInCI(t)
	want := makeSchema()
	if *update {
		if err := os.WriteFile("schema.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(want), string(SchemaJSON)); diff != "" {
		t.Errorf("schema.json is not that of file.go; run go test ./inventory -run Schema -update (-types +file):\n%s", diff)
	}
}

func labFiles(t testing.TB) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("../labs/*.yaml")
	if err != nil || len(names) < 4 {
		t.Fatalf("labs: %v, %v", names, err)
	}
	out := map[string][]byte{}
	for _, n := range names {
		data, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(n)] = data
	}
	return out
}

func subject(t testing.TB) spectest.Subject {
	return spectest.Subject{
		Seeds:  labFiles(t),
		Schema: SchemaJSON,
		Load:   func(file string, data []byte) error { _, err := Parse(file, data); return err },
		LoaderOnly: []spec.Kind{
			spec.Syntax,    // YAML that one reader takes and the other does not; empty files; limits
			spec.Duplicate, // JSON readers keep one of two keys
			spec.Dialect,   // anchors, aliases, merge keys, tags
			spec.Spelling,  // 0x10, 010, 1_000, 5.0 for 5
			spec.Quantity,  // limits of rates, sizes and durations, which are text to a schema
			spec.Value,     // IPv6 addresses
			spec.Semantic,  // cross references, uniqueness, and the other checks of check.go
		},
	}
}

// The promise to editors: what the schema marks wrong is wrong, and what only the loader finds is of the listed kinds.
func TestSchema_agreesWithTheLoaderOnMutatedLabs(t *testing.T) {
	t.Parallel()
	const files, seed = 1000, 20261129
	r := spectest.Compare(t, subject(t), files, seed)
	t.Logf("seed %d: %s", seed, r)
	for _, d := range r.Disagreements {
		t.Error(d)
	}
	if r.Accepted < files/20 || r.BothRefuse < files/3 {
		t.Errorf("the mutations prove little: %s", r)
	}
}

// Canary: the comparison can fail.
func TestSchema_agreementTestNoticesABrokenSchema(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, from, to string }{
		{"lax", `"additionalProperties": false`, `"additionalProperties": true`},
		{"strict", `"maximum": 63`, `"maximum": 20`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := subject(t)
			s.Schema = []byte(strings.ReplaceAll(string(SchemaJSON), row.from, row.to))
			if r := spectest.Compare(t, s, 100, 1); len(r.Disagreements) == 0 {
				t.Errorf("no disagreement found: %s", r)
			}
		})
	}
}

func TestSchema_acceptsEveryShippedLab(t *testing.T) {
	t.Parallel()
	for name, data := range labFiles(t) {
		if err := spectest.Validate(t, SchemaJSON, data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if first, _, _ := strings.Cut(string(data), "\n"); first != "# yaml-language-server: $schema=../inventory/schema.json" {
			t.Errorf("%s: first line %q names no schema to editors", name, first)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, data := range labFiles(f) {
		f.Add(data)
	}
	s := spectest.Subject{Schema: SchemaJSON, Load: subject(f).Load, LoaderOnly: subject(f).LoaderOnly}
	f.Fuzz(func(t *testing.T, data []byte) {
		lab, err := Parse("fuzz.yaml", data)
		spectest.CheckPlaces(t, data, err)
		if err != nil {
			return
		}
		text, err := Marshal(lab)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("fuzz.yaml", text)
		if err != nil {
			t.Fatalf("Marshal of an accepted lab is refused: %v\n%s", err, text)
		}
		if diff := cmp.Diff(lab, again, compare); diff != "" {
			t.Fatalf("(-first +again):\n%s", diff)
		}
		spectest.CheckOne(t, s, data)
	})
}
