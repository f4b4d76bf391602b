package pcm

import (
	"fmt"
	"math"
	"strings"
)

// Format is how a build represents what is declared frac. The zero value is FormatFloat.
type Format uint8

// The representations: double, and fixed point with 16, 32 and 22 bits behind the point in a word of 32, 64 and 64 bits.
const (
	FormatFloat Format = iota
	Q16
	Q32
	Q42
	numFormats
)

var formats = [numFormats]struct {
	name       string
	word, bits int
}{{"float", 0, 0}, {"q16.16", 32, 16}, {"q32.32", 64, 32}, {"q42.22", 64, 22}}

// Formats lists all of them.
func Formats() []Format { return []Format{FormatFloat, Q16, Q32, Q42} }

// String is the name: float, q16.16, q32.32 or q42.22.
func (f Format) String() string { return formats[f].name }

// Words are the bits of a word, and those of them behind the point; 0, 0 of floating point.
func (f Format) Words() (word, fraction int) { return formats[f].word, formats[f].bits }

// ParseFormat finds a representation by its name; "" is float.
func ParseFormat(name string) (Format, error) {
	if name == "" {
		return FormatFloat, nil
	}
	var all []string
	for _, f := range Formats() {
		if f.String() == strings.ToLower(name) {
			return f, nil
		}
		all = append(all, f.String())
	}
	return FormatFloat, fmt.Errorf("no representation of fractions %q (there are %s)", name, strings.Join(all, ", "))
}

// Word is the 64-bit word that holds v, as FRAC of pcm_arith.h makes it: rounded half away from zero, wrapped into the word.
func (f Format) Word(v float64) uint64 {
	switch f {
	case FormatFloat:
		return math.Float64bits(v)
	case Q16:
		return uint64(int64(int32(int64(math.Round(math.Ldexp(v, 16))))))
	}
	return uint64(int64(math.Round(math.Ldexp(v, formats[f].bits))))
}

// Float is the value of a word.
func (f Format) Float(word uint64) float64 {
	switch f {
	case FormatFloat:
		return math.Float64frombits(word)
	case Q16:
		word = uint64(int64(int32(word)))
	}
	return math.Ldexp(float64(int64(word)), -formats[f].bits)
}

// usesFrac: the package has a constant or a variable whose representation the build chooses.
func (p *Package) usesFrac() bool {
	for _, c := range p.Constants {
		if c.Type == Frac {
			return true
		}
	}
	for _, v := range p.Vars {
		if v.Type == Frac {
			return true
		}
	}
	return false
}
