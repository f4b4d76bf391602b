package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/experiments"
)

// tenThousandRuns makes folders of runs with 130 scores each, as five phases and three flows give.
func tenThousandRuns(tb testing.TB, n int) string {
	tb.Helper()
	root := tb.TempDir()
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range n {
		at := began.Add(time.Duration(i) * time.Minute)
		s := &experiments.Summary{Schema: "pcmlab/summary/v1", Run: experiments.NewRunID("incast-3to1", at), Playbook: "incast-3to1", Lab: "virtual-4",
			State: experiments.StateComplete, Verdict: experiments.Pass, Began: at, Ended: at.Add(45 * time.Second), TimeScale: 50,
			Checks: []experiments.CheckResult{}, Scores: []experiments.Score{}, Provenance: map[string]string{"pcmlab.commit": fmt.Sprint(i / 1000)}}
		for phase := range 10 {
			for metric := range 13 {
				v := float64(i*phase) / float64(metric+1)
				s.Scores = append(s.Scores, experiments.Score{Metric: fmt.Sprint("metric", metric), Phase: fmt.Sprint("phase", phase), Value: &v})
			}
		}
		data, err := json.Marshal(s)
		dir := filepath.Join(root, s.Run)
		err = errors.Join(err, os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "timeline.jsonl"), nil, 0o644),
			os.WriteFile(filepath.Join(dir, experiments.SummaryFile), data, 0o644), os.WriteFile(filepath.Join(dir, "manifest.json"), []byte("{}"), 0o644),
			os.Chtimes(dir, at, at))
		if err != nil {
			tb.Fatal(err)
		}
	}
	return root
}

// BenchmarkRunsLs is the whole command, as a process of its own, over 10,000 runs: the first time, which reads them all, and
// the usual time, which is to take less than 100 ms.
func BenchmarkRunsLs(b *testing.B) {
	const runs = 10_000
	root := tenThousandRuns(b, runs)
	ls := func() time.Duration {
		began := time.Now()
		if out, err := exec.Command(binary, "runs", "ls", "--out", root, "-q").CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		return time.Since(began)
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			os.Remove(filepath.Join(root, ".index.sqlite"))
			b.StartTimer()
			ls()
		}
		b.ReportMetric(float64(runs)/(b.Elapsed().Seconds()/float64(b.N)), "runs/s")
	})
	b.Run("start", func(b *testing.B) { // what any verb takes, on this machine and as busy as it is
		for b.Loop() {
			if err := exec.Command(binary, "version").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("again", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			took = append(took, ls())
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "ms/ls-median")
		b.ReportMetric(float64(took[0].Microseconds())/1e3, "ms/ls-fastest")
	})
}
