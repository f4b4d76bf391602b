package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pcmlab/pcmlab/experiments"
)

// TestMain lets the test binary be a process of its own that works on an index: see child.
func TestMain(m *testing.M) {
	if what := os.Getenv("STORE_TEST_CHILD"); what != "" {
		if err := childMain(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	stopPostgres()
	os.Exit(code)
}

// child is a process that works on the index of root: "sync" once, or "note" some runs that it makes.
func child(t testing.TB, what, root, dsn string, number int) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "STORE_TEST_CHILD="+what, "STORE_TEST_ROOT="+root, "STORE_TEST_DSN="+dsn, "STORE_TEST_NUMBER="+strconv.Itoa(number))
	cmd.Stderr = os.Stderr
	return cmd
}

func childMain(what string) error {
	ctx, root, dsn := context.Background(), os.Getenv("STORE_TEST_ROOT"), os.Getenv("STORE_TEST_DSN")
	number, _ := strconv.Atoi(os.Getenv("STORE_TEST_NUMBER"))
	if what == "note" {
		for i := range 20 {
			dir := filepath.Join(root, fmt.Sprintf("note-%d-%02d", number, i))
			if err := writeRun(dir, summaryWith(uint64(number*100+i))); err != nil {
				return err
			}
			summary, err := experiments.LoadSummary(dir)
			if err != nil {
				return err
			}
			if err := Note(ctx, root, dsn, summary); err != nil {
				return err
			}
		}
		return nil
	}
	s, err := Open(ctx, root, dsn)
	if err != nil {
		return err
	}
	_, err = s.Sync(ctx, root)
	return errors.Join(err, s.Close())
}

// summaryWith is a summary made from a seed: every field in use, some left out.
func summaryWith(seed uint64) *experiments.Summary {
	r := rand.New(rand.NewPCG(seed, 1))
	rate, trace := 1e9*float64(1+r.IntN(100)), fmt.Sprintf("%064x", r.Uint64())
	began := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(r.Int64N(int64(30 * 24 * time.Hour))))
	s := &experiments.Summary{Schema: "pcmlab/summary/v1", Run: began.Format("20060102-150405.000") + "-incast", Playbook: fmt.Sprintf("incast-%d", r.IntN(3)),
		Lab: "virtual-4", State: experiments.StateComplete, Verdict: experiments.Pass, Began: began, Ended: began.Add(time.Duration(r.Int64N(int64(time.Minute)))),
		TimeScale: 50, LineRateBps: &rate, Inputs: fmt.Sprintf("%064x", seed%7), Trace: &trace,
		Checks:     []experiments.CheckResult{{Name: "fair", That: `jain(phase="*") >= 0.95`, Verdict: experiments.Pass, Values: []experiments.MetricValue{{Call: "jain()", Value: r.Float64()}}}},
		Scores:     []experiments.Score{},
		Provenance: map[string]string{"pcmlab.commit": "unknown", "host.h1.kernel": fmt.Sprintf("6.%d", r.IntN(4)), "host.h1.cpu": "it's \"quoted\" // ? $1"}}
	if r.IntN(3) == 0 {
		s.State, s.Reason, s.Verdict, s.LineRateBps, s.Trace = experiments.StatePartial, "interrupted", experiments.Skip, nil, nil
	}
	if r.IntN(2) == 0 {
		s.Trial = &experiments.Trial{Sweep: "a sweep", Cell: fmt.Sprintf("c%d", r.IntN(4)), Repeat: 1 + r.IntN(5), Warmup: r.IntN(4) == 0,
			Params: []experiments.Param{{Key: "senders", Value: strconv.Itoa(r.IntN(3))}, {Key: "nic.dcqcn", Value: "off"}}}
	}
	for _, phase := range []string{"", "one", "two"} {
		for _, metric := range []string{"jain", "goodput", "cnps"} {
			v := experiments.Score{Metric: metric, Phase: phase, Unit: "bit/s"}
			if x := r.NormFloat64() * 1e9; r.IntN(5) > 0 {
				v.Value = &x
			} else {
				v.Reason = "nothing was captured"
			}
			s.Scores = append(s.Scores, v)
		}
	}
	return s
}

// writeRun makes the folder of a run as a run leaves it: the manifest last.
func writeRun(dir string, s *experiments.Summary) error {
	data, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "timeline.jsonl"), []byte(`{"at":"2026-11-30T05:32:42Z","event":"host_reached"}`+"\n"), 0o644),
		os.WriteFile(filepath.Join(dir, experiments.SummaryFile), data, 0o644), os.WriteFile(filepath.Join(dir, "manifest.json"), []byte("{}"), 0o644))
}

// backends are the databases that a test is run with.
func backends(t *testing.T, test func(t *testing.T, root, dsn string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, t.TempDir(), "") })
	t.Run("postgres", func(t *testing.T) { test(t, t.TempDir(), postgres(t)) })
}

func open(t testing.TB, root, dsn string) *Store {
	t.Helper()
	s, err := Open(t.Context(), root, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func syncOnce(t testing.TB, s *Store, root string) Synced {
	t.Helper()
	done, err := s.Sync(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if len(done.Warnings) > 0 {
		t.Fatalf("warnings %q", done.Warnings)
	}
	return done
}

// contents is everything that an index says, by folder.
func contents(t testing.TB, s *Store) map[string]*experiments.Summary {
	t.Helper()
	rows, total, err := s.List(t.Context(), Filter{})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != total {
		t.Errorf("List without a limit gave %d rows of %d", len(rows), total)
	}
	all := map[string]*experiments.Summary{}
	for _, r := range rows {
		summary, err := s.Summary(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if summary.Run != r.Run || summary.State != r.State || !cmp.Equal(summary.Trial, r.Trial, cmpopts.EquateEmpty()) {
			t.Errorf("%s: List and Summary differ: %+v, %+v", r.Dir, r, summary)
		}
		if all[r.Dir] != nil {
			t.Errorf("%s is there twice", r.Dir)
		}
		summary.Dir = ""
		all[r.Dir] = summary
	}
	return all
}

// truth is what the folders say, read without any index.
func truth(t testing.TB, root string) map[string]*experiments.Summary {
	t.Helper()
	dirs, err := experiments.FindRuns(root)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*experiments.Summary{}
	for _, dir := range dirs {
		rel, _ := filepath.Rel(root, dir)
		s := summaryOf(dir)
		s.Dir = ""
		all[filepath.ToSlash(rel)] = s
	}
	return all
}

var sameSummary = cmp.Options{cmpopts.IgnoreUnexported(experiments.CheckResult{}), cmpopts.EquateEmpty()}

func checkContents(t testing.TB, s *Store, root string) {
	t.Helper()
	if diff := cmp.Diff(truth(t, root), contents(t, s), sameSummary); diff != "" {
		t.Errorf("the index does not say what the folders say (-folders +index):\n%s", diff)
	}
	if s.file != "" {
		var verdict string
		if err := s.db.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
			t.Errorf("integrity check: %s %v", verdict, err)
		}
	}
}
