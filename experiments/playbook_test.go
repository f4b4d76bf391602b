package experiments

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/internal/spec/spectest"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

const incast = "../playbooks/incast-3to1.yaml"

func TestLoadPlaybook_incast(t *testing.T) {
	p, err := LoadPlaybook(incast)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, ph := range p.Phases {
		got = append(got, ph.Name+" "+ph.Begin.String()+" "+strings.Join(ph.Flows, "+"))
	}
	want := []string{"one 0s h1", "two 8s h1+h2", "three 16s h1+h2+h3", "four 24s h1+h2", "five 32s h1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	for name, want := range map[string]time.Duration{"h1": 40 * time.Second, "h2": 24 * time.Second, "h3": 8 * time.Second} {
		if d := p.flow(name).Duration; d != want {
			t.Errorf("flow %s lasts %v, want %v", name, d, want)
		}
	}
	if got := p.Trims.Start.Of(10 * time.Second); got != 3800*time.Millisecond {
		t.Errorf("trim at the start of 10s is %v", got)
	}
}

// goodPlaybook is changed by the rows of TestParsePlaybook_mistakes.
const goodPlaybook = `playbook: x
hosts:
  senders: [h1, h2]
  receiver: r1
traffic: {size: 64KiB}
flows:
  a: {from: h1, to: r1}
  b: {from: h2, to: r1}
phases:
  - {name: one, start: a, for: 2s}
  - {name: two, start: b, for: 2s}
captures:
  - {tap: sw-out}
expect:
  - {that: jain(phase="two") >= 0.9}
`

func TestParsePlaybook_mistakes(t *testing.T) {
	if _, err := ParsePlaybook("x.yaml", []byte(goodPlaybook)); err != nil {
		t.Fatalf("the file that the rows change: %v", err)
	}
	for _, c := range []struct{ name, old, new, at, want, why string }{
		{"unknown_key", "start: b, for: 2s", "start: b, durration: 2s", "x.yaml:11:27", "durration", "a typo must not be ignored (S18)"},
		{"unknown_flow", "start: b", "start: c", "x.yaml:11:24", `no flow "c"`, "names are checked"},
		{"started_twice", "start: b", "start: a", "x.yaml:11:24", "started by phase \"one\" already", "one flow, one run"},
		{"never_started", "start: b, ", "", "x.yaml:8:", "started by no phase", "a flow that never runs is a mistake"},
		{"unknown_host", "from: h2", "from: h3", "x.yaml:8:13", `host "h3" plays no role`, "hosts come from roles"},
		{"to_itself", "from: h2, to: r1", "from: r1, to: r1", "x.yaml:8:", "to itself", "loopback measures nothing"},
		{"half_second", "name: two, start: b, for: 2s", "name: two, start: b, for: 2500ms", "x.yaml:", "whole seconds", "ib_write_bw counts whole seconds"},
		{"all_sizes_with_duration", "{size: 64KiB}", "{args: [-a]}", "x.yaml:10:", "-D with -a", "O05: both fields and lines before any SSH"},
		{"all_sizes_names_the_other_line", "{size: 64KiB}", "{args: [-a]}", "x.yaml:10:", "line 5", "O05: the second field's line too"},
		{"iterations_with_duration", "{size: 64KiB}", "{args: [-n, 100]}", "x.yaml:5:", "iterations and duration exclude each other", "the tool refuses it after both sides started"},
		{"owned_argument", "{size: 64KiB}", "{args: [-p, 18515]}", "x.yaml:5:18", "is set by traffic.port", "one way to say a thing"},
		{"unknown_argument", "{size: 64KiB}", "{args: [--frobnicate]}", "x.yaml:5:18", "not known", "no argument is passed on unread"},
		{"rate_tolerance_alone", "{size: 64KiB}", "{rate_tolerance: 10%}", "x.yaml:5:27", "belongs to rate_limit", "it would hold nothing"},
		{"rate_tolerance_none", "{size: 64KiB}", "{rate_limit: 1Gbit/s, rate_tolerance: 0%}", "x.yaml:5:", "no limiter is exact", "O13: every run would fail"},
		{"rate_of_a_message_and_a_half", "{size: 64KiB}", "{size: 1MiB, rate_limit: 12Mbit/s}", "x.yaml:5:", "ask for 16.78Mbit/s", "O13: the limiter counts whole messages a second"},
		{"rate_of_send_both_ways", "{size: 64KiB}", "{tool: ib_send_bw, rate_limit: 1Gbit/s, args: [-b]}", "x.yaml:5:", "does not limit SEND in both directions", "O13: the tool refuses it after both sides started"},
		{"expression", `jain(phase="two") >= 0.9`, `jian(phase="two") >= 0.9`, "x.yaml:15:12", "no metric", "checked before any run"},
		{"expression_phase", `jain(phase="two")`, `jain(phase="tow")`, "x.yaml:15:12", `no phase "tow"`, "a phase that does not exist would never be measured"},
		{"second_judge", "  - {tap: sw-out}", "  - {tap: sw-out}\n  - {tap: sw-in}", "x.yaml:13:", "judges", "one tap judges"},
		{"trims", "captures:", "measure: {trim_start: 60%, trim_end: 40%}\ncaptures:", "x.yaml:12:23", "leave nothing", "an empty window has no mean"},
		{"same_phase", "name: two", "name: one", "x.yaml:11:12", "taken by phase 1", "names tell phases apart"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(goodPlaybook, c.old, c.new, 1)
			if text == goodPlaybook {
				t.Fatalf("%q is not in the playbook", c.old)
			}
			_, err := ParsePlaybook("x.yaml", []byte(text))
			if err == nil {
				t.Fatalf("accepted, want %q (%s)", c.want, c.why)
			}
			if !errors.Is(err, ErrInput) {
				t.Errorf("does not match ErrInput: %v", err)
			}
			if !strings.Contains(err.Error(), c.at) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got:\n%v\nwant %q at %s", c.why, err, c.want, c.at)
			}
		})
	}
}

