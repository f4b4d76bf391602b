package spec

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/internal/units"
)

type sampleNIC struct {
	Netdev string       `yaml:"netdev,required" doc:"network interface" example:"eth0" pattern:"[a-z][a-z0-9]*"`
	IP     netip.Prefix `yaml:"ip" doc:"data address" example:"192.0.2.11/24"`
	Via    netip.Addr   `yaml:"via"`
	Rate   units.Rate   `yaml:"rate" min:"1kbit/s"`
	DSCP   int          `yaml:"dscp" min:"0" max:"63" default:"26"`
	ECN    *bool        `yaml:"ecn"`
	PMax   *float64     `yaml:"pmax" above:"0" max:"1"`
}

type sampleCheck struct {
	Expr  string   `yaml:"expr,required,shorthand" example:"jain() > 0.9"`
	Needs []string `yaml:"needs" enum:"ecn,cnp"`
}

type sampleBase struct {
	Note string `yaml:"note"`
}

type sample struct {
	sampleBase
	Name   string             `yaml:"lab,required" doc:"name of the lab" pattern:"[a-z][a-z0-9-]*" example:"demo"`
	For    time.Duration      `yaml:"for" max:"1h"`
	Buffer units.Size         `yaml:"buffer"`
	Hosts  Map[[]sampleNIC]   `yaml:"hosts" keys:"[a-z][a-z0-9]*" maxitems:"4"`
	Start  OneOrMany[string]  `yaml:"start"`
	Checks []sampleCheck      `yaml:"checks" minitems:"1"`
	Set    Map[Scalar]        `yaml:"set"`
	Mode   string             `yaml:"mode" enum:"ingress,egress" default:"egress"`
	Deep   *sample            `yaml:"deep"`
	Weight map[string]float64 `yaml:"-"`
}

const good = `lab: demo   # a comment
note: hello
for: 1m30s
buffer: 64KiB
hosts:
  h2: [{netdev: eth0, ip: 192.0.2.11/24, rate: 25Gbit/s, ecn: false, pmax: 0.2}]
  h1:
    - netdev: eth1
      via: "2001:db8::1"
      dscp: 0
start: h1
checks:
  - jain() > 0.9
  - {expr: x, needs: [ecn]}
set: {nic.dcqcn: off, mtu: 4200, ecn: true}
`

func ptr[T any](v T) *T { return &v }

