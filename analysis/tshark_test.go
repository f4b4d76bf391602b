package analysis

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// sharkCounts are what tshark and an analysis both count.
type sharkCounts struct {
	Packets, RoCE          int64
	Opcodes                map[string]int64
	CE, ECT0, ECT1, NotECT int64
	NAK, RNR, Acks, CNPs   int64
	NAKs                   NAKs             // by syndrome
	Directions             map[string]int64 // packets by source, destination and QP
}

// tshark runs tshark over a capture and gives each packet's fields to row.
func tshark(t *testing.T, path string, row func(packet int, fields []string)) {
	t.Helper()
	program, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	args := []string{"-n", "-r", path, "-T", "fields", "-E", "separator=|", "-E", "occurrence=f"}
	for _, f := range []string{"infiniband.bth.opcode", "infiniband.aeth.syndrome", "ip.dsfield.ecn", "ipv6.tclass.ecn", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst",
		"infiniband.bth.destqp"} {
		args = append(args, "-e", f)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	n := 0
	for ; lines.Scan(); n++ {
		row(n, strings.Split(lines.Text(), "|"))
	}
	if err := lines.Err(); err != nil {
		t.Errorf("tshark %s: line %d: %v", path, n, err)
		_, _ = io.Copy(io.Discard, out)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("tshark %s: %v", path, err)
	}
}

// add counts a packet by tshark's fields.
func (c *sharkCounts) add(t *testing.T, f []string) {
	c.Packets++
	if f[0] == "" {
		return
	}
	op, err := strconv.ParseUint(f[0], 0, 8)
	if err != nil {
		t.Fatalf("tshark: opcode %q", f[0])
	}
	c.RoCE++
	c.Opcodes[roce.Opcode(op).String()]++
	ecn, src, dst := f[2], f[4], f[5]
	if src == "" {
		ecn, src, dst = f[3], f[6], f[7]
	}
	switch ecn {
	case "0":
		c.NotECT++
	case "1":
		c.ECT1++
	case "2":
		c.ECT0++
	case "3":
		c.CE++
	default:
		t.Fatalf("tshark: ECN %q", ecn)
	}
	c.Directions[fmt.Sprintf("%s>%s:%s", src, dst, f[8])]++
	if op == 0x81 {
		c.CNPs++
	}
	if f[1] == "" {
		return
	}
	syndrome, err := strconv.ParseUint(f[1], 0, 8)
	if err != nil {
		t.Fatalf("tshark: syndrome %q", f[1])
	}
	switch kind, code := syndrome>>5, syndrome&31; {
	case kind == 0 && op == 17:
		c.Acks++
	case kind == 1:
		c.RNR++
		c.NAKs.RNR++
	case kind == 3:
		c.NAK++
		*[]*int64{&c.NAKs.Sequence, &c.NAKs.Invalid, &c.NAKs.Access, &c.NAKs.Remote, &c.NAKs.InvalidRequest, &c.NAKs.Other}[min(code, 5)]++
	}
}

func newSharkCounts() *sharkCounts {
	return &sharkCounts{Opcodes: map[string]int64{}, Directions: map[string]int64{}}
}

// documentCounts are those of a document made without removing copies, which tshark does not.
func documentCounts(d *Document) *sharkCounts {
	t := d.Totals
	c := newSharkCounts()
	c.Packets, c.RoCE, c.Opcodes = t.Packets, t.RoCEPackets, t.Opcodes
	c.CE, c.ECT0, c.ECT1, c.NotECT = t.ECN.CE, t.ECN.ECT0, t.ECN.ECT1, t.ECN.NotECT
	c.NAK, c.RNR, c.Acks, c.CNPs = t.NAKPackets, t.RNRNAKPackets, t.AckPackets, t.CNPPackets
	for _, x := range d.Directions {
		n := x.NAKs
		for i, v := range []int64{n.Sequence, n.Invalid, n.Access, n.Remote, n.InvalidRequest, n.Other, n.RNR} {
			*[]*int64{&c.NAKs.Sequence, &c.NAKs.Invalid, &c.NAKs.Access, &c.NAKs.Remote, &c.NAKs.InvalidRequest, &c.NAKs.Other, &c.NAKs.RNR}[i] += v
		}
		c.Directions[fmt.Sprintf("%s>%s:0x%06x", x.Src, x.Dst, x.DstQP)] += x.Packets
	}
	return c
}

// TestRun_generatedAgreesWithTshark: 500 random captures, put into one file for each link type, are counted by tshark.
func TestRun_generatedAgreesWithTshark(t *testing.T) {
	if testing.Short() {
		t.Skip("500 captures take tshark most of a minute")
	}
	dir := t.TempDir()
	draw := rapid.Custom(drawParams)
	batches := sharkBatches{}
	docs := make([]*sharkCounts, 500)
	for i := range docs {
		p := draw.Example(i)
		p.late = 0
		settle(&p)
		g := generate(p)
		f := g.file()
		doc := analyse(t, Options{DedupWindow: -1}, save(t, dir, "x.pcap", f.pcap(binary.LittleEndian, 1)))
		docs[i] = documentCounts(doc)
		for _, r := range f.records {
			batches.add(i, f.link, modelRecord{r.t, f.captured(r), len(r.frame)})
		}
	}
	var packets int64
	for i, want := range batches.count(t, len(docs)) {
		packets += want.Packets
		if diff := cmp.Diff(want, docs[i]); diff != "" {
			t.Errorf("capture %d, %+v (-tshark +analysis):\n%s", i, draw.Example(i), diff)
		}
	}
	t.Logf("%d packets of %d captures", packets, len(docs))
}

// sharkBatches are captures put into one file for each link type, since starting tshark takes longer than what it does then.
type sharkBatches map[int]*sharkBatch

type sharkBatch struct {
	file genFile
	of   []int // which capture each packet belongs to
}

func (s sharkBatches) add(capture, link int, r modelRecord) {
	b := s[link]
	if b == nil {
		b = &sharkBatch{file: genFile{link: link}}
		s[link] = b
	}
	b.file.records = append(b.file.records, genRecord{t: r.t, frame: r.data, wire: r.wire})
	b.of = append(b.of, capture)
}

func (s sharkBatches) count(t *testing.T, captures int) []*sharkCounts {
	t.Helper()
	counts := make([]*sharkCounts, captures)
	for i := range counts {
		counts[i] = newSharkCounts()
	}
	dir := t.TempDir()
	for link, b := range s {
		path := save(t, dir, fmt.Sprintf("%d.pcap", link), b.file.pcap(binary.LittleEndian, 1)).Path
		tshark(t, path, func(n int, fields []string) { counts[b.of[n]].add(t, fields) })
	}
	return counts
}

// TestRun_fixturesAgreeWithTshark: real captures, counted by the tshark that is installed.
func TestRun_fixturesAgreeWithTshark(t *testing.T) {
	if testing.Short() {
		t.Skip("tshark reads 79 MB")
	}
	paths := captures(t)
	batches := sharkBatches{}
	for i, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		records, link, _ := modelRecords(b)
		for _, r := range records {
			batches.add(i, link, r)
		}
	}
	for i, want := range batches.count(t, len(paths)) {
		got := documentCounts(analyse(t, Options{DedupWindow: -1}, Input{Path: paths[i]}))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-tshark +analysis):\n%s", paths[i], diff)
		}
	}
}
