package domain_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/domain"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
	"github.com/pcmlab/pcmlab/rdcc/sender"
)

// hundred is a link of 100 Gbit/s with 16 µs: a BDP of 200,000 octets.
var hundred = receiver.Fabric{LineRate: 100e9, BaseRTT: 16 * time.Microsecond}

func read(t *testing.T, text string) (domain.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rdcc.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := domain.Read(file)
	if err != nil { // the name of a folder says nothing
		err = errorText(strings.ReplaceAll(err.Error(), file, "rdcc.yaml"))
	}
	return c, err
}

type errorText string

func (e errorText) Error() string { return string(e) }

func TestExampleOfTheDocumentation(t *testing.T) {
	data, err := os.ReadFile("../../docs/rdcc.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), "```yaml\n# rdcc.yaml")
	if !ok {
		t.Fatal("docs/rdcc.md has no example")
	}
	example, _, _ := strings.Cut(rest, "```")
	c, err := read(t, "# rdcc.yaml"+example)
	if err != nil {
		t.Fatal(err)
	}
	if w := c.Warnings(); len(w) > 0 {
		t.Errorf("the example of the documentation is warned about: %v", w)
	}
	if err := c.Check(receiver.Fabric{}); err != nil {
		t.Errorf("the example of the documentation makes no endpoint: %v", err)
	}
}

func TestMultiples(t *testing.T) {
	for _, row := range []struct{ g, j, reason string }{
		{"2*BDP", "2*RTT", "the usual way"},
		{"2 * BDP", "2 * RTT", "with spaces"},
		{"2BDP", "2RTT", "without the sign"},
		{"400000B", "32us", "the same as values"},
	} {
		c, err := read(t, "port: 52001\nG: "+row.g+"\nJ: "+row.j+"\n")
		if err != nil {
			t.Errorf("%s: %v", row.reason, err)
			continue
		}
		if r := c.Receiver(hundred); r.G != 400000 || r.Jitter != 32*time.Microsecond {
			t.Errorf("%s: G %d, J %v", row.reason, r.G, r.Jitter)
		}
	}
}

func TestMistakes(t *testing.T) {
	for _, row := range []struct{ text, want, reason string }{
		{"G: 2*BDP\n", "rdcc.yaml:1:1: port: no port: the specification assigns none (one for the whole domain, from 49152 to 65535)", "no default port"},
		{"port: 52001\nG: 2*RTT\n", `rdcc.yaml:2:4: G: "2*RTT" is not a size`, "a time where a size is wanted"},
		{"port: 52001\nG: 262144\n", `rdcc.yaml:2:4: G: "262144" is a number, need a size`, "a size without its unit"},
		{"port: 52001\nJ: 15\n", `rdcc.yaml:2:4: J: "15" is a number, need a duration`, "a time without its unit"},
		{"port: 52001\nG: 1*BDP\nGu: 2*BDP\n", "rdcc.yaml:3:5: Gu: 2*BDP leaves nothing of G = 1*BDP", "all of it unscheduled"},
		{"port: 52001\nGu: 8KiB\nU: 16KiB\n", "rdcc.yaml:3:4: U: 16KiB is more than Gu = 8KiB", "nobody can have U"},
		{"port: 52001\nU: 16KiB\nunscheduled: false\n", "rdcc.yaml:2:4: U: 16KiB, and unscheduled: false", "contradiction"},
		{"port: 52001\nbase_rtt: 2*RTT\n", "rdcc.yaml:2:11: base_rtt: 2*RTT: must be a duration", "a round-trip time in its own terms"},
		{"port: 52001\nadvertise: [pool, status, cnr]\n", `rdcc.yaml:2:12: advertise: "cnr" at place 3`, "unknown capability"},
		{"port: 52001\nadvertise: [none, pool]\n", `rdcc.yaml:2:12: advertise: "none" at place 1`, "none, and something"},
		{"port: 52001\ncrns: [0.0.0.0]\n", "rdcc.yaml:2:7: crns: 0.0.0.0", "the address of nobody"},
		{"port: 52001\ndscp: {control: 64}\n", "rdcc.yaml:2:17: dscp.control: 64 is outside", "six bits"},
		{"port: 52001\nclas: 2\n", `did you mean "class"?`, "a misspelt key"},
		{"port: 52001\nlifetime: 0s\n", "rdcc.yaml:2:11: lifetime: zero", "credit that is over at once"},
		{"port: 52001\nG: 0B\n", "rdcc.yaml:2:4: G: zero", "no credit at all"},
		{"port: 0\nG: 2*RTT\nclass: 9\n", "rdcc.yaml:1:7: port: no port", "of several mistakes the first"},
		{"port: 0\nG: 2*RTT\nclass: 9\n", "rdcc.yaml:3:8: class: 9", "of several mistakes the last"},
	} {
		_, err := read(t, row.text)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got %v\nwant %s", row.reason, err, row.want)
		}
	}
}

