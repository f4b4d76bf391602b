package report

import (
	"fmt"
	"math"

	"github.com/pcmlab/pcmlab/analysis"
)

func ptr[T any](v T) *T { return &v }

const (
	testBin    = int64(1e7)
	testSecond = int64(1e9)
	testStart  = int64(1_790_000_000_000_000_000)
)

// bell is a histogram around a median, with a tail.
func bell(median float64, n int) (out []analysis.Sample) {
	for i := -24; i <= 60; i++ {
		width := 6.0
		if i > 0 {
			width = 12
		}
		if c := int64(float64(n) * math.Exp(-float64(i*i)/(2*width*width)) / 20); c > 0 {
			out = append(out, analysis.Sample{Value: int64(median * math.Pow(1.07, float64(i))), Count: c})
		}
	}
	return out
}

func latencyOf(median int64) analysis.Latency {
	return analysis.Latency{Samples: 900, Min: ptr(median / 3), P50: ptr(median), P90: ptr(median * 2), P99: ptr(median * 4), P999: ptr(median * 6), Max: ptr(median * 7)}
}

// incast is a document like that of the demo: three senders, five phases of two seconds.
func incast() *analysis.Document {
	d := &analysis.Document{Schema: analysis.Schema, TimeScale: 50, Quality: analysis.Quality{Verdict: analysis.Complete, Notes: []string{"drops are known"}}}
	d.Files = []analysis.File{{Path: "switch-out.pcapng", Role: "judged", LinkType: "ethernet", Packets: 123456, RoCEPackets: 123400, Bytes: 126 << 20, FirstNS: ptr(testStart), LastNS: ptr(testStart + 10*testSecond)}}
	d.Series = analysis.Series{BinNS: testBin, StartNS: testStart, Bins: 1000}
	spans := [][2]int{{0, 1000}, {200, 800}, {400, 600}}
	share := func(b int) float64 { return []float64{1, 2, 3, 2, 1}[min(b/200, 4)] }
	for i, sp := range spans {
		id := "192.0.2.1" + string(rune('1'+i)) + ">192.0.2.14:0x00001" + string(rune('1'+i))
		f := analysis.Flow{ID: id, Name: "h" + string(rune('1'+i)), Service: "RC", State: analysis.StateOK, Packets: 10000, UniqueBytes: 4 << 20,
			GoodputBps: ptr(480e6 / 2), CEPackets: 700, CEShare: ptr(0.07), CNPs: ptr(int64(120)), CNPRateHz: ptr(14.5), NAKs: &analysis.NAKs{}, Operations: analysis.Operations{Write: 640},
			RTTNS: latencyOf(812_000 + int64(i)*90_000), CNPGapNS: latencyOf(2_100_000), CNPDelayNS: latencyOf(40_000),
			MessageNS: analysis.Messages{Count: 640, Until: "ack", P50: ptr(int64(12_300_000)), P99: ptr(int64(61_000_000)), Max: ptr(int64(90_000_000))},
			Reaction:  &analysis.Reaction{Episodes: 80, Cut: 71, NoCut: 8, Recovered: 70, Unfinished: 1, BeforeBps: &analysis.Rates{P50: 240e6}, LowestBps: &analysis.Rates{P50: 130e6}, RecoverNS: latencyOf(9_000_000)}}
		d.Flows = append(d.Flows, f)
		s := analysis.FlowSeries{ID: id, FirstBin: sp[0]}
		for b := sp[0]; b < sp[1]; b++ {
			n := share(b)
			s.GoodputBps = append(s.GoodputBps, 480e6/n*(1+0.05*math.Sin(float64(b*(i+2))/7)))
			s.Packets = append(s.Packets, 50)
			s.CE = append(s.CE, int64((n-1)*4+float64(b%3)))
			s.CNPs = append(s.CNPs, int64(n-1)*int64(b%2))
			s.Retransmits = append(s.Retransmits, int64(b%97/96))
		}
		d.Series.Flows = append(d.Series.Flows, s)
	}
	d.Flows[1].RetransmittedPackets, d.Flows[1].DuplicatePackets, d.Flows[1].LostBeforeTap = 9, 8, 3
	d.Flows[1].Recovery = &analysis.Recovery{Restarts: 2, ByNAK: 1, ByTimeout: 1, DelayNS: latencyOf(24_000)}
	for b := range d.Series.Bins {
		v := ptr(1 - (share(b)-1)/60*(1+math.Sin(float64(b)/9)))
		if b%200 < 12 && b > 200 {
			v = ptr(0.6 + 0.03*float64(b%200))
		}
		d.Series.Jain = append(d.Series.Jain, v)
	}
	for i, name := range []string{"one", "two", "three", "two-again", "one-again"} {
		n := share(i * 200)
		p := analysis.PhaseSummary{Name: name, StartNS: testStart + int64(i)*2*testSecond, EndNS: testStart + int64(i+1)*2*testSecond, TrimNS: 2e8, TrimEndNS: 2e8, GoodputBps: 480e6, WireBps: 492e6,
			Jain: ptr(1 - n/300), JainMeanOfBins: ptr(1 - n/100), Utilisation: ptr(0.984), CEShare: ptr((n - 1) / 30), CNPRateHz: ptr(50 * n)}
		for j, sp := range spans {
			if sp[0] <= i*200 && i*200 < sp[1] {
				p.Flows = append(p.Flows, analysis.PhaseFlow{Flow: d.Flows[j].ID, Name: d.Flows[j].Name, GoodputBps: 480e6 / n})
			}
		}
		d.Aggregate.PerPhase = append(d.Aggregate.PerPhase, p)
	}
	a := &d.Aggregate
	a.GoodputBps, a.WireBps, a.Jain, a.Utilisation, a.MinMax, a.ActiveFlows = ptr(480e6), ptr(492e6), ptr(0.988), ptr(0.984), ptr(0.81), 3
	a.Common = &analysis.Common{StartNS: testStart + 4*testSecond, EndNS: testStart + 6*testSecond, Flows: 3, Jain: ptr(0.991), MinMax: ptr(0.93)}
	a.Convergence = []analysis.Convergence{{AtNS: testStart + 2*testSecond, Event: "join", Flow: d.Flows[1].ID, Active: 2, TimeNS: ptr(int64(120_000_000)), LowestJain: ptr(0.62)},
		{AtNS: testStart + 8*testSecond, Event: "leave", Flow: d.Flows[1].ID, Active: 1, Reason: "one flow is always fair"}}
	d.Totals = analysis.Totals{Packets: 123456, RoCEPackets: 123400, PayloadBytes: 120 << 20, UniqueBytes: 119 << 20, CEPackets: 2100, CEDataPackets: 2100, CNPPackets: 360, AckPackets: 60000, RetransmittedPackets: 9, LostBeforeTap: 3, PFCPauseFrames: 14}
	d.Congestion = analysis.Congestion{PacingScope: ptr(analysis.ScopeQP), PacingNS: ptr(int64(50_000)), PacingReason: "the gaps of a pair are shorter",
		Scopes:    []analysis.CNPScope{{Scope: "qp", Groups: 3, GapNS: latencyOf(2_100_000)}, {Scope: "ip_pair", Groups: 3, GapNS: latencyOf(2_100_000)}, {Scope: "port", Groups: 1, GapNS: latencyOf(610_000)}},
		Pairs:     []analysis.CNPCount{{Src: "192.0.2.14", Dst: "192.0.2.11", CNPs: 120, RateHz: ptr(14.5), GapNS: latencyOf(2_100_000)}},
		Receivers: []analysis.QueueAt{{Dst: "192.0.2.14", GapNS: 40_000, BusyShare: ptr(0.971), BusyNS: latencyOf(9_000_000), QueueBytes: &analysis.Queue{P50: 1100, P99: 40_000, Max: 130_000}}}}
	d.PFC = []analysis.PausedPort{{Src: "02:00:00:00:00:14", Priority: ptr(3), PauseFrames: 12, ResumeFrames: 2, Pauses: 5, PausedNS: ptr(int64(1_230_000)), LongestNS: ptr(int64(400_000)), FirstNS: testStart + 4*testSecond, LastNS: testStart + 59*testSecond/10}}
	d.Distributions = analysis.Distributions{RTTNS: bell(812_000, 9000), MessageNS: bell(12_300_000, 1900), CNPGapNS: bell(2_100_000, 360)}
	d.Checks = []analysis.Check{
		{Name: "jain(phase=\"three\") >= 0.95", Verdict: analysis.Pass, Reason: "0.990"},
		{Name: "retransmissions() == 0", Verdict: analysis.Fail, Reason: "3 packets", Rows: []analysis.CheckRow{{Flow: "h2", TimeNS: ptr(testStart + testSecond), Detail: "3 packets"}}, More: 2},
		{Name: "pfc_pause() == 0", Verdict: analysis.Skip, Reason: "needs pfc: the switch of this lab has none"},
	}
	return d
}

