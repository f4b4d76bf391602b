package experiments

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

// testdata/linuxswitch.txt is what the testbed's switch prints (iproute2 6.1.0, recorded 2026-11-30) for a port as the kernel
// made it and for one with RED inside a shaper, for RoCE alone; the second's numbers are those of fixtures/pcap/incast_ecn_D5,
// with drops made up.
func TestParseLinuxPorts(t *testing.T) {
	text, err := os.ReadFile("testdata/linuxswitch.txt")
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseLinuxPorts(text, map[string]string{"p_h1": "h1", "p_r1": "r1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint64{"tx_packets": 63908, "dropped_packets": 3, "ce_marked_packets": 48481, "tx_roce_packets": 63347, "dropped_roce_packets": 3, "red_early": 1, "red_pdrop": 2, queuedPackets: 5} {
		if got["r1"][name] != want {
			t.Errorf("r1: %s is %d, want %d", name, got["r1"][name], want)
		}
	}
	for _, absent := range []string{"ce_marked_packets", "dropped_roce_packets", "tx_roce_packets"} {
		if v, ok := got["h1"][absent]; ok {
			t.Errorf("h1 has no discipline that knows %s, but %d was read", absent, v)
		}
	}
	for _, bad := range []struct{ text, want string }{
		{"", "no counters of p_h1"},
		{"stat rx_packets 1\n", "before any interface"},
		{"iface p_h1\nstat rx_packets x\n", "rx_packets"},
		{"iface p_h1\n[{]\n", "tc -j qdisc"},
		{"iface p_h1\nError: no such device\n", "not understood"},
	} {
		if _, err := parseLinuxPorts([]byte(bad.text), map[string]string{"p_h1": "h1"}); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%q: %v, want %q", bad.text, err, bad.want)
		}
	}
}