func TestOffNeedsNothing(t *testing.T) {
	if err := (domain.Config{Off: true}).Validate(); err != nil {
		t.Error(err)
	}
	if w := (domain.Config{Off: true}).Warnings(); len(w) > 0 {
		t.Error(w)
	}
}

func TestWarnings(t *testing.T) {
	c := domain.Config{Port: 4791, Idle: domain.Time(time.Second)}
	var keys []string
	for _, w := range c.Warnings() {
		keys = append(keys, w.Key)
	}
	if want := []string{"port", "protection", "dscp.control", "idle"}; !reflect.DeepEqual(keys, want) {
		t.Errorf("warned about %v, want %v", keys, want)
	}
}

// TestUnscheduledOff: each of the ways to say that nothing goes before it has credit.
func TestUnscheduledOff(t *testing.T) {
	for _, text := range []string{"unscheduled: false", "U: 0B", "Gu: 0B", "U: 0*BDP"} {
		c, err := read(t, "port: 52001\n"+text+"\n")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if r := c.Receiver(hundred); r.Gu != -1 || r.U != 0 {
			t.Errorf("%s: G_u %d, U %d", text, r.Gu, r.U)
		}
		if m := c.Message(hundred, netip.MustParseAddrPort("192.0.2.2:52001"), 2048); !m.Scheduled {
			t.Errorf("%s: a message may go without credit", text)
		}
		if err := c.Check(hundred); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestScale: durations are those of hardware and multiples follow the lab's round-trip time, which is scaled already.
func TestScale(t *testing.T) {
	lab := receiver.Fabric{LineRate: 100e6, BaseRTT: 16 * time.Millisecond} // S = 1000
	c := domain.Config{Port: 52001, TimeScale: 1000, G: domain.BDPs(2), J: domain.Time(10 * time.Microsecond), Lifetime: domain.RTTs(4),
		Idle: domain.Time(20 * time.Second), GiveUp: domain.Time(5 * time.Second)}
	r, s := c.Receiver(lab), c.Sender(lab)
	if r.G != 400000 || r.Jitter != 10*time.Millisecond || r.Lifetime != 64*time.Millisecond || r.Idle != 20*time.Second {
		t.Errorf("receiver: %d %v %v %v", r.G, r.Jitter, r.Lifetime, r.Idle)
	}
	if s.Timing.MinTimeout != 100*time.Millisecond || s.Timing.DMax != 16*time.Millisecond || s.Timing.GiveUp != 5*time.Second || s.LineRate != 100e6 {
		t.Errorf("sender: %+v", s)
	}
	c.LineRate, c.BaseRTT = 25e9, domain.Time(40*time.Microsecond)
	if f := c.Fabric(lab); f.LineRate != 25e6 || f.BaseRTT != 40*time.Millisecond || f.DMax != f.BaseRTT {
		t.Errorf("said of hardware, and not scaled: %+v", f)
	}
	slow := domain.Config{Port: 52001, TimeScale: 1000}
	if r := slow.Receiver(receiver.Fabric{LineRate: 1e9, BaseRTT: time.Millisecond}); r.Lifetime != 100*time.Millisecond {
		t.Errorf("the least lifetime is %v, want 100 µs scaled", r.Lifetime)
	}
}

// full is a configuration that sets everything.
func full(t *testing.T) domain.Config {
	t.Helper()
	no, u8 := true, func(v uint8) *uint8 { return &v }
	c := domain.Config{
		Off: false, Port: 52001, Protection: "esp", LineRate: 50e9, BaseRTT: domain.Time(20 * time.Microsecond), DMax: domain.RTTs(1.5),
		Payload: 1024, Wire: 1106, TimeScale: 2, G: domain.BDPs(1.5), Gu: domain.Octets(65536), U: domain.Octets(16384),
		MinU: domain.Octets(2048), J: domain.RTTs(2), Lifetime: domain.Time(time.Millisecond), CreditUnit: 2048, Backlog: domain.BDPs(3),
		ExpectedSenders: 4, Pool: true, Allocator: "bbr", TargetRTT: domain.RTTs(3), Idle: domain.Time(30 * time.Second),
		MaxAssociations: 100, MaxPerAddress: 10, MaxMessages: 1000, MaxPending: 20, MaxCredit: domain.BDPs(1), MaxLength: 1 << 30,
		Class: 3, Weight: 7, Hint: "latency-sensitive", Unscheduled: &no, Segment: domain.Octets(32768), OnRefused: "without",
		GiveUp: domain.Time(5 * time.Second), LocalBacklog: domain.BDPs(1), Advertise: []string{"status", "crn"}, MaxOutgoing: 50,
		CRNs: []netip.Addr{netip.MustParseAddr("192.0.2.254")}, Local: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		DSCP: domain.DSCP{Control: u8(48), Unscheduled: u8(26), Class0: u8(46), Class1: u8(34), Class2: u8(18), Class3: u8(10),
			Class4: u8(8), Class5: u8(6), Class6: u8(4), Class7: u8(2)},
	}
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() && name != "Off" {
			t.Fatalf("%s is not set: a new field belongs into these tests", name)
		}
	}
	return c
}

func TestFilesAndJSONKeepEverything(t *testing.T) {
	want := full(t)
	if err := want.Check(hundred); err != nil {
		t.Fatal(err)
	}
	text, err := spec.Marshal(&want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := read(t, string(text))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("YAML: %v\n%s\n got %+v\nwant %+v", err, text, got, want)
	}
	text, err = json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got = domain.Config{}
	if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("JSON: %v\n%s\n got %+v\nwant %+v", err, text, got, want)
	}
	if text, _ := json.Marshal(domain.Config{Port: 52001}); string(text) != `{"port":52001}` {
		t.Errorf("what is not given is not written: %s", text)
	}
}

