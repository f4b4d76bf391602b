package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/internal/fixtures"
	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/qp"
)

// each calls f for every whole RoCE frame of a capture of real soft-RoCE traffic.
func each(t *testing.T, file string, f func(r *roce.Frame, data []byte)) {
	t.Helper()
	c, err := capture.Open(filepath.Join(fixtures.Dir(t), "pcap", file))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var p capture.Packet
	var r roce.Frame
	for {
		err := c.Next(&p)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Data) != p.OrigLen {
			continue
		}
		if err := r.Decode(p.LinkType, p.Data, p.OrigLen, roce.Port); err == nil && r.Kind == roce.KindRoCE {
			f(&r, p.Data)
		}
	}
}

func v4(a [16]byte) [4]byte { return [4]byte(a[12:]) }

func TestFixtures_everyICRCHoldsAndOurEncoderGivesTheSameBytes(t *testing.T) {
	for _, tc := range []struct {
		file    string
		packets int
	}{
		{"clean_single/clean_single.r1-ingress.pcap", 1625},
		{"ipv6_gid/ipv6_gid.sw-out-r1.pcap", 0},
		{"netem_loss1/netem_loss1.sw-out-r1.pcap", 0},
		{"write_uc/write_uc.sw-out-r1.pcap", 0},
		{"clean_q4/clean_q4.sw-out-r1.pcap", 2112},
	} {
		t.Run(filepath.Base(tc.file), func(t *testing.T) {
			packets, writes := 0, 0
			var b []byte
			each(t, tc.file, func(r *roce.Frame, data []byte) {
				packets++
				if ok, checked := r.CheckICRC(data); !ok || !checked {
					t.Fatalf("packet %d %v PSN %d: ICRC ok=%v checked=%v", packets, r.BTH.Opcode, r.BTH.PSN, ok, checked)
				}
				if !r.BTH.Opcode.IsWrite() && !r.BTH.Opcode.IsAck() {
					return
				}
				writes++
				b = appendPacket(b[:0], &qp.Out{BTH: r.BTH, RETH: r.RETH, AETH: r.AETH}, r.Payload)
				if r.IPv6 {
					b = roce.AppendICRC(b, roce.ICRCv6(r.Src, r.Dst, r.SrcPort, r.DstPort, b))
				} else {
					b = roce.AppendICRC(b, roce.ICRCv4(v4(r.Src), v4(r.Dst), r.SrcPort, r.DstPort, r.IPID, r.DF, b))
				}
				if want := data[r.BTHOffset : r.ICRCOffset+roce.ICRCLen]; !bytes.Equal(b, want) {
					t.Fatalf("packet %d %v PSN %d: encoded differently\n got %x\nwant %x", packets, r.BTH.Opcode, r.BTH.PSN, b, want)
				}
			})
			if packets == 0 || writes == 0 || tc.packets != 0 && packets != tc.packets {
				t.Errorf("%d packets, %d encoded; want %d packets", packets, writes, tc.packets)
			}
		})
	}
}

// sink is a responder's memory that takes all.
type sink struct{ bytes int }

func (s *sink) Writable(uint32, uint64, uint32) bool     { return true }
func (s *sink) WriteRemote(_ uint32, _ uint64, b []byte) { s.bytes += len(b) }
func (s *sink) WriteLocal(uint64, []byte)                {}
func line(b roce.BTH, r roce.RETH, payload int) string {
	s := fmt.Sprintf("%v qp %#x psn %d ack %v pad %d len %d", b.Opcode, b.DestQP, b.PSN, b.AckReq, b.Pad, payload)
	if b.Opcode.HasRETH() {
		s += fmt.Sprintf(" va %#x key %#x of %d", r.VA, r.RKey, r.DMALen)
	}
	return s
}

