package spec

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
)

// MaxInt bounds integers in both directions: what JSON readers keep exactly.
const MaxInt = 1<<53 - 1

// A quantity is text with a form that both schema and loader hold it to. The number of digits is bounded so that no
// accepted text overflows; a leading zero is not accepted; B in rates is not, since bytes per second are not used.
type quantity struct {
	typ     reflect.Type
	what    string
	pattern string
	re      *regexp.Regexp
	minLen  int
	example string
	integer bool // a plain number is accepted too
	parse   func(string) (int64, error)
}

const (
	fraction    = `(\.[0-9]{1,9})?`
	decimal     = `(0|[1-9][0-9]{0,5})` + fraction
	longDecimal = `(0|[1-9][0-9]{0,17})` + fraction
	kilos       = `(0|[1-9][0-9]{0,14})` + fraction + ` ?[kK]`
	megas       = `(0|[1-9][0-9]{0,11})` + fraction + ` ?[mM]`
	gigas       = `(0|[1-9][0-9]{0,8})` + fraction + ` ?[gG]`
	teras       = decimal + ` ?[tT]`
	prefixed    = kilos + `|` + megas + `|` + gigas + `|` + teras
)

// Patterns of the quantities.
const (
	RatePattern     = `^(` + prefixed + `|` + longDecimal + ` ?)(bit/s|b/s|bps)$`
	SizePattern     = `^((` + prefixed + `)i?B|` + longDecimal + ` ?B?)$`
	DurationPattern = `^(` + decimal + `h)?(` + decimal + `m)?(` + decimal + `s)?(` + decimal + `ms)?(` + decimal + `[uµ]s)?(` + longDecimal + `ns)?$`
	octet           = `(25[0-5]|2[0-4][0-9]|1?[1-9]?[0-9]|1[0-9][0-9])`
	ipv4            = octet + `(\.` + octet + `){3}`
	AddrPattern     = `^(` + ipv4 + `|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)$`
	PrefixPattern   = `^(` + ipv4 + `/(3[0-2]|[12]?[0-9])|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))$`
)

var quantities = []*quantity{
	{typ: reflect.TypeFor[units.Rate](), what: "a rate with its unit", pattern: RatePattern, minLen: 1, example: "25Gbit/s",
		parse: func(s string) (int64, error) { r, err := units.ParseRate(s); return int64(r), err }},
	{typ: reflect.TypeFor[units.Size](), what: "a size", pattern: SizePattern, minLen: 1, example: "64KiB", integer: true,
		parse: func(s string) (int64, error) { r, err := units.ParseSize(s); return int64(r), err }},
	{typ: reflect.TypeFor[time.Duration](), what: "a duration with its unit", pattern: DurationPattern, minLen: 2, example: "15us",
		parse: func(s string) (int64, error) { r, err := time.ParseDuration(s); return int64(r), err }},
}

var (
	addrRE   = regexp.MustCompile(AddrPattern)
	prefixRE = regexp.MustCompile(PrefixPattern)
	intRE    = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	floatRE  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

	addrType   = reflect.TypeFor[netip.Addr]()
	prefixType = reflect.TypeFor[netip.Prefix]()
)

func init() {
	for _, q := range quantities {
		q.re = regexp.MustCompile(q.pattern)
	}
}

func quantityOf(t reflect.Type) *quantity {
	for _, q := range quantities {
		if q.typ == t {
			return q
		}
	}
	return nil
}

// parseQuantity reads text of the accepted form.
func (q *quantity) read(s string) (int64, bool) {
	if len(s) < q.minLen || !q.re.MatchString(s) {
		return 0, false
	}
	v, err := q.parse(s)
	return v, err == nil
}

// limit reads a limit from a tag; a bad one is the programmer's mistake.
func (q *quantity) limit(s string) int64 {
	v, ok := q.read(s)
	if !ok {
		panic(fmt.Sprintf("spec: limit %q of %s", s, q.typ))
	}
	return v
}

