package analysis

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func drawParams(t *rapid.T) genParams {
	share := func(name string, most float64) float64 {
		if !rapid.Bool().Draw(t, "with "+name) {
			return 0
		}
		return rapid.Float64Range(0, most).Draw(t, name)
	}
	return genParams{
		seed:  rapid.Uint64().Draw(t, "seed"),
		pairs: rapid.IntRange(1, 7).Draw(t, "pairs"), hosts: rapid.IntRange(1, 3).Draw(t, "hosts"),
		messages: rapid.IntRange(1, 25).Draw(t, "messages"), lives: rapid.IntRange(1, 3).Draw(t, "lives"),
		lossBefore: share("loss before the tap", 0.1), lossAfter: share("loss after the tap", 0.1), ackLoss: share("lost acknowledgements", 0.2),
		reorder: share("reorder", 0.1), duplicate: share("duplicates", 0.05), ce: share("CE", 0.5),
		samePSN: rapid.Bool().Draw(t, "same PSN"), bidirectional: rapid.Bool().Draw(t, "bidirectional"), uc: rapid.Bool().Draw(t, "UC"),
		ipv6: rapid.Bool().Draw(t, "IPv6"), vlan: rapid.Bool().Draw(t, "VLAN"), nearWrap: rapid.Bool().Draw(t, "near wrap"),
		snap: rapid.SampledFrom([]int{0, 128, 96}).Draw(t, "snap"), mtu: rapid.SampledFrom([]int{256, 1024}).Draw(t, "MTU"),
		window: rapid.SampledFrom([]int{8, 16, 64}).Draw(t, "window"), mirrors: rapid.Bool().Draw(t, "mirrors"),
		readShare: rapid.Bool().Draw(t, "READ"), imm: rapid.Bool().Draw(t, "immediate"),
	}
}

// TestRun_syntheticAgreesWithModel holds the analysis of random captures to the model, which is told by the generator
// which packet belongs to which life of which QP, and who answers whom.
func TestRun_syntheticAgreesWithModel(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t)
		// PSNs near each other are told apart late, and times are lost.
		ambiguous := (p.samePSN || p.nearWrap) && p.pairs > p.hosts
		if ambiguous && p.lives > 1 {
			p.ce = 0 // a CNP that comes before the first acknowledgement of a life would count for the one before
		}
		g := generate(p)
		path := filepath.Join(dir, "x.pcap")
		if err := os.WriteFile(path, g.pcap(), 0o600); err != nil {
			t.Fatal(err)
		}
		packets, _, _, cut := modelPcap(g.pcap())
		if cut || len(packets) != len(g.records) {
			t.Fatalf("the model reads %d of %d records", len(packets), len(g.records))
		}
		g.renumber()
		var kept []modelPacket
		answers := map[string]string{}
		answered := map[string]bool{}
		for i := range packets {
			packets[i].conn = g.records[i].conn
			if !g.records[i].copy_ {
				kept = append(kept, packets[i])
				if packets[i].isAck() || packets[i].isReadResp() {
					answered[packets[i].conn] = true
				}
			}
		}
		for _, h := range g.halves {
			if answered[h.name] {
				answers[h.name] = h.back.name
			}
		}
		doc, err := Run(t.Context(), []Input{{Path: path}}, Options{Bin: 100 * time.Microsecond})
		if err != nil {
			t.Fatal(err)
		}
		want := modelFlows(kept, doc.Series.BinNS, answers)
		if p.uc { // a UC flow may get CNPs alone, which join it only where no other could be meant
			for id, f := range want {
				for _, h := range g.halves {
					if h.name == id && h.uc {
						f.paired = false
					}
				}
			}
			for i := range doc.Flows {
				if doc.Flows[i].Service == "UC" {
					doc.Flows[i].CNPs = nil
				}
			}
			for i := range doc.Series.Flows {
				if doc.Flows[i].Service == "UC" {
					zeroCNPs(doc, i, want)
				}
			}
		}
		compareFlows(t, doc, want, !ambiguous)
		if got := doc.Quality.DuplicatesRemoved; got != int64(len(packets)-len(kept)) {
			t.Errorf("%d mirror copies removed, the generator made %d", got, len(packets)-len(kept))
		}
		checkKnowledge(t, g, doc)
	})
}

// renumber names lives by what the tap saw: a life of which every packet was lost before it counts for nobody.
func (g *gen) renumber() {
	seen := map[string]bool{}
	for _, r := range g.records {
		seen[r.conn] = true
	}
	lives, names := map[string]int{}, map[string]string{}
	for _, h := range g.halves { // in order of lives for each QP
		base, _, _ := strings.Cut(h.name, "#")
		old := h.name
		if h.name = base + "#unseen"; seen[old] {
			if lives[base]++; lives[base] > 1 {
				h.name = fmt.Sprintf("%s#%d", base, lives[base])
			} else {
				h.name = base
			}
		}
		names[old] = h.name
	}
	for i := range g.records {
		g.records[i].conn = names[g.records[i].conn]
	}
}

func zeroCNPs(doc *Document, i int, want map[string]*modelFlow) {
	s := &doc.Series.Flows[i]
	for j := range s.CNPs {
		s.CNPs[j] = 0
	}
	if f := want[s.ID]; f != nil {
		f.cnps = 0
		for _, b := range f.bins {
			b.cnps = 0
		}
	}
}

// checkKnowledge holds the analysis to what only the generator knows.
func checkKnowledge(t *rapid.T, g *gen, doc *Document) {
	known := map[string]*genHalf{} // "#unseen" has no flow
	for _, h := range g.halves {
		known[h.name] = h
	}
	for _, f := range doc.Flows {
		h := known[f.ID]
		if h == nil || h.uc || strings.Contains(f.ID, "read") || f.Operations.Read > 0 {
			continue
		}
		if g.p.lossBefore == 0 && g.p.reorder == 0 && g.p.duplicate == 0 {
			got := []int64{f.RetransmittedPackets, f.OutOfOrderPackets, f.LostBeforeTap}
			if diff := cmp.Diff([]int64{h.resentSeen, 0, 0}, got); diff != "" {
				t.Errorf("flow %s: retransmitted, out of order, lost (-generator +analysis):\n%s", f.ID, diff)
			}
		}
		if f.LostBeforeTap > h.lostBefore && g.p.reorder == 0 && g.p.duplicate == 0 {
			t.Errorf("flow %s: %d packets lost before the tap, but the generator dropped only %d", f.ID, f.LostBeforeTap, h.lostBefore)
		}
	}
}
