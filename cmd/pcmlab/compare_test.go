package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pcmlab/pcmlab/experiments"
)

// mkruns writes folders of runs for scripts: `mkruns DIR N GOODPUT_MBPS [STATE]`. Goodputs differ by 0.1 Mb/s from run to
// run, traces by folder and run.
func mkruns(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: mkruns DIR N GOODPUT_MBPS [STATE]")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	rate, err := strconv.ParseFloat(args[2], 64)
	ts.Check(err)
	state := experiments.StateComplete
	if len(args) > 3 {
		state = experiments.BundleState(args[3])
	}
	for i := range n {
		name := fmt.Sprintf("%s-%d", filepath.Base(args[0]), i)
		bps, jain, cnps, line := (rate+0.1*float64(i))*1e6, 0.99+0.0001*float64(i), 100+float64(i), 500e6
		s := experiments.Summary{Schema: "pcmlab/summary/v1", Run: name, Playbook: "incast", Lab: "lab", State: state, Verdict: experiments.Pass, TimeScale: 50, LineRateBps: &line,
			Inputs: "0123456789abcdef", Trace: &name, Provenance: map[string]string{"host.h1.kernel": filepath.Base(args[0])},
			Scores: []experiments.Score{{Metric: "goodput", Value: &bps, Unit: "bit/s"}, {Metric: "jain", Phase: "two", Value: &jain}, {Metric: "cnps", Value: &cnps, Unit: "packets"}}}
		dir := ts.MkAbs(filepath.Join(args[0], name))
		ts.Check(os.MkdirAll(dir, 0o755))
		data, err := json.Marshal(s)
		ts.Check(err)
		for file, text := range map[string][]byte{"summary.json": data, "manifest.json": []byte("{}"), "timeline.jsonl": nil} {
			ts.Check(os.WriteFile(filepath.Join(dir, file), text, 0o644))
		}
	}
}
