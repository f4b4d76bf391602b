package analysis

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// scripted writes captures packet by packet, for what must be told apart exactly.
type scripted struct {
	g *gen
	h *genHalf
	t int64
}

func script() *scripted {
	g := generate(genParams{seed: 1, pairs: 1, hosts: 1, messages: 1, lives: 1, mtu: 256, window: 8})
	g.records = nil
	g.ipid = 100
	return &scripted{g: g, h: g.halves[0]}
}

// wait lets time pass.
func (s *scripted) wait(ns int64) *scripted { s.t += ns; return s }

// send sends WRITEs of one packet each, 1 us apart, with IP identifications that count up.
func (s *scripted) send(psns ...int) *scripted {
	for _, psn := range psns {
		s.add(s.h, s.g.frame(s.h, 10, psn, true, 100, 100, -1, 2))
	}
	return s
}

// late sends one that was sent long before, by its identification.
func (s *scripted) late(psn int) *scripted {
	id := s.g.ipid
	s.g.ipid -= 7
	s.send(psn)
	s.g.ipid = id
	return s
}

func (s *scripted) to(from, to int) *scripted {
	for psn := from; psn <= to; psn++ {
		s.send(psn)
	}
	return s
}

// answer sends an acknowledgement, or a NAK by its syndrome.
func (s *scripted) answer(psn, syndrome int) *scripted {
	s.add(s.h.back, s.g.frame(s.h.back, 17, psn, false, 0, 0, syndrome, 0))
	return s
}

func (s *scripted) add(h *genHalf, f []byte) {
	s.g.records = append(s.g.records, genRecord{t: genEpoch + s.t, frame: f, conn: h.name})
	s.t += 1000
}

func (s *scripted) flow(t *testing.T) *Flow {
	t.Helper()
	doc := analyse(t, Options{}, Input{Path: writeFile(t, "x.pcap", s.g.pcap())})
	if len(doc.Flows) != 1 {
		t.Fatalf("%d flows, want 1", len(doc.Flows))
	}
	return &doc.Flows[0]
}

// The syndromes of answers (IBTA volume 1, 9.7.5.1.1).
const (
	scriptACK = 0x1f
	scriptRNR = 0x20 | 14
	scriptNAK = 0x60
)

