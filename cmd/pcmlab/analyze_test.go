package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/capture/roce"
)

// rocePacket is a WRITE packet of a kilobyte from 192.0.2.11 to QP 0x11 at .14.
type rocePacket struct {
	atNS int64
	psn  uint32
	tos  uint8
}

const captureStart = 1_800_000_000_000_000_000

// pcapOf writes packets as tcpdump does: whole, one after the other.
func pcapOf(t testing.TB, packets ...rocePacket) []byte {
	t.Helper()
	var out bytes.Buffer
	w := capture.NewPcapWriter(&out, roce.LinkEthernet, 0)
	for _, p := range packets {
		const payload = 1024
		udp := 8 + roce.BTHLen + payload + roce.ICRCLen
		b := []byte{2, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 1, 8, 0}
		b = append(b, 0x45, p.tos, byte((20+udp)>>8), byte(20+udp), byte(p.psn>>8), byte(p.psn), 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 11, 192, 0, 2, 14)
		b = append(b, 0xc0, 0, 0x12, 0xb7, byte(udp>>8), byte(udp), 0, 0)
		b = roce.BTH{Opcode: roce.RCWriteMiddle, PKey: roce.DefaultPKey, DestQP: 0x11, PSN: p.psn}.Append(b)
		b = append(b, make([]byte, payload+roce.ICRCLen)...)
		if err := roce.PutICRC(b[14:]); err != nil {
			t.Fatal(err)
		}
		if err := w.Write(&capture.Packet{TimeNS: captureStart + p.atNS, Data: b}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// plainPackets are n packets in sequence from the given PSN on, one every millisecond.
func plainPackets(first, n int) (p []rocePacket) {
	for i := range n {
		p = append(p, rocePacket{int64(first+i) * 1e6, uint32(first + i), 26<<2 | roce.ECT0})
	}
	return p
}

func (h *home) write(name string, data []byte) string {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		h.t.Fatal(err)
	}
	return path
}

func (h *home) document(out outcome) *analysis.Document {
	h.t.Helper()
	var doc analysis.Document
	if err := json.Unmarshal([]byte(out.stdout), &doc); err != nil {
		h.t.Fatalf("exit %d: %v\n%s\n%s", out.code, err, out.stdout, out.stderr)
	}
	return &doc
}

// O12: whether packets carry the DSCP and ECN that were asked for is read from the capture; a flow that does not is named
// with what it carries instead.
func TestAnalyze_markingAsAskedFor(t *testing.T) {
	h := newHome(t)
	var packets []rocePacket
	for i, tos := range []uint8{0x00, 0x68, 0x6a, 0x6b} {
		packets = append(packets, rocePacket{int64(i) * 1e6, uint32(i), tos})
	}
	mixed := h.write("mixed.pcap", pcapOf(t, packets...))
	right := h.write("right.pcap", pcapOf(t, packets[2:]...))
	plain := h.write("plain.pcap", pcapOf(t, packets[0]))
	class := h.write("class.pcap", pcapOf(t, rocePacket{0, 1, 26}))
	for _, tt := range []struct {
		name, why string
		args      []string
		code      int
		verdict   string
		want      []string // in the rows
	}{
		{"all_four", "one packet has ToS 0, and two no ECT", []string{mixed, "--expect-dscp", "26", "--expect-ecn", "ect"}, 1, analysis.Fail,
			[]string{"DSCP 0 and 26 on its 4 data packets, asked for 26", "Not-ECT on 2 of 4 data packets"}},
		{"right", "ECT(0), and CE that a switch made of it", []string{right, "--expect-dscp", "26", "--expect-ecn", "ect"}, 0, analysis.Pass, nil},
		{"ignored", "the traffic class was not taken", []string{plain, "--expect-dscp", "26", "--expect-ecn", "ect"}, 1, analysis.Fail,
			[]string{"DSCP 0 on its 1 data packets, asked for 26", "106 with ECT(0)"}},
		{"class_for_dscp", "26 was written where 104 belongs", []string{class, "--expect-dscp", "26"}, 1, analysis.Fail, []string{"was 26 given as the traffic class?"}},
		{"not_ect", "", []string{right, "--expect-ecn", "not_ect"}, 1, analysis.Fail, []string{"ECT or CE on 2 of 2 data packets"}},
		{"not_asked", "", []string{mixed}, 0, analysis.Skip, nil},
	} {
		out := h.run(append([]string{"analyze", "-o", "json"}, tt.args...)...)
		var got *analysis.Check
		for _, c := range h.document(out).Checks {
			if c.Name == analysis.CheckMarking {
				got = &c
			}
		}
		if out.code != tt.code || got == nil || got.Verdict != tt.verdict {
			t.Errorf("%s: exit %d, check %+v, want exit %d and %s\n%s", tt.name, out.code, got, tt.code, tt.verdict, out.stderr)
			continue
		}
		rows := fmt.Sprint(got.Rows)
		for _, w := range tt.want {
			if !strings.Contains(rows, w) {
				t.Errorf("%s: rows %s, want %q in them", tt.name, rows, w)
			}
		}
		if tt.code == 1 && !strings.Contains(out.stderr, "check marking failed") {
			t.Errorf("%s: stderr %q does not name the check", tt.name, out.stderr)
		}
	}
}

// O16: a capture without RoCE while the NIC's counters moved is blind: exit 4, with advice, and no rate is zero.
func TestAnalyze_blindCapture(t *testing.T) {
	h := newHome(t)
	empty := h.write("empty.pcap", pcapOf(t))
	before := h.write("before.json", []byte(`[{"ifname": "mlx5_0", "port": 1, "sent_pkts": 5, "rcvd_pkts": 7}]`))
	after := h.write("after.json", []byte(`[{"ifname": "mlx5_0", "port": 1, "sent_pkts": 1000005, "rcvd_pkts": 7}]`))
	out := h.run("analyze", empty, "--counters", before, after, "-o", "json")
	doc := h.document(out)
	if out.code != 4 || doc.Quality.Verdict != analysis.Blind || doc.Aggregate.GoodputBps != nil || doc.Aggregate.Jain != nil {
		t.Errorf("exit %d, verdict %q, goodput %v", out.code, doc.Quality.Verdict, doc.Aggregate.GoodputBps)
	}
	for _, want := range []string{"the capture is blind", "mlx5_0/1 sent_pkts (+1000000)", "capture at a switch mirror"} {
		if !strings.Contains(out.stderr, want) {
			t.Errorf("stderr %q, want %q in it", out.stderr, want)
		}
	}
	if out := h.run("analyze", empty, "--counters", before, before, "-o", "json"); out.code != 0 || h.document(out).Quality.Verdict != analysis.Complete {
		t.Errorf("counters that did not move: exit %d %s", out.code, out.stderr)
	}
	if out := h.run("analyze", empty, "--counters", after, before); out.code != 2 || !strings.Contains(out.stderr, "BEFORE and AFTER are swapped") {
		t.Errorf("swapped counters: exit %d %s", out.code, out.stderr)
	}
	full := h.write("full.pcap", pcapOf(t, plainPackets(0, 8)...))
	if out := h.run("analyze", full, "--counters", before, after, "-o", "json"); out.code != 0 || !strings.Contains(fmt.Sprint(h.document(out).Quality.Notes), "the capture holds 8") {
		t.Errorf("a tap that sees part: exit %d %s", out.code, out.stderr)
	}
}

// O17: what the capturing program says it captured is held against the file, which is short when the program was killed
// before it wrote its last packets, or has only a header when it wrote none.
func TestAnalyze_captureToolSaysMore(t *testing.T) {
	h := newHome(t)
	header := h.write("header.pcap", pcapOf(t))
	seven := h.write("seven.pcap", pcapOf(t, plainPackets(0, 7)...))
	says := func(captured, dropped int) string {
		return h.write(fmt.Sprintf("says-%d-%d.txt", captured, dropped), fmt.Appendf(nil,
			"tcpdump: listening on eth1, link-type EN10MB (Ethernet), snapshot length 262144 bytes\n%d packets captured\n%d packets received by filter\n%d packets dropped by kernel\n", captured, captured, dropped))
	}
	if b, err := os.ReadFile(header); err != nil || len(b) != 24 {
		t.Fatalf("header of %d bytes, %v", len(b), err)
	}
	for _, tt := range []struct {
		name, file, log string
		code            int
		verdict         string
		note            string
		drops           string
	}{
		{"nothing_written", header, says(9, 0), 4, analysis.Incomplete, "says 9 packets captured, the file holds 0", "0"},
		{"two_missing", seven, says(9, 0), 4, analysis.Incomplete, "says 9 packets captured, the file holds 7: the last 2 were never written", "0"},
		{"all_there", seven, says(7, 0), 0, analysis.Complete, "", "0"},
		{"dropped", seven, says(7, 3), 4, analysis.Incomplete, "the capture itself lost 3 packets", "3"},
		{"of_another_capture", seven, says(5, 0), 4, analysis.Incomplete, "not of the same capture", "0"},
		{"nobody_said", seven, "", 0, analysis.Complete, "drops of the capture are unknown", "<nil>"},
		{"header_alone", header, "", 0, analysis.Complete, "", "<nil>"},
	} {
		args := []string{"analyze", tt.file, "-o", "json"}
		if tt.log != "" {
			args = append(args, "--capture-log", tt.log)
		}
		out := h.run(args...)
		doc := h.document(out)
		drops := "<nil>"
		if d := doc.Quality.Drops; d != nil {
			drops = fmt.Sprint(*d)
		}
		if out.code != tt.code || doc.Quality.Verdict != tt.verdict || !strings.Contains(strings.Join(doc.Quality.Notes, "\n"), tt.note) || drops != tt.drops {
			t.Errorf("%s: exit %d, %s, drops %s, %q; want exit %d, %s, drops %s and %q", tt.name, out.code, doc.Quality.Verdict, drops, doc.Quality.Notes, tt.code, tt.verdict, tt.drops, tt.note)
		}
	}
	killed := h.write("killed.txt", []byte("tcpdump: listening on eth1\n"))
	if out := h.run("analyze", seven, "--capture-log", killed, "--capture-log", killed); out.code != 2 ||
		!strings.Contains(out.stderr, "a program that is killed prints none") || !strings.Contains(out.stderr, "--capture-log is given 2 times for 1 captures") {
		t.Errorf("a log that says nothing: exit %d %s", out.code, out.stderr)
	}
}

// O18: a file that was cut in a record gives what comes before, where it was cut, the verdict incomplete, and exit 4; so it
// is with the same file packed.
func TestAnalyze_cutCapture(t *testing.T) {
	h := newHome(t)
	whole := pcapOf(t, plainPackets(0, 3)...)
	cut := whole[:len(whole)-100]
	record := (len(whole) - 24) / 3
	var z bytes.Buffer
	zw := gzip.NewWriter(&z)
	if _, err := zw.Write(cut); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"cut.pcap": cut, "cut.pcap.gz": z.Bytes()} {
		out := h.run("analyze", h.write(name, data), "-o", "json")
		doc := h.document(out)
		f := doc.Files[0]
		if out.code != 4 || doc.Quality.Verdict != analysis.Incomplete || f.Packets != 2 || doc.Totals.RoCEPackets != 2 || f.TruncatedAt == nil || *f.TruncatedAt != int64(24+2*record) {
			t.Errorf("%s: exit %d, %s, %d packets, cut at %v; want 4, incomplete, 2, %d", name, out.code, doc.Quality.Verdict, f.Packets, f.TruncatedAt, 24+2*record)
		}
		if want := fmt.Sprintf("cut at byte %d", 24+2*record); !strings.Contains(out.stderr, want) {
			t.Errorf("%s: stderr %q, want %q in it", name, out.stderr, want)
		}
	}
}

// A capture in a pipe, and one in the pieces of a ring buffer, give the numbers of the file that they are.
func TestAnalyze_pipeAndRingBuffer(t *testing.T) {
	h := newHome(t)
	all := plainPackets(0, 40)
	whole := h.write("whole.pcap", pcapOf(t, all...))
	want := h.document(h.run("analyze", whole, "-o", "json"))
	for i, at := range []int{20, 0, 30, 10} { // the names do not follow the time
		h.write(fmt.Sprintf("ring_%d.pcap", i), pcapOf(t, all[at:at+10]...))
	}
	pipe := h.command("analyze", "-", "-o", "json")
	file, err := os.Open(whole)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	pipe.Stdin = file
	piped, err := pipe.Output()
	if err != nil {
		t.Fatalf("from a pipe: %v", err)
	}
	for name, out := range map[string]outcome{
		"stdin":    {stdout: string(piped)},
		"pattern":  h.run("analyze", "ring_*.pcap", "-o", "json"),
		"sequence": h.run("analyze", "--sequence", "ring_3.pcap", "ring_2.pcap", "ring_1.pcap", "ring_0.pcap", "-o", "json"),
	} {
		got := h.document(out)
		if name != "stdin" && len(got.Files[0].More) != 3 {
			t.Errorf("%s: files %+v, want the other three of the ring among them", name, got.Files)
		}
		if out.code != 0 || len(got.Files) != 1 || got.Files[0].Packets != 40 || got.Files[0].OutOfOrder != 0 {
			t.Errorf("%s: exit %d, files %+v, %s", name, out.code, got.Files, out.stderr)
		}
		got.Files, want.Files = nil, nil
		a, errA := json.Marshal(got)
		b, errB := json.Marshal(want)
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: the document differs:\n%s\n%s", name, a, b)
		}
	}
	h.write("ring_9.pcap", pcapOf(t, plainPackets(100, 3)...)[:1500])
	out := h.run("analyze", "ring_*.pcap", "-o", "json")
	if doc := h.document(out); out.code != 4 || doc.Totals.RoCEPackets != 41 || !strings.Contains(out.stderr, "ring_9.pcap: record needs") {
		t.Errorf("a ring whose last file was cut: exit %d, %d packets, %s", out.code, doc.Totals.RoCEPackets, out.stderr)
	}
}
