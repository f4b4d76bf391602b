// Package compare says whether runs got worse: runs of now against runs of then, or against a baseline, cell by cell and
// score by score, with evidence for every verdict and with what evidence is missing where there is none.
//
//	before, err := compare.Gather([]string{"runs/a"})
//	after, err := compare.Gather([]string{"runs/b"})
//	report := compare.Compare(before, after, compare.Options{})
//
// docs/compare.md says how verdicts come about.
package compare

// Verdict of a score, a cell or a whole comparison.
type Verdict string

// Verdicts, the gravest first. That of a cell is the gravest of its judged scores, that of a report the gravest of its cells.
const (
	// Worse: a significant change beyond the threshold, the wrong way.
	Worse Verdict = "worse"
	// NotApplied: the measurements themselves say that nothing was done, or that they are none.
	NotApplied Verdict = "not-applied"
	// Incomplete: there is nothing to compare with.
	Incomplete Verdict = "incomplete"
	// Insufficient: neither a change nor its absence is shown.
	Insufficient Verdict = "insufficient"
	// Better: a significant change beyond the threshold, the right way.
	Better Verdict = "better"
	// Changed: a significant change beyond the threshold of a metric of which neither way is better, or of the spread alone.
	Changed Verdict = "changed"
	// Same: the interval of the change lies within the threshold.
	Same Verdict = "same"
)

var gravest = []Verdict{Worse, NotApplied, Incomplete, Insufficient, Better, Changed, Same}

func graver(a, b Verdict) bool {
	for _, v := range gravest {
		if v == a || v == b {
			return v == a && a != b
		}
	}
	return false
}
