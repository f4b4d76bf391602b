package analysis_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/capture/roce"
)

func write(psn uint32, op roce.Opcode) roce.BTH {
	return roce.BTH{Opcode: op, DestQP: 0x11, PSN: psn}
}

// S06: a port that mirrors both directions, or a second tap, shows a packet twice, the copy one hop further on. Two of six
// packets are such copies, and one is a true retransmission, which must not go with them: its IP identification is
// its own, and it comes later.
func TestRun_mirrorCopiesAreNoRetransmissions(t *testing.T) {
	const us = 1000
	packets := []packet{
		{atNS: 0, ipID: 1, ttl: 64, bth: write(1, roce.RCWriteMiddle), payload: 1024},
		{atNS: 3 * us, ipID: 1, ttl: 63, bth: write(1, roce.RCWriteMiddle), payload: 1024},
		{atNS: 10 * us, ipID: 2, ttl: 64, bth: write(2, roce.RCWriteMiddle), payload: 1024},
		{atNS: 13 * us, ipID: 2, ttl: 63, bth: write(2, roce.RCWriteMiddle), payload: 1024},
		{atNS: 20 * us, ipID: 3, ttl: 64, bth: write(3, roce.RCWriteMiddle), payload: 1024},
		{atNS: 400 * us, ipID: 4, ttl: 64, bth: write(2, roce.RCWriteMiddle), payload: 1024},
	}
	for name, tag := range map[string][]uint16{"same_port": nil, "tagged_on_one_side": {100}} {
		packets[1].vlans, packets[3].vlans = tag, tag
		doc := run(t, analysis.Options{}, pcapOf(t, packets...))
		got := []int64{doc.Files[0].Packets, doc.Quality.DuplicatesRemoved, doc.Totals.RoCEPackets, doc.Totals.RetransmittedPackets, doc.Totals.PayloadBytes, doc.Totals.UniqueBytes}
		if diff := cmp.Diff([]int64{6, 2, 4, 1, 4096, 3072}, got); diff != "" {
			t.Errorf("%s: records, copies removed, packets, retransmitted, payload, unique (-want +got):\n%s", name, diff)
		}
	}
	packets[1].vlans, packets[3].vlans = nil, nil
	a := pcapOf(t, packets[0], packets[2], packets[4], packets[5])
	b := pcapOf(t, packets[1], packets[3])
	doc := run(t, analysis.Options{}, a, b)
	if got := []int64{doc.Quality.DuplicatesRemoved, doc.Totals.RoCEPackets, doc.Totals.RetransmittedPackets}; !slices.Equal(got, []int64{2, 4, 1}) {
		t.Errorf("two taps: copies removed, packets, retransmitted = %v, want [2 4 1]", got)
	}
	doc = run(t, analysis.Options{DedupWindow: -1}, pcapOf(t, packets...))
	if got := []int64{doc.Quality.DuplicatesRemoved, doc.Totals.RoCEPackets}; !slices.Equal(got, []int64{0, 6}) {
		t.Errorf("switched off: copies removed, packets = %v, want [0 6]", got)
	}
}

// S07: the ICRC of IPv4 and IPv6 packets holds when a switch re-marks ECN and DSCP, counts a hop, or sets FECN or BECN; it
// fails when anything else changed; and a snapped packet is neither good nor bad.
func TestRun_icrcOfMarkedPackets(t *testing.T) {
	var whole, snapped []packet
	for i, v6 := range []bool{false, true} {
		remark := func(b []byte) {
			if v6 {
				b[ethernet] |= 0x0f
				b[ethernet+1] |= 0xff // traffic class and flow label
				b[ethernet+7] = 3     // hop limit
				b[ethernet+40+8+4] |= 0xc0
			} else {
				b[ethernet+1] = 0xff
				b[ethernet+8] = 3
				b[ethernet+10], b[ethernet+11] = 0xab, 0xcd // header checksum
				b[ethernet+20+8+4] |= 0xc0
			}
		}
		spoil := func(b []byte) { b[len(b)-30] ^= 1 }
		for k, edit := range []func([]byte){nil, remark, spoil} {
			p := packet{atNS: int64(i*3+k) * 1e6, v6: v6, tos: 26<<2 | roce.ECT0, ipID: uint16(k), bth: write(uint32(k), roce.RCWriteMiddle), payload: 1001, edit: edit}
			whole = append(whole, p)
			p.snap = 200
			snapped = append(snapped, p)
		}
	}
	doc := run(t, analysis.Options{CheckICRC: true}, pcapOf(t, whole...))
	if doc.Totals.ICRCChecked != 6 || doc.Totals.ICRCBad == nil || *doc.Totals.ICRCBad != 2 {
		t.Errorf("%d checked, bad %v; want 6 checked and the 2 that were spoiled", doc.Totals.ICRCChecked, doc.Totals.ICRCBad)
	}
	if doc.Totals.RoCEPackets != 6 || doc.Totals.CEDataPackets != 2 {
		t.Errorf("%d packets, %d marked; want 6 and 2", doc.Totals.RoCEPackets, doc.Totals.CEDataPackets)
	}
	if doc := run(t, analysis.Options{CheckICRC: true}, pcapOf(t, snapped...)); doc.Totals.ICRCChecked != 0 || doc.Totals.ICRCBad != nil {
		t.Errorf("snapped: %d checked, bad %v; want none and null", doc.Totals.ICRCChecked, doc.Totals.ICRCBad)
	}
	if doc := run(t, analysis.Options{}, pcapOf(t, whole...)); doc.Totals.ICRCBad != nil {
		t.Errorf("not asked for: bad %d, want null", *doc.Totals.ICRCBad)
	}
}

