package analysis

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/internal/fixtures"
)

// truth is what tshark, and a parser beside it, say about a capture. All of its fields are compared:
//
//	bytes, crosscheck                         the file is the one that the truth is about, and both parsers agreed on it
//	packets, roce_packets, non_roce           totals
//	truncated                                 files[].snaplen_limited
//	first_ts, last_ts                         files[]
//	opcodes, ecn, ce_marked_data, ce_marked_ack, cnp, acks, naks, rnr_naks, nak_total, mad   totals
//	duplicate_request_psns                    sum over directions
//	flows: all but the next two               directions
//	flows: dscp, udp_sport                    hold those of flows, which are of data alone
type truth struct {
	File         string           `json:"file"`
	Bytes        int64            `json:"bytes"`
	NonRoCE      int64            `json:"non_roce"`
	Packets      int64            `json:"packets"`
	Truncated    int64            `json:"truncated"`
	RoCEPackets  int64            `json:"roce_packets"`
	Opcodes      map[string]int64 `json:"opcodes"`
	ECN          map[string]int64 `json:"ecn"`
	CEData       int64            `json:"ce_marked_data"`
	CEAck        int64            `json:"ce_marked_ack"`
	CNP          int64            `json:"cnp"`
	Acks         int64            `json:"acks"`
	NAKs         map[string]int64 `json:"naks"`
	RNR          int64            `json:"rnr_naks"`
	NAKTotal     int64            `json:"nak_total"`
	Duplicates   int64            `json:"duplicate_request_psns"`
	MAD          map[string]int64 `json:"mad"`
	FirstTS      string           `json:"first_ts"`
	LastTS       string           `json:"last_ts"`
	Flows        map[string]truthFlow
	CrossChecked struct {
		Identical bool `json:"identical"`
	} `json:"crosscheck"`
}

type truthFlow struct {
	Packets    int64            `json:"packets"`
	CE         int64            `json:"ce"`
	Opcodes    map[string]int64 `json:"opcodes"`
	PSNFirst   uint32           `json:"psn_first"`
	PSNLast    uint32           `json:"psn_last"`
	Requests   int64            `json:"req_packets"`
	Responses  int64            `json:"resp_packets"`
	Acks       int64            `json:"acks"`
	NAKs       map[string]int64 `json:"naks"`
	RETHBytes  int64            `json:"reth_dmalen_sum"`
	RETHCount  int64            `json:"reth_count"`
	Backward   int64            `json:"psn_backward_steps"`
	Gaps       int64            `json:"psn_gaps"`
	UniquePSNs int64            `json:"req_unique_psns"`
	Duplicates int64            `json:"req_duplicate_psn_packets"`
	DSCP       map[string]int64 `json:"dscp"`
	SrcPorts   map[string]int64 `json:"udp_sport"`
}

// captures lists every capture that has a truth file.
func captures(t testing.TB) []string {
	dir := fixtures.Dir(t)
	var files []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".truth.json") {
			files = append(files, strings.TrimSuffix(path, ".truth.json"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 50 {
		t.Fatalf("found %d captures with truth files, expected more than 50", len(files))
	}
	return files
}

func readTruth(t testing.TB, pcap string) truth {
	b, err := os.ReadFile(pcap + ".truth.json")
	if err != nil {
		t.Fatal(err)
	}
	var tr truth
	if err := json.Unmarshal(b, &tr); err != nil {
		t.Fatal(err)
	}
	return tr
}

// tsharkNames are where the truth files shorten a name.
var tsharkNames = strings.NewReplacer("READ_RESPONSE", "READ_RESP", "RC_WRITE_LAST_IMM", "RC_WRITE_LAST_IMM")

// TestRun_fixturesAgreeWithTruth holds every count of every capture against what tshark said.
func TestRun_fixturesAgreeWithTruth(t *testing.T) {
	for _, path := range captures(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			want := readTruth(t, path)
			doc, err := Run(t.Context(), []Input{{Path: path}}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(path); err != nil || info.Size() != want.Bytes || !want.CrossChecked.Identical {
				t.Errorf("the truth is about another file of %d bytes, or its parsers disagreed (%v)", want.Bytes, err)
			}
			for _, f := range doc.Flows {
				tr := want.Flows[fmt.Sprintf("%s>%s qp=0x%06x", f.Src, f.Dst, f.DstQP)]
				for _, d := range f.DSCP {
					if tr.DSCP[fmt.Sprint(d)] == 0 {
						t.Errorf("flow %s: DSCP %d, the truth has %v", f.ID, d, tr.DSCP)
					}
				}
				if tr.SrcPorts[fmt.Sprint(f.SrcPort)] == 0 {
					t.Errorf("flow %s: source port %d, the truth has %v", f.ID, f.SrcPort, tr.SrcPorts)
				}
			}
			if diff := cmp.Diff(want.totals(), documentTotals(doc)); diff != "" {
				t.Errorf("totals (-truth +analysis):\n%s", diff)
			}
			got := map[string]truthFlow{}
			for _, d := range doc.Directions {
				got[fmt.Sprintf("%s>%s qp=0x%06x", d.Src, d.Dst, d.DstQP)] = directionTruth(d)
			}
			for id, f := range want.Flows {
				f.DSCP, f.SrcPorts = nil, nil // of data and answers together, while flows list those of data
				want.Flows[id] = f
			}
			if diff := cmp.Diff(want.Flows, got); diff != "" {
				t.Errorf("directions (-truth +analysis):\n%s", diff)
			}
			if want := []any{want.FirstTS, want.LastTS}; doc.Files[0].FirstNS != nil {
				got := []any{tsText(*doc.Files[0].FirstNS), tsText(*doc.Files[0].LastNS)}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("times (-truth +analysis):\n%s", diff)
				}
			}
		})
	}
}

