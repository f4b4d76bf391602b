package report

import (
	"html/template"
	"strconv"
	"strings"

	"github.com/pcmlab/pcmlab/analysis"
)

// facts tells whether each row of a table is about something else.
func facts(t analysis.Table) bool { return len(t.Columns) > 0 && t.Columns[0].Name == "what" }

// sortable tells whether sorting the rows of a table says anything.
func sortable(t analysis.Table) bool { return len(t.Rows) > 1 && !facts(t) }

// cellAttributes says how a cell stands and, in columns of numbers, by what it sorts.
func cellAttributes(columns []analysis.Column, i int, text string) template.HTMLAttr {
	switch state := stateOf(text); {
	case i >= len(columns):
	case state != Neutral:
		return template.HTMLAttr(` class="` + string(state) + `"`)
	case columns[i].Wrap:
		return ` class="wrap"`
	case columns[i].Numeric:
		if v, ok := sortKey(text); ok {
			return template.HTMLAttr(` class="n" data-v="` + strconv.FormatFloat(v, 'g', -1, 64) + `"`)
		}
		return ` class="n"`
	}
	return ""
}

// stateOf is the state of a cell that begins with the sign of a verdict.
func stateOf(text string) State {
	sign, _, _ := strings.Cut(text, " ")
	switch sign {
	case "✓":
		return Good
	case "✗":
		return Bad
	case "○":
		return Unsure
	}
	return Neutral
}

// factors are the units that tables use, as multiples of one of their kind.
var factors = map[string]float64{
	"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1,
	"b/s": 1, "kb/s": 1e3, "Mb/s": 1e6, "Gb/s": 1e9, "Tb/s": 1e12,
	"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	"/s": 1, "k/s": 1e3, "M/s": 1e6, "%": 0.01,
}

// sortKey is the number at the beginning of a cell, times its unit.
func sortKey(text string) (float64, bool) {
	number, rest, _ := strings.Cut(text, " ")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, false
	}
	unit, _, _ := strings.Cut(rest, " ")
	if f, ok := factors[unit]; ok {
		v *= f
	}
	return v, true
}