// S08: the tag of a packet, also one that carries a priority and VID 0, is the flow's; an untagged flow has none.
func TestRun_priorityTags(t *testing.T) {
	for _, tt := range []struct {
		name      string
		vlans     []uint16
		pcp, vlan []int
	}{
		{"untagged", nil, []int{}, []int{}},
		{"tagged", []uint16{3<<13 | 100}, []int{3}, []int{100}},
		{"priority_only", []uint16{5 << 13}, []int{5}, []int{0}},
		{"qinq", []uint16{4<<13 | 7, 1<<13 | 8}, []int{4}, []int{7}},
	} {
		doc := run(t, analysis.Options{}, pcapOf(t, packet{vlans: tt.vlans, bth: write(1, roce.RCWriteMiddle), payload: 100},
			packet{atNS: 1e6, vlans: tt.vlans, bth: write(2, roce.RCWriteMiddle), payload: 100}))
		if len(doc.Flows) != 1 {
			t.Errorf("%s: %d flows", tt.name, len(doc.Flows))
			continue
		}
		if f := doc.Flows[0]; !slices.Equal(f.PCP, tt.pcp) || !slices.Equal(f.VLAN, tt.vlan) {
			t.Errorf("%s: PCP %v VLAN %v, want %v and %v", tt.name, f.PCP, f.VLAN, tt.pcp, tt.vlan)
		}
	}
}

// S19: the four magics of pcap give the same flow at the same time to their resolution; nanoseconds under the magic of
// microseconds are an error that says so, not times that are wrong a thousandfold.
func TestRun_pcapMagics(t *testing.T) {
	frame := packet{bth: write(1, roce.RCWriteMiddle), payload: 100}.frame()
	file := func(o binary.AppendByteOrder, magic, frac uint32) []byte {
		b := o.AppendUint32(nil, magic)
		b = o.AppendUint16(o.AppendUint16(b, 2), 4)
		for _, v := range []uint32{0, 0, 65535, 1, 1_800_000_000, frac, uint32(len(frame)), uint32(len(frame))} {
			b = o.AppendUint32(b, v)
		}
		return append(b, frame...)
	}
	const micro, nano = 0xa1b2c3d4, 0xa1b23c4d
	for _, tt := range []struct {
		name  string
		file  []byte
		first int64
	}{
		{"micro_little", file(binary.LittleEndian, micro, 999_999), 1_800_000_000_999_999_000},
		{"micro_big", file(binary.BigEndian, micro, 999_999), 1_800_000_000_999_999_000},
		{"nano_little", file(binary.LittleEndian, nano, 999_999_999), 1_800_000_000_999_999_999},
		{"nano_big", file(binary.BigEndian, nano, 999_999_999), 1_800_000_000_999_999_999},
	} {
		doc := run(t, analysis.Options{}, tt.file)
		if len(doc.Flows) != 1 || doc.Flows[0].FirstNS != tt.first || *doc.Files[0].FirstNS != tt.first {
			t.Errorf("%s: %d flows, file from %d, want %d", tt.name, len(doc.Flows), *doc.Files[0].FirstNS, tt.first)
		}
	}
	path := filepath.Join(t.TempDir(), "ns-as-us.pcap")
	if err := os.WriteFile(path, file(binary.LittleEndian, micro, 999_999_999), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := analysis.Run(t.Context(), []analysis.Input{{Path: path}}, analysis.Options{})
	var fe *capture.FormatError
	if !errors.As(err, &fe) || !strings.Contains(err.Error(), "the writer put nanoseconds there") || !strings.Contains(err.Error(), path) {
		t.Errorf("nanoseconds under the microsecond magic: %v", err)
	}
	later := append(file(binary.LittleEndian, micro, 5), bytes.Clone(file(binary.LittleEndian, micro, 2_000_000)[24:])...)
	doc := run(t, analysis.Options{}, later)
	if doc.Quality.Verdict != analysis.Incomplete || doc.Files[0].Packets != 1 || !strings.Contains(strings.Join(doc.Quality.Notes, " "), "nanoseconds") {
		t.Errorf("the same in the second record: %q, %d packets, %q", doc.Quality.Verdict, doc.Files[0].Packets, doc.Quality.Notes)
	}
}
