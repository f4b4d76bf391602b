package softnic

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/rdcc/domain"
)

func someRDCC() domain.Config {
	control := uint8(48)
	no := false
	return domain.Config{Port: 50321, Protection: "filtered", G: domain.Octets(196600), J: domain.Time(31456 * time.Nanosecond), BaseRTT: domain.Time(31456 * time.Nanosecond), TimeScale: 100,
		Unscheduled: &no, Advertise: []string{"status", "crn"}, Local: []netip.Addr{netip.MustParseAddr("192.0.2.11")}, DSCP: domain.DSCP{Control: &control}, Payload: 4096}
}

// The words that a NIC is given mean the same configuration: each is read by the rules of files, as `nic set` does.
func TestRDCCSettings_readBackTheSame(t *testing.T) {
	c := someRDCC()
	words := rdccSettings(&c)
	if words[0] != "rdcc=on" {
		t.Fatalf("%q", words)
	}
	var again domain.Config
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(strings.TrimPrefix(w, "rdcc."), "=")
		if err := again.Set(key, value); err != nil {
			t.Error(err)
		}
	}
	if got := rdccSettings(&again); !slices.Equal(words, got) {
		t.Errorf("told %q, read %q", words, got)
	}
	for _, none := range []*domain.Config{nil, {Off: true}, {Off: true, Port: 50321}} {
		if got := rdccSettings(none); !slices.Equal(got, []string{"rdcc=off"}) {
			t.Errorf("%+v: %q", none, got)
		}
	}
}

// A NIC that says anything but what it was told is an error that names both.
func TestBackend_setRDCCReadsBack(t *testing.T) {
	nic := &inventory.NIC{Device: "softnic0"}
	c := someRDCC()
	for name, tc := range map[string]struct {
		has  *domain.Config
		want string
	}{"same": {&c, ""}, "other": {&domain.Config{Port: 50321}, "rdcc.G=196600B"}, "off": {nil, "says that it has rdcc=off"}} {
		t.Run(name, func(t *testing.T) {
			var s Status
			if tc.has != nil {
				s.RDCC = &RDCCStatus{Config: *tc.has}
			}
			text, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			h := &answers{result: remote.Result{Stdout: text}}
			err = Backend{}.SetRDCC(t.Context(), h, nic, &c)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "h1")) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if len(h.asked) != 2 || !strings.HasPrefix(h.asked[0], "pcmlab nic set --device softnic0 rdcc=on rdcc.G=196600B rdcc.J=31.456us rdcc.advertise=status,crn") || h.asked[1] != "pcmlab nic show --device softnic0 -o json" {
				t.Errorf("commands %q", h.asked)
			}
		})
	}
}
