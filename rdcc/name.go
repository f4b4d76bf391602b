package rdcc

import (
	"strings"
	"unicode"
)

// CounterName is a Go name as counters are called in JSON, in Prometheus text and on NICs: AssocRefused is assoc_refused,
// RTTSamples rtt_samples.
func CounterName(name string) string {
	var b strings.Builder
	r := []rune(name)
	for i, c := range r {
		if unicode.IsUpper(c) && i > 0 && (unicode.IsLower(r[i-1]) || i+1 < len(r) && unicode.IsLower(r[i+1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}
