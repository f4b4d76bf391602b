package analysis_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/capture/roce"
)

// conversation has a packet of every kind that the engine treats in its own way: a WRITE that loses a packet and goes
// back, its NAK, acknowledgements, CE and CNP, a READ, an atomic, a datagram, an RNR NAK, the wrap of the PSN.
func conversation() []packet {
	const us = 1000
	aeth := func(syndrome uint8, msn uint32) []byte { return roce.AETH{Syndrome: syndrome, MSN: msn}.Append(nil) }
	to := func(qp uint32, op roce.Opcode, psn uint32) roce.BTH {
		return roce.BTH{Opcode: op, DestQP: qp, PSN: psn, AckReq: true}
	}
	return []packet{
		{atNS: 0, bth: to(0x11, roce.RCWriteFirst, 0xfffffe), payload: 1024, tos: roce.ECT0, headers: roce.RETH{DMALen: 4096}.Append(nil)},
		{atNS: 10 * us, bth: to(0x11, roce.RCWriteMiddle, 0xffffff), payload: 1024, tos: roce.CE},
		{atNS: 12 * us, back: true, bth: roce.BTH{Opcode: roce.CNP, DestQP: 0x22, BECN: true}, payload: 16},
		{atNS: 20 * us, bth: to(0x11, roce.RCWriteLast, 1), payload: 1024},
		{atNS: 25 * us, back: true, bth: to(0x22, roce.RCAck, 0), headers: aeth(0x60, 0)},
		{atNS: 40 * us, bth: to(0x11, roce.RCWriteMiddle, 0), payload: 1024},
		{atNS: 50 * us, bth: to(0x11, roce.RCWriteLast, 1), payload: 1024},
		{atNS: 60 * us, back: true, bth: to(0x22, roce.RCAck, 1), headers: aeth(0x1f, 1)},
		{atNS: 70 * us, bth: to(0x11, roce.RCReadRequest, 2), headers: roce.RETH{DMALen: 2048}.Append(nil)},
		{atNS: 80 * us, back: true, bth: to(0x22, roce.RCReadResponseFirst, 2), headers: aeth(0x1f, 2), payload: 1024},
		{atNS: 81 * us, back: true, bth: to(0x22, roce.RCReadResponseLast, 3), headers: aeth(0x1f, 2), payload: 1024},
		{atNS: 90 * us, bth: to(0x11, roce.RCFetchAdd, 4)},
		{atNS: 95 * us, back: true, bth: to(0x22, roce.RCAtomicAck, 4), headers: append(aeth(0x1f, 3), make([]byte, 8)...)},
		{atNS: 99 * us, bth: to(0x11, roce.RCSendOnly, 5), payload: 100},
		{atNS: 100 * us, back: true, bth: to(0x22, roce.RCAck, 5), headers: aeth(0x2c, 3)},
		{atNS: 110 * us, v6: true, vlans: []uint16{3 << 13}, bth: to(0x33, roce.UDSendOnly, 9), headers: roce.DETH{SrcQP: 0x44}.Append(nil), payload: 64},
		{atNS: 120 * us, bth: to(0x55, roce.UCSendFirst, 9), payload: 256},
		{atNS: 130 * us, bth: to(0x55, roce.UCSendLast, 12), payload: 256},
	}
}

