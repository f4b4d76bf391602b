package analysis

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/internal/fixtures"
)

// The index beside the captures has what the programs on both ends printed and what the NICs counted: QP numbers, first
// PSNs, messages, packets.

type indexCase struct {
	Runs []struct {
		Client, Server string
		CCmd           string
		ClientRC       int `json:"client_rc"`
		QPs            []struct{ Side, QPN, PSN string }
	}
	Files    map[string]struct{}
	Counters map[string]map[string]int64 `json:"hw_counters"`
}

func readIndex(t *testing.T) (dir string, cases map[string]indexCase) {
	dir = fixtures.Dir(t)
	b, err := os.ReadFile(filepath.Join(dir, "INDEX.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	for name := range cases {
		if !strings.HasPrefix(name, "pcap/") {
			delete(cases, name)
		}
	}
	if len(cases) < 20 {
		t.Fatalf("%d cases with captures in the index, expected 20", len(cases))
	}
	return dir, cases
}

func nodeAddr(node string, v6 bool) string {
	last := map[string]string{"h1": "11", "h2": "12", "h3": "13", "r1": "14"}[node]
	if v6 {
		return "2001:db8:1::" + last
	}
	return "192.0.2." + last
}

func hexNumber(t *testing.T, s string) uint32 {
	n, err := strconv.ParseUint(s, 0, 24)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

var perftestN = regexp.MustCompile(` -n (\d+)`)

// TestRun_fixturesAgreeWithPerftest: both ends print their QP and first PSN. The analysis finds from packets alone which QP
// of one end is which one's of the other, where each starts, and counts as many messages as were asked for.
func TestRun_fixturesAgreeWithPerftest(t *testing.T) {
	dir, cases := readIndex(t)
	joined, counted := 0, 0
	for name, c := range cases {
		for file := range c.Files {
			doc := analyse(t, Options{}, Input{Path: filepath.Join(dir, name, file)})
			flows := map[string]*Flow{}
			for i := range doc.Flows {
				flows[doc.Flows[i].ID] = &doc.Flows[i]
			}
			for _, r := range c.Runs {
				n := len(r.QPs) / 2
				for i := range n { // those of the client in order, then those of the server
					local, remote := r.QPs[i], r.QPs[n+i]
					if local.Side != "local" || remote.Side != "remote" {
						t.Fatalf("%s: the index has QPs %v", name, r.QPs)
					}
					v6 := strings.Contains(r.CCmd, "-x 2")
					from, to, fromQP, toQP, start := r.Client, r.Server, local.QPN, remote.QPN, local.PSN
					read := strings.HasPrefix(r.CCmd, "ib_read")
					if read { // the data go back
						from, to, fromQP, toQP = r.Server, r.Client, remote.QPN, local.QPN
					}
					ud := ""
					if strings.Contains(r.CCmd, "-c UD") {
						ud = fmt.Sprintf("/0x%06x", hexNumber(t, fromQP))
					}
					id := fmt.Sprintf("%s%s>%s:0x%06x", nodeAddr(from, v6), ud, nodeAddr(to, v6), hexNumber(t, toQP))
					f := flows[id]
					if f == nil {
						continue // another tap sees it
					}
					if f.SrcQP != nil {
						joined++
						if *f.SrcQP != hexNumber(t, fromQP) {
							t.Errorf("%s: flow %s comes from QP 0x%x, perftest says %s", file, id, *f.SrcQP, fromQP)
						}
					}
					for _, d := range doc.Directions {
						// what the tap saw first may not have been the first: not in the runs with loss before it
						if step := roce.PSNDiff(d.PSNFirst, hexNumber(t, start)); d.ID == id && (step < 0 || step > 64) {
							t.Errorf("%s: flow %s starts at PSN %d, perftest says %s", file, id, d.PSNFirst, start)
						}
					}
					m := perftestN.FindStringSubmatch(r.CCmd)
					if m == nil || r.ClientRC != 0 {
						continue
					}
					counted++
					o := f.Operations
					if got := o.Write + o.Send + o.Read + o.Atomic; fmt.Sprint(got) != m[1] {
						t.Errorf("%s: flow %s: %d messages, perftest sent %s", file, id, got, m[1])
					}
				}
			}
		}
	}
	if joined < 20 || counted < 40 {
		t.Errorf("held to perftest: %d QP pairs, %d counts of messages; expected more", joined, counted)
	}
	t.Logf("%d QP pairs, %d counts of messages", joined, counted)
}

// TestRun_fixturesAgreeWithNICs: where one client talks to one server, what the taps saw of it is what the NICs counted: sent
// at the taps before the network, received at those after it.
func TestRun_fixturesAgreeWithNICs(t *testing.T) {
	dir, cases := readIndex(t)
	held := 0
	for name, c := range cases {
		if len(c.Runs) != 1 {
			continue
		}
		for file := range c.Files {
			doc := analyse(t, Options{DedupWindow: -1}, Input{Path: filepath.Join(dir, name, file)})
			client := c.Runs[0].Client
			before := strings.Contains(file, client+"-egress") || strings.Contains(file, "sw-in-"+client)
			want := c.Counters["r1"]["rcvd_pkts"]
			if before {
				want = c.Counters[client]["sent_pkts"]
			}
			got := int64(0)
			for _, d := range doc.Directions {
				if d.Src == nodeAddr(client, false) || d.Src == nodeAddr(client, true) {
					got += d.Packets
				}
			}
			held++
			if got != want {
				t.Errorf("%s/%s: %d packets of %s, the NIC counted %d", name, file, got, client, want)
			}
		}
	}
	if held < 20 {
		t.Errorf("%d captures held to counters, expected more", held)
	}
}
