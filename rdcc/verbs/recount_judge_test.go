package verbs

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/rdcctest"
)

// TestRecount: the judge of captures itself, on captures made by hand.
func TestRecount(t *testing.T) {
	sender, receiver := netip.MustParseAddrPort("192.0.2.11:40000"), netip.MustParseAddrPort("192.0.2.14:52041")
	binding := rdcc.RoCEBinding{DestQP: 17, MSN: 1, Messages: 2}.Value()
	request := func(unscheduled uint64) func(*recording) {
		return func(r *recording) {
			r.control(sender, receiver, &rdcc.CreditRequest{MessageID: 1, MessageLength: 3000, UnscheduledSent: unscheduled, BindingKind: rdcc.BindingRoCEv2, BindingValue: binding})
		}
	}
	grant := func(limit uint64) func(*recording) {
		return func(r *recording) {
			r.control(receiver, sender, &rdcc.CreditGrant{MessageID: 1, GrantLimit: limit, PacingRate: 100, Lifetime: 1000})
		}
	}
	data := func(psn uint32, first bool, n int) func(*recording) {
		return func(r *recording) { r.data(sender, psn, first, n) }
	}
	later := func(r *recording) { r.now += int64(5 * time.Millisecond) }
	for _, row := range []struct {
		name                       string
		events                     []func(*recording)
		beyond, unasked, late, out uint64
		again, lost                uint64
	}{
		{name: "within", events: []func(*recording){request(0), grant(2000), data(5, true, 1000), data(6, false, 1000), grant(3000), data(7, true, 1000)}, out: 2000},
		{name: "before_the_grant", events: []func(*recording){request(0), data(5, true, 1000), grant(3000), data(6, false, 1000), data(7, true, 1000)}, beyond: 1000, out: 2000},
		{name: "beyond_by_half", events: []func(*recording){request(0), grant(1500), data(5, true, 1000), data(6, false, 1000), grant(3000), data(7, true, 1000)}, beyond: 500, out: 1500},
		{name: "unscheduled", events: []func(*recording){request(3000), data(5, true, 1000), data(6, false, 1000), data(7, true, 1000)}, out: 3000},
		{name: "before_the_request", events: []func(*recording){data(5, true, 1000), request(3000), data(6, false, 1000)}, unasked: 1000, out: 3000},
		{name: "sent_again", events: []func(*recording){request(0), grant(3000), data(5, true, 1000), data(5, true, 1000), data(6, false, 1000)}, again: 1000, out: 3000},
		{name: "lost_before_the_tap", events: []func(*recording){request(0), grant(3000), data(5, true, 1000), data(7, true, 1000), data(6, false, 1000), data(7, true, 1000)}, lost: 1, out: 3000},
		{name: "late", events: []func(*recording){request(0), grant(3000), data(5, true, 1000), later, data(6, false, 1000)}, late: 1000, out: 3000},
	} {
		t.Run(row.name, func(t *testing.T) {
			rec := record(t, row.events)
			r := newRecount(52041)
			r.slack = time.Millisecond
			if err := r.file(rec); err != nil {
				t.Fatal(err)
			}
			if r.Beyond != row.beyond || r.Unasked != row.unasked || r.Late != row.late || r.Again != row.again || r.Lost != row.lost || r.MostOut != row.out || len(r.Wrong) > 0 {
				t.Errorf("beyond %d, unasked %d, late %d, again %d, lost %d, out %d, %q; want %+v", r.Beyond, r.Unasked, r.Late, r.Again, r.Lost, r.MostOut, r.Wrong, row)
			}
		})
	}
}

// recording is a capture being made.
type recording struct {
	t   *testing.T
	w   *capture.PcapWriter
	now int64
	seq uint32
}

func record(t *testing.T, events []func(*recording)) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "made.pcap")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := &recording{t: t, w: capture.NewPcapWriter(f, roce.LinkEthernet, 0), now: 1e18}
	for _, e := range events {
		e(r)
	}
	if err := r.w.Flush(); err != nil {
		t.Fatal(err)
	}
	return file
}

func (r *recording) write(frame []byte) {
	r.t.Helper()
	r.now += 1000
	if err := r.w.Write(&capture.Packet{TimeNS: r.now, Data: frame, OrigLen: len(frame), LinkType: roce.LinkEthernet}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *recording) control(from, to netip.AddrPort, m rdcc.Message) {
	r.seq++
	r.write(rdcctest.Frame(from, to, m.Append(nil, rdcc.Header{Assoc: 9, Epoch: 1, Seq: r.seq})))
}

// data is a packet of an RDMA WRITE: the first has a RETH.
func (r *recording) data(from netip.AddrPort, psn uint32, first bool, n int) {
	opcode := byte(0x07) // WRITE MIDDLE
	if first {
		opcode = 0x06 // WRITE FIRST
	}
	b := []byte{opcode, 0, 0xff, 0xff, 0, 0, 0, 17, 0, byte(psn >> 16), byte(psn >> 8), byte(psn)}
	if first {
		b = append(b, make([]byte, roce.RETHLen)...)
	}
	b = append(b, make([]byte, n+roce.ICRCLen)...)
	r.write(rdcctest.Frame(from, netip.MustParseAddrPort("192.0.2.14:4791"), b))
}
