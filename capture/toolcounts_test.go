package capture

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/internal/fixtures"
)

func TestParseToolCounts(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"tcpdump", "tcpdump: listening on p_r1, link-type EN10MB (Ethernet), snapshot length 262144 bytes\n443 packets captured\n445 packets received by filter\n2 packets dropped by kernel\n", "443 2"},
		{"tcpdump_interface_drops", "9 packets captured\n20 packets received by filter\n0 packets dropped by kernel\n3 packets dropped by interface\n", "9 3"},
		{"tcpdump_one", "1 packet captured\n1 packet received by filter\n0 packets dropped by kernel\n", "1 0"},
		{"tcpdump_after_control_c", "^C\n7 packets captured\n", "7 -"},
		{"dumpcap", "Capturing on 'eth0'\nFile: a.pcapng\nPackets captured: 9\nPackets received/dropped on interface 'eth0': 9/1 (pcap:1/dumpcap:0/flushed:0/ps_ifdrop:0) (90.0%)\n", "9 1"},
		{"dumpcap_counting", "Capturing on 'eth0'\nFile: a.pcapng\nPackets: 3 \rPackets: 7 \rPackets captured: 9\nPackets received/dropped on interface 'eth0': 9/1 (pcap:1)\n", "9 1"},
		{"dumpcap_two", "Packets captured: 9\nPackets received/dropped on interface 'a': 5/1 (pcap:1)\nPackets received/dropped on interface 'b': 4/2 (pcap:2)\n", "9 3"},
		{"tshark", "Running as user \"root\" and group \"root\". This could be dangerous.\nCapturing on 'eth0'\n12 packets captured\n4 packets dropped from eth0\n", "12 4"},
		{"pcmlab", "listening on eth0\n" + `{"schema":"pcmlab/tap/v1","packets":5,"received":8,"dropped":2,"unaccounted":1}` + "\n", "5 3"},
		{"two_runs", "3 packets captured\n9 packets captured\n", "9 -"},
		{"nothing", "tcpdump: listening on eth0\n", "error"},
		{"text_about_packets", "we hope for 9 packets captured\n", "error"},
	} {
		c, err := ParseToolCounts(tt.text)
		show := func(v *int64) string {
			if v == nil {
				return "-"
			}
			return fmt.Sprint(*v)
		}
		got := show(c.Captured) + " " + show(c.Dropped)
		if err != nil {
			got = "error"
		}
		if got != tt.want {
			t.Errorf("%s: %s (%v), want %s", tt.name, got, err, tt.want)
		}
	}
}

// What tcpdump said beside each real capture is the number of records in it.
func TestParseToolCounts_realCaptures(t *testing.T) {
	metas, _ := filepath.Glob(filepath.Join(fixtures.Dir(t), "pcap", "*", "meta.json"))
	checked := 0
	for _, path := range metas {
		var meta struct {
			Captures []struct {
				Cmd    string
				Stderr string `json:"tcpdump_stderr"`
			}
		}
		if err := json.Unmarshal(must[[]byte](t)(os.ReadFile(path)), &meta); err != nil {
			t.Fatal(err)
		}
		for _, c := range meta.Captures {
			if !strings.Contains(c.Stderr, "captured") {
				continue
			}
			_, file, _ := strings.Cut(c.Cmd, " -w ")
			file = filepath.Join(filepath.Dir(path), filepath.Base(strings.Fields(file)[0]))
			if _, err := os.Stat(file); err != nil {
				continue // not kept
			}
			counts := must[ToolCounts](t)(ParseToolCounts(c.Stderr))
			recs := must[[]rec](t)(readAll(must[Reader](t)(Open(file))))
			if *counts.Captured != int64(len(recs)) || *counts.Dropped != 0 {
				t.Errorf("%s %s: tcpdump says %d captured, %d dropped; the file has %d", path, file, *counts.Captured, *counts.Dropped, len(recs))
			}
			checked++
		}
	}
	if checked < 20 {
		t.Errorf("only %d captures with the words of tcpdump beside them", checked)
	}
}