// TestMachinesGetEverything: each key changes what one of the machines, or a message, is told.
func TestMachinesGetEverything(t *testing.T) {
	elsewhere := map[string]bool{"Off": true, "Port": true, "Protection": true, "DSCP": true} // for the endpoint
	all := full(t)
	for i := range reflect.TypeFor[domain.Config]().NumField() {
		name := reflect.TypeFor[domain.Config]().Field(i).Name
		if elsewhere[name] {
			continue
		}
		var with domain.Config
		with.Port = 52001
		without := with
		reflect.ValueOf(&with).Elem().Field(i).Set(reflect.ValueOf(all).Field(i))
		if name == "Unscheduled" {
			no := false
			with.Unscheduled = &no
		}
		to := netip.MustParseAddrPort("192.0.2.2:52001")
		told := func(c domain.Config) any {
			return []any{c.Receiver(hundred), c.Sender(hundred), c.Message(hundred, to, 1)}
		}
		if reflect.DeepEqual(told(with), told(without)) {
			t.Errorf("%s is told to nobody", name)
		}
	}
	r, s := all.Receiver(hundred), all.Sender(hundred)
	bdp := int64(25e9 / 8 * 40e-6)
	if f := r.Fabric; f.LineRate != 25e9 || f.BaseRTT != 40*time.Microsecond || f.DMax != 60*time.Microsecond || f.Payload != 1024 || f.Wire != 1106 {
		t.Errorf("path %+v", f)
	}
	if r.G != bdp*3/2 || r.Gu != 65536 || r.U != 16384 || r.MinU != 2048 || r.Jitter != 80*time.Microsecond || r.Lifetime != 2*time.Millisecond ||
		r.CreditUnit != 2048 || r.Backlog != uint32(3*bdp) || r.MaxCredit != bdp || r.TargetRTT != 120*time.Microsecond {
		t.Errorf("receiver %+v", r)
	}
	if s.BacklogThreshold != uint64(bdp) || s.Capabilities != rdcc.CapStatus|rdcc.CapCRN || s.OnRefused != sender.RefusedWithout ||
		s.CRNs[0] != netip.MustParsePrefix("192.0.2.254/32") || *s.DSCP.Class[7] != 2 || *s.DSCP.Unscheduled != 26 {
		t.Errorf("sender %+v", s)
	}
}

func TestSet(t *testing.T) {
	c := domain.Config{Port: 52001}
	for _, kv := range [][2]string{{"G", "3*BDP"}, {"dscp.control", "48"}, {"crns", "192.0.2.254, 10.0.0.253"}, {"unscheduled", "false"}} {
		if err := c.Set(kv[0], kv[1]); err != nil {
			t.Error(err)
		}
	}
	if c.G != domain.BDPs(3) || *c.DSCP.Control != 48 || len(c.CRNs) != 2 || *c.Unscheduled {
		t.Errorf("%+v", c)
	}
	before := c
	for _, row := range []struct{ key, text, want string }{
		{"clas", "2", "did you mean"}, {"class", "9", "outside the limits"}, {"G", "a lot", "is not"}, {"dscp", "48", "no single value"},
		{"dscp.control", "64", "outside the limits"}, {"allocator", "cubic", "is not known here"},
	} {
		if err := c.Set(row.key, row.text); err == nil || !strings.Contains(err.Error(), row.want) || !strings.HasPrefix(err.Error(), "rdcc."+row.key+"="+row.text+": ") {
			t.Errorf("%s=%s: %v", row.key, row.text, err)
		}
	}
	if !reflect.DeepEqual(c, before) {
		t.Error("a refused value changed something")
	}
}
