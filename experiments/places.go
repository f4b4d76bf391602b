package experiments

import "github.com/pcmlab/pcmlab/internal/spec"

// ExpectationLines are the lines of the file on which the expectations stand, by their names; for reports that point there.
func (p *Playbook) ExpectationLines() map[string]int {
	lines := map[string]int{}
	for i, e := range p.Expect {
		if p.doc != nil && p.doc.Has(spec.P("expect", i)) {
			lines[e.Name] = p.doc.Pos(spec.P("expect", i)).Line
		}
	}
	return lines
}

// ThresholdLines are the lines on which the thresholds stand, by the score that they are of.
func (p *Playbook) ThresholdLines() map[string]int {
	lines := map[string]int{}
	for _, t := range p.Thresholds {
		if p.doc != nil {
			lines[t.Key] = p.doc.Pos(spec.P("thresholds", t.Key)).Line
		}
	}
	return lines
}