func (q *quantity) decode(c *context, p Path, n *node, v reflect.Value, r *rules) {
	fix := "such as " + q.example
	if r.example != "" {
		fix = "such as " + r.example
	}
	var value int64
	switch {
	case n.kind == text:
		var ok bool
		if value, ok = q.read(n.text); !ok {
			c.doc.at(p, n, Pattern, fmt.Sprintf("%s is not %s", quote(n.text), q.what), q.hint(n.text, fix))
			return
		}
	case n.kind == number && q.integer:
		i, ok := c.integer(p, n, fix)
		if !ok {
			return
		}
		if i < 0 {
			c.doc.at(p, n, Range, n.text+" is below 0", fix)
			return
		}
		value = i
	case n.kind == number && !plainNumber(n.text):
		c.spelling(p, n)
		return
	default:
		c.wrongType(p, n, q.what, q.hint(n.text, fix))
		return
	}
	if r.min != "" && value < q.limit(r.min) || r.max != "" && value > q.limit(r.max) || r.above != "" && value <= q.limit(r.above) {
		c.doc.at(p, n, Quantity, fmt.Sprintf("%s is outside the limits", n.text), r.limits())
		return
	}
	v.SetInt(value)
}

func (q *quantity) hint(s, fix string) string {
	switch {
	case q.typ == quantities[0].typ && strings.Contains(s, "B"):
		return "rates are bits per second, written with a small b, " + fix
	case numberLike.MatchString(s) && !q.integer:
		return "add the unit, " + fix
	}
	return fix
}

// integer reads a plain number as an integer.
func (c *context) integer(p Path, n *node, fix string) (int64, bool) {
	if !intRE.MatchString(n.text) {
		if !plainNumber(n.text) {
			c.spelling(p, n)
		} else if f, err := strconv.ParseFloat(n.text, 64); err == nil && f == math.Trunc(f) {
			c.doc.at(p, n, Spelling, fmt.Sprintf("%s is an integer written as a fraction", quote(n.text)), "write "+strconv.FormatFloat(f, 'f', 0, 64))
		} else {
			c.doc.at(p, n, Type, fmt.Sprintf("%s is not a whole number", quote(n.text)), fix)
		}
		return 0, false
	}
	i, err := strconv.ParseInt(n.text, 10, 64)
	if err != nil || i > MaxInt || i < -MaxInt {
		c.doc.at(p, n, Range, n.text+" is too large", fmt.Sprintf("at most %d", int64(MaxInt)))
		return 0, false
	}
	return i, true
}

// spelling refuses numbers that YAML readers disagree on.
func (c *context) spelling(p Path, n *node) {
	message, fix := fmt.Sprintf("%s is not a plain decimal number", quote(n.text)), "write decimal digits"
	if digits := strings.TrimLeft(n.text, "+-"); len(digits) > 1 && digits[0] == '0' && strings.Trim(digits, "0123456789.") == "" {
		message = fmt.Sprintf("%s has a leading zero, which some readers take for octal", quote(n.text))
		fix = "write " + strings.TrimLeft(digits[:len(digits)-1], "0") + digits[len(digits)-1:]
	}
	c.doc.at(p, n, Spelling, message, fix)
}

// plainNumber says that every YAML reader takes s for a number.
func plainNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil && floatRE.MatchString(s)
}

func (c *context) decodeInt(p Path, n *node, v reflect.Value, r *rules) {
	fix := r.fix("a whole number")
	if n.kind != number {
		c.wrongType(p, n, "a whole number", fix)
		return
	}
	i, ok := c.integer(p, n, fix)
	if !ok {
		return
	}
	if !c.within(p, n, float64(i), r) {
		return
	}
	if unsigned := v.CanUint(); unsigned && (i < 0 || v.OverflowUint(uint64(i))) || !unsigned && v.OverflowInt(i) {
		c.doc.at(p, n, Range, n.text+" is outside the limits", fix)
		return
	}
	if v.CanUint() {
		v.SetUint(uint64(i))
	} else {
		v.SetInt(i)
	}
}

func (c *context) decodeFloat(p Path, n *node, v reflect.Value, r *rules) {
	if n.kind != number {
		c.wrongType(p, n, "a number", r.fix("a number"))
		return
	}
	if !plainNumber(n.text) {
		c.spelling(p, n)
		return
	}
	f, _ := strconv.ParseFloat(n.text, 64) // plainNumber has looked
	if c.within(p, n, f, r) {
		v.SetFloat(f)
	}
}

