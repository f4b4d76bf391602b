package experiments

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func mustParse(t testing.TB, text string) *Playbook {
	t.Helper()
	p, err := ParsePlaybook("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func cellNames(p *Playbook) []string {
	var out []string
	for _, c := range p.Matrix.cells {
		out = append(out, cellName(c.params))
	}
	return out
}

func TestMatrix_cells(t *testing.T) {
	for _, c := range []struct {
		name, matrix string
		want         []string
		why          string
	}{
		{"vary", "vary: {traffic.size: [16KiB, 64KiB], senders: [1, 2]}",
			[]string{"traffic.size=16KiB senders=1", "traffic.size=16KiB senders=2", "traffic.size=64KiB senders=1", "traffic.size=64KiB senders=2"}, "all combinations, the last fastest"},
		{"one_value", "vary: {nic.dcqcn: off}", []string{"nic.dcqcn=off"}, "a single value needs no brackets"},
		{"zip", "zip: [{link.buffer: [64KiB, 1MiB], switch.ecn.kmin: [10KiB, 100KiB]}]",
			[]string{"link.buffer=64KiB switch.ecn.kmin=10KiB", "link.buffer=1MiB switch.ecn.kmin=100KiB"}, "they advance together"},
		{"zip_and_vary", "{vary: {senders: [1, 2]}, zip: [{traffic.qps: [1, 2], traffic.tx_depth: [8, 16]}]}",
			[]string{"senders=1 traffic.qps=1 traffic.tx_depth=8", "senders=1 traffic.qps=2 traffic.tx_depth=16",
				"senders=2 traffic.qps=1 traffic.tx_depth=8", "senders=2 traffic.qps=2 traffic.tx_depth=16"}, "a group is one axis"},
		{"exclude", "{vary: {traffic.size: [1MiB, 64KiB], senders: [1, 2]}, exclude: [{traffic.size: 1024KiB, senders: 2}]}",
			[]string{"traffic.size=1MiB senders=1", "traffic.size=64KiB senders=1", "traffic.size=64KiB senders=2"}, "all of them match, however sizes are spelt"},
		{"include", "{vary: {senders: [1]}, include: [{seed: 9}]}", []string{"senders=1", "seed=9"}, "as written"},
		{"include_alone", "include: [{senders: 2}, {}]", []string{"senders=2", "without parameters"}, "no cell but those; the playbook as it stands is one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.matrix[0] != '{' {
				c.matrix = "{" + c.matrix + "}"
			}
			p := mustParse(t, goodPlaybook+"matrix: "+c.matrix+"\n")
			if diff := cmp.Diff(c.want, cellNames(p)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// Three senders by four sizes by two switches of DCQCN, less two.
func TestMatrix_counts(t *testing.T) {
	text := strings.Replace(goodPlaybook, "  b: {from: h2, to: r1}\n", "  b: {from: h2, to: r1}\n  c: {from: h3, to: r1}\n", 1)
	text = strings.Replace(strings.Replace(text, "[h1, h2]", "[h1, h2, h3]", 1), "start: b", "start: [b, c]", 1)
	p := mustParse(t, text+"matrix: {vary: {senders: [1, 2, 3], traffic.size: [4KiB, 16KiB, 64KiB, 1MiB], nic.dcqcn: [on, off]}, "+
		"exclude: [{senders: 1, traffic.size: 4KiB}]}\n")
	ids := map[string]bool{}
	for _, c := range p.Matrix.cells {
		ids[CellID(c.params)] = true
	}
	if p.CellCount() != 22 || len(ids) != 22 {
		t.Errorf("%d cells with %d ids, want 22", p.CellCount(), len(ids))
	}
}

func TestMatrix_mistakes(t *testing.T) {
	for _, c := range []struct{ name, matrix, at, want, why string }{
		{"unknown_key", "vary: {traffic.sise: [1]}", "x.yaml:16:32", `did you mean "traffic.size"`, "a typo"},
		{"own_key", "vary: {repeat: [1]}", "x.yaml:16:17", "no parameter", "how often is no parameter"},
		{"value", "vary: {senders: [1, 2], traffic.size: [64KiB, big]}", "x.yaml:16:56", `cell senders=1 traffic.size=big: traffic.size=big: "big" is not a size`, "the place of the value, and the cell"},
		{"limit", "vary: {traffic.qps: [1, 0]}", "x.yaml:16:34", "must be at least 1", "limits of the playbook's keys hold"},
		{"senders", "vary: {senders: [3]}", "x.yaml:16:27", "from 1 to 2", "no more than there are"},
		{"phase", "vary: {phases.three.for: [2s]}", "x.yaml:16:36", "known: phases.one, phases.two", "phases by name"},
		{"together", "vary: {phases.one.for: [2500ms]}", "x.yaml:16:34", "whole seconds", "what the tool refuses"},
		{"zip_lengths", "zip: [{traffic.qps: [1, 2], traffic.tx_depth: [8]}]", "x.yaml:16:", "advance together", "groups have one length"},
		{"twice", "{vary: {seed: [1]}, zip: [{seed: [2]}]}", "x.yaml:16:", "is in matrix.vary already", "one axis for a key"},
		{"exclude_nothing", "{vary: {seed: [1, 2]}, exclude: [{seed: 3}]}", "x.yaml:16:", "matches no cell", "a typo excludes nothing"},
		{"exclude_all", "{vary: {seed: [1, 2]}, exclude: [{}]}", "x.yaml:16:", "excludes every cell", "an empty rule"},
		{"nothing_left", "{vary: {seed: [1]}, exclude: [{seed: 1}]}", "x.yaml:16:", "no cell is left", "nothing to run"},
		{"same_cell", "{vary: {traffic.size: [1MiB, 1024KiB]}}", "x.yaml:16:", "is there already", "two spellings of one cell"},
		{"no_value", "vary: {seed: []}", "x.yaml:16:", "no value", "an axis without values leaves no cell"},
		{"too_many", "vary: {seed: [" + strings.Repeat("1, ", 99) + "1], traffic.qps: [" + strings.Repeat("1, ", 99) + "1]}", "x.yaml:16:", "more than 5000 cells", "a matrix that explodes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.matrix[0] != '{' {
				c.matrix = "{" + c.matrix + "}"
			}
			_, err := ParsePlaybook("x.yaml", []byte(goodPlaybook+"matrix: "+c.matrix+"\n"))
			if err == nil || !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), c.at) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v\nwant %q at %s", c.why, err, c.want, c.at)
			}
		})
	}
}