// holds says what must be so of the document of any capture.
func holds(t *testing.T, doc *analysis.Document) []byte {
	t.Helper()
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatalf("the document is no JSON: %v", err)
	}
	var tree any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil {
		t.Fatal(err)
	}
	noNegativeCounts(t, "", tree)
	var payload, unique int64
	for _, f := range doc.Flows {
		if f.UniqueBytes > f.PayloadBytes || f.LastNS < f.FirstNS || f.CEPackets > f.Packets || f.RetransmittedPackets > f.Packets {
			t.Fatalf("flow %s: unique %d of payload %d, from %d to %d, %d marked and %d sent again of %d packets", f.ID, f.UniqueBytes, f.PayloadBytes,
				f.FirstNS, f.LastNS, f.CEPackets, f.RetransmittedPackets, f.Packets)
		}
		payload, unique = payload+f.PayloadBytes, unique+f.UniqueBytes
	}
	tot := doc.Totals
	if tot.UniqueBytes > tot.PayloadBytes || tot.RoCEPackets > tot.Packets || tot.CEPackets != tot.CEDataPackets+tot.CEAckPackets || payload > tot.PayloadBytes || unique > tot.UniqueBytes { // RD has no flows
		t.Fatalf("totals %+v; the flows have %d bytes of payload, %d unique", tot, payload, unique)
	}
	if n := tot.ECN.NotECT + tot.ECN.ECT0 + tot.ECN.ECT1 + tot.ECN.CE; n != tot.RoCEPackets {
		t.Fatalf("%d packets by ECN of %d", n, tot.RoCEPackets)
	}
	for _, v := range []*float64{doc.Aggregate.Jain, doc.Aggregate.MinMax} {
		if v != nil && (*v < 0 || *v > 1.0000001) {
			t.Fatalf("an index of %v", *v)
		}
	}
	if err := doc.WriteCSV(io.Discard, "fuzz"); err != nil {
		t.Fatalf("long form: %v", err)
	}
	doc.Tables()
	return text
}

// noNegativeCounts walks the document: only points in time and offsets of clocks may be below zero.
func noNegativeCounts(t *testing.T, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			noNegativeCounts(t, path+"."+k, e)
		}
	case []any:
		for _, e := range v {
			noNegativeCounts(t, path, e)
		}
	case json.Number:
		time := strings.HasSuffix(path, "first_ns") || strings.HasSuffix(path, "last_ns") || strings.HasSuffix(path, "start_ns") || strings.HasSuffix(path, "end_ns") ||
			strings.HasSuffix(path, "time_ns") || strings.HasSuffix(path, ".at_ns")
		if strings.HasPrefix(v.String(), "-") && !time {
			t.Fatalf("%s = %s", path, v)
		}
	}
}

// judge analyses a capture twice, the second time with other numbers of goroutines, and holds both to each other.
func judge(t *testing.T, file []byte, o analysis.Options) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	inputs := []analysis.Input{{Path: path}}
	o.Workers = 1
	doc, err := analysis.Run(ctx, inputs, o)
	if err != nil {
		if ctx.Err() != nil {
			t.Fatalf("%d bytes take longer than 30 s", len(file))
		}
		return
	}
	text := holds(t, doc)
	o.Workers = 2
	again, err := analysis.Run(ctx, inputs, o)
	if err != nil {
		t.Fatalf("with one worker a document, with two: %v", err)
	}
	if b := holds(t, again); !bytes.Equal(text, b) {
		t.Fatalf("with one worker:\n%s\nwith two:\n%s", text, b)
	}
}

// FuzzRun: any bytes as a capture.
func FuzzRun(f *testing.F) {
	whole := pcapOf(f, conversation()...)
	f.Add(whole, false)
	f.Add(whole[:len(whole)-100], true)
	snapped := conversation()
	for i := range snapped {
		snapped[i].snap = 60 + i
	}
	f.Add(pcapOf(f, snapped...), true)
	f.Add(pcapOf(f), false)
	var ng bytes.Buffer
	w, err := capture.NewWriter(&ng, capture.WriterOptions{Interfaces: []capture.Interface{{Name: "a", LinkType: roce.LinkEthernet}, {Name: "b", LinkType: roce.LinkRaw}}})
	if err != nil {
		f.Fatal(err)
	}
	for i, p := range conversation() {
		b := p.frame()
		if i%2 == 1 && !p.v6 {
			b = b[ethernet:]
		}
		if err := w.Write(&capture.Packet{TimeNS: epoch + p.atNS, Data: b, OrigLen: len(b), Iface: i % 2}); err != nil {
			f.Fatal(err)
		}
	}
	if err := w.WriteStats(0, epoch, 20, 1); err != nil {
		f.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		f.Fatal(err)
	}
	f.Add(ng.Bytes(), false)
	f.Fuzz(func(t *testing.T, file []byte, phased bool) {
		if len(file) > 1<<16 {
			return
		}
		o := analysis.Options{CheckICRC: true, MaxCells: 4096}
		if phased {
			o = analysis.Options{Bin: time.Microsecond, LinkRateBps: 1e9, MaxCells: 256, ReorderWindow: -1, DedupWindow: -1,
				Phases: []analysis.Phase{{Name: "p", StartNS: epoch, EndNS: epoch + 1e6, TrimStart: -1, TrimEnd: -1}}}
		}
		judge(t, file, o)
	})
}

