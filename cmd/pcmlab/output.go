package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/analysis/parquet"
	"github.com/pcmlab/pcmlab/analysis/report"
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
			narrow := min(t.widths[i], max(t.widths[i]-(total-tableWidth), 12))
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

// writeParquet prints a document in long form for other programs.
func (e *env) writeParquet(doc *analysis.Document) error {
	if f, ok := e.stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return usagef("--output parquet: standard output is a terminal; send it to a file: ... -o parquet > analysis.parquet")
	}
	return parquet.Write(e.stdout, doc, "")
}

// writePage makes the page of an analysis that belongs to no run. The file appears whole or not at all.
func writePage(doc *analysis.Document, path string) error {
	var names []string
	for _, f := range doc.Files {
		names = append(names, filepath.Base(f.Path))
	}
	title := strings.Join(names, ", ")
	if len(names) > 3 {
		title = fmt.Sprintf("%s and %d more captures", names[0], len(names)-1)
	}
	var b bytes.Buffer
	if err := report.Render(&b, report.Page{Title: title, Document: doc}); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		if e := (*os.PathError)(nil); errors.As(err, &e) {
			err = e.Err // without the temporary name
		}
		return usagef("--html %s: %w", path, err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(b.Bytes())
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(tmp.Name(), path)
}
