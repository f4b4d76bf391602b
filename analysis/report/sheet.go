package report

import (
	"errors"
	"io"

	"github.com/pcmlab/pcmlab/analysis"
)

// Sheet is a page about many runs: whatever sections its maker has, in the looks of a run's page. Only Title is needed.
type Sheet struct {
	Title    string
	Subtitle string
	Verdict  Verdict
	Badges   []Verdict
	Alarm    *Alarm
	Warnings []string
	Tiles    []Tile
	Sections []Section

	Provenance []KV
	Links      []Link
}

// Section is a part of a sheet. Charts are as wide as the page, Small ones stand side by side.
type Section struct {
	Title, Note string
	Charts      []Chart
	Small       []Chart
	Tables      []Table
}

// Table is a table of a sheet. A cell that begins with ✓, ✗ or ○ has the colour of that verdict. Sparks, if there are any,
// are a last column: one small curve a row, of values that are NaN where there is none.
type Table struct {
	analysis.Table
	SparkName string
	Sparks    [][]float64
}

// RenderSheet writes the sheet as one HTML page that needs no network. The same sheet gives the same bytes.
func RenderSheet(w io.Writer, s Sheet) error {
	if s.Title == "" {
		return errors.New("report: sheet without a title")
	}
	v := sheetView{Sheet: s}
	for _, section := range s.Sections {
		sv := sectionView{Section: section}
		for _, c := range section.Charts {
			sv.Wide = append(sv.Wide, draw(c))
		}
		for _, c := range section.Small {
			sv.Beside = append(sv.Beside, drawSmall(c))
		}
		v.Sections = append(v.Sections, sv)
	}
	return pageTemplate.ExecuteTemplate(w, "sheet", v)
}

type sheetView struct {
	Sheet
	Sections []sectionView // hides Sheet.Sections
}

type sectionView struct {
	Section
	Wide, Beside []figure
}

// tableOf lets the template draw tables of both kinds.
func tableOf(t any) Table {
	if plain, ok := t.(analysis.Table); ok {
		return Table{Table: plain}
	}
	return t.(Table)
}