// FuzzRunPackets: any sequence of well-formed packets between two hosts. Eight bytes make a packet, so that mutations reach
// what the engine remembers of queue pairs rather than headers.
func FuzzRunPackets(f *testing.F) {
	script := func(packets ...[8]byte) (b []byte) {
		for _, p := range packets {
			b = append(b, p[:]...)
		}
		return b
	}
	op := func(o roce.Opcode) byte { return byte(o) }
	f.Add(script([8]byte{op(roce.RCWriteFirst), 0, 1, 10, 1, 64, 0, 0}, [8]byte{op(roce.RCWriteLast), 0, 1, 10, 3, 64, 0, 0}, [8]byte{op(roce.RCAck), 1, 0, 10, 0, 0, 0x1f, 0}))
	f.Add(script([8]byte{op(roce.RCWriteOnly), 0, 1, 10, 3, 64, 0, 0}, [8]byte{op(roce.CNP), 1, 0, 1, 0, 4, 0, 0}, [8]byte{op(roce.RCWriteOnly), 0, 3, 10, 3, 64, 0, 0},
		[8]byte{op(roce.RCAck), 1, 0x81, 10, 0, 0, 0x60, 0}, [8]byte{op(roce.RCWriteOnly), 0, 0x82, 200, 3, 64, 0, 0}))
	f.Add(script([8]byte{op(roce.RCReadRequest), 0, 1, 10, 0, 0, 0, 0}, [8]byte{op(roce.RCReadResponseOnly), 1, 0x40, 10, 0, 64, 0x1f, 0}, [8]byte{op(roce.UDSendOnly), 2, 1, 255, 0, 9, 0, 0}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 8*300 {
			return
		}
		var out bytes.Buffer
		w := capture.NewPcapWriter(&out, roce.LinkEthernet, 0)
		now := int64(epoch)
		psn := map[string]uint32{}
		for ; len(b) >= 8; b = b[8:] {
			p := packet{back: b[1]&1 != 0, v6: b[1]&8 != 0, tos: b[4] & 3, payload: int(b[5]) * 4, ttl: 64 - b[7]&1, ipID: uint16(b[7] >> 1)}
			qp := 0x10 + uint32(b[1]>>1&3)
			if p.back {
				qp += 0x10
			}
			p.bth = roce.BTH{Opcode: roce.Opcode(b[0]), DestQP: qp, AckReq: b[4]&4 != 0, BECN: b[4]&8 != 0, FECN: b[4]&16 != 0}
			if b[1]&16 != 0 {
				p.bth.DestQP = 1
			}
			// The PSN steps by a small signed number from the last one of the same key, or, with bit 6, from the other side's.
			key := fmt.Sprint(p.back != (b[2]&0x40 != 0), b[1]>>1&3)
			step := int(b[2] & 0x3f)
			if b[2]&0x80 != 0 {
				step = -step
			}
			if b[1]&32 != 0 {
				step <<= 15
			}
			psn[key] = roce.PSNAdd(psn[key], step)
			p.bth.PSN = psn[key]
			if n := p.bth.Opcode.HeaderLen(); n > 0 {
				p.headers = make([]byte, n)
				if p.bth.Opcode.HasAETH() {
					p.headers[0] = b[6]
				} else if p.bth.Opcode.HasRETH() {
					binary.BigEndian.PutUint32(p.headers[n-4:], uint32(b[6])<<6)
				}
			}
			now += int64(b[3]) * int64(b[3]) * 100
			data := p.frame()
			if err := w.Write(&capture.Packet{TimeNS: now, Data: data}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		judge(t, out.Bytes(), analysis.Options{Bin: 100 * time.Microsecond, MaxCells: 4096, LinkRateBps: 1e9,
			Expect: analysis.Expect{CNPScope: analysis.ScopeIPPair, CNPInterval: 10 * time.Microsecond}})
	})
}
