// Package spectest tests file formats made with package spec: that their JSON Schema and their loader accept and refuse
// the same files, and that every mistake has a place inside its file.
//
// The judge is independent of spec: YAML is read by another library and the schema is run by a JSON Schema validator.
package spectest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/pcmlab/pcmlab/internal/spec"
)

// Subject is a file format under test.
type Subject struct {
	Seeds      map[string][]byte // good files that are mutated, by name
	Schema     []byte            // its JSON Schema
	Load       func(file string, data []byte) error
	LoaderOnly []spec.Kind // kinds of mistakes that only the loader may find
}

// Report counts what Compare saw.
type Report struct {
	Files, Accepted, BothRefuse int
	LoaderOnly                  map[spec.Kind]int // refused by the loader alone, by kind (a file with two kinds counts for both)
	Mutations                   map[string]int
	Disagreements               []string
}

// String is the report in one line.
func (r Report) String() string {
	only := 0
	var kinds []string
	for k, n := range r.LoaderOnly {
		kinds = append(kinds, fmt.Sprintf("%s %d", k, n))
	}
	sort.Strings(kinds)
	only = r.Files - r.Accepted - r.BothRefuse - len(r.Disagreements)
	return fmt.Sprintf("%d files: both accept %d, both refuse %d, loader alone refuses %d (%s), disagree %d",
		r.Files, r.Accepted, r.BothRefuse, only, strings.Join(kinds, ", "), len(r.Disagreements))
}

// Compare mutates the seeds n times and has schema and loader judge each file.
func Compare(t testing.TB, s Subject, n int, seed uint64) Report {
	t.Helper()
	schema := compile(t, s.Schema)
	names := make([]string, 0, len(s.Seeds))
	for name := range s.Seeds {
		names = append(names, name)
	}
	sort.Strings(names)
	rng := rand.New(rand.NewPCG(seed, seed))
	r := Report{LoaderOnly: map[spec.Kind]int{}, Mutations: map[string]int{}}
	for i := range n {
		name := names[i%len(names)]
		data, how := Mutate(rng, s.Seeds[name])
		kind, _, _ := strings.Cut(how, " ")
		r.Mutations[kind]++
		verdict, why := judge(s, schema, data)
		r.Files++
		switch verdict {
		case bothAccept:
			r.Accepted++
		case bothRefuse:
			r.BothRefuse++
		case loaderOnly:
			for _, k := range kinds(why) {
				r.LoaderOnly[k]++
			}
		case disagree:
			r.Disagreements = append(r.Disagreements, fmt.Sprintf("file %d, %s, mutation %q: %v\n%s", i, name, how, why, excerpt(s.Seeds[name], data)))
		}
	}
	return r
}

// CheckOne holds schema and loader against each other on one file, of any content: a file that the other YAML reader
// does not take is passed over, since readers differ at the edges of the language.
func CheckOne(t testing.TB, s Subject, data []byte) {
	t.Helper()
	if _, err := ToJSON(data); err != nil {
		return
	}
	if verdict, why := judge(s, compile(t, s.Schema), data); verdict == disagree {
		t.Errorf("%v", why)
	}
}

// Validate runs a schema over a YAML file.
func Validate(t testing.TB, schema, data []byte) error {
	t.Helper()
	v, err := ToJSON(data)
	if err != nil {
		return err
	}
	return compile(t, schema).Validate(v)
}

func compile(t testing.TB, schema []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatalf("schema: %v", err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatalf("schema: %v", err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatalf("schema: %v", err)
	}
	return s
}

type verdict int

const (
	bothAccept verdict = iota
	bothRefuse
	loaderOnly
	disagree
)

// judge: a structural mistake must be one to the schema too; any other may be found by the loader alone, if its kind is
// on the list; and nothing is found by the schema alone.
func judge(s Subject, schema *jsonschema.Schema, data []byte) (verdict, error) {
	loadErr := s.Load("mutated.yaml", data)
	value, yamlErr := ToJSON(data)
	var schemaErr error
	if yamlErr == nil {
		schemaErr = schema.Validate(value)
	}
	switch {
	case loadErr == nil && yamlErr != nil:
		return disagree, fmt.Errorf("the loader accepts, the other YAML reader refuses: %w", yamlErr)
	case loadErr == nil && schemaErr != nil:
		return disagree, fmt.Errorf("the loader accepts, the schema refuses: %w", schemaErr)
	case loadErr == nil:
		return bothAccept, nil
	}
	found := kinds(loadErr)
	if len(found) == 0 {
		return disagree, fmt.Errorf("the loader's error is not *spec.Errors: %w", loadErr)
	}
	if yamlErr != nil || schemaErr != nil {
		return bothRefuse, nil
	}
	for _, k := range found {
		if k.Structural() || !slices.Contains(s.LoaderOnly, k) {
			return disagree, fmt.Errorf("the schema accepts, the loader refuses with a mistake of kind %q: %w", k, loadErr)
		}
	}
	return loaderOnly, loadErr
}

// kinds are the kinds of mistakes in a loader's error, each once.
func kinds(err error) []spec.Kind {
	var e *spec.Errors
	if !errors.As(err, &e) {
		return nil
	}
	var out []spec.Kind
	for _, p := range e.Problems {
		if !slices.Contains(out, p.Kind) {
			out = append(out, p.Kind)
		}
	}
	return out
}

// CheckPlaces checks that every mistake of err, which may be nil, lies inside the file and that mistakes are sorted.
func CheckPlaces(t testing.TB, data []byte, err error) {
	t.Helper()
	if err == nil {
		return
	}
	var e *spec.Errors
	if !errors.As(err, &e) || len(e.Problems) == 0 {
		t.Fatalf("error is not *spec.Errors with a mistake: %v", err)
	}
	lines := strings.Split(strings.TrimPrefix(string(data), "\ufeff"), "\n")
	before := e.Problems[0]
	for _, p := range e.Problems {
		if p.Line < 1 || p.Line > len(lines) || p.Col < 1 || p.Col > utf8.RuneCountInString(lines[p.Line-1])+1 {
			t.Errorf("%v: outside the file of %d lines", p, len(lines))
		}
		if p.Line < before.Line || p.Line == before.Line && p.Col < before.Col {
			t.Errorf("%v comes after %v", p, before)
		}
		if strings.ContainsAny(p.Error(), "\x00\x1b\n") {
			t.Errorf("control characters in %q", p.Error())
		}
		before = p
	}
	_ = e.Detail()
}

// excerpt shows the lines in which the mutated file differs from its seed.
func excerpt(seed, data []byte) string {
	was := map[string]int{}
	for l := range strings.SplitSeq(string(seed), "\n") {
		was[strings.TrimSpace(l)]++
	}
	var out []string
	for i, l := range strings.Split(string(data), "\n") {
		if was[strings.TrimSpace(l)]--; was[strings.TrimSpace(l)] < 0 && len(out) < 6 {
			out = append(out, fmt.Sprintf("%5d | %s", i+1, l))
		}
	}
	return strings.Join(out, "\n")
}