// crowd is a document of many flows toward eight receivers, all at once, without phases.
func crowd(flows int) *analysis.Document {
	d := &analysis.Document{Schema: analysis.Schema, TimeScale: 1, Quality: analysis.Quality{Verdict: analysis.Incomplete, Notes: []string{"crowd.pcap: cut at byte 4096"}}}
	d.Files = []analysis.File{{Path: "crowd.pcap", Role: "judged", LinkType: "ethernet", Packets: 9 << 20, Bytes: 9 << 30, TruncatedAt: ptr(int64(4096))}}
	d.Series = analysis.Series{BinNS: testBin, StartNS: testStart, Bins: 1000}
	for i := range flows {
		id := fmt.Sprintf("192.0.2.%d>198.51.100.%d:0x%06x", 1+i%200, 1+i%8, 17+i)
		rate := 25e6 * (1 + 0.3*math.Sin(float64(i)))
		d.Flows = append(d.Flows, analysis.Flow{ID: id, Service: "RC", State: analysis.StateOK, Packets: int64(rate / 1000), UniqueBytes: int64(rate), CEPackets: 40, CEShare: ptr(0.04),
			GoodputBps: ptr(rate), CNPs: ptr(int64(12)), NAKs: &analysis.NAKs{}, Operations: analysis.Operations{Write: 64}, RTTNS: latencyOf(20_000 + int64(i)*30)})
		s := analysis.FlowSeries{ID: id, FirstBin: i % 50}
		for b := i % 50; b < 1000; b++ {
			s.GoodputBps = append(s.GoodputBps, rate*(1+0.2*math.Sin(float64(b*(i%13+2))/31)))
			s.Packets, s.CE = append(s.Packets, 30), append(s.CE, int64((b+i)%5/4))
			s.CNPs, s.Retransmits = append(s.CNPs, int64((b+i)%53/52)), append(s.Retransmits, int64((b*i)%1009/1007))
		}
		d.Series.Flows = append(d.Series.Flows, s)
	}
	for b := range 1000 {
		d.Series.Jain = append(d.Series.Jain, ptr(0.95+0.02*math.Sin(float64(b)/50)))
	}
	d.Aggregate.GoodputBps, d.Aggregate.Jain, d.Aggregate.ActiveFlows = ptr(25e6*float64(flows)), ptr(0.956), flows
	d.Distributions.RTTNS = bell(31_000, 100_000)
	return d
}
