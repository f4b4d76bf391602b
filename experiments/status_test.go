package experiments

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/process"
)

// A run that is killed as it ends leaves some of its last files: what is said of it must be true for each number of them.
func TestRunFolder_killedAsItEnds(t *testing.T) {
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	gone := process.This()
	gone.PID = dead.Process.Pid
	files := []struct{ name, text string }{
		{"timeline.jsonl", `{"at":"2026-11-30T19:24:17Z","event":"note"}` + "\n"},
		{"plan.json", `{"playbook":"short"}`},
		{"result.json", `{"schema":"pcmlab/result/v1","run":"r","state":"complete","verdict":"pass","checks":[]}`},
		{"summary.json", `{"schema":"pcmlab/summary/v1","run":"r","state":"complete","verdict":"pass","checks":[],"scores":[],"provenance":{}}`},
		{"manifest.json", `{"schema":"pcmlab/manifest/v1","run":"r","state":"complete","ended":"2026-11-30T19:24:27Z"}`},
	}
	for n := 1; n <= len(files); n++ {
		dir := t.TempDir()
		for _, f := range files[:n] {
			if err := os.WriteFile(filepath.Join(dir, f.name), []byte(f.text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := (&Status{Run: "r", Kind: "run", State: LiveRunning, Process: gone, Phase: "analysis"}).Save(dir); err != nil {
			t.Fatal(err)
		}
		last := files[n-1].name
		state, live := StateUnfinished, LiveDied
		if last == "manifest.json" {
			state, live = StateComplete, LiveEnded
		}
		if s, err := LoadSummary(dir); err != nil || s.State != state || state == StateUnfinished && s.Reason == "" {
			t.Errorf("killed behind %s: summary %+v, %v; want %s", last, s, err, state)
		}
		s, err := LoadStatus(dir)
		if err != nil || s.State != live {
			t.Errorf("killed behind %s: status %+v, %v; want %s", last, s, err, live)
		}
		if ended := s.Ended != nil && s.Ended.Equal(time.Date(2026, 11, 30, 19, 24, 27, 0, time.UTC)); ended != (live == LiveEnded) {
			t.Errorf("killed behind %s: ended %v", last, s.Ended)
		}
	}
}
