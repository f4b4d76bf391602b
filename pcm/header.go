package pcm

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Header is NAME.h, which the handler includes: constants, the names of its objects, and the layout of the snapshot
// (fired mask, mask of the signals that the handler set, signals, controls). Variables lie apart.
func (p *Package) Header() string {
	var b strings.Builder
	guard := strings.ToUpper(p.Name) + "_H"
	fmt.Fprintf(&b, "/* Made of %s: do not edit. */\n#ifndef %s\n#define %s\n\n", p.base(), guard, guard)
	for _, c := range p.Constants {
		fmt.Fprintf(&b, "#define %s %s\n", strings.ToUpper(c.Name), c.literal())
	}
	b.WriteString("\n/* Bits of the mask of signals, and places in the snapshot. */\nenum pcm_signals {\n")
	for i, s := range p.Signals {
		suffix := ""
		if i > 30 {
			suffix = "ll"
		}
		fmt.Fprintf(&b, "\t%s = 1%s << %d,\n", s.Name, suffix, i)
	}
	b.WriteString("};\n")
	enum := func(name string, n int, each func(i int) (string, int)) {
		if n == 0 {
			return
		}
		fmt.Fprintf(&b, "enum %s {\n", name)
		for i := range n {
			object, index := each(i)
			fmt.Fprintf(&b, "\t%s = %d,\n", object, index)
		}
		b.WriteString("};\n")
	}
	enum("pcm_controls", len(p.Controls), func(i int) (string, int) { return p.Controls[i].Name, i })
	enum("pcm_variables", len(p.Vars), func(i int) (string, int) { return p.Vars[i].Name, p.Vars[i].Slot })
	b.WriteString("\n/* The same, for the accessors. */\nenum pcm_indices {\n")
	for i, s := range p.Signals {
		fmt.Fprintf(&b, "\tPCM_INDEX_%s = %d,\n", s.Name, i)
	}
	for i, c := range p.Controls {
		fmt.Fprintf(&b, "\tPCM_INDEX_%s = %d,\n", c.Name, i)
	}
	for _, v := range p.Vars {
		fmt.Fprintf(&b, "\tPCM_INDEX_%s = %d,\n", v.Name, v.Slot)
	}
	control := signalOffset + len(p.Signals)
	fmt.Fprintf(&b, "};\n\n#define MASK_OFFSET 0\n#define SET_SIGNAL_MASK_OFFSET 1\n#define SIGNAL_OFFSET %d\n#define CONTROL_OFFSET %d\n#define VAR_OFFSET %d\n\n#endif\n",
		signalOffset, control, control+len(p.Controls))
	return b.String()
}

const signalOffset = 2

// base is the name of the specification's file.
func (p *Package) base() string {
	return p.File[strings.LastIndexByte(p.File, '/')+1:]
}

// literal is the constant in C. Integers stay as they are written, so that C's own rules for mixed arithmetic hold as in the SDK; what
// is declared a float is one.
func (c *Constant) literal() string {
	switch {
	case c.Type == Frac:
		return "FRAC(" + floatLiteral(c.Value.float()) + ")"
	case c.Type == Float, c.Value.Int == nil:
		return floatLiteral(c.Value.float())
	}
	s := c.Value.Int.String()
	if c.Value.Int.Sign() < 0 {
		return "(" + s + ")"
	}
	if !c.Value.Int.IsInt64() {
		return s + "u"
	}
	return s
}

// floatLiteral is v in C, exactly.
func floatLiteral(v float64) string {
	s := strconv.FormatFloat(math.Abs(v), 'g', 17, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	if math.Signbit(v) {
		return "(-" + s + ")"
	}
	return s
}
