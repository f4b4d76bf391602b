package inventory

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pcmlab/pcmlab/internal/units"
)

var compare = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmpopts.IgnoreFields(Lab{}, "File"),
	cmpopts.IgnoreUnexported(HandlerRule{}),
	cmpopts.EquateEmpty(),
}

func TestLoad_virtual4IsTheMainJobsLab(t *testing.T) {
	t.Parallel()
	got, err := Load("../labs/virtual-4.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := &Lab{Name: "virtual-4", Virtual: &Virtual{TimeScale: 50, MaxLateness: 5 * time.Millisecond}}
	for i, name := range []string{"h1", "h2", "h3", "r1"} {
		ip := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(11 + i)}), 24)
		want.Hosts = append(want.Hosts, &Host{Name: name, NICs: []*NIC{{Device: "softnic0", Netdev: "eth0", IP: ip, Port: 1, Backend: "softnic",
			Rate: 25 * units.GbitPerSec, MTU: 4200, DSCP: 26, ECN: true, Priority: 3}}})
		want.Links = append(want.Links, &Link{A: End{Host: name, Netdev: "eth0"}, B: End{Switch: "sw"}, Rate: 25 * units.GbitPerSec, Delay: time.Microsecond})
	}
	want.Hosts = append(want.Hosts, &Host{Name: "sw"})
	want.Switches = []*Switch{{Name: "sw", Host: "sw", Backend: "fabric", Buffer: 16 * units.MiB, ECN: &ECN{KMin: 100 * units.KiB, KMax: 400 * units.KiB, PMax: 0.2}}}
	want.Taps = []*Tap{
		{Name: "sw-out-r1", Host: "sw", Iface: "mir-out", Switch: "sw", Ports: []string{"r1"}, Direction: Both},
		{Name: "sw-in", Host: "sw", Iface: "mir-in", Switch: "sw", Ports: []string{"h1", "h2", "h3"}, Direction: Ingress},
	}
	if diff := cmp.Diff(want, got, compare); diff != "" {
		t.Errorf("Load (-want +got):\n%s", diff)
	}
}

// Every lab that is shipped loads, and what Marshal makes of it loads to the same lab and is a fixed point.
func TestMarshal_loadsBackToTheSameLab(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../labs/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("labs: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			lab, err := Load(file)
			if err != nil {
				t.Fatal(err)
			}
			text, err := Marshal(lab)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Parse(filepath.Join(t.TempDir(), "resolved.yaml"), text)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if diff := cmp.Diff(lab, again, compare); diff != "" {
				t.Errorf("Parse(Marshal) (-want +got):\n%s\n%s", diff, text)
			}
			text2, err := Marshal(again)
			if err != nil || string(text) != string(text2) {
				t.Errorf("Marshal is no fixed point: %v\n%s\n%s", err, text, text2)
			}
			if os.Getenv("SHOW") != "" {
				t.Logf("\n%s", text)
			}
		})
	}
}
