package analysis

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// text of a document without what tells of files: their list, and notes that name them.
func packetsOnly(t *rapid.T, doc *Document) []byte {
	t.Helper()
	d := *doc
	d.Files, d.Quality.Notes, d.Quality.OutOfOrder = nil, nil, 0
	d.Checks = slices.Clone(d.Checks)
	for i := range d.Checks {
		if d.Checks[i].Name == CheckCapture {
			d.Checks[i].Rows = nil // those are the notes
		}
	}
	b, err := json.MarshalIndent(&d, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRun_sameBytes: the document does not depend on how many goroutines made it, in which format the packets are kept, and
// into how many files in sequence they are cut.
func TestRun_sameBytes(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t)
		settle(&p)
		g := generate(p)
		f := g.file()
		o := Options{Bin: 100 * time.Microsecond, CheckICRC: p.icrc, LinkRateBps: 1e10, TimeScale: 0.1}
		if n := len(g.records); n > 0 && rapid.Bool().Draw(t, "phases") {
			from, to := g.records[0].t, g.records[n-1].t+1
			o.Phases = []Phase{{Name: "all", StartNS: from, EndNS: to}, {Name: "half", StartNS: from, EndNS: (from + to + 1) / 2, TrimStart: -1, TrimEnd: -1}}
		}
		run := func(workers int, in ...Input) *Document {
			o.Workers = workers
			doc, err := Run(t.Context(), in, o)
			if err != nil {
				t.Fatal(err)
			}
			return doc
		}
		one := save(t, dir, "x.pcap", f.pcap(binary.LittleEndian, 1))
		doc := run(1, one)
		whole, err := json.MarshalIndent(doc, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		for _, workers := range []int{1, 2, 4} {
			b, err := json.MarshalIndent(run(workers, one), "", " ")
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(whole, b) {
				t.Errorf("workers %d (-1 worker +more):\n%s", workers, cmp.Diff(string(whole), string(b)))
			}
		}
		want := packetsOnly(t, doc)
		same := func(what string, in ...Input) {
			t.Helper()
			if b := packetsOnly(t, run(rapid.IntRange(1, 3).Draw(t, "workers"), in...)); !bytes.Equal(want, b) {
				t.Errorf("%s (-pcap +other):\n%s", what, cmp.Diff(string(want), string(b)))
			}
		}
		at := rapid.IntRange(0, len(f.records)).Draw(t, "cut")
		a, b := f.cut(at)
		first, second := save(t, dir, "a.pcap", a.pcap(binary.LittleEndian, 1)), save(t, dir, "b.pcap", b.pcap(binary.LittleEndian, 1))
		// Through another interface a packet that was sent twice within a millisecond looks like a mirror's copy, unless its IP
		// identification says better.
		sections := 1
		if !p.ipidZero && !p.ipv6 && p.duplicate == 0 {
			sections = rapid.IntRange(1, 3).Draw(t, "sections")
			same(fmt.Sprintf("cut before record %d", at), first, second)
		}
		if at > 0 && at < len(f.records) && a.records[0].t <= b.records[0].t { // the first packets tell which file is first
			first.More = []string{second.Path}
			same(fmt.Sprintf("in sequence, cut before record %d", at), first)
		}
		same("big endian", save(t, dir, "big.pcap", f.pcap(binary.BigEndian, 1)))
		if p.tick == 1000 {
			same("microseconds", save(t, dir, "us.pcap", f.pcap(binary.LittleEndian, 1000)))
		}
		ng := f.pcapng(sections)
		same("pcapng", save(t, dir, "x.pcapng", ng))
		same("gzip", save(t, dir, "x.pcap.gz", gzipped(f.pcap(binary.LittleEndian, 1))))
		same("pcapng in gzip", save(t, dir, "x.pcapng.gz", gzipped(ng)))
	})
}

// TestRun_twoTaps: two taps on the way, of which the second's clock is ahead, and each of which missed packets, give every
// packet once.
func TestRun_twoTaps(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		p := drawTraffic(t)
		settle(&p)
		p.ipidZero, p.ipv6, p.duplicate, p.reuse, p.lives = false, false, 0, "", 1 // the identification tells a copy from one sent again
		skew := rapid.Int64Range(-20_000, 20_000).Draw(t, "skew")
		drop := drawShare(t, "missed by each tap", 0.2)
		g := generate(p)
		files, merged := g.taps(skew, drop)
		truth := g.truth(merged)
		doc, err := Run(t.Context(), []Input{save(t, dir, "a.pcap", files[0].pcap(binary.LittleEndian, 1)), save(t, dir, "b.pcap", files[1].pcap(binary.LittleEndian, 1))},
			Options{Bin: 100 * time.Microsecond})
		if err != nil {
			t.Fatal(err)
		}
		if got := doc.Quality.DuplicatesRemoved; got != truth.copies {
			t.Errorf("%d copies removed, %d packets were seen twice", got, truth.copies)
		}
		want := modelFlows(truth.packets, doc.Series.BinNS, truth.answers)
		got := map[string][]int64{}
		for _, f := range doc.Flows {
			got[f.ID] = []int64{f.Packets, f.PayloadBytes, f.UniqueBytes, f.DuplicatePackets, f.CEPackets, f.FirstNS, f.LastNS}
		}
		model := map[string][]int64{}
		for id, f := range want {
			model[id] = []int64{f.packets, f.payload, f.unique, f.duplicates, f.ce, f.first, f.last}
		}
		if diff := cmp.Diff(model, got); diff != "" {
			t.Errorf("packets, payload, unique, duplicates, CE, first, last (-model +analysis):\n%s", diff)
		}
	})
}