func TestDecode_fillsEveryKindOfValue(t *testing.T) {
	t.Parallel()
	var got sample
	doc, err := Decode("demo.yaml", []byte(good), &got)
	if err != nil {
		t.Fatal(err)
	}
	want := sample{
		sampleBase: sampleBase{Note: "hello"}, Name: "demo", For: 90 * time.Second, Buffer: 64 * units.KiB, Mode: "egress",
		Hosts: Map[[]sampleNIC]{
			{"h2", []sampleNIC{{Netdev: "eth0", IP: netip.MustParsePrefix("192.0.2.11/24"), Rate: 25 * units.GbitPerSec, DSCP: 26, ECN: ptr(false), PMax: ptr(0.2)}}},
			{"h1", []sampleNIC{{Netdev: "eth1", Via: netip.MustParseAddr("2001:db8::1")}}},
		},
		Start:  OneOrMany[string]{"h1"},
		Checks: []sampleCheck{{Expr: "jain() > 0.9"}, {Expr: "x", Needs: []string{"ecn"}}},
		Set:    Map[Scalar]{{"nic.dcqcn", "off"}, {"mtu", "4200"}, {"ecn", "true"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(sample{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("Decode (-want +got):\n%s", diff)
	}
	if p := doc.Pos(P("hosts", "h1", 0, "via")); p != (Pos{9, 12}) {
		t.Errorf("Pos = %v, want 9:12", p)
	}
	if p := doc.Pos(P("start", 0)); p != (Pos{11, 8}) {
		t.Errorf("Pos of a OneOrMany written as one = %v, want 11:8", p)
	}
}

func TestDecode_namesEveryMistakeAtItsPlace(t *testing.T) {
	t.Parallel()
	rows := []struct{ name, why, file, want string }{
		{"empty", "an empty file has no error place of its own", "", `f:1:1: file is empty (it must hold a mapping of keys to values)`},
		{"comments_only", "a file of comments is empty too", "# x\n---\n", `f:1:1: file is empty (it must hold a mapping of keys to values)`},
		{"unknown", "a misspelt key is named with the right one and not reported as missing too", "laab: x\n", `f:1:1: unknown key "laab" (did you mean "lab"? known: buffer, checks, deep, for, hosts, lab, mode, note, set, start)`},
		{"missing", "the place of a missing key is its mapping", "note: x\n", `f:1:1: required key "lab" is missing (add lab: demo, name of the lab)`},
		{"duplicate", "both lines are named", "lab: a\nnote: x\nlab: b\n", `f:3:1: key "lab" is here for the second time (the first is on line 1: keep one)`},
		{"octal", "leading zeros are octal to some", "lab: a\nhosts: {h1: [{netdev: e, dscp: 010}]}\n", `f:2:32: hosts.h1[0].dscp: "010" has a leading zero, which some readers take for octal (write 10)`},
		{"hex", "", "lab: a\nhosts: {h1: [{netdev: e, dscp: 0x1A}]}\n", `f:2:32: hosts.h1[0].dscp: "0x1A" is not a plain decimal number (write decimal digits)`},
		{"range", "", "lab: a\nhosts: {h1: [{netdev: e, dscp: 64}]}\n", `f:2:32: hosts.h1[0].dscp: 64 is outside the limits (must be at least 0 and at most 63)`},
		{"exclusive", "", "lab: a\nhosts: {h1: [{netdev: e, pmax: 0}]}\n", `f:2:32: hosts.h1[0].pmax: 0 is outside the limits (must be above 0 and at most 1)`},
		{"quantity", "", "lab: a\nfor: 2h\n", `f:2:6: for: 2h is outside the limits (must be at most 1h)`},
		{"no_unit", "", "lab: a\nfor: 10\n", `f:2:6: for: "10" is a number, need a duration with its unit (add the unit, such as 15us)`},
		{"bytes_per_second", "GB/s is eight times Gb/s", "lab: a\nhosts: {h1: [{netdev: e, rate: 25GB/s}]}\n", `f:2:32: hosts.h1[0].rate: "25GB/s" is not a rate with its unit (rates are bits per second, written with a small b, such as 25Gbit/s)`},
		{"yes", "YAML 1.1 booleans", "lab: a\nhosts: {h1: [{netdev: e, ecn: yes}]}\n", `f:2:31: hosts.h1[0].ecn: "yes" is text, need true or false (write true)`},
		{"number_for_text", "", "lab: 5\n", `f:1:6: lab: "5" is a number, need text (quote it: "5")`},
		{"no_value", "", "lab: a\nhosts:\n", `f:2:1: hosts: has no value, need a mapping of names (leave the key out, or write {})`},
		{"enum", "", "lab: a\nmode: eggress\n", `f:2:7: mode: "eggress" is not known here (did you mean "egress"? one of ingress, egress)`},
		{"enum_in_list", "", "lab: a\nchecks: [{expr: x, needs: [enc]}]\n", `f:2:28: checks[0].needs[0]: "enc" is not known here (did you mean "ecn"? one of ecn, cnp)`},
		{"address", "the form is right, the value is not", "lab: a\nhosts: {h1: [{netdev: e, ip: '2001:db8::1::2/64'}]}\n", `f:2:30: hosts.h1[0].ip: "2001:db8::1::2/64" is not an IPv4 or IPv6 address with prefix length: multiple :: in address (such as 192.0.2.11/24)`},
		{"address_form", "", "lab: a\nhosts: {h1: [{netdev: e, ip: 10.0.0.300/24}]}\n", `f:2:30: hosts.h1[0].ip: "10.0.0.300/24" is not an IPv4 or IPv6 address with prefix length (such as 192.0.2.11/24)`},
		{"name", "", "lab: a\nhosts: {H1: []}\n", `f:2:9: hosts.H1: name "H1" has the wrong form (must match [a-z][a-z0-9]*)`},
		{"list", "", "lab: a\nchecks: x\n", `f:2:9: checks: "x" is text, need a list (write [x])`},
		{"few", "", "lab: a\nchecks: []\n", `f:2:9: checks: has 0 entries (at least 1)`},
		{"many", "", "lab: a\nhosts: {a: [], b: [], c: [], d: [], e: []}\n", `f:2:8: hosts: has 5 entries (at most 4)`},
		{"list_file", "", "- a\n", `f:1:1: found a list, need a mapping (keys: note, lab, for, buffer, hosts, start, checks, set, mode, deep)`},
		{"tab", "", "lab: a\nhosts:\n\th1: []\n", `f:3:1: a tab in the indentation (indent with spaces)`},
		{"bracket", "", "lab: [a\nnote: x\n", `f:1:6: not YAML: the [ opened here is not closed (close it with ])`},
		{"comma_first", "the library takes it, other readers refuse it", "lab: a\nhosts: {,a: []}\n", `f:2:9: not YAML: nothing is before this comma (remove it)`},
		{"anchor", "", "lab: &x a\nnote: *x\n", "f:1:6: anchors (&) are not read (write the value out where it is needed)\nf:2:7: aliases (*) are not read (write the value out, or quote the text)"},
		{"merge", "", "lab: a\n<<: {note: x}\n", "f:2:1: merge keys (<<) are not read (write the keys out)"},
		{"documents", "", "lab: a\n---\nlab: b\n", "f:2:1: a second document starts here (one file holds one document: remove the --- line)"},
		{"not_utf8", "", "lab: a\nnote: \xff\n", "f:2:7: bytes that are not UTF-8 (the file must be plain UTF-8 text)"},
		{"escape", "no control character reaches the terminal", "lab: a\nnote: \x1b[31m\n", "f:2:7: control character U+001B (the file must be plain UTF-8 text)"},
		{"deep", "bounded recursion", "lab: " + strings.Repeat("[", 100) + "\n", "f:1:38: nested more than 32 deep (flatten the file)"},
		{"dashes", "bounded recursion", strings.Repeat("- ", 1000) + "\n", "f:1:65: nested more than 32 deep (flatten the file)"},
		{"all_at_once", "sorted by place", "mode: x\nlab: 7\nfor: 5\n", "f:1:7: mode: \"x\" is not known here (one of ingress, egress)\nf:2:6: lab: \"7\" is a number, need text (quote it: \"7\")\nf:3:6: for: \"5\" is a number, need a duration with its unit (add the unit, such as 15us)"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var s sample
			_, err := Decode("f", []byte(row.file), &s)
			if err == nil {
				t.Fatalf("Decode(%q) accepted, want %s", row.file, row.want)
			}
			if diff := cmp.Diff(row.want, err.Error()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", row.why, diff)
			}
		})
	}
}

func TestErrors_printsTwentyAndCounts(t *testing.T) {
	t.Parallel()
	var s sample
	_, err := Decode("f", []byte("lab: a\n"+strings.Repeat("x", 1)+": 1\n"+manyKeys(30)), &s)
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != MaxPrinted+1 || lines[MaxPrinted] != "and 11 more mistakes" {
		t.Errorf("got %d lines, last %q", len(lines), lines[len(lines)-1])
	}
	var e *Errors
	if !errors.As(err, &e) || len(e.Problems) != 31 {
		t.Fatalf("errors.As: %v", e)
	}
	if want := "    2 | x: 1\n      | ^\n"; e.Problems[0].Excerpt() != want {
		t.Errorf("Excerpt = %q, want %q", e.Problems[0].Excerpt(), want)
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("zz" + string(rune('a'+i%26)) + string(rune('a'+i/26)) + ": 1\n")
	}
	return b.String()
}

func TestDoc_addsSemanticMistakesToTheList(t *testing.T) {
	t.Parallel()
	var s sample
	doc, _ := Decode("f", []byte("lab: a\nmode: x\nhosts: {h1: []}\n"), &s)
	doc.Errorf(P("hosts", "h1"), "add one", "host %q has no NIC", "h1")
	doc.KeyErrorf(P("hosts", "h1", 3), "", "gone")
	want := "f:2:7: mode: \"x\" is not known here (one of ingress, egress)\nf:3:9: hosts.h1[3]: gone\nf:3:13: hosts.h1: host \"h1\" has no NIC (add one)"
	if diff := cmp.Diff(want, doc.Err().Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !doc.Bad(P("mode")) || doc.Bad(P("hosts")) || !doc.Bad(P()) {
		t.Error("Bad: mode and the root are bad, hosts is not")
	}
}

func TestDecode_acceptsCRLFAndBOM(t *testing.T) {
	t.Parallel()
	var s sample
	if _, err := Decode("f", []byte("\ufefflab: a\r\nnote: b\r\n"), &s); err != nil || s.Name != "a" || s.Note != "b" {
		t.Errorf("got %+v, %v", s, err)
	}
}
