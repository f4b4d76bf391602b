package cpu

import (
	"fmt"
	"math"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/shell"
)

const timed = `algorithm: {name: timed}
signals:
  - {name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1}
  - {name: RTT, type: PCM_SIG_RTT, accumulation: PCM_SIG_ACCUM_LAST}
  - {name: NOW, type: PCM_SIG_ELAPSED_TIME, accumulation: PCM_SIG_ACCUM_LAST, reset_upon_trigger: "false"}
variables:
  - {name: SEEN_RTT, type: uint}
  - {name: SEEN_NOW, type: uint}
`

const timedC = `#include "pcmh.h"
#include "timed.h"
int algorithm_main()
{
	set_var_uint(SEEN_RTT, get_signal(RTT));
	set_var_uint(SEEN_NOW, get_signal(NOW));
	return PCM_SUCCESS;
}
`

func loadTimed(t *testing.T, unit string) *pcm.Package {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"timed.yaml": timed, "timed.c": timedC} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fabric, err := pcm.ParseFabric("fabric.yaml", []byte("time_unit: "+unit+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := pcm.Load(filepath.Join(dir, "timed.yaml"), pcm.Deployment{Fabric: fabric})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var divides = regexp.MustCompile(`\t(div|udiv|sdiv|idiv)[a-z]*\s`)

// TestTick_converts holds times of callers with several clocks against exact fractions, at the edges: a day, days on a clock that has run for
// years, and a clock that wraps what the package's unit can hold. No divide is left in the code.
func TestTick_converts(t *testing.T) {
	ps := map[string]int64{"ps": 1, "ns": 1000, "us": 1_000_000, "tick": 100_000}
	for _, c := range []struct {
		unit   string
		tick   pcm.Tick
		reason string
	}{
		{"ns", pcm.Tick{}, "the default"},
		{"ps", pcm.Tick{}, "a product"},
		{"tick", pcm.Tick{}, "a quotient"},
		{"us", pcm.Tick{Num: 1, Den: 1}, "a quotient, ns said aloud"},
		{"ns", pcm.Tick{Num: 100, Den: 1}, "a NIC's tick"},
		{"tick", pcm.Tick{Num: 100, Den: 1}, "a NIC's tick and the same unit"},
		{"tick", pcm.Tick{Num: 10, Den: 1}, "figure 4 of the paper"},
		{"ns", pcm.Tick{Num: 10, Den: 21}, "a counter of 2.1 GHz"},
		{"ps", pcm.Tick{Num: 1_000_000, Den: 2_095_191}, "a counter as its kernel measured it, in kHz"},
		{"tick", pcm.Tick{Num: 1, Den: 3}, "both at once"},
	} {
		t.Run(fmt.Sprintf("%s_from_%d_%d", c.unit, c.tick.Num, c.tick.Den), func(t *testing.T) {
			tick := c.tick
			if tick.Num == 0 {
				tick = pcm.Tick{Num: 1, Den: 1}
			}
			n := new(big.Int).Mul(new(big.Int).SetUint64(tick.Num), big.NewInt(1000))
			d := new(big.Int).Mul(new(big.Int).SetUint64(tick.Den), big.NewInt(ps[c.unit]))
			exact := func(v uint64) uint64 { // wrapped into a word
				x := new(big.Int).Mul(new(big.Int).SetUint64(v), n)
				x.Div(x, d)
				return x.And(x, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
			}
			b := buildPackage(t, loadTimed(t, c.unit), Options{Tick: c.tick})
			day := new(big.Int).Div(new(big.Int).Mul(big.NewInt(86_400e9), new(big.Int).SetUint64(tick.Den)), new(big.Int).SetUint64(tick.Num)).Uint64()
			for _, start := range []uint64{0, 1, 12_345_678_901, day * 365 * 10, 1 << 62} {
				f, err := b.shell.NewFlow(start, 1)
				if err != nil {
					t.Fatal(err)
				}
				for _, after := range []uint64{0, 1, 2, 20, 21, 99, 100, 101, 999, 1000, 1001, 123_456_789, day - 1, day, day + 1, 30 * day} {
					var out shell.Output
					f.Flush(&shell.Input{Mask: 1<<pcm.ACK | 1<<pcm.RTT, Now: start + after, ACK: 1, RTT: after}, &out)
					if got, want := f.Peek(shell.Variable, 0), exact(after); got != want {
						t.Errorf("a round trip of %d ticks is %d, want %d", after, got, want)
					}
					if got, want := f.Peek(shell.Variable, 1), exact(start+after)-exact(start); got != want {
						t.Errorf("%d ticks after %d it is %d, want %d", after, start, got, want)
					}
				}
				f.Close()
			}
			if code, err := exec.Command("objdump", "-d", b.path).Output(); err != nil {
				t.Error(err)
			} else if at := divides.FindString(string(code)); at != "" {
				t.Errorf("it divides: %q", at)
			}
		})
	}
}

// TestTick_refuses what is no time, or does not fit, and is part of the hash.
func TestTick_refuses(t *testing.T) {
	p := loadTimed(t, "us")
	for _, tick := range []pcm.Tick{{Num: 0, Den: 1}, {Num: 1, Den: 0}, {Num: 1_000_000_007, Den: 1_000_000_009}} {
		if _, err := (Options{Tick: tick}).Package(p); err == nil {
			t.Errorf("%v is taken", tick)
		}
	}
	hash := func(o Options) string {
		q, err := o.Package(p)
		if err != nil {
			t.Fatal(err)
		}
		h, err := q.Hash()
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if hash(Options{}) == hash(Options{Tick: pcm.Tick{Num: 100, Den: 1}}) {
		t.Error("two ticks have one hash")
	}
	if hash(Options{}) != hash(Options{Tick: pcm.Tick{Num: 1, Den: 1}}) {
		t.Error("1 ns is not the default")
	}
}
