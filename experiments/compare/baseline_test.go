package compare

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/experiments"
)

func smallBaseline(t *testing.T) *Baseline {
	t.Helper()
	g := runsOf("run", 5, map[string][]float64{"goodput()": around(123456789, 1234567, 5), `jain(phase="<two>")`: around(0.97, 0.001, 5)})
	g.Params = []experiments.Param{{Key: "senders", Value: "3"}}
	g.Runs[1].Scores[0].Value = nil
	g.Runs[0].Provenance = map[string]string{"host.h1.kernel": "6.1"}
	g.Runs[3].Provenance = map[string]string{"host.h1.kernel": "6.2"}
	g.Runs[4].State = experiments.StateNoisy
	b, left, err := NewBaseline("main", []Group{g}, []string{"goodput: 3%"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Excluded{{"run-4", "noisy"}}, left); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
	return b
}

func TestBaseline_fileReadsLineByLine(t *testing.T) {
	got, err := smallBaseline(t).Encode()
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "schema": "pcmlab/baseline/v1",
  "name": "main",
  "thresholds": [
    "goodput: 3%"
  ],
  "cells": [
    {
      "cell": "synthetic/cell",
      "playbook": "synthetic",
      "lab": "lab",
      "time_scale": 1,
      "line_rate_bps": 500000000,
      "inputs_sha256": "same",
      "params": [{"key":"senders","value":"3"}],
      "runs": [
        "run-0",
        "run-1",
        "run-2",
        "run-3"
      ],
      "traces": [
        "run-0",
        "run-1",
        "run-2",
        "run-3"
      ],
      "provenance": {
        "host.h1.kernel": ["6.1","6.2"]
      },
      "scores": {
        "goodput()": [120988000,null,123457000,124691000],
        "jain(phase=\"<two>\")": [0.968,0.969,0.97,0.971]
      }
    }
  ]
}
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBaseline_savedAndLoadedIsTheSame(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baselines", "main.json")
	b := smallBaseline(t)
	if err := b.Save(path); err != nil {
		t.Fatal(err)
	}
	loaded, err := LoadBaseline(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, loaded); diff != "" {
		t.Errorf("(-saved +loaded):\n%s", diff)
	}
	again, err := loaded.Encode()
	first, _ := os.ReadFile(path)
	if err != nil || !bytes.Equal(first, again) {
		t.Errorf("encoded again it differs: %v", err)
	}
}

// The baseline keeps the samples: a comparison with it says what a comparison with the runs says.
func TestBaseline_comparesAsItsRuns(t *testing.T) {
	before := runsOf("b", 8, map[string][]float64{"goodput()": around(123456789, 234567, 8), "rtt_p99()": around(1e6, 3e3, 8)})
	after := runsOf("a", 8, map[string][]float64{"goodput()": around(113456789, 234567, 8), "rtt_p99()": around(1.1e6, 3e3, 8)})
	b, _, err := NewBaseline("main", []Group{before}, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	direct, kept := Compare([]Group{before}, []Group{after}, Options{}), Compare(b.Groups(), []Group{after}, Options{})
	for i, s := range direct.Cells[0].Scores {
		k := kept.Cells[0].Scores[i]
		if s.Score != k.Score || s.Verdict != k.Verdict || *s.PCorrected != *k.PCorrected || s.Reason != k.Reason {
			t.Errorf("runs: %s %s (%s)\nbaseline: %s %s (%s)", s.Score, s.Verdict, s.Reason, k.Score, k.Verdict, k.Reason)
		}
	}
	if r := Compare(b.Groups(), []Group{before}, Options{}); r.Verdict != NotApplied {
		t.Errorf("the baseline's own runs: %s (%s)", r.Verdict, r.Reason)
	}
}

func TestNewBaseline_cellWithoutRuns(t *testing.T) {
	g := runsOf("run", 2, map[string][]float64{"goodput()": around(1e6, 1, 2)})
	for _, r := range g.Runs {
		r.State, r.Reason = experiments.StateNoisy, "busy"
	}
	_, _, err := NewBaseline("x", []Group{g}, []string{"godput: 1%"}, Options{})
	for _, want := range []string{"synthetic/cell: no run counts", "run-1: noisy: busy", "godput"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in: %v", want, err)
		}
	}
}

func TestLoadBaseline_mistakes(t *testing.T) {
	good, err := smallBaseline(t).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ name, old, new, want string }{
		{"schema", "baseline/v1", "baseline/v9", `this pcmlab reads "pcmlab/baseline/v1"`},
		{"values", "[0.968,0.969,", "[0.969,", "3 values for 4 runs"},
		{"score", "goodput()", "godput()", `no metric "godput"`},
		{"threshold", "goodput: 3%", "goodput 3%", "need SCORE: LIMIT"},
		{"key", `"lab":`, `"lap":`, `unknown field "lap"`},
		{"cut", "\"scores\"", "", "invalid character"},
	} {
		path := filepath.Join(t.TempDir(), "x.json")
		text := strings.Replace(string(good), row.old, row.new, 1)
		if text == string(good) {
			t.Fatalf("%s: nothing replaced", row.name)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadBaseline(path); err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
	if _, err := LoadBaseline("nowhere.json"); err == nil || !strings.Contains(fmt.Sprint(err), "nowhere.json: no such file") {
		t.Errorf("no file: %v", err)
	}
}
