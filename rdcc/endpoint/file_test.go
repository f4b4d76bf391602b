package endpoint_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/rdcc/endpoint"
)

// TestFile: mistakes of an endpoint's own keys are named with their places, all at once.
func TestFile(t *testing.T) {
	const good = "port: 52001\nline_rate: 1Gbit/s\nbase_rtt: 1ms\n"
	for _, row := range []struct{ text, want, reason string }{
		{good, "", "the least that is needed"},
		{"port: 52001\n", "rdcc.yaml:1:1: line_rate: not said", "no path"},
		{"port: 52001\n", "rdcc.yaml:1:1: base_rtt: not said", "and no round-trip time"},
		{good + "data_port: 52001\n", "rdcc.yaml:4:12: data_port: 52001 is the port of RDCC", "one port for two services"},
		{strings.Replace(good, "52001", "65535", 1), "data_port: the one after 65535", "no port after the last"},
		{good + "metrics: 0.0.0.0:9464\n", "rdcc.yaml:4:10: metrics: 0.0.0.0 is not a loopback address", "counters for everyone"},
		{good + "metrics: here\n", `rdcc.yaml:4:10: metrics: "here" is no address`, "no address"},
		{good + "on_refused: without\n", "rdcc.yaml:4:13: on_refused: a receiver takes data of an association alone", "what would have no effect"},
		{good + "to: /no/such/folder\n", `rdcc.yaml:4:5: to: "/no/such/folder" is no folder`, "nowhere to put messages"},
		{good + "G: lots\nuser: nobody\n", "rdcc.yaml:4:4: G:", "keys of the domain"},
	} {
		path := filepath.Join(t.TempDir(), "rdcc.yaml")
		if err := os.WriteFile(path, []byte(row.text), 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := endpoint.ReadFile(path)
		if row.want == "" {
			if err != nil || f.Data() != 52002 {
				t.Errorf("%s: data port %d, %v", row.reason, f.Data(), err)
			}
			continue
		}
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), path, "rdcc.yaml"), row.want) {
			t.Errorf("%s: %v, want %s", row.reason, err, row.want)
		}
	}
}
