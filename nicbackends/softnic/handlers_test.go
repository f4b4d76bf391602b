package softnic

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/inventory"
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

func TestCounterNames(t *testing.T) {
	got := CounterNames([]HandlerInfo{{Name: "swift"}, {Name: "bbr"}, {Name: "swift"}})
	if diff := cmp.Diff([]string{"swift", "bbr", "swift_2"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
