package experiments

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

// flowSlack is how much longer than its duration a flow's processes may take: connecting, and the report at the end.
const flowSlack = 30 * time.Second

// flowEnd is what the session may take to end a flow that took longer: both sides, one after the other. Whoever waits for flows waits so much
// longer, or a flow that hangs would be one that was interrupted.
const flowEnd = 40 * time.Second

// traffic is the running session of all flows.
type traffic struct {
	r       *Runner
	session *perftest.Session
	stopped bool
}

// prepareTraffic starts every server, waits until each listens, and holds every client at the barrier.
func (r *Runner) prepareTraffic(ctx context.Context) (*traffic, error) {
	for _, pf := range r.plan.Flows {
		r.result.Flows = append(r.result.Flows, FlowResult{Name: pf.Name, From: pf.From, To: pf.To, State: perftest.FlowNotStarted, AnalysisID: []string{}})
	}
	var flows []perftest.Flow
	for _, pf := range r.plan.Flows {
		params := pf.params
		params.Port = 0 // one of the host's pool, which runs of others share
		server, client := pf.ends()
		flows = append(flows, perftest.Flow{Name: pf.Name, Params: params,
			Server: perftest.Endpoint{Host: r.hosts[pf.ServerAt], NIC: server}, Client: perftest.Endpoint{Host: r.hosts[pf.ClientAt], NIC: client}, Meet: pf.meet})
	}
	session, err := perftest.NewSession(flows, perftest.SessionOptions{Run: r.ID, Owner: Owner(), Slack: flowSlack, Pin: r.Lab.Virtual == nil,
		Ports: r.Playbook.Ports, Life: r.plan.Duration + 20*time.Minute})
	if err != nil {
		return nil, inputError(err)
	}
	t := &traffic{r: r, session: session}
	r.onUndo("stop what is left of the flows", func(ctx context.Context) error { return session.Close(ctx) })
	if err := session.Prepare(ctx); err != nil {
		var ports *perftest.PortsError
		if errors.As(err, &ports) {
			return nil, fmt.Errorf("%w: %w", ErrBusy, err)
		}
		return nil, err
	}
	for _, n := range session.Notes() {
		r.result.warn(n)
	}
	r.event(Event{Event: "traffic_ready", Text: fmt.Sprintf("%d servers listen, %d clients wait at the barrier", len(flows), len(flows))})
	return t, nil
}

// drive runs the phases on an absolute schedule: each begins at its time, whatever the ones before took.
func (r *Runner) drive(ctx context.Context, t *traffic) error {
	r.began = time.Now()
	failed := make(chan error, len(r.plan.Flows))
	for _, ph := range r.plan.Phases {
		if err := r.waitUntil(ctx, r.began.Add(ph.Begin), failed); err != nil {
			return err
		}
		start := time.Now()
		r.event(Event{At: start, Event: "phase_start", Phase: ph.Name, Text: phaseText(ph)})
		if len(ph.Start) > 0 {
			if err := t.session.Start(ctx, ph.Start...); err != nil {
				return err
			}
			for _, f := range ph.Start {
				r.event(Event{Event: "flow_started", Flow: f, Phase: ph.Name})
				go t.follow(ctx, f, failed)
			}
		}
		r.windows = append(r.windows, window{phase: ph, start: start, end: r.began.Add(ph.Begin + ph.For)})
	}
	end := r.began.Add(r.plan.Duration)
	if err := r.waitUntil(ctx, end, failed); err != nil {
		r.cutWindows(time.Now())
		return err
	}
	r.event(Event{Event: "phases_end"})
	wait, cancel := context.WithTimeout(ctx, flowSlack+flowEnd)
	defer cancel()
	if _, err := t.session.Wait(wait); ctx.Err() != nil {
		return ctx.Err()
	} else if err != nil {
		return fmt.Errorf("not every flow has ended %v after the last phase", flowSlack+flowEnd)
	}
	return nil
}

func phaseText(ph PlannedPhase) string {
	text := strings.Join(ph.Flows, ", ")
	if len(ph.Stop) > 0 {
		text += " (" + strings.Join(ph.Stop, ", ") + " stopped)"
	}
	return text
}

// waitUntil waits for a time of the schedule. A flow that fails ends the wait only when nothing is left to measure.
func (r *Runner) waitUntil(ctx context.Context, at time.Time, failed <-chan error) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			r.cutWindows(time.Now())
			return ctx.Err()
		case err := <-failed:
			r.result.warn(err.Error())
			if r.failures++; r.failures == len(r.plan.Flows) {
				r.cutWindows(time.Now())
				return errors.New("every flow failed")
			}
		}
	}
}

// cutWindows ends the phases that an interrupt cut short; one that hardly began is left out.
func (r *Runner) cutWindows(at time.Time) {
	var kept []window
	for _, w := range r.windows {
		if w.end.After(at) {
			w.end = at
		}
		if w.end.Sub(w.start) > w.phase.TrimStart+w.phase.TrimEnd+100*time.Millisecond {
			kept = append(kept, w)
		}
	}
	r.windows = kept
}

