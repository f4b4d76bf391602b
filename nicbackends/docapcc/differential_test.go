package docapcc

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/shell"
)

// reduction is the native mapping, once more and in other words: what the device's events are as signals (docs/handlers.md).
type reduction struct {
	mtu  uint64
	sent uint64 // outstanding
}

func (r *reduction) flight(in *shell.Input, change int64) {
	r.sent = uint64(max(0, int64(r.sent)+change))
	in.Mask |= 1 << pcm.InFlight
	in.InFlight = r.sent
}

func (r *reduction) input(e record) *shell.Input {
	in := &shell.Input{Now: e.Time}
	n := uint64(max(1, e.Count))
	switch e.Kind {
	case tx:
		in.Mask, in.TXBytes = 1<<pcm.TXBytes, 32*uint64(e.Count)
		r.flight(in, 32*int64(e.Count))
	case ack:
		in.Mask, in.ACK, in.DataTX = 1<<pcm.ACK|1<<pcm.DataTX, n, n*r.mtu
		r.flight(in, -int64(n*r.mtu))
	case nack:
		in.Mask, in.NACK, in.DataNACKed = 1<<pcm.NACK|1<<pcm.DataNACKed, n, n*r.mtu
		r.flight(in, -int64(n*r.mtu))
	case cnp:
		in.Mask, in.CNP, in.ECN = 1<<pcm.CNP|1<<pcm.ECN, n, n
	case rtt:
		if v := roundTrip(e); v > 0 {
			in.Mask, in.RTT = 1<<pcm.RTT, uint64(v)
		}
	}
	return in
}

// roundTrip is what four timestamps say, in times of 28 bits.
func roundTrip(e record) int64 {
	const stamp = 1<<28 - 1
	d := int64((uint32(e.Time) - e.Sent) & stamp)
	if e.Received&stamp != 0 && e.Answered&stamp != 0 {
		d -= int64((e.Answered - e.Received) & stamp)
	}
	return d
}

// uses says whether the package has a signal of one of the sources.
func uses(p *pcm.Package, sources ...pcm.Source) bool {
	for _, s := range p.Signals {
		for _, want := range sources {
			if s.Source == want {
				return true
			}
		}
	}
	return false
}

func controls(p *pcm.Package, kind pcm.ControlKind) bool {
	for _, c := range p.Controls {
		if c.Kind == kind {
			return true
		}
	}
	return false
}

// wanted says whether the device asks for events of a kind.
func wanted(p *pcm.Package, kind uint32) bool {
	switch kind {
	case ack:
		return uses(p, pcm.ACK, pcm.DataTX, pcm.InFlight)
	case nack:
		return uses(p, pcm.NACK, pcm.DataNACKed, pcm.InFlight)
	case cnp:
		return uses(p, pcm.CNP, pcm.ECN)
	case rtt:
		return uses(p, pcm.RTT) || controls(p, pcm.CWND)
	}
	return true
}

// share is the rate that the device is to set, in exact arithmetic.
func share(p *pcm.Package, out *shell.Output, average8, line uint64) uint32 {
	floor := func(num, den *big.Int) uint32 {
		q := new(big.Int).Quo(num, den)
		if q.Cmp(big.NewInt(1<<20)) > 0 {
			return 1 << 20
		}
		return uint32(max(1, q.Uint64()))
	}
	word := func(v uint64) *big.Int { return new(big.Int).SetUint64(v) }
	rate := uint32(1 << 20)
	if controls(p, pcm.Rate) {
		rate = floor(new(big.Int).Lsh(word(out.Rate), 20), word(line))
	}
	if controls(p, pcm.CWND) { // 8 CWND / (EWMA(RTT) / 100 ns) bits per 100 ns
		bits := new(big.Int).Mul(word(min(out.CWND, 1<<30)), big.NewInt(8*100*8))
		rate = min(rate, floor(bits.Lsh(bits, 20), new(big.Int).Mul(word(average8), word(line))))
	}
	return rate
}

// traffic is a random trace of some flows: bursts, coalesced acknowledgements of any number, refusals, CNPs, probes with a responder
// that takes its time, clocks that come round, and pauses longer than that.
func traffic(rng *rand.Rand, flows, events int) []record {
	now := uint64(1<<32 - 3_000_000 - rng.IntN(1<<20)) // the 32 bits of time come round soon
	var all []record
	for i := range flows {
		all = append(all, record{Flow: uint32(i) + 5, Kind: tx, Time: now + uint64(i), Count: 128})
	}
	queue := 0.0
	for range events {
		now += uint64(rng.ExpFloat64() * 3000)
		if rng.IntN(2000) == 0 {
			now += 4_200_000_000 + rng.Uint64N(9_000_000_000)
		}
		queue = max(0, min(300_000, queue+rng.NormFloat64()*6000))
		e := record{Flow: uint32(rng.IntN(flows)) + 5, Time: now}
		switch n := rng.IntN(100); {
		case n < 35:
			e.Kind, e.Count = tx, uint32(rng.IntN(1024))
			e.Flags = uint32(rng.IntN(2)) * probeLeft
		case n < 65:
			e.Kind, e.Count = ack, uint32(rng.IntN(130))
		case n < 68:
			e.Kind, e.Count = nack, uint32(1+rng.IntN(3))
		case n < 73:
			e.Kind, e.Count = cnp, uint32(1+rng.IntN(4))
		case n < 74:
			e.Kind = 1 // of the firmware: nothing that a handler sees
		default:
			e.Kind = rtt
			there := uint64(rng.IntN(40_000))
			e.Sent = uint32(now - there - uint64(9000+rng.IntN(3000)) - uint64(queue))
			e.Received, e.Answered = e.Sent+5000, e.Sent+5000+uint32(there)
			switch rng.IntN(30) {
			case 0:
				e.Received, e.Answered = 0, 0 // a responder that gives no timestamps
			case 1:
				e.Answered += 10_000_000 // longer than the round trip: not valid
			}
		}
		all = append(all, e)
	}
	return all
}

