package cpu

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/shell"
)

// vectors is a file of golden vectors.
type vectors struct {
	Constants map[string]json.RawMessage
	Cases     []struct {
		Name    string
		Profile string
		Init    map[string]*float64
		Steps   []struct {
			I, O map[string]*float64
		}
	}
}

func loadVectors(t *testing.T, name string) vectors {
	t.Helper()
	path := filepath.Join("..", "..", "..", "shared", "reference", "vectors", name)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Skipf("golden vectors: %v", err)
	}
	var v vectors
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// loaded builds a package of the library and loads it.
func loaded(t *testing.T, name string, set map[string]string) (*pcm.Package, *shell.Shell) {
	t.Helper()
	dir := filepath.Join("..", "..", "pcm", "handlers")
	fabric, err := pcm.LoadFabric(filepath.Join(dir, "fabric.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := pcm.Load(filepath.Join(dir, name), pcm.Deployment{Fabric: fabric, Set: set})
	if err != nil {
		t.Fatal(err)
	}
	so := filepath.Join(t.TempDir(), name+".so")
	if err := Build(t.Context(), p, so, Options{}); err != nil {
		t.Fatal(err)
	}
	s, err := shell.Open(so)
	if err != nil {
		t.Fatal(err)
	}
	return p, s
}

// words reaches the objects of a flow by name.
type words struct {
	*testing.T
	p *pcm.Package
	f *shell.Flow
}

func (w words) at(name string) (shell.Part, int) {
	w.Helper()
	if i := slices.IndexFunc(w.p.Controls, func(c pcm.Control) bool { return c.Name == name }); i >= 0 {
		return shell.Control, i
	}
	i := slices.IndexFunc(w.p.Vars, func(v pcm.Var) bool { return v.Name == name })
	if i < 0 {
		w.Fatalf("%s has no %s", w.p.Name, name)
	}
	return shell.Variable, w.p.Vars[i].Slot
}

func (w words) get(name string) uint64    { p, i := w.at(name); return w.f.Peek(p, i) }
func (w words) set(name string, v uint64) { p, i := w.at(name); w.f.Poke(p, i, v) }

func bit(s pcm.Source) uint64 { return 1 << s }

func TestVectors_swift(t *testing.T) {
	v := loadVectors(t, "swift.json")
	for _, c := range v.Cases {
		if c.Profile == "UCCL" {
			continue // another law: see swift_uccl
		}
		t.Run(c.Name, func(t *testing.T) {
			var k map[string]any
			if err := json.Unmarshal(v.Constants[c.Profile], &k); err != nil {
				t.Fatal(err)
			}
			set := map[string]string{"INT_DIV": map[bool]string{true: "1", false: "0"}[k["INT_DIV"].(bool)]}
			for _, name := range []string{"BASE", "HOPS", "H", "FS_RANGE", "FS_MIN", "FS_MAX", "FS_ALPHA", "FS_BETA", "AI", "BETA", "MAX_MDF", "RETX_RESET", "MSS", "MIN_CWND", "MAX_CWND"} {
				set[name] = fmt.Sprintf("%.12f", k[name])
				if f := k[name].(float64); f == float64(int64(f)) {
					set[name] = fmt.Sprint(int64(f))
				}
			}
			p, s := loaded(t, "swift", set)
			f, err := s.NewFlow(0, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			w := words{t, p, f}
			for name, key := range map[string]string{"CWND": "cwnd", "RTT_EST": "rtt_est", "T_LAST_DEC": "t_last_dec", "RETX": "retx"} {
				w.set(name, uint64(*c.Init[key]))
			}
			for i, step := range c.Steps {
				in := shell.Input{Now: uint64(*step.I["now"])}
				give := func(key string, source pcm.Source, to *uint64) {
					if v := step.I[key]; v != nil {
						*to, in.Mask = uint64(*v), in.Mask|bit(source)
					}
				}
				give("rtt", pcm.RTT, &in.RTT)
				give("ack_bytes", pcm.DataTX, &in.DataTX)
				give("nack", pcm.NACK, &in.NACK)
				give("rto", pcm.RTO, &in.RTO)
				var out shell.Output
				f.Flush(&in, &out)
				for name, key := range map[string]string{"CWND": "cwnd", "RTT_EST": "rtt_est", "T_LAST_DEC": "t_last_dec", "RETX": "retx"} {
					if got, want := w.get(name), uint64(*step.O[key]); got != want {
						t.Errorf("step %d: %s %d, want %d", i, name, got, want)
					}
				}
				if out.CWND != uint64(*step.O["cwnd"]) {
					t.Errorf("step %d: read %d", i, out.CWND)
				}
			}
		})
	}
}