// follow tells of a flow that ends by failing while the others go on.
func (t *traffic) follow(ctx context.Context, name string, failed chan<- error) {
	res, err := t.session.Wait(ctx, name)
	if err != nil || len(res) == 0 {
		return
	}
	if f := res[0].Failure; f != nil {
		t.r.event(Event{Event: "flow_failed", Flow: name, Text: f.Error()})
		failed <- fmt.Errorf("flow %s: %w", name, f)
		return
	}
	t.r.event(Event{Event: "flow_ended", Flow: name})
}

// stop ends what still runs, keeps what each tool printed, and reports the flows that failed.
func (t *traffic) stop(ctx context.Context) error {
	if t.stopped {
		return nil
	}
	t.stopped = true
	err := t.session.Close(ctx)
	r := t.r
	var failures []error
	for i, res := range t.session.Results() {
		fr := &r.result.Flows[i]
		fr.State, fr.Failure, fr.began = res.State, res.Failure, res.Began
		params := r.plan.Flows[i].params
		fr.margin = params.EffectiveMargin()
		if w := int64(params.Window()); w > 0 {
			fr.WindowNS = &w
		}
		if res.Output != nil {
			for _, row := range res.Output.Rows {
				bps := row.BestBps()
				hw := bps * r.plan.Scale
				fr.ToolBps, fr.HWToolBps = &bps, &hw
			}
			r.achieved(fr, params)
			// The output is the client's, which sends unless it READs. With -b payload goes to both sides.
			local, remote := numbers(res.Output.Local), numbers(res.Output.Remote)
			fr.qpns, fr.back = remote, local
			if r.plan.Flows[i].ClientAt == fr.To {
				fr.qpns, fr.back = local, remote
			}
			for _, n := range res.Output.Notes {
				r.result.warn("flow " + res.Name + ": " + n)
			}
		}
		for _, n := range res.Notes {
			r.result.warn("flow " + res.Name + ": " + n)
		}
		if res.Failure != nil {
			failures = append(failures, fmt.Errorf("flow %s: %w", res.Name, res.Failure))
		}
		err = errors.Join(err, r.keepSide(res.Name, "client", res.Client), r.keepSide(res.Name, "server", res.Server),
			r.bundle.WriteJSON(path.Join("flows", res.Name, "result.json"), res))
	}
	return errors.Join(append(failures, err)...)
}

// achieved notes what a rate limit made of what it was asked for. Without a tolerance in the playbook a limit that is off
// fails nothing: the tool's own limiter is (USERS O13).
func (r *Runner) achieved(fr *FlowResult, p perftest.Params) {
	if p.RateLimitGbps == 0 {
		return
	}
	asked := p.RateLimitGbps * 1e9
	if p.Bidirectional {
		asked *= 2 // each end limits what it sends, and the tool's number is the sum
	}
	fr.AskedBps = &asked
	check := CheckResult{Name: fmt.Sprintf("flow %s: rate limit", fr.Name), Verdict: Skip, Reason: "the tool reported no rate"}
	if fr.ToolBps != nil {
		off := *fr.ToolBps/asked - 1
		said := fmt.Sprintf("rate_limit asks for %s, the tool sent %s (%+.1f %%)", inUnits(asked), inUnits(*fr.ToolBps), off*100)
		if math.Abs(off) > perftest.LimiterTolerance {
			r.result.warn("flow " + fr.Name + ": " + said)
		}
		check.Verdict, check.Reason = Pass, ""
		check.Values = []MetricValue{{Call: "asked_bps", Value: asked}, {Call: "tool_bps", Value: *fr.ToolBps}}
		if math.Abs(off) > r.Playbook.RateTolerance {
			check.Verdict, check.Reason = Fail, fmt.Sprintf("%s, rate_tolerance is %g %%", said, r.Playbook.RateTolerance*100)
		}
	}
	if r.Playbook.RateTolerance > 0 {
		r.result.Checks = append(r.result.Checks, check)
	}
}

// inUnits is a rate with four digits: 9.25 Gbit/s.
func inUnits(bps float64) string {
	for _, u := range []struct {
		name string
		size float64
	}{{"Gbit/s", 1e9}, {"Mbit/s", 1e6}, {"kbit/s", 1e3}} {
		if bps >= u.size {
			return fmt.Sprintf("%.4g %s", bps/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.4g bit/s", bps)
}

func numbers(ends []perftest.QPAddress) (qpns []uint32) {
	for _, a := range ends {
		qpns = append(qpns, a.QPN)
	}
	return qpns
}

// keepSide writes what one process was and printed into the bundle.
func (r *Runner) keepSide(flow, role string, s *perftest.Side) error {
	if s == nil {
		return nil
	}
	base := path.Join("flows", flow, role)
	return errors.Join(
		r.bundle.Write(base+".cmd", []byte(strings.Join(s.Argv, " ")+"\n")),
		r.bundle.Write(base+".stdout", s.Stdout),
		r.bundle.Write(base+".stderr", s.Stderr),
		r.bundle.Write(base+".rc", []byte(fmt.Sprintf("%d %s\n", s.Code, s.Signal))),
	)
}