// TestDevice_decidesAsTheCPU: for every package of the library that the device takes, what the handler decides there, before the rate
// adapter, is what the CPU's shell decides of the same reduced signals in the same representation; and the rate that is set is that
// decision in exact arithmetic, in the build for production, too.
func TestDevice_decidesAsTheCPU(t *testing.T) {
	const line = 10000
	for i, name := range accepted(t) {
		t.Run(name, func(t *testing.T) {
			p := load(t, name, nil, nil)
			trace := traffic(rand.New(rand.NewPCG(uint64(i), 7)), 3, 6000)
			got, quiet := build(t, p, "-DPCM_DIAGNOSE").run(trace), build(t, p).run(trace)
			s := shellOf(t, p)
			flows := map[uint32]*shell.Flow{}
			reduced, average := map[uint32]*reduction{}, map[uint32]uint64{}
			last := map[uint32]uint32{}
			runs, moved := 0, map[uint32]bool{}
			for n, e := range trace {
				r := got[n]
				if r.Rate != quiet[n].Rate || r.Probe != quiet[n].Probe {
					t.Fatalf("event %d, %+v: rate %d, probe %d in the build for production, %d and %d with diagnosis", n, e, quiet[n].Rate, quiet[n].Probe, r.Rate, r.Probe)
				}
				if (r.Called == 1) != wanted(p, e.Kind) {
					t.Fatalf("event %d of kind %d: called %d", n, e.Kind, r.Called)
				}
				if r.Called == 0 {
					continue
				}
				f := flows[e.Flow]
				if f == nil {
					var err error
					if f, err = s.NewFlow(e.Time, uint64(e.Flow)); err != nil {
						t.Fatal(err)
					}
					defer f.Close()
					flows[e.Flow], reduced[e.Flow], average[e.Flow] = f, &reduction{mtu: 4096}, 8*14023
				}
				in := reduced[e.Flow].input(e)
				var out shell.Output
				f.Flush(in, &out)
				if e.Kind == rtt && in.Mask != 0 {
					average[e.Flow] += in.RTT - average[e.Flow]/8
				}
				if r.Runs != 1 || r.Tag != uint64(e.Flow) {
					t.Fatalf("event %d: %d diagnostic records of flow %d", n, r.Runs, r.Tag)
				}
				if r.Fired != out.Fired || r.CWND != out.CWND || r.ControlRate != out.Rate || r.ControlProbe != out.RTTProbe {
					t.Fatalf("event %d, %+v: the device has fired %b, window %d, rate %d, probe %d; the CPU %b, %d, %d, %d",
						n, e, r.Fired, r.CWND, r.ControlRate, r.ControlProbe, out.Fired, out.CWND, out.Rate, out.RTTProbe)
				}
				want := last[e.Flow]
				if want == 0 || out.Fired != 0 || e.Kind == rtt && in.Mask != 0 {
					want = share(p, &out, average[e.Flow], line)
				}
				if r.Rate != want {
					t.Fatalf("event %d, %+v: rate %d of window %d, rate %d, want %d", n, e, r.Rate, out.CWND, out.Rate, want)
				}
				last[e.Flow] = want
				moved[want] = true
				if out.Fired != 0 {
					runs++
				}
			}
			t.Logf("%d events, %d runs of the handler, %d rates", len(trace), runs, len(moved))
			if runs < 500 || len(moved) < 20 {
				t.Errorf("%d runs and %d rates: the trace says nothing", runs, len(moved))
			}
		})
	}
}

// TestDevice_convertsTime: packages whose unit is not the device's see the times that the CPU's shell makes of the same ns.
func TestDevice_convertsTime(t *testing.T) {
	for _, unit := range []string{"tick", "us", "ps"} {
		t.Run(unit, func(t *testing.T) {
			f := fabric(t, "time_unit", unit, "FABRIC_BRTT", map[string]string{"tick": "140", "us": "14", "ps": "14022720"}[unit])
			for _, name := range []string{"swift", "dcqcn"} {
				p := load(t, name, f, nil)
				trace := traffic(rand.New(rand.NewPCG(3, 9)), 2, 2000)
				got, s := build(t, p, "-DPCM_DIAGNOSE").run(trace), shellOf(t, p)
				flows, reduced := map[uint32]*shell.Flow{}, map[uint32]*reduction{}
				for n, e := range trace {
					if got[n].Called == 0 {
						continue
					}
					if flows[e.Flow] == nil {
						flow, err := s.NewFlow(e.Time, uint64(e.Flow))
						if err != nil {
							t.Fatal(err)
						}
						defer flow.Close()
						flows[e.Flow], reduced[e.Flow] = flow, &reduction{mtu: 4096}
					}
					var out shell.Output
					flows[e.Flow].Flush(reduced[e.Flow].input(e), &out)
					if r := got[n]; r.Fired != out.Fired || r.CWND != out.CWND || r.ControlRate != out.Rate {
						t.Fatalf("%s, event %d, %+v: fired %b, window %d, rate %d; the CPU %b, %d, %d", name, n, e, r.Fired, r.CWND, r.ControlRate, out.Fired, out.CWND, out.Rate)
					}
				}
			}
		})
	}
}
