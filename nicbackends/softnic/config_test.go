package softnic

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/nicbackends/softnic/dcqcn"
)

func TestLoadConfig(t *testing.T) {
	const good = `{"device":"softnic0","netdev":"eth0","ip":"192.0.2.11/24","rate_bps":500000000,"mtu":4200,"dscp":26,"ecn":true,
		"priority":3,"dcqcn":{"enabled":true,"params":{"alpha_timer_ns":1000}},"time_scale":50,"sysfs":"/sys/class/infiniband",
		"mac":"02:70:c0:00:02:01","socket":"/run/pcmlab/nic/softnic0.sock","host_name":"h1"}`
	for _, tc := range []struct {
		name, text string
		want       []string // in the error; none: it loads
	}{
		{"good", good, nil},
		{"unknown_key", strings.Replace(good, "dscp", "dcsp", 1), []string{`"dcsp"`}},
		{"unknown_parameter", strings.Replace(good, "alpha_timer_ns", "alpha", 1), []string{`"alpha"`}},
		{"every_mistake_at_once", `{"device":"a/b","ip":"2001:db8::1/64","dscp":64,"priority":8,"mtu":-1,"foreign_icrc":"maybe"}`,
			[]string{"device", "ip", "rate_bps", "dscp 64", "priority 8", "mtu -1", "foreign_icrc"}},
		{"bad_parameters", strings.Replace(good, `"alpha_timer_ns":1000`, `"alpha_timer_ns":0,"g":2`, 1), []string{"alpha_timer_ns 0", "g 2"}},
		{"no_json", "device: softnic0", []string{"invalid character"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "nic.json")
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := LoadConfig(path)
			if (err == nil) != (tc.want == nil) {
				t.Fatalf("LoadConfig: %v", err)
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) || !strings.Contains(err.Error(), path) {
					t.Errorf("error %q: want %q and the file in it", err, w)
				}
			}
			if err != nil {
				return
			}
			p := c.DCQCN.Hardware()
			want := dcqcn.Defaults()
			want.AlphaTimer = time.Microsecond
			if diff := cmp.Diff(want, p); diff != "" {
				t.Errorf("parameters (-want +got)\n%s", diff)
			}
			again, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			var back Config
			if err := json.Unmarshal(again, &back); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c, back, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("through JSON and back (-want +got)\n%s", diff)
			}
		})
	}
}