func tsText(ns int64) string { return fmt.Sprintf("%d.%09d", ns/1e9, ns%1e9) }

func (tr truth) totals() map[string]any {
	ops := map[string]int64{}
	for name, n := range tr.Opcodes {
		_, name, _ = strings.Cut(name, ":")
		ops[name] = n
	}
	mad := int64(0)
	for _, n := range tr.MAD {
		mad += n
	}
	return map[string]any{
		"packets": tr.Packets, "roce": tr.RoCEPackets, "opcodes": ops, "ce_data": tr.CEData, "ce_ack": tr.CEAck, "cnp": tr.CNP, "acks": tr.Acks,
		"nak": tr.NAKTotal, "naks": naksOf(tr.NAKs), "non_roce": tr.NonRoCE, "rnr": tr.RNR, "duplicates": tr.Duplicates, "snapped": tr.Truncated > 0, "mad": mad,
		"ecn": ECNCounts{NotECT: tr.ECN["0"], ECT1: tr.ECN["1"], ECT0: tr.ECN["2"], CE: tr.ECN["3"]},
	}
}

func documentTotals(d *Document) map[string]any {
	ops := map[string]int64{}
	for name, n := range d.Totals.Opcodes {
		ops[tsharkNames.Replace(name)] = n
	}
	var dup int64
	naks := map[string]int64{}
	for _, x := range d.Directions {
		dup += x.DuplicatePackets
		for name, n := range directionTruth(x).NAKs {
			if name != "RNR" {
				naks[name] += n
			}
		}
	}
	t := d.Totals
	return map[string]any{
		"packets": t.Packets, "roce": t.RoCEPackets, "opcodes": ops, "ce_data": t.CEDataPackets, "ce_ack": t.CEAckPackets, "cnp": t.CNPPackets, "acks": t.AckPackets,
		"nak": t.NAKPackets, "naks": naks, "non_roce": t.Packets - t.RoCEPackets, "rnr": t.RNRNAKPackets, "duplicates": dup, "snapped": d.Files[0].SnaplenLimited, "mad": t.MADPackets, "ecn": t.ECN,
	}
}

// naksOf is m, never nil.
func naksOf(m map[string]int64) map[string]int64 {
	if m == nil {
		return map[string]int64{}
	}
	return m
}

func directionTruth(d Direction) truthFlow {
	f := truthFlow{
		Packets: d.Packets, CE: d.CEPackets, Opcodes: map[string]int64{}, PSNFirst: d.PSNFirst, PSNLast: d.PSNLast,
		Requests: d.RequestPackets, Responses: d.ResponsePackets, Acks: d.Acks, NAKs: map[string]int64{},
		RETHBytes: d.RETHBytes, RETHCount: d.RETHCount, Backward: d.PSNBackwardSteps, Gaps: d.PSNGaps,
		UniquePSNs: d.UniquePSNs, Duplicates: d.DuplicatePackets,
	}
	for name, n := range d.Opcodes {
		f.Opcodes[tsharkNames.Replace(name)] = n
	}
	for name, n := range map[string]int64{"PSN_SEQ_ERR": d.NAKs.Sequence, "INVALID_REQ": d.NAKs.Invalid, "REMOTE_ACCESS_ERR": d.NAKs.Access,
		"REMOTE_OP_ERR": d.NAKs.Remote, "INVALID_RD_REQ": d.NAKs.InvalidRequest, "RNR": d.NAKs.RNR} {
		if n > 0 {
			f.NAKs[name] = n
		}
	}
	return f
}

// TestRun_fixturesAgreeWithModel holds what truth files lack (unique bytes, rates, times, attribution) against the model.
func TestRun_fixturesAgreeWithModel(t *testing.T) {
	for _, path := range captures(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			packets, n, _, _ := modelPcap(b)
			records, _, _ := modelRecords(b)
			o := Options{LinkRateBps: 1e9, Bin: time.Millisecond, MaxCells: 1 << 24}
			doc := analyse(t, o, Input{Path: path})
			if len(packets) == 0 {
				return
			}
			want := modelFlows(packets, doc.Series.BinNS, nil)
			compareFlows(t, doc, want, true)
			compareMeasures(t, doc, o, &genTruth{packets: packets, frames: int64(n), end: records[n-1].t}, want, true)
		})
	}
}
