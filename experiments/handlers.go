package experiments

import "fmt"

// handlerChecks says for each handler of a sender whether it acted: that it was called, that its calls changed a window or
// a rate, and that it failed for no queue pair. A handler that was loaded and did nothing is inert: what was measured is not its work.
func (r *Runner) handlerChecks() {
	for _, h := range r.plan.Handlers {
		name := fmt.Sprintf("handler %s acts on %s", h.Counter, h.Host)
		if h.Match != "" {
			name += fmt.Sprintf(" (%s)", h.Match)
		}
		c := CheckResult{Name: name, Verdict: Pass}
		n := r.result.growth["nic."+h.Host]
		value := func(counter string) int64 {
			counter += "_" + h.Counter
			v, ok := n[counter]
			if !ok && c.Reason == "" {
				c.Verdict, c.Reason, c.unmeasured = Skip, "its NIC has no counter "+counter, true
			}
			c.Values = append(c.Values, MetricValue{"nic." + h.Host + "." + counter, float64(v)})
			return v
		}
		flows, runs, changes, failures := value("handler_flows"), value("handler_runs"), value("handler_changes"), value("handler_failures")
		switch {
		case c.Verdict == Skip:
		case failures > 0:
			c.Verdict, c.Reason = Fail, fmt.Sprintf("it failed and was stopped for %d queue pairs", failures)
		case flows == 0:
			c.Verdict, c.Reason = Fail, "inert: no queue pair matched it"
		case runs == 0:
			c.Verdict, c.Reason = Fail, "inert: it was never called (no trigger fired)"
		case changes == 0:
			c.Verdict, c.Reason = Fail, fmt.Sprintf("inert: none of its %d calls changed a window or a rate", runs)
		}
		r.result.Checks = append(r.result.Checks, c)
	}
}
