// Package trace reads what happened to a flow, one event a line, to be replayed through a handler: CSV with a heading, or JSON lines.
//
//	t_ns,ack,data_tx,rtt        {"t_ns": 1000, "ack": 1, "data_tx": 4096, "rtt": 14200}
//	1000,1,4096,14200           {"t_ns": 2000, "nack": 1}
//	2000,,,
//
// Columns are t_ns and the fields of a shell's input: ack, rto, nack, ecn, rtt (ns), data_tx (bytes acknowledged), and so on. An
// empty cell, or a key that is left out, did not happen; 0 did.
package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/pcm"
)

// Event is one line. Bit i of Mask says that Values[i] is of source i.
type Event struct {
	Line   int
	TNS    uint64
	Mask   uint64
	Values [NumSources]uint64
}

// NumSources is the number of sources.
const NumSources = 19

// Columns are the names that a trace may use, t_ns first.
func Columns() []string {
	out := []string{"t_ns"}
	for _, s := range pcm.Sources() {
		if s != pcm.ElapsedTime { // the shell's own clock
			out = append(out, s.Field())
		}
	}
	return out
}

func sourceOf(column string) (int, bool) {
	for _, s := range pcm.Sources() {
		if s.Field() == column && s != pcm.ElapsedTime {
			return int(s), true
		}
	}
	return 0, false
}

// MaxLine bounds a line of a trace.
const MaxLine = 64 << 10

// mistakes gathers what is wrong with a trace, up to a number that nobody reads further than.
type mistakes struct {
	file string
	list []error
}

const maxMistakes = 20

var errEnough = errors.New("too many mistakes to go on")

func (m *mistakes) add(line, col int, format string, a ...any) error {
	if len(m.list) == maxMistakes {
		return errEnough
	}
	m.list = append(m.list, fmt.Errorf("%s:%d:%d: %s", m.file, line, col, fmt.Sprintf(format, a...)))
	return nil
}

// Read calls each for every event of r, in order. file is the name in messages; what begins with { is JSON lines. The error lists all
// mistakes; events behind the first one are not given.
func Read(file string, r io.Reader, each func(*Event) error) error {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 4096), MaxLine)
	m := &mistakes{file: file}
	var columns []string
	var last uint64
	lines, events := 0, 0
	for in.Scan() {
		lines++
		text := bytes.TrimRight(in.Bytes(), "\r")
		if lines == 1 {
			text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
		}
		if len(bytes.TrimSpace(text)) == 0 || text[0] == '#' {
			continue
		}
		e := Event{Line: lines}
		var err error
		before := len(m.list)
		switch {
		case bytes.TrimSpace(text)[0] == '{' && columns == nil:
			err = m.object(&e, text)
		case columns == nil:
			if columns, err = m.heading(lines, string(text)); err == nil && len(m.list) == before {
				continue
			}
			if err == nil {
				err = errEnough // without a heading no line means anything
			}
		default:
			err = m.cells(&e, columns, string(text))
		}
		if err == nil && len(m.list) == before && events > 0 && e.TNS < last {
			err = m.add(lines, 1, "t_ns %d is before %d: time does not go back", e.TNS, last)
		}
		if err != nil {
			break
		}
		last = max(last, e.TNS)
		events++
		if len(m.list) == 0 {
			if err := each(&e); err != nil {
				return err
			}
		}
	}
	switch err := in.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		m.add(lines+1, 1, "a line of more than %d bytes", MaxLine)
	case err != nil:
		return fmt.Errorf("read %s: %w", file, err)
	}
	if len(m.list) == 0 && events == 0 {
		m.add(1, 1, "no event: need a heading such as t_ns,ack,rtt and lines below it, or JSON lines")
	}
	return errors.Join(m.list...)
}

func (m *mistakes) heading(line int, text string) ([]string, error) {
	columns := strings.Split(text, ",")
	col := 1
	seen := map[string]bool{}
	for i, name := range columns {
		columns[i] = strings.TrimSpace(name)
		_, ok := sourceOf(columns[i])
		var err error
		switch {
		case seen[columns[i]]:
			err = m.add(line, col, "column %q is there twice", columns[i])
		case !ok && columns[i] != "t_ns":
			err = m.add(line, col, "no field %q (%s)", columns[i], spec.Suggest(columns[i], Columns()))
		}
		if err != nil {
			return nil, err
		}
		seen[columns[i]] = true
		col += len(name) + 1
	}
	if !seen["t_ns"] {
		return columns, m.add(line, 1, "no column t_ns, the time of each event in ns")
	}
	return columns, nil
}

func (m *mistakes) cells(e *Event, columns []string, text string) error {
	cells := strings.Split(text, ",")
	if len(cells) != len(columns) {
		return m.add(e.Line, 1, "%d cells, the heading has %d", len(cells), len(columns))
	}
	col := 1
	for i, cell := range cells {
		v := strings.TrimSpace(cell)
		switch n, err := strconv.ParseUint(v, 10, 64); {
		case v == "" && columns[i] == "t_ns":
			if err := m.add(e.Line, col, "no t_ns"); err != nil {
				return err
			}
		case v == "":
		case err != nil:
			if err := m.add(e.Line, col, "%s: %q is no whole number of 64 bits", columns[i], v); err != nil {
				return err
			}
		default:
			e.set(columns[i], n)
		}
		col += len(cell) + 1
	}
	return nil
}

func (e *Event) set(column string, n uint64) {
	if column == "t_ns" {
		e.TNS = n
		return
	}
	i, _ := sourceOf(column)
	e.Values[i] = n
	e.Mask |= 1 << i
}

func (m *mistakes) object(e *Event, text []byte) error {
	var fields map[string]*json.Number
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&fields); err != nil {
		return m.add(e.Line, int(d.InputOffset())+1, "no JSON object of numbers: %v", err)
	}
	end := d.InputOffset()
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return m.add(e.Line, int(end)+1, "more than one object on the line")
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	timed := false
	for _, name := range names {
		col := bytes.Index(text, []byte(`"`+name+`"`)) + 1
		_, ok := sourceOf(name)
		timed = timed || name == "t_ns"
		var err error
		switch v := fields[name]; {
		case !ok && name != "t_ns":
			err = m.add(e.Line, max(1, col), "no field %q (%s)", name, spec.Suggest(name, Columns()))
		case v == nil: // null: it did not happen
		default:
			n, bad := strconv.ParseUint(v.String(), 10, 64)
			if bad != nil {
				err = m.add(e.Line, max(1, col), "%s: %s is no whole number of 64 bits", name, v)
			} else {
				e.set(name, n)
			}
		}
		if err != nil {
			return err
		}
	}
	if !timed {
		return m.add(e.Line, 1, "no t_ns")
	}
	return nil
}