func (c *context) within(p Path, n *node, f float64, r *rules) bool {
	outside := func(limit string, bad func(l float64) bool) bool {
		return limit != "" && bad(mustFloat(limit))
	}
	if outside(r.min, func(l float64) bool { return f < l }) || outside(r.max, func(l float64) bool { return f > l }) ||
		outside(r.above, func(l float64) bool { return f <= l }) || outside(r.below, func(l float64) bool { return f >= l }) {
		c.doc.at(p, n, Range, n.text+" is outside the limits", r.limits())
		return false
	}
	return true
}

func mustFloat(s string) float64 {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic(fmt.Sprintf("spec: limit %q is not a number", s))
	}
	return f
}

// limits is the fix of a value out of range.
func (r *rules) limits() string {
	var parts []string
	for _, l := range []struct{ word, limit string }{{"at least ", r.min}, {"above ", r.above}, {"at most ", r.max}, {"below ", r.below}} {
		if l.limit != "" {
			parts = append(parts, l.word+l.limit)
		}
	}
	return "must be " + strings.Join(parts, " and ")
}

func (r *rules) fix(what string) string {
	if r.min+r.max+r.above+r.below != "" {
		return what + " that is " + strings.TrimPrefix(r.limits(), "must be ")
	}
	if r.example != "" {
		return "such as " + r.example
	}
	return ""
}

func (c *context) decodeString(p Path, n *node, v reflect.Value, r *rules) {
	if n.kind != text {
		fix := "quote it: " + strconv.Quote(n.text)
		if n.kind != number && n.kind != boolean {
			fix = r.fix("text")
		}
		if len(r.enum) > 0 {
			fix = "one of " + strings.Join(r.enum, ", ")
		}
		if n.kind == number && !plainNumber(n.text) {
			c.doc.at(p, n, Spelling, fmt.Sprintf("%s is read as a number by some YAML readers", n.text), fix)
			return
		}
		c.wrongType(p, n, "text", fix)
		return
	}
	if len(r.enum) > 0 && !contains(r.enum, n.text) {
		fix := "one of " + strings.Join(r.enum, ", ")
		if near := Nearest(n.text, r.enum); near != "" {
			fix = fmt.Sprintf("did you mean %q? ", near) + fix
		}
		c.doc.at(p, n, Enum, quote(n.text)+" is not known here", fix)
		return
	}
	if r.pattern != nil && !r.pattern.MatchString(n.text) {
		fix := "must match " + r.patternText[2:len(r.patternText)-2]
		if r.example != "" {
			fix = "such as " + r.example + "; " + fix
		}
		c.doc.at(p, n, Pattern, quote(n.text)+" has the wrong form", fix)
		return
	}
	v.SetString(n.text)
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func (c *context) decodeBool(p Path, n *node, v reflect.Value) {
	if n.kind != boolean {
		fix := "write true or false"
		switch strings.ToLower(n.text) {
		case "yes", "on", "y":
			fix = "write true"
		case "no", "off", "n":
			fix = "write false"
		}
		c.wrongType(p, n, "true or false", fix)
		return
	}
	v.SetBool(strings.EqualFold(n.text, "true"))
}

// decodeText handles addresses and types with a notation of their own: pattern first, as the schema does.
func (c *context) decodeText(p Path, n *node, re *regexp.Regexp, what, example string, set func(string) error) {
	fix := ""
	if example != "" {
		fix = "such as " + example
	}
	if n.kind != text {
		if n.kind == number && !plainNumber(n.text) {
			c.spelling(p, n)
			return
		}
		c.wrongType(p, n, what, fix)
		return
	}
	if !re.MatchString(n.text) {
		c.doc.at(p, n, Pattern, fmt.Sprintf("%s is not %s", quote(n.text), what), fix)
		return
	}
	if err := set(n.text); err != nil {
		c.doc.at(p, n, Value, fmt.Sprintf("%s is not %s: %v", quote(n.text), what, err), fix)
	}
}
