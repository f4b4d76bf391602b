package ci

import (
	"strings"

	"github.com/pcmlab/pcmlab/nicbackends/check"
)

// OfCheck makes a report of what a check of a lab found: a suite for each host, in the order of the findings. What could not
// be judged is skipped with its reason, a host that could not be asked is broken, and a warning passes with its text.
func OfCheck(lab string, findings []check.Finding) *Report {
	r := &Report{}
	at := map[string]int{}
	for _, f := range findings {
		i, ok := at[f.Host]
		if !ok {
			i = len(r.Suites)
			at[f.Host] = i
			r.Suites = append(r.Suites, Suite{Name: lab + "." + f.Host, Kind: "check"})
		}
		c := Case{Name: strings.TrimSpace(f.NIC + " " + f.What), Outcome: Passed, Message: f.Found}
		if f.Verdict != check.Pass {
			c.Message = strings.TrimPrefix(f.Found+": "+f.Why, ": ")
		}
		switch {
		case f.Verdict == check.Skip:
			c.Outcome = Skipped
		case f.Verdict == check.Warn:
			c.Message = "warning: " + c.Message
		case f.Verdict == check.Fail && f.What == "reach":
			c.Outcome = Broken
		case f.Verdict == check.Fail:
			c.Outcome = Failed
		}
		if f.Fix != "" {
			c.Detail = "→ " + f.Fix
		}
		r.Suites[i].Cases = append(r.Suites[i].Cases, c)
	}
	return r
}
