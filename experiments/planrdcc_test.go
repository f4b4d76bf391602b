package experiments

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/nicbackends/softnic"
)

const rdccBook = `playbook: credit
hosts: {senders: [h1, h2, h3], receiver: r1}
rdcc:
  receiver: r1
  G: 2*BDP
  J: 0.5*RTT
  segment: 8KiB
  flows: {b: {class: 2, weight: 4}}
flows:
  a: {from: h1, to: r1}
  b: {from: h2, to: r1, size: 2KiB, qps: 2, tx_depth: 1}
  c: {from: h2, to: h3}
phases: [{name: one, start: [a, b, c], for: 2s}]
captures: [{tap: sw-out-r1}]
expect:
  - {name: kept, that: rdcc.invariant_violations == 0}
  - {name: drops, that: switch.sw.dropped_packets > 0, needs: without_rdcc}
  - {name: none, that: switch.sw.dropped_packets == 0, needs: rdcc}
`

func rdccPlan(t *testing.T, book string, lab *inventory.Lab, sets ...Param) (*Plan, error) {
	t.Helper()
	p, err := ParsePlaybook("book.yaml", []byte(book))
	if err == nil && len(sets) > 0 {
		p, err = p.With(sets)
	}
	if err != nil {
		return nil, err
	}
	return NewPlan(p, lab, nicbackends.NewRegistry(softnic.Backend{}, capsOnly{nil, "rxe", nil}))
}