// What only a lab knows is named at the matrix too, before anything is raised.
func TestCells_mistakesOfTheLab(t *testing.T) {
	incastPlaybook := func(matrix string) *Playbook {
		text := strings.Replace(goodPlaybook, "captures:\n  - {tap: sw-out}\n", "", 1)
		return mustParse(t, text+"matrix: "+matrix+"\n")
	}
	for _, c := range []struct{ name, matrix, want, why string }{
		{"value", "{vary: {nic.dcqcn: [on, perhaps], senders: [1, 2]}}", `x.yaml:14:33: matrix.vary.nic.dcqcn[1]: cell nic.dcqcn=perhaps senders=1: nic.dcqcn=perhaps: "perhaps" is neither on nor off`, "a value of the lab"},
		{"combination", "{zip: [{switch.ecn.kmin: [100KiB, 900KiB], link.buffer: [1MiB, 2MiB]}]}", "kmin", "thresholds that do not fit"},
		{"object", "{vary: {nic.h9.dcqcn: [on]}}", `no nic is called "h9"`, "a host that is not there"},
		{"host", "{include: [{flows.a.from: h3}]}", `cell flows.a.from=h3`, "a host that plays no role"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var err error
			if c.name == "host" {
				_, err = ParsePlaybook("x.yaml", []byte(goodPlaybook+"matrix: "+c.matrix+"\n"))
			} else {
				_, err = incastPlaybook(c.matrix).Cells(loadLab(t, "virtual-4.yaml"), testBackends())
			}
			if err == nil || !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v\nwant %q", c.why, err, c.want)
			}
			if err != nil && strings.Count(err.Error(), "perhaps: \"perhaps\"") > 1 {
				t.Errorf("one value, several mistakes:\n%v", err)
			}
		})
	}
}

func TestCellID_isThatOfTheParameters(t *testing.T) {
	a := CellID([]Param{{"traffic.size", "1MiB"}, {"nic.dcqcn", "off"}})
	if b := CellID([]Param{{"nic.dcqcn", "OFF"}, {"traffic.size", "1024KiB"}}); a != b {
		t.Errorf("%s and %s: order and spelling change it", a, b)
	}
	if !strings.HasPrefix(a, "nic.dcqcn-off_traffic.size-1MiB-") {
		t.Errorf("%s cannot be read", a)
	}
	rapid.Check(t, func(t *rapid.T) {
		params := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Param {
			return Param{"nic." + rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "key"), rapid.String().Draw(t, "value")}
		}), 0, 6).Draw(t, "params")
		id := CellID(params)
		if strings.ContainsAny(id, "/\\, \x00\n'\"$*") || strings.HasPrefix(id, ".") || len(id) > slugLength+9 {
			t.Errorf("%q is no name for a folder", id)
		}
		if len(params) > 0 {
			other := slices.Clone(params)
			other[0].Value += "x"
			if CellID(other) == id {
				t.Errorf("%q for %v and for %v", id, params, other)
			}
		}
	})
}

