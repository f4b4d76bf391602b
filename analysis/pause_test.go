package analysis

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pcmlab/pcmlab/capture/roce"
)

type pauseFrame struct {
	ts    int64
	kind  roce.Kind
	pause roce.Pause
}

func runPauses(rate float64, end int64, frames []pauseFrame) []PausedPort {
	p := newPauses(rate)
	for i := range frames {
		p.see(frames[i].ts, frames[i].kind, &frames[i].pause)
	}
	return p.finish(end)
}

// slowPauses paints, for each sender and priority, every ns as paused or not. A quantum is one ns.
func slowPauses(end int64, frames []pauseFrame) []PausedPort {
	out := []PausedPort{}
	for src := range byte(3) {
		for priority := -1; priority < 8; priority++ {
			type order struct {
				ts     int64
				quanta uint16
			}
			var orders []order
			for _, f := range frames {
				switch {
				case f.pause.Src[5] != src:
				case priority < 0 && f.kind == roce.KindPause:
					orders = append(orders, order{f.ts, f.pause.Quanta[0]})
				case priority >= 0 && f.kind == roce.KindPFC && f.pause.ClassEnable&(1<<priority) != 0:
					orders = append(orders, order{f.ts, f.pause.Quanta[priority]})
				}
			}
			if len(orders) == 0 {
				continue
			}
			p := PausedPort{Src: macString(uint64(src)), FirstNS: orders[0].ts, LastNS: orders[len(orders)-1].ts, PausedNS: ptr(int64(0)), LongestNS: ptr(int64(0))}
			if priority >= 0 {
				p.Priority = ptr(priority)
			}
			var left, stretch int64 // ns left of the pause; length of this stretch
			next := 0
			for now := int64(0); now <= end; now++ {
				for next < len(orders) && orders[next].ts == now {
					q := orders[next].quanta
					next++
					if q == 0 {
						p.ResumeFrames++
						left, stretch = 0, 0
						continue
					}
					p.PauseFrames++
					if stretch == 0 {
						p.Pauses++
					}
					left = int64(q)
					stretch = max(stretch, 1) // paused from now on; see below
				}
				if left == 0 || now == end {
					stretch = 0
					continue
				}
				*p.PausedNS++
				*p.LongestNS = max(*p.LongestNS, stretch)
				left--
				stretch++
			}
			out = append(out, p)
		}
	}
	return out
}

func TestPauses_agreeWithDefinition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var frames []pauseFrame
		var ts int64
		for range rapid.IntRange(1, 40).Draw(t, "frames") {
			ts += rapid.Int64Range(1, 60).Draw(t, "gap")
			f := pauseFrame{ts: ts, kind: rapid.SampledFrom([]roce.Kind{roce.KindPFC, roce.KindPFC, roce.KindPause}).Draw(t, "kind")}
			f.pause.Src[5] = byte(rapid.IntRange(0, 2).Draw(t, "src"))
			f.pause.ClassEnable = rapid.SampledFrom([]byte{0, 1, 8, 9, 0x88}).Draw(t, "classes")
			for i := range f.pause.Quanta {
				f.pause.Quanta[i] = rapid.SampledFrom([]uint16{0, 0, 1, 30, 60, 200}).Draw(t, "quanta")
			}
			frames = append(frames, f)
		}
		end := ts + rapid.Int64Range(0, 300).Draw(t, "end")
		if diff := cmp.Diff(slowPauses(end, frames), runPauses(512e9, end, frames)); diff != "" {
			t.Fatalf("pauses (-definition +got):\n%s", diff)
		}
	})
}

func TestPauses(t *testing.T) {
	t.Parallel()
	pfc := func(ts int64, quanta uint16) pauseFrame {
		f := pauseFrame{ts: ts, kind: roce.KindPFC, pause: roce.Pause{Src: [6]byte{2, 0, 0, 0, 0, 1}, ClassEnable: 1 << 3}}
		f.pause.Quanta[3] = quanta
		f.pause.Quanta[4] = 0xffff // not enabled: does not count
		return f
	}
	for _, tc := range []struct {
		name, why string
		rate      float64
		end       int64
		frames    []pauseFrame
		want      PausedPort
	}{
		{"resumed", "a frame with no quanta ends it", 100e9, 1_000_000, []pauseFrame{pfc(1000, 0xffff), pfc(5000, 0)},
			PausedPort{PauseFrames: 1, ResumeFrames: 1, Pauses: 1, PausedNS: ptr(int64(4000)), LongestNS: ptr(int64(4000)), FirstNS: 1000, LastNS: 5000}},
		{"ran_out", "65535 quanta at 100 Gb/s are 335.5 us", 100e9, 1_000_000, []pauseFrame{pfc(1000, 0xffff), pfc(900_000, 1)},
			PausedPort{PauseFrames: 2, Pauses: 2, PausedNS: ptr(int64(335_539 + 5)), LongestNS: ptr(int64(335_539)), FirstNS: 1000, LastNS: 900_000}},
		{"refreshed", "a frame before the end prolongs it", 100e9, 1_000_000, []pauseFrame{pfc(1000, 0xffff), pfc(300_000, 0xffff), pfc(400_000, 0)},
			PausedPort{PauseFrames: 2, ResumeFrames: 1, Pauses: 1, PausedNS: ptr(int64(399_000)), LongestNS: ptr(int64(399_000)), FirstNS: 1000, LastNS: 400_000}},
		{"capture_ends", "the rest was not seen", 100e9, 3000, []pauseFrame{pfc(1000, 0xffff)},
			PausedPort{PauseFrames: 1, Pauses: 1, PausedNS: ptr(int64(2000)), LongestNS: ptr(int64(2000)), FirstNS: 1000, LastNS: 1000}},
		{"rate_unknown", "a quantum has no length: null; only a resume is known to end it", 0, 1_000_000, []pauseFrame{pfc(1000, 1), pfc(900_000, 1), pfc(900_500, 0), pfc(900_600, 1)},
			PausedPort{PauseFrames: 3, ResumeFrames: 1, Pauses: 2, FirstNS: 1000, LastNS: 900_600}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.want.Src, tc.want.Priority = "02:00:00:00:00:01", ptr(3)
			if diff := cmp.Diff([]PausedPort{tc.want}, runPauses(tc.rate, tc.end, tc.frames)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
	if got := newPauses(1e9).finish(0); got == nil || len(got) != 0 {
		t.Errorf("no frame: %v, want an empty list", got)
	}
}

func TestPauses_nothingAllocatedPerFrame(t *testing.T) {
	p := newPauses(100e9)
	f := roce.Pause{ClassEnable: 0xff, Quanta: [8]uint16{1, 2, 3, 4, 5, 6, 7, 8}}
	ts := int64(0)
	see := func() { ts += 100; p.see(ts, roce.KindPFC, &f) }
	see()
	if n := testing.AllocsPerRun(100, see); n != 0 {
		t.Errorf("%v allocations per frame, want 0", n)
	}
}