// What the parameters amount to is arithmetic on the lab file: 25 Gbit/s, four links of 7.991 us, two packets of 4150 B at each of two hops, and
// 2 ms of the lab's own time for software, a 375th of it on hardware.
func TestPlan_rdccAmounts(t *testing.T) {
	plan, err := rdccPlan(t, rdccBook, loadLab(t, "virtual-9.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	g := plan.RDCC.gate("r1")
	if g == nil || g.Amounts == nil {
		t.Fatalf("r1 has no gate: %+v", plan.RDCC)
	}
	a := *g.Amounts
	rtt := 4*7991*time.Nanosecond + 2*1328*time.Nanosecond + 2*time.Millisecond/375
	bdp := int64(float64(25e9) / 8 * rtt.Seconds())
	want := RDCCAmounts{LineRateBps: 25e9, BaseRTTNS: int64(rtt), BDP: bdp, G: 2 * bdp, Gu: 2 * bdp / 4, Gs: 2*bdp - 2*bdp/4, U: 2 * bdp / 4 / 2, JNS: (int64(rtt) + 1) / 2, LifetimeNS: int64(4 * rtt),
		Backlog: 2 * bdp, CreditUnit: 4096, Segment: 8192, Senders: 2, PacketBytes: 4154, CapacityBps: a.CapacityBps, BuiltRTTNS: int64(rtt) * 375, BuiltJNS: (int64(rtt) + 1) / 2 * 375,
		BuiltLifeNS: int64(rtt) * 4 * 375, BuiltLineBps: 66_666_667}
	if diff := cmp.Diff(want, a); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if wire := float64(a.CapacityBps) / 25e9 * 4154 / 4096; wire < 0.97 || wire > 0.99 {
		t.Errorf("capacity %d bit/s of payload: want 98 %% of the line", a.CapacityBps)
	}
	c := g.Config
	if c.Port != 50321 || c.Protection != "filtered" || *c.DSCP.Control != 48 || *c.DSCP.Class2 != 26 || c.DSCP.Class3 != nil || c.TimeScale != 375 || c.G.Of(1) != a.G {
		t.Errorf("r1 is told %+v: want the domain of the lab file, and numbers", c)
	}
	if b := plan.RDCC.gate("h2").Config; b.Class != 2 || b.Weight != 4 || plan.RDCC.gate("h1").Config.Class != 0 {
		t.Errorf("class and weight of h2: %d, %d; of h1: %d", b.Class, b.Weight, plan.RDCC.gate("h1").Config.Class)
	}
	if plan.RDCC.gate("h3") != nil {
		t.Error("h3 takes no part in credit control")
	}
	if notes := strings.Join(plan.Notes, "\n"); !strings.Contains(notes, "flow c waits for no credit") {
		t.Errorf("notes: %q", notes)
	}
	if cmd := strings.Join(plan.Captures[0].Command, " "); !strings.Contains(cmd, "roce or udp port 50321") {
		t.Errorf("the tap is not told to keep control datagrams: %s", cmd)
	}
	var client string
	for _, f := range plan.Flows {
		if f.Name == "b" {
			client = strings.Join(f.Client, " ")
		}
	}
	for _, arg := range []string{"-s 2048", "-q 2", "-t 1 "} {
		if !strings.Contains(client+" ", arg) {
			t.Errorf("flow b has its own traffic: %s, want %s", client, arg)
		}
	}
}

// Each combination of on, off and absent says which expectations count, and how the taps filter.
func TestPlan_rdccOffAndAbsent(t *testing.T) {
	lab := loadLab(t, "virtual-9.yaml")
	absent := rdccBook[:strings.Index(rdccBook, "rdcc:")] + rdccBook[strings.Index(rdccBook, "flows:\n  a:"):]
	for _, tc := range []struct {
		name, book string
		sets       []Param
		skips      []string // of the three expectations
		port       uint16
	}{
		{"on", rdccBook, nil, []string{"", "rdcc is on", ""}, 50321},
		{"off", rdccBook, []Param{{RDCCKey, "off"}}, []string{"rdcc is off", "", "rdcc is off"}, 0},
		{"on_again", strings.Replace(rdccBook, "  receiver: r1\n  G", "  receiver: r1\n  off: true\n  G", 1), []Param{{RDCCKey, "on"}}, []string{"", "rdcc is on", ""}, 50321},
		{"absent", absent, nil, []string{"the playbook has no rdcc:", "", "the playbook has no rdcc:"}, 0},
		{"absent_off", absent, []Param{{RDCCKey, "off"}}, []string{"the playbook has no rdcc:", "", "the playbook has no rdcc:"}, 0},
		{"own_port", rdccBook, []Param{{"rdcc.port", "51000"}}, []string{"", "rdcc is on", ""}, 51000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan, err := rdccPlan(t, tc.book, lab, tc.sets...)
			if err != nil {
				t.Fatal(err)
			}
			var skips []string
			for _, c := range plan.Checks {
				skips = append(skips, c.Skip)
			}
			if diff := cmp.Diff(tc.skips, skips); diff != "" {
				t.Errorf("reasons to skip (-want +got)\n%s", diff)
			}
			if plan.port() != tc.port {
				t.Errorf("port %d, want %d", plan.port(), tc.port)
			}
			if tc.name == "off" {
				for _, g := range plan.RDCC.Hosts {
					if !g.Config.Off || g.Amounts != nil {
						t.Errorf("%s is told %+v: want off and nothing else", g.Host, g.Config)
					}
				}
			}
		})
	}
}

func TestPlan_rdccMistakes(t *testing.T) {
	for _, tc := range []struct {
		name, lab string
		sets      []Param
		old, new  string
		want      []string
		why       string
	}{
		{name: "no_port", lab: "virtual-4.yaml", want: []string{"book.yaml:3:1", "no port", "add rdcc: {port: 50321, protection: filtered} to the lab file"}, why: "the specification assigns none"},
		{name: "no_protection", lab: "virtual-4.yaml", sets: []Param{{"rdcc.port", "50321"}}, want: []string{"nothing says what keeps forged datagrams away", "esp or filtered"}, why: "decision 27"},
		{name: "too_small", lab: "virtual-9.yaml", sets: []Param{{"rdcc.G", "3KiB"}}, want: []string{"book.yaml:3:1: rdcc: on h1: ", "less than a Credit Unit"}, why: "found before anything is touched"},
		{name: "unknown_host", lab: "virtual-9.yaml", old: "receiver: r1\n  G", new: "receiver: [r1, h9, r1, h1]\n  G", want: []string{`rdcc.receiver[1]: host "h9" plays no role`, `receiver "r1" is here twice`, `no flow goes to "h1"`}, why: "all at once"},
		{name: "unknown_flow", lab: "virtual-9.yaml", old: "flows: {b:", new: "flows: {bb: {class: 1}, c: {class: 1}, b:", want: []string{`no flow "bb" (did you mean "b"?`, `flow "c" goes to "h3", which grants nothing`}, why: "names are checked"},
		{name: "two_classes_of_one_nic", lab: "virtual-9.yaml", old: "from: h1, to: r1", new: "from: h2, to: r1", want: []string{"asks for all its messages alike"}, why: "the NIC has one class"},
		{name: "time_scale", lab: "virtual-9.yaml", sets: []Param{{"rdcc.time_scale", "50"}}, want: []string{"time_scale is the lab's"}, why: "the lab has it"},
		{name: "unit", lab: "virtual-9.yaml", sets: []Param{{"rdcc.G", "2*BPD"}}, want: []string{"rdcc.G=2*BPD", "2*BDP"}, why: "the notation is named"},
		{name: "neither", lab: "virtual-9.yaml", sets: []Param{{RDCCKey, "maybe"}}, want: []string{`"maybe" is neither on nor off`}, why: ""},
		{name: "size_with_all_sizes", lab: "virtual-9.yaml", old: "phases: [", new: "traffic: {args: [-a]}\nphases: [", want: []string{"flows.b.size"}, why: "one of them would be ignored"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			book := rdccBook
			if tc.old != "" {
				book = strings.Replace(book, tc.old, tc.new, 1)
				if book == rdccBook {
					t.Fatalf("%q is not in the playbook", tc.old)
				}
			}
			_, err := rdccPlan(t, book, loadLab(t, tc.lab), tc.sets...)
			for _, w := range tc.want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("%s: got:\n%v\nwant %q", tc.why, err, w)
				}
			}
		})
	}
}

