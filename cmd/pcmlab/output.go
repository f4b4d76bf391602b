package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/pcmlab/pcmlab/analysis"
)

func checkOutput(got string, allowed ...string) error {
	if slices.Contains(allowed, got) {
		return nil
	}
	return usagef("--output %q: need one of %s", got, strings.Join(allowed, ", "))
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// nullable turns the empty string into JSON null: not known is not "".
func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// tableOut is a table on standard output.
type tableOut struct {
	w io.Writer
	t table.Writer
}

func (e *env) newTable(headers ...string) *tableOut {
	t := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Options.SeparateRows = false
	if !e.colour {
		style.Color = table.ColorOptions{}
	}
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	row := table.Row{}
	for _, h := range headers {
		row = append(row, h)
	}
	t.AppendHeader(row)
	return &tableOut{e.stdout, t}
}

// columns sets heads that say which columns are numbers.
func (t *tableOut) columns(columns []analysis.Column) {
	row := table.Row{}
	var configs []table.ColumnConfig
	for i, c := range columns {
		row = append(row, c.Name)
		if c.Numeric {
			configs = append(configs, table.ColumnConfig{Number: i + 1, Align: text.AlignRight})
		}
	}
	t.t.ResetHeaders()
	t.t.AppendHeader(row)
	t.t.SetColumnConfigs(configs)
}

func (t *tableOut) row(cells ...string) {
	row := table.Row{}
	for _, c := range cells {
		row = append(row, c)
	}
	t.t.AppendRow(row)
}

func (t *tableOut) title(s string) { t.t.SetTitle("%s", s) }

func (t *tableOut) print() error {
	_, err := fmt.Fprintln(t.w, t.t.Render())
	return err
}
