package experiments

import (
	"slices"
	"strings"

	"github.com/pcmlab/pcmlab/nicbackends/check"
)

// preflight holds what the run's hosts said of themselves against the lab, as `pcmlab check` does, before any traffic: what
// fails there is said now, and not found in odd results later, and so is whose processes and locks are there still (USERS
// O09, O15). Hosts that did not say all are left out.
func (r *Runner) preflight(found []Facts, cut []error) {
	var answers []check.Answer
	for i, ph := range r.plan.Hosts {
		if cut[i] == nil && found[i].Hostname != "" {
			answers = append(answers, check.Answer{Host: ph.Name, Facts: found[i]})
		}
	}
	for _, f := range check.Judge(r.Lab, answers) {
		others := slices.Contains([]string{"run at work", "lock"}, f.What)
		if f.Verdict != check.Fail && !others {
			continue
		}
		text := "host " + strings.TrimSpace(f.Host+" "+f.NIC) + ": " + f.What
		for _, part := range []string{f.Found, f.Why} {
			if part != "" {
				text += ": " + part
			}
		}
		if f.Fix != "" {
			text += " (" + f.Fix + ")"
		}
		r.result.warn(text)
		r.event(Event{Event: "warning", Host: f.Host, Text: text})
	}
}
