package fabric

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const goodConfig = `{
  "name": "v4", "time_scale": 50, "buffer": "2MiB", "control": "/run/x/control", "ready_fd": 3,
  "ports": [
    {"name": "h1", "fd": 4, "kind": "tap", "mac": "02:00:00:00:00:01", "rate": "500Mbit/s", "delay_ns": 50000},
    {"name": "r1", "fd": 5, "mac": "02:00:00:00:00:02", "rate": "500Mbit/s", "buffer": "64KiB", "ecn": {"kmin": "100KiB", "kmax": "400KiB", "pmax": 0.2}}
  ],
  "mirrors": [{"name": "sw-out-r1", "fd": 6, "ports": ["r1"], "direction": "egress"}]
}`

func load(t *testing.T, text string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fabric.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return LoadConfig(path)
}

func TestLoadConfig_readsWhatMarshalWrites(t *testing.T) {
	c, err := load(t, goodConfig)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	again, err := load(t, string(text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, again); diff != "" {
		t.Errorf("after a round trip (-want +got):\n%s", diff)
	}
}

func TestLoadConfig_namesEachMistake(t *testing.T) {
	for _, row := range []struct{ name, old, new, want, why string }{
		{"unknown_key", `"time_scale"`, `"time_scal"`, `unknown field "time_scal"`, "typing mistakes must not be ignored"},
		{"no_rate", `"rate": "500Mbit/s", "delay_ns"`, `"delay_ns"`, `port "h1": rate 0bit/s`, "a link has a rate"},
		{"duplicate_name", `"name": "r1"`, `"name": "h1"`, `"h1": name is used twice`, "counters go by name"},
		{"duplicate_fd", `"fd": 5`, `"fd": 4`, `fd 4 is also that of "h1"`, "two ports would steal each other's frames"},
		{"duplicate_mac", `00:02"`, `00:01"`, `mac 02:00:00:00:00:01 is also that of port "h1"`, "an address is behind one port"},
		{"group_mac", `"02:00:00:00:00:02"`, `"03:00:00:00:00:02"`, `is a group address`, "not a station"},
		{"bad_mac", `"02:00:00:00:00:02"`, `"02:00"`, `need six octets`, ""},
		{"unknown_port", `["r1"]`, `["r2"]`, `mirror "sw-out-r1": no port "r2"`, ""},
		{"direction", `"egress"`, `"out"`, `direction "out"`, ""},
		{"kind", `"tap"`, `"tun"`, `kind "tun"`, ""},
		{"kmax", `"400KiB"`, `"40KiB"`, `need 0 <= kmin <= kmax`, ""},
		{"pmax", `0.2`, `20`, `ecn pmax 20: need 0 to 1`, "percent instead of a share"},
		{"long_socket", `/run/x`, `/run/` + strings.Repeat("x", 120), `a UNIX socket's path has at most 107`, "the kernel says only: invalid argument"},
		{"unit", `"2MiB"`, `"2 megs"`, `"2 megs"`, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			text := strings.Replace(goodConfig, row.old, row.new, 1)
			if text == goodConfig {
				t.Fatalf("%q is not in the configuration", row.old)
			}
			_, err := load(t, text)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v, want %q in it (%s)", err, row.want, row.why)
			}
		})
	}
}
