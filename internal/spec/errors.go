package spec

import (
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"
)

// Kind is a class of mistakes.
type Kind int

// The kinds. A schema sees the structural ones (Structural) too; the others only a loader can find.
const (
	Syntax    Kind = iota // not YAML, or YAML that this package refuses before looking at its content
	Unknown               // a key that does not exist here
	Missing               // a required key that is absent, or a key without a value
	Type                  // another type of value
	Pattern               // text of a wrong form
	Enum                  // not one of the allowed words
	Range                 // number, length or count outside its limits
	Duplicate             // the same key twice
	Dialect               // anchors, aliases, merge keys, tags, complex keys
	Spelling              // a number that YAML readers disagree on
	Quantity              // a rate, size or duration outside its limits
	Value                 // text of the right form that means nothing, such as 2001:db8::1::2
	Semantic              // added by the program through Doc.Errorf
)

var kindNames = [...]string{"syntax", "unknown key", "missing", "type", "pattern", "enum", "range", "duplicate key", "dialect",
	"number spelling", "quantity", "value", "semantic"}

// String names the kind.
func (k Kind) String() string { return kindNames[k] }

// Structural says that a JSON Schema made by Schema refuses the same mistake.
func (k Kind) Structural() bool { return k >= Unknown && k <= Range }

// MaxPrinted is how many mistakes Error and Detail print; the rest is counted.
const MaxPrinted = 20

// Problem is one mistake at one place.
type Problem struct {
	File    string
	Line    int // from 1
	Col     int // in characters, from 1
	Width   int // characters under the caret, at least 1
	Kind    Kind
	Message string // what is wrong, with the offending text
	Fix     string // what would be right; may be empty

	source string // the line, for Excerpt
}

// Error is FILE:LINE:COL: message (fix).
func (p *Problem) Error() string {
	s := fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Col, p.Message)
	if p.Fix != "" {
		s += " (" + p.Fix + ")"
	}
	return s
}

const excerptWidth = 160

// Excerpt is the line of the file with a caret under the place, or "" when the file has no such line.
func (p *Problem) Excerpt() string {
	line := []rune(p.source)
	if len(line) == 0 || p.Col < 1 || p.Col > len(line)+1 {
		return ""
	}
	from := 0
	if p.Col > excerptWidth/2 { // a very long line is shown from a little before the place
		from = p.Col - excerptWidth/2
	}
	to := min(len(line), from+excerptWidth)
	var pad strings.Builder
	for _, r := range line[from : p.Col-1] {
		if r == '\t' {
			pad.WriteByte('\t')
		} else {
			pad.WriteByte(' ')
		}
	}
	width := max(1, min(p.Width, to-p.Col+1))
	number := fmt.Sprintf("%5d", p.Line)
	return fmt.Sprintf("%s | %s\n%s | %s%s\n", number, printable(string(line[from:to])), strings.Repeat(" ", len(number)), pad.String(), strings.Repeat("^", width))
}

// Errors are the mistakes of one or several files, sorted by file and place.
type Errors struct{ Problems []*Problem }

// Error lists at most MaxPrinted mistakes, one a line, and counts the rest.
func (e *Errors) Error() string { return e.print(func(p *Problem) string { return p.Error() }) }

// Detail is Error with an excerpt of the source under each mistake.
func (e *Errors) Detail() string {
	return strings.TrimSuffix(e.print(func(p *Problem) string { return p.Error() + "\n" + strings.TrimSuffix(p.Excerpt(), "\n") }), "\n")
}

func (e *Errors) print(one func(*Problem) string) string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i == MaxPrinted {
			fmt.Fprintf(&b, "\nand %d more mistakes", len(e.Problems)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(strings.TrimSuffix(one(p), "\n"))
	}
	return b.String()
}

// Unwrap gives the single mistakes to errors.As.
func (e *Errors) Unwrap() []error {
	out := make([]error, len(e.Problems))
	for i, p := range e.Problems {
		out[i] = p
	}
	return out
}

func (e *Errors) sort() {
	sort.SliceStable(e.Problems, func(i, j int) bool {
		a, b := e.Problems[i], e.Problems[j]
		if a.File != b.File {
			return a.File < b.File
		}
		if a.Line != b.Line {
			return a.Line < b.Line
		}
		return a.Col < b.Col
	})
}

// quote shows user text: quoted, on one line, and not longer than a line.
func quote(s string) string {
	const limit = 60
	if utf8.RuneCountInString(s) > limit {
		s = string([]rune(s)[:limit]) + "…"
	}
	return fmt.Sprintf("%q", s)
}

// printable keeps control characters of a file away from the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && (r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0) {
			return utf8.RuneError
		}
		return r
	}, s)
}
