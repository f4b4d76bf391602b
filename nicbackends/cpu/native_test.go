package cpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/bench"
	"github.com/pcmlab/pcmlab/pcm/handlers"
	"github.com/pcmlab/pcmlab/pcm/shell"
)

// native compiles the hand-written form of a law with the constants of its package.
func native(t *testing.T, p *pcm.Package) *shell.Shell {
	t.Helper()
	dir, err := os.MkdirTemp(tempDir, "native-")
	if err != nil {
		t.Fatal(err)
	}
	if err := bench.WriteNative(p, dir); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "native.so")
	if err := Compile(t.Context(), dir, "native.c", out, false, Options{Flags: []string{"-Wextra", "-Werror"}}); err != nil {
		t.Fatal(err)
	}
	s, err := shell.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestNative_passesTheVectors: what shells are held against is the same law: it passes the golden vectors, with the tolerance of floating
// point, and each hand-written form there is has some.
func TestNative_passesTheVectors(t *testing.T) {
	var seen []string
	for _, l := range laws {
		if !slices.Contains(bench.Natives(), l.handler) {
			continue
		}
		seen = append(seen, l.handler)
		var v vectors
		loadVectors(t, l.file, &v)
		forms := map[string]*built{} // by constants: many cases share them
		for _, c := range v.Cases {
			if l.only != nil && l.only(c) != "" {
				continue
			}
			t.Run(l.handler+"/"+c.Name, func(t *testing.T) {
				set := map[string]string{}
				if l.set != nil {
					set = l.set(v, c)
				}
				key := fmt.Sprint(set)
				if forms[key] == nil {
					p, err := handlers.Load(l.handler, pcm.Deployment{Set: set})
					if err != nil {
						t.Fatal(err)
					}
					forms[key] = &built{Package: p, shell: native(t, p)}
				}
				l.run(t, forms[key], v, c, pcm.FormatFloat)
			})
		}
	}
	for _, name := range bench.Natives() {
		if !slices.Contains(seen, name) {
			t.Errorf("%s: a hand-written form without golden vectors", name)
		}
	}
}

// TestNative_decidesAsTheShell: over a trace of each mix, the hand-written form sets what the shell sets, up to a byte where floating
// point rounds elsewhere, so what is compared is the same work.
func TestNative_decidesAsTheShell(t *testing.T) {
	for _, name := range bench.Natives() {
		p, err := handlers.Load(name, pcm.Deployment{})
		if err != nil {
			t.Fatal(err)
		}
		ours := buildPackage(t, p, Options{}).shell
		byHand := native(t, p)
		for _, mix := range bench.Mixes(bench.Sender) {
			a, err := ours.NewFlow(0, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			b, err := byHand.NewFlow(0, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			moved := map[uint64]bool{}
			var now uint64
			for i, e := range bench.Generate(bench.Sender, mix, bench.PathOf(p.Fabric), 1, 20000) {
				now += uint64(e.Gap)
				in := shell.Input{Mask: uint64(e.Mask), Now: now, ACK: 1, NACK: 1, ECN: 1, RTT: uint64(e.RTT), DataTX: uint64(e.Bytes), DataNACKed: uint64(e.Bytes)}
				var x, y shell.Output
				a.Flush(&in, &x)
				b.Flush(&in, &y)
				moved[x.CWND] = true
				if d := int64(x.CWND - y.CWND); d < -1 || d > 1 {
					t.Fatalf("%s, %s: at event %d the shell sets %d, the hand-written form %d", name, mix.Name, i, x.CWND, y.CWND)
				}
				if x.CWND != y.CWND { // both go on from the same window
					b.Poke(shell.Control, 0, x.CWND)
				}
			}
			if len(moved) < 3 {
				t.Errorf("%s, %s: the window took %d values: the trace tells nothing", name, mix.Name, len(moved))
			}
		}
	}
}
