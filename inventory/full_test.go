package inventory

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/internal/spec/spectest"
)

const fullLab = `lab: full
hosts:
  h1:
    ssh: {address: h1.example.net, port: 2222, user: lab, key: /k, jump: "a,b", known_hosts: /kh}
    sudo: true
    nics:
      - {device: mlx5_0, netdev: eth0, ip: 192.0.2.11/24, ip6: "2001:db8::11/64", port: 2, gid_index: 3, backend: docapcc, build_on: h1, rate: 25Gbit/s, mtu: 4200, dscp: 26, ecn: true, priority: 3, dcqcn: false,
         handlers: [{handler: swift, match: {to: 192.0.2.0/24, dscp: 26, qp: 2-4, role: receiver}, set: {BETA: 0.5, AI: MSS / 1024}}, {handler: bbr}]}
switches:
  s1: {host: h1, backend: fabric, buffer: 2MiB, ecn: {kmin: 100KiB, kmax: 400KiB, pmax: 0.2}, pfc: {priorities: [3, 4], xoff: 256KiB, xon: 200KiB}}
  s2: {}
  s3: {host: h1, backend: linux, ports: {s1: swp1}}
links:
  - {from: h1.eth0, to: s1, rate: 10Gbit/s, delay: 1500ns, buffer: 64KiB}
  - {from: s1, to: s2}
  - {from: s1, to: s3}
taps:
  t: {host: h1, iface: m0, switch: s1, ports: [h1, s2], direction: ingress}
rdcc: {port: 50321, protection: filtered, dscp: {control: 48, unscheduled: 46, class0: 34, class1: 30, class2: 28, class3: 26, class4: 24, class5: 20, class6: 18, class7: 10}, crns: [192.0.2.250]}
`

// A field added to the types of lab.go must be read from the file and written back: a run's bundle holds what Marshal
// wrote, and overrides go through it too.
func TestMarshal_carriesEveryField(t *testing.T) {
	t.Parallel()
	lab, err := Parse("full.yaml", []byte(fullLab))
	if err != nil {
		t.Fatal(err)
	}
	if err := spectest.Validate(t, SchemaJSON, []byte(fullLab)); err != nil {
		t.Error(err)
	}
	lab.Virtual = &Virtual{TimeScale: 50, MaxLateness: DefaultMaxLateness} // not valid with the rest; toFile does not mind
	set := map[string]bool{}
	fields(reflect.ValueOf(lab), "Lab", set)
	for name, isSet := range set {
		if !isSet {
			t.Errorf("%s is zero everywhere in the lab of this test: give it a value in fullLab", name)
		}
	}
	lab.Virtual = nil
	text, err := Marshal(lab)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("full.yaml", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if diff := cmp.Diff(lab, again, compare); diff != "" {
		t.Errorf("Parse(Marshal) (-want +got):\n%s\n%s", diff, text)
	}
}

// fields notes for every struct field of the lab whether any of its values is set.
func fields(v reflect.Value, path string, set map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fields(v.Elem(), path, set)
		}
	case reflect.Slice:
		for i := range v.Len() {
			fields(v.Index(i), path, set)
		}
	case reflect.Struct:
		if v.Type().PkgPath() != reflect.TypeFor[Lab]().PkgPath() {
			return
		}
		for i := range v.NumField() {
			name := fmt.Sprintf("%s.%s", v.Type().Name(), v.Type().Field(i).Name)
			set[name] = set[name] || !v.Field(i).IsZero()
			fields(v.Field(i), name, set)
		}
	}
}

// Every backend of the schema and every override key is one that the tests know, so that a new one gets a test.
func TestOverrideKeys_areAllTested(t *testing.T) {
	t.Parallel()
	want := []string{"link.buffer", "link.delay", "link.rate", "nic.backend", "nic.dcqcn", "nic.device", "nic.dscp", "nic.ecn", "nic.gid_index", "nic.handler", "nic.mtu", "nic.port",
		"nic.priority", "nic.rate", "switch.buffer", "switch.ecn", "switch.ecn.kmax", "switch.ecn.kmin", "switch.ecn.pmax", "switch.pfc", "switch.pfc.xoff", "switch.pfc.xon",
		"virtual.max_lateness", "virtual.time_scale"}
	if got := OverrideKeys(); !slices.Equal(got, want) {
		t.Errorf("OverrideKeys() (-want +got):\n%s", cmp.Diff(want, got))
	}
	for _, s := range []Setting{{"nic.device", "rxe1"}, {"nic.handler", "./handlers/mine"}, {"nic.gid_index", "0"}, {"nic.port", "1"}, {"nic.backend", "rxe"}, {"switch.s1.pfc.xoff", "300KiB"}, {"switch.s1.pfc.xon", "100KiB"},
		{"switch.pfc", "off"}, {"switch.s1.ecn.kmax", "1MiB"}} {
		lab, err := Parse("full.yaml", []byte(fullLab))
		if err != nil {
			t.Fatal(err)
		}
		before, _ := Marshal(lab)
		if err := Override(lab, s.Key, s.Value); err != nil {
			t.Errorf("Override(%s, %s): %v", s.Key, s.Value, err)
		}
		if after, _ := Marshal(lab); string(before) == string(after) {
			t.Errorf("Override(%s, %s) changed nothing", s.Key, s.Value)
		}
	}
}
