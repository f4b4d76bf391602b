package perftest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// JSONError says that a JSON file of the tool cannot be used.
type JSONError struct {
	Version string // of the tool that wrote it; "" when unknown
	Cause   error
}

func (e *JSONError) Error() string {
	v := "of unknown version"
	if e.Version != "" {
		v = e.Version
	}
	return fmt.Sprintf("JSON of perftest %s: %v", v, e.Cause)
}

func (e *JSONError) Unwrap() error { return e.Cause }

type jsonDocument struct {
	Info    map[string]any  `json:"test_info"`
	Results json.RawMessage `json:"results"`
}

type jsonResults struct {
	Size       *int64   `json:"MsgSize"`
	Iterations *int64   `json:"n_iterations"`
	Peak       *float64 `json:"BW_peak"`
	Avg        *float64 `json:"BW_average"`
	MsgRate    *float64 `json:"MsgRate"`
	CPU        *float64 `json:"CPU_util"`
	BareAvg    *float64 `json:"bw_avg"`
	BareRate   *float64 `json:"msgRate_avg"`
	TAvg       *float64 `json:"t_avg"`
}

// ParseJSON reads the file of --out_json. It names no unit, so that must come from the command line that was started.
// Old versions write keys and words without quotes and trailing commas, which no reader can be trusted with: they are
// a *JSONError, and the table of the same run is the result.
func ParseJSON(data []byte, argv []string, version string) (*Output, error) {
	refuse := func(err error) (*Output, error) { return nil, &JSONError{Version: version, Cause: err} }
	if len(bytes.TrimSpace(data)) == 0 {
		return refuse(fmt.Errorf("the file is empty: %w", ErrNoResult))
	}
	var doc jsonDocument
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&doc); err != nil {
		return refuse(fmt.Errorf("not JSON (old versions write bare words): %w", err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return refuse(errors.New("more than one object in the file"))
	}
	if len(doc.Results) == 0 {
		return refuse(fmt.Errorf("no results object: %w", ErrNoResult))
	}
	var res jsonResults
	if err := json.Unmarshal(doc.Results, &res); err != nil {
		return refuse(fmt.Errorf("results: %w", err))
	}
	if res.TAvg != nil {
		return refuse(errors.New("the file of a latency test, which only its table is read of"))
	}
	if res.Avg == nil && res.BareAvg == nil {
		return refuse(fmt.Errorf("results without BW_average: %w", ErrNoResult))
	}
	unit, err := UnitOf(argv)
	if err != nil {
		return refuse(err)
	}
	out := &Output{Source: "json", Unit: unit, Version: version}
	if s, ok := doc.Info["test"].(string); ok {
		out.Test = s
	}
	row := Row{}
	if res.Avg == nil {
		res.Avg = res.BareAvg
	}
	if math.IsInf(*res.Avg, 0) || *res.Avg < 0 {
		return refuse(fmt.Errorf("BW_average %v: not a measured value", *res.Avg))
	}
	row.AvgBps = *res.Avg * unit.bps()
	row.RoundBps = 0.005 * unit.bps() // two decimals, or six for small values in Gb/s
	if *res.Avg < 0.1 && unit == GbPerSec {
		row.RoundBps = 0.0000005 * unit.bps()
	}
	if res.Size != nil {
		row.Bytes = *res.Size
	}
	if res.Iterations != nil {
		row.Iterations = *res.Iterations
	}
	if res.Peak != nil && *res.Peak > 0 {
		bps := *res.Peak * unit.bps()
		row.PeakBps = &bps
	}
	if res.MsgRate != nil {
		pps := *res.MsgRate * 1e6
		row.MsgRatePPS = &pps
	}
	row.CPUPercent = res.CPU
	out.Rows = []Row{row}
	return out, nil
}

// ParseRun reads everything that one side of a run left: its text and, when there is one, its JSON file. The text is
// the result wherever it has a table, since the JSON file holds the last report alone (perftest pull request 322); the
// JSON is held against it, and is the result only where there is no text.
func ParseRun(stdout, stderr, jsonFile []byte, argv []string, version string) (*Output, error) {
	out, err := Parse(stdout, stderr, argv)
	if out.Version == "" {
		out.Version = version
	}
	if jsonFile == nil {
		return out, err
	}
	fromJSON, jsonErr := ParseJSON(jsonFile, argv, version)
	switch {
	case jsonErr != nil && err != nil:
		return out, errors.Join(err, jsonErr)
	case jsonErr != nil:
		out.Notes = append(out.Notes, fmt.Sprintf("%v; read the table instead", jsonErr))
		return out, nil
	case err != nil && !errors.Is(err, ErrNoResult):
		return out, err
	case err != nil:
		fromJSON.Notes = append(out.Notes, fromJSON.Notes...)
		fromJSON.Cut = out.Cut
		return fromJSON, nil
	}
	last := out.Rows[len(out.Rows)-1]
	got := fromJSON.Rows[0]
	if len(out.Rows) > 1 {
		out.Notes = append(out.Notes, fmt.Sprintf("the JSON file holds the last of %d rows alone (%d bytes); read the table", len(out.Rows), got.Bytes))
	}
	if math.Abs(got.AvgBps-last.AvgBps) > last.RoundBps+got.RoundBps {
		out.Notes = append(out.Notes, fmt.Sprintf("the JSON file has %.6g bit/s where the table has %.6g; read the table", got.AvgBps, last.AvgBps))
	}
	return out, err
}
