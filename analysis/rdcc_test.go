package analysis_test

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/rdcctest"
)

// rdccPort has no default; it is this test's choice.
const rdccPort = 52001

var (
	creditSender   = netip.MustParseAddrPort("192.0.2.11:40001")
	creditReceiver = netip.MustParseAddrPort("192.0.2.14:52001")
	reporter       = netip.MustParseAddrPort("192.0.2.200:52001")
)

// frameAt is a frame of a capture.
type frameAt struct {
	atNS int64
	data []byte
}

func captureOf(t testing.TB, snaplen int, frames ...frameAt) []byte {
	t.Helper()
	var out bytes.Buffer
	w := capture.NewPcapWriter(&out, roce.LinkEthernet, 0)
	for _, f := range frames {
		data := f.data[:min(len(f.data), snaplen)]
		if err := w.Write(&capture.Packet{TimeNS: epoch + f.atNS, Data: data, OrigLen: len(f.data)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// exchange is the specification's example in short: an association, a message that is granted twice and done, and beside it
// the data, a report, a cancelled message, and what is not RDCC.
func exchange() (frames []frameAt) {
	at := int64(0)
	put := func(from, to netip.AddrPort, payload []byte) {
		frames = append(frames, frameAt{at, rdcctest.Frame(from, to, payload)})
		at += 1000
	}
	h := func(seq uint32) rdcc.Header { return rdcc.Header{Assoc: 0x5a17c0de, Epoch: 3, Seq: seq} }
	s, r := creditSender, creditReceiver
	put(s, r, (&rdcc.AssocRequest{SenderNonce: 7}).Append(nil, rdcc.Header{Seq: 1}))
	put(r, s, (&rdcc.AssocAccept{SenderNonce: 7}).Append(nil, h(1)))
	put(s, r, (&rdcc.CreditRequest{MessageID: 1, MessageLength: 2048, UnscheduledSent: 2048}).Append(nil, h(2)))
	put(s, r, (&rdcc.CreditRequest{MessageID: 2, MessageLength: 4 << 20}).Append(nil, h(3)))
	put(s, r, (&rdcc.CreditRequest{MessageID: 2, MessageLength: 4 << 20}).Append(nil, h(4))) // again: one message
	put(r, s, (&rdcc.CreditGrant{MessageID: 2, GrantLimit: 256 << 10, PacingRate: 1}).Append(nil, h(2)))
	frames = append(frames, frameAt{at, packet{bth: roce.BTH{Opcode: roce.RCWriteOnly, DestQP: 5, PSN: 1}, payload: 1024}.frame()})
	put(r, s, (&rdcc.CreditGrant{MessageID: 2, GrantLimit: 512 << 10, PacingRate: 1}).Append(nil, h(3)))
	put(reporter, r, (&rdcc.CongestionReport{ReporterID: 9, QueueDepth: 300, CongestionDegree: 40, Direction: rdcc.ToReceiver, SourcePort: 49152, DestinationPort: 4791,
		Source: s.Addr(), Destination: r.Addr()}).Append(nil, rdcc.Header{Seq: 1}))
	put(reporter, r, (&rdcc.CongestionReport{ReporterID: 9, QueueDepth: 200, CongestionDegree: 90, Direction: rdcc.ToReceiver, SourcePort: 49152, DestinationPort: 4791,
		Source: s.Addr(), Destination: r.Addr()}).Append(nil, rdcc.Header{Seq: 2}))
	put(r, s, (&rdcc.MsgDone{MessageID: 1, OctetsReceived: 2048}).Append(nil, h(4)))
	put(s, r, (&rdcc.Cancel{MessageID: 2}).Append(nil, h(5)))
	put(r, s, (&rdcc.Error{Reason: rdcc.ReasonBudgetExhausted}).Append(nil, h(5)))
	put(netip.MustParseAddrPort("192.0.2.12:9"), r, (&rdcc.AssocRequest{SenderNonce: 8}).Append(nil, rdcc.Header{Seq: 1})) // not answered
	put(s, netip.MustParseAddrPort("192.0.2.14:53"), []byte("not ours, and no RDCC message"))
	put(s, r, []byte("ours, and no RDCC message"))
	return frames
}

func TestRDCC(t *testing.T) {
	doc := run(t, analysis.Options{RDCCPort: rdccPort}, captureOf(t, 1<<16, exchange()...))
	number := func(n int64) *int64 { return &n }
	id := "0x5a17c0de"
	want := &analysis.RDCC{
		UDPPort: rdccPort, Datagrams: 14, Malformed: 1,
		Types: map[string]int64{"ASSOC_REQUEST": 2, "ASSOC_ACCEPT": 1, "CREDIT_REQUEST": 3, "CREDIT_GRANT": 2, "CONGESTION_REPORT": 2, "MSG_DONE": 1, "CANCEL": 1, "ERROR": 1},
		Associations: []analysis.RDCCAssociation{
			{
				ID: &id, Sender: "192.0.2.11:40001", Receiver: "192.0.2.14:52001", Epochs: []int{3},
				Types:    map[string]int64{"ASSOC_REQUEST": 1, "ASSOC_ACCEPT": 1, "CREDIT_REQUEST": 3, "CREDIT_GRANT": 2, "MSG_DONE": 1, "CANCEL": 1, "ERROR": 1},
				Requests: number(2), RequestedBytes: number(2048 + 4<<20), UnscheduledBytes: number(2048), GrantedBytes: number(512 << 10),
				DoneMessages: number(1), DoneBytes: number(2048), FirstNS: epoch, LastNS: epoch + 11000, Flows: []string{doc.Flows[0].ID},
			},
			{
				Sender: "192.0.2.12:9", Receiver: "192.0.2.14:52001", Epochs: []int{}, Types: map[string]int64{"ASSOC_REQUEST": 1},
				Requests: number(0), RequestedBytes: number(0), UnscheduledBytes: number(0), GrantedBytes: number(0), DoneMessages: number(0), DoneBytes: number(0),
				FirstNS: epoch + 12000, LastNS: epoch + 12000, Flows: []string{},
			},
		},
		Reports: []analysis.RDCCReport{{Reporter: "0x00000009", Direction: "receiver", Flow: "192.0.2.11:49152>192.0.2.14:4791", Reports: 2, MaxDegree: 90, MaxBytes: 300,
			FirstNS: epoch + 7000, LastNS: epoch + 8000}},
		Notes: []string{},
	}
	if diff := cmp.Diff(want, doc.RDCC); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var text strings.Builder
	for _, table := range doc.RDCCTables() {
		for _, row := range table.Rows {
			text.WriteString(strings.Join(row, " ") + "\n")
		}
	}
	for _, part := range []string{"0x5a17c0de 192.0.2.11:40001 > 192.0.2.14:52001 2 ", "0x00000009 192.0.2.11:49152>192.0.2.14:4791 receiver 2 90 ", "2 CREDIT_GRANT, 2 CONGESTION_REPORT"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("the tables lack %q:\n%s", part, text.String())
		}
	}
}

// TestRDCC_notAskedFor: without the port there is nothing about RDCC, and the rest of the document is the same.
func TestRDCC_notAskedFor(t *testing.T) {
	b := captureOf(t, 1<<16, exchange()...)
	with, without := run(t, analysis.Options{RDCCPort: rdccPort}, b), run(t, analysis.Options{}, b)
	if without.RDCC != nil || without.RDCCTables() != nil {
		t.Fatal("RDCC is looked for on a port that nobody gave")
	}
	with.RDCC, with.Files[0].Path = nil, without.Files[0].Path
	if diff := cmp.Diff(without, with); diff != "" {
		t.Errorf("(-without +with):\n%s", diff)
	}
	if err := (analysis.Options{RDCCPort: 4791}).Check(); err == nil {
		t.Error("RDCC may be on RoCE's port")
	}
}

// TestRDCC_copies: a second tap, a mirror, or a network that duplicates changes nothing but the number of copies.
func TestRDCC_copies(t *testing.T) {
	frames := exchange()
	twice := slices.Clone(frames)
	for _, f := range frames {
		twice = append(twice, frameAt{f.atNS + 100, f.data})
	}
	slices.SortStableFunc(twice, func(a, b frameAt) int { return int(a.atNS - b.atNS) })
	one := run(t, analysis.Options{RDCCPort: rdccPort}, captureOf(t, 1<<16, frames...)).RDCC
	for name, doc := range map[string]*analysis.Document{
		"two taps": run(t, analysis.Options{RDCCPort: rdccPort}, captureOf(t, 1<<16, frames...), captureOf(t, 1<<16, frames...)),
		"copies":   run(t, analysis.Options{RDCCPort: rdccPort}, captureOf(t, 1<<16, twice...)),
	} {
		got := *doc.RDCC
		if got.Copies != 13 {
			t.Errorf("%s: %d copies of 13 good datagrams", name, got.Copies)
		}
		for i := range got.Associations {
			if got.Associations[i].Types["CREDIT_GRANT"] != one.Associations[i].Types["CREDIT_GRANT"] || *got.Associations[i].GrantedBytes != *one.Associations[i].GrantedBytes {
				t.Errorf("%s: %+v, without copies %+v", name, got.Associations[i], one.Associations[i])
			}
		}
		if !cmp.Equal(got.Types, one.Types) {
			t.Errorf("%s: %v, without copies %v", name, got.Types, one.Types)
		}
	}
}

func TestRDCC_snapped(t *testing.T) {
	got := run(t, analysis.Options{RDCCPort: rdccPort}, captureOf(t, 74, exchange()...)).RDCC
	// 32 octets are left behind 42 of headers: whole are MSG_DONE (32), CANCEL and ERROR (28) and the broken one (25). Cut are
	// three of associations, three requests, two grants and two reports.
	if got.Truncated != 10 || got.Types["MSG_DONE"] != 1 || got.Malformed != 1 {
		t.Errorf("got %+v", got)
	}
}

// TestRDCC_workers: many associations, epochs and messages give the same by any number of goroutines, and what a slow count says.
func TestRDCC_workers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var frames []frameAt
	granted := map[[2]uint64]uint64{}
	grants := int64(0)
	for i := range 20_000 {
		assoc := uint32(1 + rng.IntN(50))
		m := rdcc.CreditGrant{MessageID: uint64(1 + rng.IntN(20)), GrantLimit: uint64(rng.IntN(1 << 20)), PacingRate: 1}
		key := [2]uint64{uint64(assoc), m.MessageID}
		granted[key] = max(granted[key], m.GrantLimit)
		grants++
		frames = append(frames, frameAt{int64(i), rdcctest.Frame(creditReceiver, creditSender, m.Append(nil, rdcc.Header{Assoc: assoc, Epoch: uint16(rng.IntN(2)), Seq: uint32(i)}))})
	}
	sum := int64(0)
	for _, v := range granted {
		sum += int64(v)
	}
	b := captureOf(t, 1<<16, frames...)
	var first *analysis.RDCC
	for _, workers := range []int{1, 2, 7} {
		got := run(t, analysis.Options{RDCCPort: rdccPort, Workers: workers}, b).RDCC
		total := int64(0)
		for _, a := range got.Associations {
			total += *a.GrantedBytes
		}
		if len(got.Associations) != 50 || got.Types["CREDIT_GRANT"] != grants || total != sum {
			t.Errorf("%d workers: %d associations, %d grants of %d octets, want 50, %d, %d", workers, len(got.Associations), got.Types["CREDIT_GRANT"], total, grants, sum)
		}
		if first == nil {
			first = got
		} else if diff := cmp.Diff(first, got); diff != "" {
			t.Errorf("%d workers (-one +more):\n%s", workers, diff)
		}
	}
}

// TestRDCC_upstream: credit is counted at the judged taps alone.
func TestRDCC_upstream(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tap.pcap")
	if err := os.WriteFile(path, captureOf(t, 1<<16, exchange()...), 0o600); err != nil {
		t.Fatal(err)
	}
	doc, err := analysis.Run(t.Context(), []analysis.Input{{Path: path}, {Path: path, Role: analysis.Upstream}}, analysis.Options{RDCCPort: rdccPort})
	if err != nil {
		t.Fatal(err)
	}
	if doc.RDCC.Copies != 0 || doc.RDCC.Datagrams != 14 {
		t.Errorf("%d datagrams, %d copies", doc.RDCC.Datagrams, doc.RDCC.Copies)
	}
}