func fixtureQP(t *testing.T, psn uint32, mem qp.Memory, n *qp.Counters) *qp.Machine {
	t.Helper()
	m, err := qp.New(qp.Config{QPN: 0x11, FirstPSN: psn, MTU: 1024, RetryCount: 7, RNRRetry: 7, SendDepth: 128, RecvDepth: 0,
		AckEvery: 64, Window: 4096, CatchUp: time.Hour, Rate: 400 * units.GbitPerSec}, mem, n)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestFixtures_requesterSendsWhatRealSoftRoCESent posts the messages of a real run and compares packet by packet.
func TestFixtures_requesterSendsWhatRealSoftRoCESent(t *testing.T) {
	var want, got []string
	var m *qp.Machine
	var n qp.Counters
	var out qp.Out
	each(t, "clean_single/clean_single.r1-ingress.pcap", func(r *roce.Frame, _ []byte) {
		if !r.BTH.Opcode.IsWrite() {
			return
		}
		want = append(want, line(r.BTH, r.RETH, r.PayloadLen))
		if m == nil {
			m = fixtureQP(t, r.BTH.PSN, &sink{}, &n)
			if err := m.Connect(r.BTH.DestQP, 0); err != nil {
				t.Fatal(err)
			}
		}
		if r.BTH.Opcode == roce.RCWriteFirst {
			if err := m.Post(0, qp.WorkRequest{Length: r.RETH.DMALen, RemoteVA: r.RETH.VA, RKey: r.RETH.RKey}); err != nil {
				t.Fatal(err)
			}
		}
	})
	for m.Next(time.Hour, &out) {
		got = append(got, line(out.BTH, out.RETH, out.Length))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-capture +ours)\n%s", diff)
	}
}

// TestFixtures_responderAnswersRealSoftRoCE plays a real requester's packets, with loss in one of them, into the responder.
// Every message must arrive once and in order; on the clean run the answers are those of the real responder.
func TestFixtures_responderAnswersRealSoftRoCE(t *testing.T) {
	for _, tc := range []struct {
		file   string
		server byte // last byte of the receiver's address
		clean  bool
	}{
		{"clean_single/clean_single.r1-ingress.pcap", 14, true},
		{"netem_loss1/netem_loss1.sw-out-r1.pcap", 14, false},
	} {
		t.Run(filepath.Base(tc.file), func(t *testing.T) {
			var m *qp.Machine
			var n qp.Counters
			mem := &sink{}
			var want, got []string
			var out qp.Out
			first, last := uint32(0), uint32(0)
			messages := 0
			seen := map[uint32]bool{}
			each(t, tc.file, func(r *roce.Frame, _ []byte) {
				toServer := r.Dst[15] == tc.server
				if !toServer && r.BTH.Opcode.IsAck() {
					want = append(want, fmt.Sprintf("%d syndrome %#x msn %d", r.BTH.PSN, r.AETH.Syndrome, r.AETH.MSN))
				}
				if !toServer || !r.BTH.Opcode.IsWrite() {
					return
				}
				if m == nil {
					m = fixtureQP(t, 0, mem, &n)
					first = r.BTH.PSN
					if err := m.Connect(0x11, r.BTH.PSN); err != nil {
						t.Fatal(err)
					}
				}
				if !seen[r.BTH.PSN] {
					seen[r.BTH.PSN] = true
					if r.BTH.Opcode.IsLast() {
						messages++
					}
				}
				if len(seen) == 1 || roce.PSNDiff(r.BTH.PSN, last) > 0 {
					last = r.BTH.PSN
				}
				m.Receive(0, &qp.In{BTH: r.BTH, RETH: r.RETH, Payload: r.Payload})
				for m.Next(0, &out) {
					got = append(got, fmt.Sprintf("%d syndrome %#x msn %d", out.BTH.PSN, out.AETH.Syndrome, out.AETH.MSN))
				}
			})
			if m.State() != qp.Ready {
				t.Fatalf("state %v, counters %+v", m.State(), n)
			}
			if bytes := (roce.PSNDiff(last, first) + 1) * 1024; mem.bytes != bytes || int(n.RxWriteRequests) != messages {
				t.Errorf("%d bytes in %d messages, want %d in %d", mem.bytes, n.RxWriteRequests, bytes, messages)
			}
			if tc.clean {
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-capture +ours)\n%s", diff)
				}
			} else if n.OutOfSequence == 0 {
				t.Errorf("counters %+v: the capture has losses", n)
			}
		})
	}
}
