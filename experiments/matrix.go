package experiments

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/internal/units"
)

// Matrix spans the cells of a sweep.
type Matrix struct {
	Shuffled bool          // each repeat is a block of all cells in an order of its own
	Budget   time.Duration // 0: none
	cells    []matrixCell
}

// MaxTrials bounds a sweep: more is a mistake in a matrix, not a plan.
const MaxTrials = 100_000

// maxCells bounds the cells: each is parsed and planned before anything is raised.
const maxCells = 5_000

// matrixCell is one combination with the places that its values come from.
type matrixCell struct {
	params []Param
	places []spec.Path
	at     spec.Path // of the whole
}

// Keys are the parameters of its cells, in the order of the file.
func (m *Matrix) Keys() []string {
	var out []string
	for _, c := range m.cells {
		for _, p := range c.params {
			if !slices.Contains(out, p.Key) {
				out = append(out, p.Key)
			}
		}
	}
	return out
}

func (c matrixCell) with(key, value string, at spec.Path) matrixCell {
	c.params = append(slices.Clone(c.params), Param{key, value})
	c.places = append(slices.Clone(c.places), at)
	return c
}

func (c matrixCell) value(key string) (string, bool) {
	for _, p := range c.params {
		if p.Key == key {
			return p.Value, true
		}
	}
	return "", false
}

// buildMatrix spans the cells and checks what needs no lab and no cell.
func (p *Playbook) buildMatrix() {
	m := p.file.Matrix
	if m == nil {
		return
	}
	at := spec.P("matrix")
	p.Matrix = &Matrix{Shuffled: m.Order != "listed", Budget: m.Budget}
	p.checkKeys(m)
	cells := []matrixCell{{at: at}}
	for _, axis := range m.Vary {
		cells = p.cross(cells, len(axis.Value), func(c matrixCell, i int) matrixCell {
			return c.with(axis.Key, string(axis.Value[i]), at.With("vary", axis.Key, i))
		})
	}
	for g, group := range m.Zip {
		length := 0
		for i, axis := range group {
			if i > 0 && len(axis.Value) != length {
				p.doc.Errorf(at.With("zip", g, axis.Key), "give both as many values", "%d values, but %s has %d: they advance together", len(axis.Value), group[0].Key, length)
				return
			}
			length = len(axis.Value)
		}
		cells = p.cross(cells, length, func(c matrixCell, i int) matrixCell {
			for _, axis := range group {
				c = c.with(axis.Key, string(axis.Value[i]), at.With("zip", g, axis.Key, i))
			}
			return c
		})
	}
	if len(m.Vary)+len(m.Zip) == 0 && len(m.Include) > 0 {
		cells = nil // the playbook as it stands is not asked for
	}
	cells = p.exclude(m, cells)
	for i, inc := range m.Include {
		c := matrixCell{at: at.With("include", i)}
		for _, e := range inc {
			c = c.with(e.Key, string(e.Value), c.at.With(e.Key))
		}
		cells = append(cells, c)
	}
	if p.doc.Err() != nil {
		return
	}
	p.Matrix.cells = p.distinct(cells)
	switch n := len(cells); {
	case n == 0:
		p.doc.Errorf(at, "vary something, or exclude less", "no cell is left")
	case n*(p.Repeat+p.Warmup) > MaxTrials:
		p.doc.Errorf(at, fmt.Sprintf("at most %d", MaxTrials), "%d cells of %d runs each are %d trials", n, p.Repeat+p.Warmup, n*(p.Repeat+p.Warmup))
	}
}

// cross combines every cell with every value of an axis; the last axis changes fastest.
func (p *Playbook) cross(cells []matrixCell, values int, with func(matrixCell, int) matrixCell) []matrixCell {
	if len(cells)*values > maxCells {
		p.doc.Errorf(spec.P("matrix"), fmt.Sprintf("at most %d", maxCells), "more than %d cells", maxCells)
		return cells[:1]
	}
	var out []matrixCell
	for _, c := range cells {
		for i := range values {
			out = append(out, with(c, i))
		}
	}
	return out
}

// checkKeys finds keys that are no parameters or come twice, and axes without values.
func (p *Playbook) checkKeys(m *matrixSpec) {
	at := spec.P("matrix")
	from := map[string]string{}
	axis := func(path spec.Path, key string, values spec.OneOrMany[spec.Scalar]) {
		if err := CheckKey(key); err != nil {
			p.doc.KeyErrorf(path, "", "%v", err)
		}
		if before, ok := from[key]; ok {
			p.doc.KeyErrorf(path, "keep one", "%s is in %s already", key, before)
		}
		from[key] = path[:len(path)-1].String()
		if len(values) == 0 {
			p.doc.Errorf(path, "give at least one", "no value")
		}
	}
	for _, e := range m.Vary {
		axis(at.With("vary", e.Key), e.Key, e.Value)
	}
	for g, group := range m.Zip {
		if len(group) == 0 {
			p.doc.Errorf(at.With("zip", g), "name parameters, or leave it out", "an empty group")
		}
		for _, e := range group {
			axis(at.With("zip", g, e.Key), e.Key, e.Value)
		}
	}
	for i, inc := range m.Include {
		for _, e := range inc {
			if err := CheckKey(e.Key); err != nil {
				p.doc.KeyErrorf(at.With("include", i, e.Key), "", "%v", err)
			}
		}
	}
}

