package pcm

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/internal/spec"
)

// FuzzParse: whatever the text, there is a package or mistakes at places that exist, never a panic; and a package without mistakes
// gives a header with every name that it declares.
func FuzzParse(f *testing.F) {
	if data, err := os.ReadFile("handlers/swift/swift.yaml"); err == nil {
		f.Add(string(data))
	}
	f.Add("algorithm: {name: a}\nsignals:\n  - {name: S, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1}\n")
	f.Add("algorithm: {name: a}\nconstants:\n  - {name: A, type: uint, value: !eval 2 ** B}\n  - {name: B, type: int, value: -A}\nsignals: [1, {name: A, reset_upon_trigger: maybe}]\n")
	f.Add("algorithm: {name: a}\nsignals: []\nvariables:\n  - {name: V, type: float, arr_len: 1e9}\n  - {name: V, type: frac, initial_value: 1/0}\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse("a.yaml", []byte(text), Deployment{})
		if err != nil {
			var all *spec.Errors
			if !errors.As(err, &all) {
				t.Fatalf("a mistake without a place: %v", err)
			}
			lines := strings.Count(text, "\n") + strings.Count(text, "\r") + 1
			for _, e := range all.Problems {
				if e.Line < 1 || e.Line > lines || e.Col < 1 {
					t.Fatalf("%v: there is no such place", e)
				}
			}
			return
		}
		header := p.Header()
		for _, s := range p.Signals {
			if !strings.Contains(header, "PCM_INDEX_"+s.Name+" ") {
				t.Fatalf("signal %s is not in the header", s.Name)
			}
		}
		if len(p.shell("")) == 0 || p.Slots < len(p.Vars) {
			t.Fatalf("%d slots for %d variables", p.Slots, len(p.Vars))
		}
	})
}
