package export

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	pq "github.com/parquet-go/parquet-go"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/experiments"
)

func write(t testing.TB, dir, name string, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	p := filepath.Join(dir, name)
	if err = errors.Join(err, os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, data, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// tableRun is a run of two flows, one with two queue pairs, and some bins.
func tableRun(t testing.TB, dir string, bins int, trial *experiments.Trial) {
	v := func(x float64) *float64 { return &x }
	write(t, dir, "timeline.jsonl", "")
	write(t, dir, "manifest.json", experiments.Manifest{})
	write(t, dir, experiments.SummaryFile, experiments.Summary{Run: filepath.Base(dir), State: experiments.StateComplete, Trial: trial, Scores: []experiments.Score{
		{Metric: "jain", Value: v(0.98)}, {Metric: "goodput", Flow: "f1", Value: v(1e9), Unit: "bit/s"}, {Metric: "goodput", Phase: "two", Flow: "f2", Value: v(2e9), Unit: "bit/s"},
		{Metric: "cnps", Unit: "packets", Reason: "nothing was captured"}}})
	write(t, dir, "result.json", experiments.Result{Flows: []experiments.FlowResult{{Name: "f1", From: "h1", AnalysisID: []string{"a>b:1"}}, {Name: "f2", From: "h2", AnalysisID: []string{"c>b:2", "c>b:3"}}}})
	write(t, dir, "analysis-input.json", experiments.AnalysisInput{Phases: []analysis.Phase{{Name: "two", StartNS: 77}}})
	doc := analysis.Document{Flows: []analysis.Flow{{ID: "a>b:1", Name: "h1"}, {ID: "c>b:2", Name: "h2"}, {ID: "c>b:3", Name: "h2"}, {ID: "x>b:4"}}, Series: analysis.Series{BinNS: 10, StartNS: 1000, Bins: bins}}
	for _, f := range doc.Flows {
		s := analysis.FlowSeries{ID: f.ID}
		for b := range bins {
			s.GoodputBps = append(s.GoodputBps, float64(b))
		}
		doc.Series.Flows = append(doc.Series.Flows, s)
	}
	write(t, dir, "analysis.json", doc)
}

func TestTable(t *testing.T) {
	root := t.TempDir()
	one, two := filepath.Join(root, "one"), filepath.Join(root, "two")
	tableRun(t, one, 1, nil)
	tableRun(t, two, 1, &experiments.Trial{Cell: "c1", Repeat: 2, Warmup: true, Params: []experiments.Param{{Key: "senders", Value: "3"}, {Key: "nic.dcqcn", Value: "off"}}})
	var b bytes.Buffer
	if err := Table(NewCSV(&b), []string{one, two}, true); err != nil {
		t.Fatal(err)
	}
	want := `run,cell,repeat,host,flow,metric,time_ns,value,unit,phase,params,state,warmup
one,,,,,jain,,0.98,1,,,complete,false
one,,,h1,f1,goodput,,1e+09,bit/s,,,complete,false
one,,,h2,f2,goodput,77,2e+09,bit/s,two,,complete,false
one,,,,,series.bin,1000,10,ns,,,complete,false
one,,,,,series.bins,1000,1,1,,,complete,false
one,,,h1,f1,series.goodput,1000,0,bit/s,,,complete,false
one,,,h2,f2/c>b:2,series.goodput,1000,0,bit/s,,,complete,false
one,,,h2,f2/c>b:3,series.goodput,1000,0,bit/s,,,complete,false
one,,,,x>b:4,series.goodput,1000,0,bit/s,,,complete,false
two,c1,2,,,jain,,0.98,1,,senders=3 nic.dcqcn=off,complete,true
two,c1,2,h1,f1,goodput,,1e+09,bit/s,,senders=3 nic.dcqcn=off,complete,true
two,c1,2,h2,f2,goodput,77,2e+09,bit/s,two,senders=3 nic.dcqcn=off,complete,true
two,c1,2,,,series.bin,1000,10,ns,,senders=3 nic.dcqcn=off,complete,true
two,c1,2,,,series.bins,1000,1,1,,senders=3 nic.dcqcn=off,complete,true
two,c1,2,h1,f1,series.goodput,1000,0,bit/s,,senders=3 nic.dcqcn=off,complete,true
two,c1,2,h2,f2/c>b:2,series.goodput,1000,0,bit/s,,senders=3 nic.dcqcn=off,complete,true
two,c1,2,h2,f2/c>b:3,series.goodput,1000,0,bit/s,,senders=3 nic.dcqcn=off,complete,true
two,c1,2,,x>b:4,series.goodput,1000,0,bit/s,,senders=3 nic.dcqcn=off,complete,true
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTable_parquetOverCSV: Parquet has the rows of the CSV, bit by bit, under the same names.
func TestTable_parquetOverCSV(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	tableRun(t, dir, 5000, &experiments.Trial{Cell: "c1", Repeat: 1})
	var text, columns bytes.Buffer
	if err := errors.Join(Table(NewCSV(&text), []string{dir}, true), Table(NewParquet(&columns), []string{dir}, true)); err != nil {
		t.Fatal(err)
	}
	want, err := csv.NewReader(&text).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	file, err := pq.OpenFile(bytes.NewReader(columns.Bytes()), int64(columns.Len()))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range file.Root().Columns() {
		names = append(names, c.Name())
	}
	if !slices.Equal(names, want[0]) {
		t.Errorf("columns %q, want %q", names, want[0])
	}
	rows, err := pq.Read[Row](bytes.NewReader(columns.Bytes()), int64(columns.Len()))
	if err != nil || len(rows) != len(want)-1 || len(rows) < 20_000 {
		t.Fatalf("%d rows, want %d: %v", len(rows), len(want)-1, err)
	}
	whole := func(v *int64) string {
		if v == nil {
			return ""
		}
		return fmt.Sprint(*v)
	}
	for i, r := range rows {
		got := []string{r.Run, r.Cell, whole(r.Repeat), r.Host, r.Flow, r.Metric, whole(r.TimeNS), strconv.FormatFloat(r.Value, 'g', -1, 64), r.Unit, r.Phase, r.Params, r.State, fmt.Sprint(r.Warmup)}
		if !slices.Equal(got, want[i+1]) {
			t.Fatalf("row %d: %q, want %q", i, got, want[i+1])
		}
	}
}

// peak tells how large the heap was at any write.
type peak struct{ heap uint64 }

func (p *peak) Write(b []byte) (int, error) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	p.heap = max(p.heap, m.HeapInuse)
	return len(b), nil
}

// TestTable_memoryIsThatOfOneRun: ten times the runs take a little more memory at most.
func TestTable_memoryIsThatOfOneRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	tableRun(t, dir, 10_000, nil)
	used := func(n int) uint64 {
		runtime.GC()
		var before runtime.MemStats
		runtime.ReadMemStats(&before)
		var p peak
		if err := Table(NewParquet(&p), slices.Repeat([]string{dir}, n), true); err != nil {
			t.Fatal(err)
		}
		if p.heap == 0 {
			t.Fatal("the heap was never looked at")
		}
		return p.heap - min(p.heap, before.HeapInuse)
	}
	few, many := used(3), used(30)
	t.Logf("3 runs: %d MiB, 30 runs: %d MiB", few>>20, many>>20)
	if many > 2*few+16<<20 {
		t.Errorf("30 runs took %d MiB, 3 took %d MiB", many>>20, few>>20)
	}
}

func TestTable_empty(t *testing.T) {
	var b bytes.Buffer
	if err := Table(NewCSV(&b), nil, true); err != nil || b.String() != "run,cell,repeat,host,flow,metric,time_ns,value,unit,phase,params,state,warmup\n" {
		t.Errorf("%q %v: a table without rows has its header all the same", b.String(), err)
	}
}
