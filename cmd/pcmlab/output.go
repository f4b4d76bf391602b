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
	w       io.Writer
	t       table.Writer
	configs []table.ColumnConfig
	widths  []int // of the widest cell of each column
	wrap    []bool
}

// tableWidth is what a table is made to fit: columns of sentences are broken into lines for it.
const tableWidth = 100

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
	return &tableOut{w: e.stdout, t: t}
}

// columns sets heads that say which columns are numbers and which sentences.
func (t *tableOut) columns(columns []analysis.Column) {
	row := table.Row{}
	t.widths, t.wrap = nil, nil
	for i, c := range columns {
		row = append(row, c.Name)
		config := table.ColumnConfig{Number: i + 1}
		if c.Numeric {
			config.Align = text.AlignRight
		}
		t.configs, t.widths, t.wrap = append(t.configs, config), append(t.widths, text.StringWidth(c.Name)), append(t.wrap, c.Wrap)
	}
	t.t.ResetHeaders()
	t.t.AppendHeader(row)
}

func (t *tableOut) row(cells ...string) {
	row := table.Row{}
	for i, c := range cells {
		row = append(row, c)
		if i < len(t.widths) {
			t.widths[i] = max(t.widths[i], text.StringWidth(c))
		}
	}
	t.t.AppendRow(row)
}

// fit breaks sentences where the table would be wider than tableWidth; the first such column gives way last.
func (t *tableOut) fit() {
	total := 1
	for _, w := range t.widths {
		total += w + 3
	}
	for i := len(t.widths) - 1; i >= 0 && total > tableWidth; i-- {
		if t.wrap[i] {
			narrow := min(t.widths[i], max(t.widths[i]-(total-tableWidth), 16))
			total -= t.widths[i] - narrow
			t.configs[i].WidthMax, t.configs[i].WidthMaxEnforcer = narrow, text.WrapSoft
		}
	}
	t.t.SetColumnConfigs(t.configs)
}

func (t *tableOut) title(s string) { t.t.SetTitle("%s", s) }

func (t *tableOut) print() error {
	t.fit()
	_, err := fmt.Fprintln(t.w, t.t.Render())
	return err
}
