package pcm

import "fmt"

// time converts ticks of the caller into the unit of the package; a remainder is cut off.
func (w *shellWriter) time() {
	w.line("static inline uint64_t pcm_time(uint64_t t) { return %s; }\n", w.timeOf("t"))
}

func (w *shellWriter) timeOf(ns string) string {
	unit := int64(1000)
	if w.Fabric != nil {
		unit = w.Fabric.TimeUnitPS
	}
	switch {
	case unit == 1000:
		return ns
	case unit < 1000:
		return fmt.Sprintf("%s * %d", ns, 1000/unit)
	}
	return fmt.Sprintf("%s / %d", ns, unit/1000)
}
