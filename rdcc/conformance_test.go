package rdcc

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const conformance = "../docs/rdcc-conformance.md"

// row is one of the table of docs/rdcc-conformance.md.
type row struct {
	line                                                int
	number, section, statement, level, code, test, rule string
}

func conformanceRows(t *testing.T) []row {
	t.Helper()
	data, err := os.ReadFile(conformance)
	if err != nil {
		t.Fatal(err)
	}
	rows, mistakes := parseRows(string(data))
	for _, m := range mistakes {
		t.Errorf("%s:%s", conformance, m)
	}
	return rows
}

func parseRows(text string) (rows []row, mistakes []string) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| no |") || strings.HasPrefix(line, "|---") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) != 7 {
			mistakes = append(mistakes, fmt.Sprintf("%d: %d cells, need 7", n, len(cells)))
			continue
		}
		rows = append(rows, row{n, cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6]})
	}
	return rows, mistakes
}

var (
	quoted = regexp.MustCompile("^`([^`]+)`$")
	level  = regexp.MustCompile(`^(MUST|MUST NOT|SHOULD|SHOULD NOT|MAY|RECOMMENDED|OPTIONAL|format|decision \d+)(, decision \d+)*$`)
)

// references takes a cell of quoted names, separated by commas, apart.
func references(cell string) (names []string, ok bool) {
	for _, c := range strings.Split(cell, ",") {
		m := quoted.FindStringSubmatch(strings.TrimSpace(c))
		if m == nil {
			return nil, false
		}
		names = append(names, m[1])
	}
	return names, true
}

// problems are what is wrong with a row, root being the folder of the module.
func (r row) problems(root string) (all []string) {
	if r.section == "" || r.statement == "" {
		all = append(all, "a section and a statement are needed")
	}
	if !level.MatchString(r.level) {
		all = append(all, fmt.Sprintf("level %q", r.level))
	}
	code, ok := references(r.code)
	if !ok {
		all = append(all, fmt.Sprintf("code %q: need `file: function`, separated by commas", r.code))
	}
	for _, c := range code {
		file, fn, _ := strings.Cut(c, ": ")
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			all = append(all, err.Error())
		} else if !regexp.MustCompile(`(?m)^func (\([^)]+\) )?` + regexp.QuoteMeta(fn) + `\(`).Match(text) {
			all = append(all, fmt.Sprintf("%s has no function %q", file, fn))
		}
	}
	tests, ok := references(r.test)
	if !ok {
		all = append(all, fmt.Sprintf("test %q: need `package:TestName`, separated by commas", r.test))
	}
	for _, name := range tests {
		dir, fn, _ := strings.Cut(name, ":")
		if !testExists(filepath.Join(root, dir), fn) {
			all = append(all, fmt.Sprintf("%s: no such test", name))
		}
	}
	if r.rule != "-" {
		if _, ok := RuleNamed(r.rule); !ok {
			all = append(all, fmt.Sprintf("rule %q: not one of rdcc/rule.go", r.rule))
		}
	}
	return all
}

func testExists(dir, fn string) bool {
	files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
	return fn != "" && slices.ContainsFunc(files, func(f string) bool {
		text, err := os.ReadFile(f)
		return err == nil && strings.Contains(string(text), "\nfunc "+fn+"(t *testing.T)")
	})
}

// TestConformance: each row names code and tests that exist, and each rule has a row.
func TestConformance(t *testing.T) {
	rows := conformanceRows(t)
	numbers, ruled := map[string]bool{}, map[string]bool{}
	for _, r := range rows {
		if numbers[r.number] {
			t.Errorf("%s:%d: number %s is there twice", conformance, r.line, r.number)
		}
		numbers[r.number], ruled[r.rule] = true, true
		for _, p := range r.problems("..") {
			t.Errorf("%s:%d: %s: %s", conformance, r.line, r.number, p)
		}
	}
	names := map[string]bool{}
	for n, name := range ruleNames {
		if name == "" {
			continue
		}
		if names[name] {
			t.Errorf("two rules are named %s", name)
		}
		names[name] = true
		if !ruled[name] {
			t.Errorf("rule %s has no row in %s", name, conformance)
		}
		if r, ok := RuleNamed(name); !ok || r != Rule(n) || r.String() != name {
			t.Errorf("rule %d, named %s: the name gives %v, %t", n, name, r, ok)
		}
	}
	t.Logf("%d rows, %d rules", len(rows), len(names))
}

// TestConformanceNotices: what is wrong with a row does not pass.
func TestConformanceNotices(t *testing.T) {
	good := "| X1 | A | B. | MUST | `rdcc/rule.go: RuleNamed` | `rdcc:TestConformance` | Version |"
	if rows, mistakes := parseRows(good); len(rows) != 1 || len(mistakes) != 0 || len(rows[0].problems("..")) != 0 {
		t.Fatalf("a good row: %v %v", rows, mistakes)
	}
	for _, r := range [][2]string{
		{"MUST", "WILL"}, {"RuleNamed", "RuleName"}, {"rule.go", "rules.go"}, {"TestConformance", "TestConform"}, {"`rdcc:TestConformance`", "-"},
		{"`rdcc:TestConformance`", ""}, {"Version", "Versions"}, {"Version", ""}, {"| A", "| "}, {"| MUST", ""}, {"rdcc:", "rdcc/sender:"},
	} {
		rows, mistakes := parseRows(strings.Replace(good, r[0], r[1], 1))
		for _, row := range rows {
			mistakes = append(mistakes, row.problems("..")...)
		}
		if len(mistakes) == 0 {
			t.Errorf("%q instead of %q passes", r[1], r[0])
		}
	}
}

func TestRuleSet(t *testing.T) {
	for n := range 256 {
		var s RuleSet
		s.Add(Rule(n))
		for m := range 256 {
			if s.Has(Rule(m)) != (m == n) {
				t.Fatalf("the set of rule %d: has %d: %t", n, m, s.Has(Rule(m)))
			}
		}
	}
	if _, ok := RuleNamed(""); ok {
		t.Error("the empty name is a rule's")
	}
}

// TestAssociationIsNoAmplifier: the answer is no longer than the request (Reflection).
func TestAssociationIsNoAmplifier(t *testing.T) {
	request, answer := (&AssocRequest{}).Append(nil, Header{}), (&AssocAccept{}).Append(nil, Header{})
	refusal := (&Error{Reason: ReasonAssocRefused}).Append(nil, Header{})
	if len(request) != 48 || len(answer) > len(request) || len(refusal) > len(request) {
		t.Errorf("request %d octets, answer %d, refusal %d", len(request), len(answer), len(refusal))
	}
}
