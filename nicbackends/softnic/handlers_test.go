package softnic

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/pcm/handlers/handlertest"
)

// What a backend writes on a command line is what the NIC's command reads.
func TestHandlerSetting_isReadBack(t *testing.T) {
	dscp := 0
	prefix := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	for text, want := range map[string]HandlerSetting{
		"/x/a.so":     {Shell: "/x/a.so"},
		"none,dscp=0": {Shell: "none", Match: inventory.HandlerMatch{DSCP: &dscp}},
		"/x/a.so,to=192.0.2.0/24,to=198.51.100.1/32,qp=2-4,signals=NACK+RTT": {Shell: "/x/a.so", Signals: []string{"NACK", "RTT"},
			Match: inventory.HandlerMatch{To: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.1/32")}, QP: inventory.QPRange{First: 2, Last: 4}}},
	} {
		got, err := ParseHandlerSetting(text)
		if diff := cmp.Diff(want, got, prefix); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", text, err, diff)
		}
		if again := got.String(); again != text {
			t.Errorf("%s is written as %s", text, again)
		}
	}
	_, err := ParseHandlerSetting(",to=192.0.2.1,dscp=64,qp=0,port=3")
	for _, want := range []string{"no shell is named", `"to=192.0.2.1"`, `"dscp=64": want 0 to 63`, `"qp=0"`, `"port=3": known keys are`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

// What the NIC lacks is a mistake of the rule, said once for each reason; what it only approximates is said with the handler.
func TestHandlers_limits(t *testing.T) {
	lab, err := inventory.Load("../../labs/virtual-4.yaml")
	if err != nil {
		t.Fatal(err)
	}
	nic := *lab.Host("h1").NICs[0]
	const marks = "ECN (PCM_SIG_ECN): RoCE echoes no marks, so CNPs are counted: a queue pair has at most one in 50 us, however many of its packets were marked"
	const probes = "PROBE (PCM_CTRL_RTT_PROBE): a probe is the next data packet, which asks for an acknowledgement: while no data goes no probe does"
	for _, tc := range []struct {
		name    string
		wrong   []string
		limits  []string
		because string
	}{
		{"swift", nil, []string{}, "the NIC has all that it reads"},
		{"dctcp", nil, []string{marks}, "it divides marks by acknowledgements"},
		{"bbr", nil, []string{}, ""},
		{"strack", []string{`handler "strack" sets PCM_CTRL_EV, and it has no entropy: the software NIC does not choose paths`}, nil, "its signals are refused for the same reason"},
		{"eqds", []string{`handler "eqds" sets PCM_CTRL_PULL_NO, and it has no credit: receivers of the software NIC grant none`}, nil, ""},
		{"rtt_template", nil, []string{probes}, "data packets are its probes"},
	} {
		nic.Handlers = []inventory.HandlerRule{{Handler: tc.name}}
		list, mistakes := Backend{}.Handlers(lab, &nic)
		var wrong []string
		for _, m := range mistakes {
			wrong = append(wrong, m.Message)
		}
		if diff := cmp.Diff(tc.wrong, wrong); diff != "" {
			t.Errorf("%s (%s): (-want +got)\n%s", tc.name, tc.because, diff)
		}
		if tc.wrong == nil && !cmp.Equal(tc.limits, list[0].Limits) {
			t.Errorf("%s (%s): limits %q, want %q", tc.name, tc.because, list[0].Limits, tc.limits)
		}
	}
}

// C that does not compile is a mistake of the rule: it is found before a lab is raised.
func TestHandlers_compile(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	lab, err := inventory.Load("../../labs/virtual-4.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const yaml = "algorithm: {name: typo}\nsignals:\n  - {name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1}\n" +
		"controls:\n  - {name: CWND, type: PCM_CTRL_CWND, initial_value: 4096}\n"
	for text, want := range map[string]string{
		"set_control(CWND, 8192);": "",
		"set_control(CWND, 8192)":  "exit status 1 (pcmlab handler check ",
	} {
		path := handlertest.Written(t, "typo", yaml, "#include \"pcmh.h\"\n#include \"typo.h\"\n\nint algorithm_main()\n{\n\t"+text+"\n\treturn PCM_SUCCESS;\n}\n").File
		nic := *lab.Host("h1").NICs[0]
		nic.Handlers = []inventory.HandlerRule{{Handler: path}}
		_, mistakes := Backend{}.Handlers(lab, &nic)
		if (len(mistakes) == 0) != (want == "") || len(mistakes) == 1 && !strings.Contains(mistakes[0].Error(), want) {
			t.Errorf("%s: %v, want %q", text, mistakes, want)
		}
	}
}

func TestCounterNames(t *testing.T) {
	got := CounterNames([]HandlerInfo{{Name: "swift"}, {Name: "bbr"}, {Name: "swift"}})
	if diff := cmp.Diff([]string{"swift", "bbr", "swift_2"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
