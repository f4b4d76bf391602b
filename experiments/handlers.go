package experiments

import "fmt"

// blind fails a handler that lives on round trips and was given none (DOCA's ZTR-RTT counters, NUM_RTT and RTT_TIMEOUT, told apart alike).
func (c *CheckResult) blind(samples, timeouts int64) {
	switch {
	case c.Verdict == Skip || samples > 0:
	case timeouts > 0:
		c.Verdict, c.Reason = Fail, fmt.Sprintf("blind: all of %d probes were lost: the receivers do not answer them (PCC_INT_EN=0, FLEX_PARSER_PROFILE_ENABLE=10, REAL_TIME_CLOCK_ENABLE=1 there)", timeouts)
	default:
		c.Verdict, c.Reason = Fail, "blind: no probe was sent, so that no round trip was measured (REAL_TIME_CLOCK_ENABLE=1 and ROCE_CC_RTT_TIMESTAMP_FORMAT=2 here)"
	}
}

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
			c.Values = append(c.Values, MetricValue{Call: "nic." + h.Host + "." + counter, Value: float64(v)})
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
		case h.Probes:
			c.blind(value("handler_rtt"), value("handler_rtt_timeout"))
		}
		r.result.Checks = append(r.result.Checks, c)
	}
}