// exclude takes cells out. One that takes none is a typo.
func (p *Playbook) exclude(m *matrixSpec, cells []matrixCell) []matrixCell {
	for i, ex := range m.Exclude {
		at := spec.P("matrix", "exclude", i)
		if len(ex) == 0 {
			p.doc.Errorf(at, "name parameters, or leave it out", "excludes every cell")
			continue
		}
		before := len(cells)
		cells = slices.DeleteFunc(slices.Clone(cells), func(c matrixCell) bool {
			for _, e := range ex {
				if v, ok := c.value(e.Key); !ok || canonicalValue(v) != canonicalValue(string(e.Value)) {
					return false
				}
			}
			return true
		})
		if len(cells) == before {
			p.doc.Errorf(at, "use values as vary and zip have them", "matches no cell")
		}
	}
	return cells
}

// distinct refuses cells that are there twice.
func (p *Playbook) distinct(cells []matrixCell) []matrixCell {
	seen := map[string]matrixCell{}
	for _, c := range cells {
		id := CellID(c.params)
		if first, ok := seen[id]; ok {
			at := c.at
			if len(c.places) > 0 {
				at = c.places[len(c.places)-1]
			}
			p.doc.Errorf(at, "leave one out", "cell %s is there already (line %d)", cellName(c.params), p.doc.Pos(first.at).Line)
		}
		seen[id] = c
	}
	return cells
}

func cellName(params []Param) string {
	if len(params) == 0 {
		return "without parameters"
	}
	return ParamText(params)
}

// checkMatrix builds the playbook of every cell, so that all mistakes but those of the lab come out early.
func (p *Playbook) checkMatrix() {
	if p.Matrix == nil {
		return
	}
	checked := map[string]bool{}
	for _, c := range p.Matrix.cells {
		own, _ := splitParams(c.params)
		if id := CellID(own); !checked[id] {
			checked[id] = true
			_, mistakes := p.variant(own, true)
			p.cellMistakes(p.doc, c, mistakes, func(one Param) bool {
				_, bad := p.variant([]Param{one}, true)
				return IsPlaybookKey(one.Key) && len(bad) > 0
			})
		}
	}
}

// cellMistakes names mistakes of one cell at the place of the value that is wrong alone, or of the cell.
func (p *Playbook) cellMistakes(doc *spec.Doc, c matrixCell, mistakes []string, wrongAlone func(Param) bool) {
	if len(mistakes) == 0 {
		return
	}
	at := c.at
	if len(c.places) > 0 {
		at = c.places[0]
	}
	for i, one := range c.params {
		if wrongAlone(one) {
			at = c.places[i]
			break
		}
	}
	for _, m := range mistakes {
		name := cellName(c.params) + ": "
		doc.Errorf(at, "", "cell %s%s", name, strings.TrimPrefix(m, name))
	}
}

// splitParams tells settings of the playbook from those of the lab.
func splitParams(params []Param) (own, lab []Param) {
	for _, p := range params {
		if IsPlaybookKey(p.Key) {
			own = append(own, p)
		} else {
			lab = append(lab, p)
		}
	}
	return own, lab
}

var (
	slugRest   = regexp.MustCompile(`[^A-Za-z0-9.+]+`)
	onlyNumber = regexp.MustCompile(`^[-+0-9.eE]+$`)
)

// slugLength bounds the readable part of a cell's id; the hash behind it keeps ids apart.
const slugLength = 100

// CellID names a cell: its parameters in alphabetical order, fit for a path, and a short hash of them. It does not depend on the order
// in the file, nor on how a quantity is spelt.
func CellID(params []Param) string {
	sorted := slices.Clone(params)
	slices.SortFunc(sorted, func(a, b Param) int { return strings.Compare(a.Key, b.Key) })
	h := sha256.New()
	var parts []string
	for _, p := range sorted {
		value := canonicalValue(p.Value)
		fmt.Fprintf(h, "%s=%s\n", p.Key, value)
		parts = append(parts, slugRest.ReplaceAllString(p.Key+"-"+value, "-"))
	}
	slug := strings.Join(parts, "_")
	if slug == "" {
		slug = "base"
	}
	if len(slug) > slugLength {
		slug = slug[:slugLength]
	}
	return slug + "-" + hex.EncodeToString(h.Sum(nil))[:8]
}

// canonicalValue gives quantities one spelling: "1024KiB" and "1MiB" are the same.
func canonicalValue(v string) string {
	v = strings.TrimSpace(v)
	if onlyNumber.MatchString(v) {
		return v
	}
	if d, err := time.ParseDuration(v); err == nil {
		return strings.ReplaceAll(d.String(), "µ", "u")
	}
	if s, err := units.ParseSize(v); err == nil {
		return s.String()
	}
	if r, err := units.ParseRate(v); err == nil {
		return r.String()
	}
	switch strings.ToLower(v) {
	case "on", "yes", "true":
		return "on"
	case "off", "no", "false":
		return "off"
	}
	return v
}