var update = flag.Bool("update", false, "write schema.json anew")

// TestSchemaFile: the committed schema, which editors read, is that of the types.
func TestSchemaFile(t *testing.T) {
	if *update {
		if os.Getenv("CI") != "" {
			t.Fatal("-update in CI would bless whatever is there")
		}
		if err := os.WriteFile("schema.json", SchemaPlaybook(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("schema.json")
	if err != nil || string(got) != string(SchemaPlaybook()) {
		t.Errorf("schema.json is not that of the types (%v): go test ./experiments -run TestSchemaFile -update", err)
	}
}

// TestSchemaAndLoaderAgree: the schema that editors use and the loader accept and refuse the same mutated playbooks.
func TestSchemaAndLoaderAgree(t *testing.T) {
	example, err := os.ReadFile(incast)
	if err != nil {
		t.Fatal(err)
	}
	r := spectest.Compare(t, spectest.Subject{
		Seeds:  map[string][]byte{"incast": example, "good": []byte(goodPlaybook)},
		Schema: SchemaPlaybook(),
		Load:   func(file string, data []byte) error { _, err := ParsePlaybook(file, data); return err },
		LoaderOnly: []spec.Kind{
			spec.Syntax,    // YAML that one reader takes and the other does not
			spec.Duplicate, // JSON readers keep one of two keys
			spec.Dialect,   // anchors, aliases, merge keys, tags
			spec.Spelling,  // 0x10, 010, 1_000
			spec.Quantity,  // limits of sizes and durations, which are text to a schema
			spec.Semantic,  // names of flows, hosts and phases, expressions, what the tool refuses
		},
	}, 1000, 1)
	t.Log(r)
	if r.Accepted == 0 || r.BothRefuse == 0 {
		t.Errorf("the mutations reach one side only: %v", r)
	}
}

func TestParsePlaybook_allMistakesAtOnce(t *testing.T) {
	text := strings.NewReplacer("start: b", "start: c", "from: h1", "from: h9", "jain", "jian").Replace(goodPlaybook)
	_, err := ParsePlaybook("x.yaml", []byte(text))
	for _, want := range []string{`no flow "c"`, `host "h9"`, "no metric", "started by no phase"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
}

func testBackends() nicbackends.Registry {
	return nicbackends.NewRegistry(capsOnly{nil, "softnic", []nicbackends.Cap{nicbackends.ECN, nicbackends.CNP, nicbackends.CC}},
		capsOnly{nil, "rxe", []nicbackends.Cap{nicbackends.ECN}})
}

// capsOnly is a backend of which only the capabilities are asked.
type capsOnly struct {
	nicbackends.Backend // nil: a plan never asks a host
	name                string
	caps                []nicbackends.Cap
}

func (c capsOnly) Name() string            { return c.name }
func (c capsOnly) Caps() []nicbackends.Cap { return c.caps }

func loadLab(t *testing.T, name string) *inventory.Lab {
	t.Helper()
	lab, err := inventory.Load(filepath.Join("../labs", name))
	if err != nil {
		t.Fatal(err)
	}
	return lab
}

func TestNewPlan_virtual(t *testing.T) {
	p, err := LoadPlaybook(incast)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := NewPlan(p, loadLab(t, "virtual-4.yaml"), testBackends())
	if err != nil {
		t.Fatal(err)
	}
	want := "ib_write_bw -d softnic0 -x <gid> -p 18516 -q 1 -s 65536 -D 24 -f 1 -t 128 --tclass=106 --report_gbits -F 192.0.2.14"
	got := strings.Join(plan.Flows[1].Client, " ")
	if diff := cmp.Diff(strings.Fields(want), withoutFlag(strings.Fields(got), "-i")); diff != "" {
		t.Errorf("client of h2 (-want +got):\n%s", diff)
	}
	if plan.BottleneckRateBps != 500e6 {
		t.Errorf("bottleneck as built is %g bit/s, want 25G/50", plan.BottleneckRateBps)
	}
	for _, c := range plan.Checks {
		if c.Skip != "" {
			t.Errorf("check %q is skipped on a lab that can do all: %s", c.Name, c.Skip)
		}
	}
	ports := map[int]bool{}
	for _, f := range plan.Flows {
		if ports[f.Port] {
			t.Errorf("port %d is given twice (O08)", f.Port)
		}
		ports[f.Port] = true
	}
}

func withoutFlag(args []string, flag string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		if args[i] == flag {
			i++
			continue
		}
		out = append(out, args[i])
	}
	return out
}

// TestNewPlan_sixteenToOne: every one of sixteen flows into one receiver has a server and a port of its own, and a pool
// that is too small is refused before anything starts (O08).
func TestNewPlan_sixteenToOne(t *testing.T) {
	var b strings.Builder
	b.WriteString("playbook: many\nhosts: {receiver: r1, senders: [")
	for i := range 15 {
		b.WriteString("h" + string(rune('a'+i)) + ", ")
	}
	b.WriteString("hz]}\nflows:\n")
	var lab strings.Builder
	lab.WriteString("lab: many\nhosts:\n  r1: {nics: [{ip: 192.0.2.100/24, netdev: eth0, device: rxe0, backend: rxe}]}\n")
	var starts []string
	for i := range 16 {
		name := "h" + string(rune('a'+i))
		if i == 15 {
			name = "hz"
		}
		b.WriteString("  " + name + ": {from: " + name + ", to: r1}\n")
		starts = append(starts, name)
		lab.WriteString("  " + name + ": {nics: [{ip: 192.0.2." + string(rune('1'+i/10)) + string(rune('0'+i%10)) + "/24, netdev: eth0, device: rxe0, backend: rxe}]}\n")
	}
	b.WriteString("phases: [{name: all, for: 2s, start: [" + strings.Join(starts, ", ") + "]}]\n")
	l, err := inventory.Parse("many.yaml", []byte(lab.String()))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pool string
		ok   bool
	}{{"", true}, {"traffic: {ports: 20}\n", true}, {"traffic: {ports: 15}\n", false}} {
		p, err := ParsePlaybook("many.yaml", []byte(b.String()+c.pool))
		if err != nil {
			t.Fatal(err)
		}
		plan, err := NewPlan(p, l, testBackends())
		if (err == nil) != c.ok {
			t.Errorf("pool %q: %v", c.pool, err)
			continue
		}
		if err != nil {
			if !strings.Contains(err.Error(), "more servers of flows than its pool has ports (15)") {
				t.Errorf("pool too small: %v", err)
			}
			continue
		}
		seen := map[int]bool{}
		for _, f := range plan.Flows {
			seen[f.Port] = true
		}
		if len(seen) != 16 {
			t.Errorf("%d ports for 16 flows", len(seen))
		}
	}
}

func TestNewPlan_mistakesNameThePlaybooksLine(t *testing.T) {
	p, err := ParsePlaybook("x.yaml", []byte(goodPlaybook))
	if err != nil {
		t.Fatal(err)
	}
	lab := loadLab(t, "virtual-4.yaml")
	_, err = NewPlan(p, lab, testBackends())
	if err == nil || !strings.Contains(err.Error(), "x.yaml:13:11") || !strings.Contains(err.Error(), `no tap "sw-out"`) {
		t.Errorf("got %v", err)
	}
	if !errors.Is(err, ErrInput) {
		t.Errorf("does not match ErrInput: %v", err)
	}
}

// TestNewPlan_capabilities: what a lab cannot do makes an expectation a skip with its reason.
func TestNewPlan_capabilities(t *testing.T) {
	p, err := LoadPlaybook(incast)
	if err != nil {
		t.Fatal(err)
	}
	lab := loadLab(t, "virtual-4.yaml")
	if err := inventory.Override(lab, "nic.h2.dcqcn", "off"); err != nil {
		t.Fatal(err)
	}
	plan, err := NewPlan(p, lab, testBackends())
	if err != nil {
		t.Fatal(err)
	}
	skips := map[string]string{}
	for _, c := range plan.Checks {
		skips[c.Name] = c.Skip
	}
	if got := skips["no retransmission"]; got != "dcqcn is off on the NIC of h2" {
		t.Errorf("skip of a check that needs cc: %q", got)
	}
	if skips["fair"] != "" {
		t.Errorf("a check without needs is skipped: %q", skips["fair"])
	}
}

// TestTrafficClass: DSCP and ECN are given apart, and the byte that results is what is asked of the tool (O12).
func TestTrafficClass(t *testing.T) {
	for _, c := range []struct {
		dscp int
		ecn  bool
		want int
	}{{0, false, 0}, {26, false, 0x68}, {26, true, 0x6a}, {0, true, 2}} {
		if got := perftest.TrafficClass(&inventory.NIC{DSCP: c.dscp, ECN: c.ecn}); got != c.want {
			t.Errorf("dscp %d, ecn %v: %#x, want %#x", c.dscp, c.ecn, got, c.want)
		}
	}
}

func TestBundle_roundTrip(t *testing.T) {
	b, err := CreateBundle(t.TempDir(), "run-1")
	if err != nil {
		t.Fatal(err)
	}
	b.Note(Event{Event: "phase_start", Phase: "one"})
	if err := b.WriteJSON("flows/h1/result.json", map[string]int{"x": 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateBundle(filepath.Dir(b.Dir), "run-1"); err == nil {
		t.Error("a second run took over the folder of the first")
	}
	if _, _, err := CheckManifest(b.Dir); err == nil || !strings.Contains(err.Error(), "did not end") {
		t.Errorf("a bundle without manifest: %v", err)
	}
	if _, err := b.Close(StateComplete, "", "test"); err != nil {
		t.Fatal(err)
	}
	if _, diff, err := CheckManifest(b.Dir); err != nil || len(diff) != 0 {
		t.Errorf("untouched bundle: %v, %v", diff, err)
	}
	os.WriteFile(filepath.Join(b.Dir, "flows/h1/result.json"), []byte("{}"), 0o644)
	os.Remove(filepath.Join(b.Dir, "timeline.jsonl"))
	_, diff, err := CheckManifest(b.Dir)
	want := []string{"flows/h1/result.json: changed since the run", "timeline.jsonl: missing"}
	if err != nil || !cmp.Equal(diff, want) {
		t.Errorf("touched bundle: %v, %v", diff, err)
	}
}
