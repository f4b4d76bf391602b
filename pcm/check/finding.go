package check

import (
	"cmp"
	"fmt"
	"slices"
)

// Severity of a finding.
type Severity uint8

// A Mistake must be mended; a Refusal means that the platform asked for cannot run the package; a Warning is what could not be proven, or
// is probably not meant.
const (
	Warning Severity = iota
	Refusal
	Mistake
)

func (s Severity) String() string { return [...]string{"warning", "refused", "mistake"}[s] }

// MarshalText is String.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is one of them, at its place.
type Finding struct {
	File     string   `json:"file"`
	Line     int      `json:"line"`
	Col      int      `json:"col"` // in characters, from 1
	Severity Severity `json:"severity"`
	Rule     string   `json:"rule"` // a short name that stays the same
	Message  string   `json:"message"`
	Fix      string   `json:"fix,omitempty"` // what would be right
}

// String is FILE:LINE:COL: severity: message (fix).
func (f Finding) String() string {
	s := fmt.Sprintf("%s:%d:%d: %s: %s", f.File, f.Line, f.Col, f.Severity, f.Message)
	if f.Fix != "" {
		s += " (" + f.Fix + ")"
	}
	return s
}

func sorted(all []Finding) []Finding {
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Message, b.Message))
	})
	return slices.CompactFunc(all, func(a, b Finding) bool { return a == b })
}
