package export

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/analysis/parquet"
	"github.com/pcmlab/pcmlab/experiments"
)

// Schema names the version of Row in the metadata of Parquet files.
const Schema = "pcmlab/table/v1"

// Row is one number of one run. What was not measured has no row.
type Row struct {
	Run    string  `parquet:"run,dict"`
	Cell   string  `parquet:"cell,dict"`       // "" for a run that is no part of a sweep
	Repeat *int64  `parquet:"repeat,optional"` // from 1; nil for a run that is no part of a sweep
	Host   string  `parquet:"host,dict"`       // that sends the flow; "" for all flows together
	Flow   string  `parquet:"flow,dict"`       // as the playbook names it; "" for all flows together
	Metric string  `parquet:"metric,dict"`
	TimeNS *int64  `parquet:"time_ns,optional"` // Unix time at which the phase or bin begins; nil for the whole run
	Value  float64 `parquet:"value"`
	Unit   string  `parquet:"unit,dict"`
	Phase  string  `parquet:"phase,dict"`  // "" for the whole run
	Params string  `parquet:"params,dict"` // of the cell: "senders=3 nic.dcqcn=off"
	State  string  `parquet:"state,dict"`  // of the run: what is not complete should not be averaged
	Warmup bool    `parquet:"warmup"`
}

// Header names the columns in CSV.
var Header = []string{"run", "cell", "repeat", "host", "flow", "metric", "time_ns", "value", "unit", "phase", "params", "state", "warmup"}

// Writer takes the rows of a table.
type Writer interface {
	Write(Row) error
	Close() error
}

// NewParquet writes a table as Parquet.
func NewParquet(w io.Writer) Writer { return parquet.NewWriter[Row](w, Schema) }

// NewCSV writes a table as CSV with a header.
func NewCSV(w io.Writer) Writer { return &csvWriter{w: csv.NewWriter(w)} }

type csvWriter struct {
	w     *csv.Writer
	begun bool
}

func (c *csvWriter) begin() error {
	if c.begun {
		return nil
	}
	c.begun = true
	return c.w.Write(Header)
}

func (c *csvWriter) Write(r Row) error {
	if err := c.begin(); err != nil {
		return err
	}
	whole := func(v *int64) string {
		if v == nil {
			return ""
		}
		return strconv.FormatInt(*v, 10)
	}
	return c.w.Write([]string{r.Run, r.Cell, whole(r.Repeat), r.Host, r.Flow, r.Metric, whole(r.TimeNS), strconv.FormatFloat(r.Value, 'g', -1, 64), r.Unit,
		r.Phase, r.Params, r.State, strconv.FormatBool(r.Warmup)})
}

func (c *csvWriter) Close() error {
	err := c.begin()
	c.w.Flush()
	return errors.Join(err, c.w.Error())
}

// Table writes the numbers of runs, one run after the other: the scores of their summaries and, with series, what their analysis
// says over time. Memory is that of one run.
func Table(w Writer, dirs []string, series bool) error {
	for _, dir := range dirs {
		if err := tableOf(w, dir, series); err != nil {
			return err
		}
	}
	return w.Close()
}

func tableOf(w Writer, dir string, series bool) error {
	s, err := experiments.LoadSummary(dir)
	if err != nil {
		return err
	}
	all := Row{Run: s.Run, State: string(s.State)}
	if t := s.Trial; t != nil {
		repeat := int64(t.Repeat)
		var params []string
		for _, p := range t.Params {
			params = append(params, p.Key+"="+p.Value)
		}
		all.Cell, all.Repeat, all.Params, all.Warmup = t.Cell, &repeat, strings.Join(params, " "), t.Warmup
	}
	var result experiments.Result
	var input experiments.AnalysisInput
	if err := errors.Join(readJSON(dir, "result.json", &result), readJSON(dir, "analysis-input.json", &input)); err != nil {
		return err
	}
	senders, begins := map[string]string{}, map[string]*int64{}
	for _, f := range result.Flows {
		senders[f.Name] = f.From
	}
	for i := range input.Phases {
		begins[input.Phases[i].Name] = &input.Phases[i].StartNS
	}
	for _, v := range s.Scores {
		if v.Value == nil {
			continue
		}
		r := all
		r.Host, r.Flow, r.Metric, r.TimeNS, r.Value, r.Unit, r.Phase = senders[v.Flow], v.Flow, v.Metric, begins[v.Phase], *v.Value, v.Unit, v.Phase
		if r.Unit == "" {
			r.Unit = "1" // of ratios and counts, as analyses write it
		}
		if err := w.Write(r); err != nil {
			return err
		}
	}
	if !series {
		return nil
	}
	return seriesOf(w, dir, all, &result)
}

func seriesOf(w Writer, dir string, all Row, result *experiments.Result) (err error) {
	var doc analysis.Document
	if err := readJSON(dir, "analysis.json", &doc); err != nil {
		return err
	}
	hosts, flows := map[string]string{}, map[string]string{}
	for _, f := range doc.Flows {
		hosts[f.ID] = f.Name
	}
	for _, f := range result.Flows {
		for _, id := range f.AnalysisID {
			if flows[id] = f.Name; len(f.AnalysisID) > 1 { // several queue pairs have each their own rows
				flows[id] = f.Name + "/" + id
			}
		}
	}
	doc.SeriesRows("", func(v analysis.Row) bool {
		r := all
		r.Flow, r.Host, r.Metric, r.Value, r.Unit = v.Flow, hosts[v.Flow], v.Metric, v.Value, v.Unit
		if name, ok := flows[v.Flow]; ok {
			r.Flow = name
		}
		if v.TimeNS != nil {
			at := *v.TimeNS
			r.TimeNS = &at
		}
		err = w.Write(r)
		return err == nil
	})
	return err
}

// readJSON reads a file of a run; one that the run never wrote leaves v as it is.
func readJSON(dir, name string, v any) error {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %s: %w", experiments.ErrData, dir, name, err)
	}
	return nil
}