// TestRun_recovery: how a loss was made good, packet by packet.
func TestRun_recovery(t *testing.T) {
	type counts struct{ retransmitted, duplicates, late, lost, selective, missed, restarts, byNAK, byRNR, byTimeout int64 }
	begin := func() *scripted { return script().to(1, 40).answer(40, scriptACK) } // enough to see that identifications count up
	for _, tt := range []struct {
		name, why string
		s         *scripted
		want      counts
		events    []RecoveryEvent
	}{
		{"clean", "nothing to make good", begin().to(41, 60).answer(60, scriptACK), counts{}, nil},
		{"go_back_n", "lost after the tap: all from the refused one on comes again", begin().to(41, 50).answer(44, scriptNAK).wait(9000).to(44, 60).answer(60, scriptACK),
			counts{retransmitted: 7, duplicates: 7, restarts: 1, byNAK: 1},
			[]RecoveryEvent{{Trigger: "nak", NAKPSN: ptr(uint32(44)), DelayNS: ptr(int64(10_000)), FromPSN: 44, HighPSN: 50, Packets: 7}}},
		{"go_back_n_before_tap", "lost before the tap: the first copy was never seen", begin().to(41, 43).to(45, 50).answer(44, scriptNAK).wait(9000).to(44, 60).answer(60, scriptACK),
			counts{retransmitted: 7, duplicates: 6, lost: 1, restarts: 1, byNAK: 1},
			[]RecoveryEvent{{Trigger: "nak", NAKPSN: ptr(uint32(44)), DelayNS: ptr(int64(10_000)), FromPSN: 44, HighPSN: 50, Packets: 7}}},
		{"timeout", "no NAK: the sender waited", begin().to(41, 50).wait(4_000_000).to(46, 60).answer(60, scriptACK),
			counts{retransmitted: 5, duplicates: 5, restarts: 1, byTimeout: 1},
			[]RecoveryEvent{{Trigger: "timeout", FromPSN: 46, HighPSN: 50, Packets: 5}}},
		{"receiver_not_ready", "refused for want of a buffer", begin().to(41, 50).answer(46, scriptRNR).wait(99_000).to(46, 60).answer(60, scriptACK),
			counts{retransmitted: 5, duplicates: 5, restarts: 1, byRNR: 1},
			[]RecoveryEvent{{Trigger: "rnr", NAKPSN: ptr(uint32(46)), DelayNS: ptr(int64(100_000)), FromPSN: 46, HighPSN: 50, Packets: 5}}},
		{"selective", "one packet alone comes again", begin().to(41, 50).answer(44, scriptNAK).to(51, 55).send(44).to(56, 70).answer(70, scriptACK),
			counts{retransmitted: 1, duplicates: 1, selective: 1}, nil},
		{"selective_at_end", "and nothing after it", begin().to(41, 50).answer(48, scriptNAK).wait(9000).send(48).answer(50, scriptACK),
			counts{retransmitted: 1, duplicates: 1, selective: 1}, nil},
		{"selective_before_tap", "what fills the hole has a newer identification than what went before",
			begin().to(41, 43).to(45, 50).answer(44, scriptNAK).to(51, 55).send(44).to(56, 70).answer(70, scriptACK), counts{retransmitted: 1, lost: 1, selective: 1}, nil},
		{"late", "what fills the hole was sent before", begin().to(41, 43).to(45, 47).late(44).to(48, 70).answer(70, scriptACK), counts{late: 1}, nil},
		{"missed", "acknowledged, but the tap has never seen it", begin().to(41, 43).to(46, 70).answer(70, scriptACK), counts{missed: 2}, nil},
		{"lost", "a hole that nobody acknowledged", begin().to(41, 43).to(46, 70), counts{lost: 2}, nil},
		{"skipped", "the restart leaves one out", begin().to(41, 50).answer(44, scriptNAK).wait(9000).to(44, 46).to(48, 60).answer(46, scriptACK),
			counts{retransmitted: 6, duplicates: 6, lost: 1, restarts: 1, byNAK: 1},
			[]RecoveryEvent{{Trigger: "nak", NAKPSN: ptr(uint32(44)), DelayNS: ptr(int64(10_000)), FromPSN: 44, HighPSN: 50, Packets: 6, Skipped: 1}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := tt.s.flow(t)
			got := counts{retransmitted: f.RetransmittedPackets, duplicates: f.DuplicatePackets, late: f.OutOfOrderPackets, lost: f.LostBeforeTap, selective: f.SelectivePackets,
				missed: f.MissedByTap}
			var events []RecoveryEvent
			if r := f.Recovery; r != nil {
				got.restarts, got.byNAK, got.byRNR, got.byTimeout = r.Restarts, r.ByNAK, r.ByRNR, r.ByTimeout
				for _, e := range r.Events {
					if r.Restarts > 0 {
						e.TimeNS = 0
						events = append(events, e)
					}
				}
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(counts{})); diff != "" {
				t.Errorf("%s (-script +analysis):\n%s", tt.why, diff)
			}
			if diff := cmp.Diff(tt.events, events); diff != "" {
				t.Errorf("%s: events (-script +analysis):\n%s", tt.why, diff)
			}
		})
	}
}

// TestRun_pacingScope: the receiver counts CNPs together by a scope, and the analysis finds out by which.
func TestRun_pacingScope(t *testing.T) {
	for _, scope := range []string{ScopeQP, ScopeIPPair, ScopeDestination, ScopePort, "none"} {
		t.Run(scope, func(t *testing.T) {
			for seed := range uint64(5) {
				p := genParams{seed: seed, pairs: 12, hosts: 3, messages: 400, lives: 1, mtu: 256, window: 64, ce: 0.3, aliases: true, cnpScope: scope, ackLoss: 0.01}
				doc := analyse(t, Options{}, Input{Path: writeFile(t, "x.pcap", generate(p).pcap())})
				c := doc.Congestion
				switch {
				case scope == "none":
					if c.PacingScope != nil || c.PacingReason == "" {
						t.Errorf("seed %d: pacing %v, %q; want none and why", seed, c.PacingScope, c.PacingReason)
					}
				case c.PacingScope == nil || *c.PacingScope != scope:
					t.Errorf("seed %d: pacing scope %v (%s), want %s", seed, c.PacingScope, c.PacingReason, scope)
				case *c.PacingNS < genCNPGap*98/100 || *c.PacingNS > genCNPGap*12/10:
					t.Errorf("seed %d: pacing interval %d, want %d", seed, *c.PacingNS, genCNPGap)
				}
			}
		})
	}
}