// What mirrors and PFC count: tc's text is what iproute2 6.1.0 printed for a mirror of both directions, dcb's has the keys of dcb/dcb_pfc.c.
func TestParseLinuxPorts_mirrorsAndPFC(t *testing.T) {
	const text = `iface p_r1
stat tx_packets 9
[{"kind":"clsact","handle":"ffff:","parent":"ffff:fff1","options":{},"bytes":0,"packets":0,"drops":0,"overlimits":0,"requeues":0,"backlog":0,"qlen":0}]

filter ingress [{"protocol":"all","pref":4791,"kind":"u32","chain":0},{"protocol":"all","pref":4791,"kind":"u32","chain":0,"options":{"fh":"800:","ht_divisor":1}},{"protocol":"all","pref":4791,"kind":"u32","chain":0,"options":{"fh":"800::800","order":2048,"key_ht":"800","bkt":"0","not_in_hw":true,"match":{"value":"0","mask":"0","offmask":"","off":0},"actions":[{"order":1,"kind":"mirred","mirred_action":"mirror","direction":"egress","to_dev":"p_mon","control_action":{"type":"pipe"},"index":1,"ref":1,"bind":1,"installed":0,"last_used":0,"stats":{"bytes":420,"packets":7,"drops":0,"overlimits":2,"requeues":0,"backlog":0,"qlen":0}}]}}]
filter egress [{"protocol":"all","pref":4791,"kind":"u32","chain":0,"options":{"fh":"800::800","actions":[{"order":1,"kind":"gact","stats":{"packets":99}},{"order":2,"kind":"mirred","mirred_action":"redirect","stats":{"packets":98}},{"order":3,"kind":"mirred","mirred_action":"mirror","stats":{"packets":9,"overlimits":0}}]}}]
pfc {"pfc_cap":8,"macsec_bypass":false,"delay":0,"prio_pfc":[false,false,false,true,false,false,false,false],"requests":[0,0,0,217,0,0,0,0],"indications":[0,0,0,4,0,0,0,0]}
`
	got, err := parseLinuxPorts([]byte(text), map[string]string{"p_r1": "r1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint64{"mirrored_ingress_packets": 7, "mirrored_egress_packets": 9, "mirror_drops": 2, "pfc_sent_prio3": 217, "pfc_received_prio3": 4, "pfc_sent_prio0": 0} {
		if v, ok := got["r1"][name]; !ok || v != want {
			t.Errorf("%s is %d (%t), want %d", name, v, ok, want)
		}
	}
	if _, ok := got["r1"]["dropped_packets"]; ok {
		t.Error("a clsact discipline, which is no queue, has drops of the port")
	}
	for _, bad := range []string{"filter ingress [{]", "pfc {"} {
		if _, err := parseLinuxPorts([]byte("iface p_r1\n"+bad+"\n"), map[string]string{"p_r1": "r1"}); err == nil || !strings.Contains(err.Error(), "-j") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A discipline that was made or replaced between two readings has counted another span: its growth is not known.
func TestGrowthOf_leavesOutWhatBeganAnew(t *testing.T) {
	got := growthOf(map[string]uint64{"tx_packets": 10, "red_marked": 7, queuedPackets: 3}, map[string]uint64{"tx_packets": 15, "red_marked": 2, "tbf_drops": 1, queuedPackets: 4})
	if diff := cmp.Diff(map[string]int64{"tx_packets": 5}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

const testbedLab = `lab: t
defaults: {nic: {device: rxe0, netdev: eth0, backend: rxe}}
hosts:
  h1: {nics: [{ip: 192.0.2.11/24, ip6: "2001:db8::11/64"}]}
  r1: {nics: [{ip: 192.0.2.14/24, ip6: "2001:db8::14/64", gid_index: 1}]}
`

func planOf(t *testing.T, traffic string) *Plan {
	t.Helper()
	lab, err := inventory.Parse("t.yaml", []byte(testbedLab))
	if err != nil {
		t.Fatal(err)
	}
	p, err := ParsePlaybook("book.yaml", []byte("playbook: p\nhosts: {a: h1, b: r1}\ntraffic: "+traffic+"\nflows: {f: {from: h1, to: r1}}\nphases: [{name: one, start: f, for: 4s}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := NewPlan(p, lab, testBackends())
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// A flow goes from whom has the data to whom gets it: with READ the one who gets it runs the tool's client.
func TestNewPlan_kindsOfTraffic(t *testing.T) {
	for _, c := range []struct{ traffic, server, client, args string }{
		{"{tool: ib_write_bw}", "r1", "h1", "-x <gid> -p 18515 -q 1 -s 65536 -D 4 -t 128 --report_gbits -F 192.0.2.14"},
		{"{tool: ib_read_bw}", "h1", "r1", "-x 1 -p 18515 -q 1 -s 65536 -D 4 -t 128 --report_gbits -F 192.0.2.11"},
		{"{ipv6: true}", "r1", "h1", "-x <gid> -p 18515 -q 1 -s 65536 -D 4 -t 128 --ipv6 --report_gbits -F 192.0.2.14"}, // only the GIDs are of IPv6
		{"{ipv6: true, rdma_cm: true}", "r1", "h1", "-x <gid> -p 18515 -q 1 -s 65536 -D 4 -t 128 -R -T 2 --ipv6 --ipv6-addr --report_gbits -F 2001:db8::14"},
		{"{rate_limit: 20Mbit/s}", "r1", "h1", "-x <gid> -p 18515 -q 1 -s 65536 -D 4 -t 128 --rate_limit=0.02 --rate_units=g --burst_size=1 --rate_limit_type=SW --report_gbits -F 192.0.2.14"},
	} {
		f := planOf(t, c.traffic).Flows[0]
		if f.ServerAt != c.server || f.ClientAt != c.client {
			t.Errorf("%s: server at %s, client at %s, want %s and %s", c.traffic, f.ServerAt, f.ClientAt, c.server, c.client)
		}
		args := withoutFlag(withoutFlag(f.Client[1:], "-d"), "-i")
		for i, a := range args {
			if strings.HasPrefix(a, "--tclass=") {
				args = append(args[:i], args[i+1:]...)
				break
			}
		}
		if got := strings.Join(args, " "); got != c.args {
			t.Errorf("%s:\n%s\nwant\n%s", c.traffic, got, c.args)
		}
	}
}

func TestNewPlan_ipv6NeedsAddresses(t *testing.T) {
	lab, err := inventory.Parse("t.yaml", []byte(strings.Replace(testbedLab, `, ip6: "2001:db8::14/64"`, "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	p, err := ParsePlaybook("book.yaml", []byte("playbook: p\nhosts: {a: h1, b: r1}\ntraffic: {ipv6: true}\nflows: {f: {from: h1, to: r1}}\nphases: [{name: one, start: f, for: 4s}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewPlan(p, lab, testBackends()); err == nil || !strings.Contains(err.Error(), `book.yaml:4:`) || !strings.Contains(err.Error(), "ip6") {
		t.Errorf("%v", err)
	}
}

// Of a link whose rate nobody gives, utilisation is not known: a skip with its reason, and no run that is not complete.
func TestNewPlan_utilisationNeedsARate(t *testing.T) {
	for _, c := range []struct{ lab, want string }{{testbedLab, "no rate"}, {strings.Replace(testbedLab, "backend: rxe}", "backend: rxe, rate: 10Gbit/s}", 1), ""}} {
		lab, err := inventory.Parse("t.yaml", []byte(c.lab))
		if err != nil {
			t.Fatal(err)
		}
		p, err := ParsePlaybook("book.yaml", []byte("playbook: p\nhosts: {a: h1, b: r1}\nflows: {f: {from: h1, to: r1}}\nphases: [{name: one, start: f, for: 4s}]\nexpect: [{that: utilisation(phase=\"one\") > 0.5 and goodput() > 1}, {that: goodput() > 1}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		plan, err := NewPlan(p, lab, testBackends())
		if err != nil {
			t.Fatal(err)
		}
		if got := plan.Checks[0].Skip; (got == "") != (c.want == "") || !strings.Contains(got, c.want) || plan.Checks[1].Skip != "" {
			t.Errorf("%+v, want %q", plan.Checks, c.want)
		}
	}
}

// With -b payload goes both ways: both directions are the flow's, and both hosts are expected to send.
func TestMatchFlows_bothDirections(t *testing.T) {
	for _, both := range []bool{false, true} {
		args := ""
		if both {
			args = ", args: [-b]"
		}
		r := &Runner{plan: planOf(t, "{qps: 1"+args+"}"), result: &Result{Flows: []FlowResult{{Name: "f", qpns: []uint32{20}, back: []uint32{10}}}}}
		doc := &analysis.Document{Flows: []analysis.Flow{
			{ID: "there", Src: "192.0.2.11", Dst: "192.0.2.14", DstQP: 20}, {ID: "back", Src: "192.0.2.14", Dst: "192.0.2.11", DstQP: 10},
			{ID: "other", Src: "192.0.2.14", Dst: "192.0.2.11", DstQP: 11}}}
		want, sources := []string{"there"}, []string{"h1"}
		if both {
			want, sources = []string{"there", "back"}, []string{"h1", "r1"}
		}
		if diff := cmp.Diff(want, r.matchFlows(doc)["f"]); diff != "" {
			t.Errorf("both directions %v (-want +got):\n%s", both, diff)
		}
		if diff := cmp.Diff(sources, r.sources([]string{"f"})); diff != "" {
			t.Errorf("both directions %v: sources (-want +got):\n%s", both, diff)
		}
	}
}

// TestAchieved_saysHowFarOff is USERS O13: what a rate limit made of what was asked for is said when it is far off, and fails nothing until a
// tolerance says so.
func TestAchieved_saysHowFarOff(t *testing.T) {
	for _, c := range []struct {
		name      string
		got       float64 // 0: the tool said nothing
		both      bool
		tolerance float64
		warning   string
		verdict   Verdict // "": there is no check
	}{
		{"right", 10e9, false, 0, "", ""},
		{"near", 9.55e9, false, 0, "", ""},
		{"as_in_the_issue", 9.25e9, false, 0, "asks for 10 Gbit/s, the tool sent 9.25 Gbit/s (-7.5 %)", ""},
		{"within_tolerance", 9.25e9, false, 0.1, "(-7.5 %)", Pass},
		{"beyond_tolerance", 8.9e9, false, 0.1, "(-11.0 %)", Fail},
		{"too_fast", 11.5e9, false, 0.1, "(+15.0 %)", Fail},
		{"not_measured", 0, false, 0.1, "", Skip},
		{"both_directions", 19.8e9, true, 0.1, "", Pass}, // the tool's number is their sum
	} {
		r := &Runner{Playbook: &Playbook{RateTolerance: c.tolerance}, result: &Result{}}
		fr := &FlowResult{Name: "h1"}
		if c.got > 0 {
			fr.ToolBps = &c.got
		}
		r.achieved(fr, perftest.Params{RateLimitGbps: 10, Bidirectional: c.both})
		if want := map[bool]float64{false: 10e9, true: 20e9}[c.both]; fr.AskedBps == nil || *fr.AskedBps != want {
			t.Errorf("%s: asked %v, want %v", c.name, fr.AskedBps, want)
		}
		if said := strings.Join(r.result.Warnings, "\n"); (said == "") != (c.warning == "") || !strings.Contains(said, c.warning) {
			t.Errorf("%s: %q, want %q", c.name, said, c.warning)
		}
		var verdict Verdict
		for _, k := range r.result.Checks {
			verdict = k.Verdict
			if k.Verdict == Fail && !strings.Contains(k.Reason, "rate_tolerance is 10 %") {
				t.Errorf("%s: reason %q", c.name, k.Reason)
			}
		}
		if verdict != c.verdict {
			t.Errorf("%s: check %q, want %q", c.name, verdict, c.verdict)
		}
	}
}