func TestWith_senders(t *testing.T) {
	p, err := LoadPlaybook(incast)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(p.Source), "expect:\n", "expect:\n  - {name: third, that: 'goodput(flow=\"h3\") > 0'}\n  - {name: late, that: 'jain(phase=\"six\") > 0'}\n", 1)
	text = strings.Replace(text, "  - {name: five, stop: h2, for: 8s}", "  - {name: five, stop: h2, for: 8s}\n  - {name: six, start: z, stop: h1, for: 4s}", 1)
	text = strings.Replace(text, "flows:\n", "flows:\n  z: {from: h3, to: r1}\n", 1)
	if _, err := mustParse(t, text).With([]Param{{"senders", "3"}}); err != nil {
		t.Fatal(err)
	}
	// z comes first in the file, so h3 is the first sending host; move it behind.
	text = strings.Replace(text, "  z: {from: h3, to: r1}\n", "", 1)
	text = strings.Replace(text, "  h3: {from: h3, to: r1}\n", "  h3: {from: h3, to: r1}\n  z: {from: h3, to: r1}\n", 1)
	v, err := mustParse(t, text).With([]Param{{"senders", "1"}, {"traffic.size", "16KiB"}, {"phases.one.for", "4s"}})
	if err != nil {
		t.Fatal(err)
	}
	var phases []string
	for _, ph := range v.Phases {
		phases = append(phases, fmt.Sprint(ph.Name, " ", ph.For, " ", ph.Flows))
	}
	if diff := cmp.Diff([]string{"one 4s [h1]", "two 8s [h1]", "three 8s [h1]", "four 8s [h1]", "five 8s [h1]"}, phases); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	if v.Traffic.Size != 16384 {
		t.Errorf("size %d", v.Traffic.Size)
	}
	plan, err := NewPlan(v, loadLab(t, "virtual-4.yaml"), testBackends())
	if err != nil {
		t.Fatal(err)
	}
	skips := map[string]string{}
	for _, c := range plan.Checks {
		skips[c.Name] = c.Skip
	}
	for name, want := range map[string]string{"third": `with senders=1 flow "h3" is not run`, "late": `with senders=1 no flow is left in phase "six"`, "fair": ""} {
		if got, ok := skips[name]; !ok || got != want {
			t.Errorf("%s: skip %q, want %q", name, got, want)
		}
	}
	// The folder of a run holds what was run, and that can be run again.
	again, err := ParsePlaybook("again.yaml", v.Source)
	if err != nil {
		t.Fatalf("%v\n%s", err, v.Source)
	}
	lab := loadLab(t, "virtual-4.yaml")
	one, _ := InputsHash(v, lab)
	two, _ := InputsHash(again, lab)
	if one != two || !strings.Contains(string(v.Source), "# third: left out: with senders=1") {
		t.Errorf("hashes %s and %s of\n%s", one, two, v.Source)
	}
}

func TestInputsHash_isOfWhatIsMeant(t *testing.T) {
	lab := loadLab(t, "virtual-4.yaml")
	hash := func(text string) string {
		t.Helper()
		h, err := InputsHash(mustParse(t, text), lab)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	base := hash(goodPlaybook)
	for _, c := range []struct {
		name, old, new string
		same           bool
	}{
		{"comment", "playbook: x\n", "# why\nplaybook: x # x\n", true},
		{"key_order", "{from: h1, to: r1}", "{to: r1, from: h1}", true},
		{"order_of_flows", "  a: {from: h1, to: r1}\n  b: {from: h2, to: r1}\n", "  b: {from: h2, to: r1}\n  a: {from: h1, to: r1}\n", true},
		{"spelling", "size: 64KiB", "size: 65536", true},
		{"default_written", "{size: 64KiB}", "{size: 64KiB, qps: 1}", true},
		{"repeats", "playbook: x\n", "playbook: x\nrepeat: 9\nwarmup: 1\nthresholds: {goodput: 3%}\nmatrix: {vary: {seed: [1, 2]}}\n", true},
		{"about", "playbook: x\n", "playbook: x\nabout: what it is\n", true},
		{"seed", "playbook: x\n", "playbook: x\nseed: 2\n", false},
		{"size", "64KiB", "63KiB", false},
		{"phase", "start: b, for: 2s", "start: b, for: 3s", false},
	} {
		text := strings.Replace(goodPlaybook, c.old, c.new, 1)
		if text == goodPlaybook {
			t.Fatalf("%s: nothing changed", c.name)
		}
		if got := hash(text) == base; got != c.same {
			t.Errorf("%s: same hash %v, want %v", c.name, got, c.same)
		}
	}
}
