package experiments

import (
	"fmt"
	"slices"
)

// handlerChecks says for each sender with a PCM handler whether it acted: that it was called, that its calls changed a window or
// a rate, and that it failed for no queue pair. A handler that was loaded and did nothing is inert: what was measured is not its work.
func (r *Runner) handlerChecks() {
	var seen []string
	for _, f := range r.plan.Flows {
		if f.fromNIC.Handler == "" || slices.Contains(seen, f.From) {
			continue
		}
		seen = append(seen, f.From)
		c := CheckResult{Name: fmt.Sprintf("handler %s acts on %s", f.fromNIC.Handler, f.From), Verdict: Pass}
		n := r.result.growth["nic."+f.From]
		value := func(counter string) int64 {
			v, ok := n[counter]
			if !ok && c.Reason == "" {
				c.Verdict, c.Reason, c.unmeasured = Skip, "its NIC has no counter "+counter, true
			}
			c.Values = append(c.Values, MetricValue{"nic." + f.From + "." + counter, float64(v)})
			return v
		}
		runs, changes, failures := value("handler_runs"), value("handler_changes"), value("handler_failures")
		switch {
		case c.Verdict == Skip:
		case failures > 0:
			c.Verdict, c.Reason = Fail, fmt.Sprintf("it failed and was stopped for %d queue pairs", failures)
		case runs == 0:
			c.Verdict, c.Reason = Fail, "inert: it was never called (no trigger fired)"
		case changes == 0:
			c.Verdict, c.Reason = Fail, fmt.Sprintf("inert: none of its %d calls changed a window or a rate", runs)
		}
		r.result.Checks = append(r.result.Checks, c)
	}
}