func TestPlan_rdccNotes(t *testing.T) {
	for _, tc := range []struct {
		key, value, want string
	}{
		{"rdcc.port", "4000", "4000 is outside the dynamic ports"},
		{"rdcc.G", "0.5*BDP", "less than a bandwidth-delay product"},
		{"rdcc.G", "400KiB", "more than the buffer of switch sw (250000B)"},
		{"rdcc.Gu", "1*BDP", "more than a quarter of G"},
		{"rdcc.U", "48KiB", "2 senders with U = 49152 B need more than Gu"},
	} {
		plan, err := rdccPlan(t, rdccBook, loadLab(t, "virtual-9.yaml"), Param{tc.key, tc.value})
		if err != nil {
			t.Errorf("%s=%s: %v", tc.key, tc.value, err)
			continue
		}
		if notes := strings.Join(plan.Notes, "\n"); !strings.Contains(notes, tc.want) {
			t.Errorf("%s=%s: notes:\n%s\nwant %q", tc.key, tc.value, notes, tc.want)
		}
	}
}

func TestPlan_rdccOnANICThatHasNone(t *testing.T) {
	data, err := os.ReadFile("../labs/testbed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	lab, err := inventory.Parse("lab.yaml", append(data, "rdcc: {port: 50321, protection: esp}\n"...))
	if err != nil {
		t.Fatal(err)
	}
	var hosts []string
	for _, h := range lab.Hosts {
		if len(h.NICs) > 0 {
			hosts = append(hosts, h.Name)
		}
	}
	book := fmt.Sprintf("playbook: x\nhosts: {all: [%s, %s]}\nrdcc: {receiver: %s}\nflows: {a: {from: %s, to: %s}}\nphases: [{name: one, start: a, for: 2s}]\n", hosts[0], hosts[1], hosts[1], hosts[0], hosts[1])
	if _, err := rdccPlan(t, book, lab); err == nil || !strings.Contains(err.Error(), "obeys no credit control") {
		t.Errorf("got %v", err)
	}
}

// A sweep over whether there is credit control, and over its parameters.
func TestCells_rdcc(t *testing.T) {
	p, err := ParsePlaybook("book.yaml", []byte(rdccBook+"matrix: {vary: {rdcc: [on, off]}, include: [{rdcc.G: 3*BDP}, {rdcc.U: 4KiB, rdcc.J: 2*RTT}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	cells, err := p.Cells(loadLab(t, "virtual-9.yaml"), softBackends)
	if err != nil {
		t.Fatal(err)
	}
	inputs := map[string]bool{}
	var got []string
	for _, c := range cells {
		text := "off"
		if g := c.Plan.RDCC.gate("r1"); g.Amounts != nil {
			text = fmt.Sprintf("G %d U %d J %v", g.Amounts.G, g.Amounts.U, time.Duration(g.Amounts.JNS))
		}
		got = append(got, text)
		inputs[c.Inputs] = true
	}
	want := []string{"G 249706 U 31213 J 19.977µs", "off", "G 374559 U 46819 J 19.977µs", "G 249706 U 4096 J 79.906µs"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if len(inputs) != len(cells) {
		t.Errorf("%d cells have %d different inputs", len(cells), len(inputs))
	}
	if _, err := json.Marshal(cells[0].Plan); err != nil {
		t.Error(err)
	}
}
