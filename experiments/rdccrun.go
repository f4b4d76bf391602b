package experiments

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/rdcc/domain"
)

// RDCCFile is where the folder of a run says how credit control was set.
const RDCCFile = "rdcc.json"

// rdccRecord is that file.
type rdccRecord struct {
	Schema    string        `json:"schema"` // pcmlab/run-rdcc/v1
	Off       bool          `json:"off"`
	Receivers []string      `json:"receivers"`
	Given     domain.Config `json:"given"`
	Hosts     []gateRecord  `json:"hosts"`
}

type gateRecord struct {
	PlannedGate
	Before *domain.Config `json:"before"` // what the NIC had, and has again after the run; null: no gate
}

// setRDCC sets the gates of the run, which read back what they were told. What they had before is promised first: a lease restores it when
// the run ends, or when its owner is lost.
func (r *Runner) setRDCC(ctx context.Context) error {
	plan := r.plan.RDCC
	if plan == nil {
		return nil
	}
	record := rdccRecord{Schema: "pcmlab/run-rdcc/v1", Off: plan.Off, Receivers: plan.Receivers, Given: plan.Given, Hosts: make([]gateRecord, len(plan.Hosts))}
	leases := make([]remote.Process, len(plan.Hosts))
	g, gctx := errgroup.WithContext(ctx)
	for i := range plan.Hosts {
		gate := &plan.Hosts[i]
		h := r.hosts[gate.Host]
		g.Go(func() (err error) {
			before, err := gate.backend.RDCC(gctx, h, gate.nic)
			if err != nil {
				return err
			}
			record.Hosts[i] = gateRecord{*gate, before}
			deadline := r.plan.Duration + 30*time.Minute
			leases[i], err = h.Start(gctx, remote.Cmd{Args: []string{"sleep", fmt.Sprint(int(deadline.Seconds()))}, Deadline: deadline,
				Step: "hold credit control", Restore: gate.backend.RDCCCommand(gate.nic, before)})
			if err != nil {
				return err
			}
			return gate.backend.SetRDCC(gctx, h, gate.nic, &gate.Config)
		})
	}
	err := g.Wait()
	for i := range plan.Hosts {
		if leases[i] != nil {
			r.restoreRDCC(&plan.Hosts[i], leases[i], &record.Hosts[i])
		}
	}
	if err != nil {
		return err
	}
	for _, gate := range plan.Hosts {
		text := "off"
		if !plan.Off {
			text = fmt.Sprintf("port %d", gate.Config.Port)
		}
		r.event(Event{Event: "rdcc_set", Host: gate.Host, Text: text})
	}
	return r.bundle.WriteJSON(RDCCFile, record)
}

func (r *Runner) restoreRDCC(gate *PlannedGate, lease remote.Process, record *gateRecord) {
	h := r.hosts[gate.Host]
	r.onUndo("restore credit control on "+gate.Host, func(ctx context.Context) error {
		if err := lease.Stop(ctx, "TERM"); err != nil {
			return err
		}
		if _, err := lease.Wait(ctx); err != nil {
			return err
		}
		now, err := gate.backend.RDCC(ctx, h, gate.nic)
		if err == nil && !sameRDCC(now, record.Before) {
			err = fmt.Errorf("host %s: NIC %s: credit control was to be %s again, and is %s", gate.Host, gate.nic.Device, rdccText(record.Before), rdccText(now))
		}
		return err
	})
}

func sameRDCC(a, b *domain.Config) bool { return rdccText(a) == rdccText(b) }

func rdccText(c *domain.Config) string {
	if c == nil || c.Off {
		return "off"
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// addRDCC gives the counters of gates names of their own: rdcc.h1.NAME is that of one NIC, rdcc.NAME the sum over all. The parameters
// of receivers stand beside them, so that an expectation can compare: rdcc.r1.G, and rdcc.G where there is one receiver.
func (p *Plan) addRDCC(growth map[string]map[string]int64) {
	if !p.RDCC.on() {
		return
	}
	all := map[string]int64{}
	for _, gate := range p.RDCC.Hosts {
		own := map[string]int64{}
		for name, v := range growth["nic."+gate.Host] {
			short, ok := strings.CutPrefix(name, "rdcc_")
			if !ok {
				continue
			}
			for _, n := range append(rdccAlias[short], short) {
				own[n] = v
				all[n] += v
			}
		}
		if len(gate.Grants) > 0 && gate.Amounts != nil {
			for name, v := range gate.Amounts.named() {
				own[name] = v
				if len(p.RDCC.Receivers) == 1 {
					all[name] = v
				}
			}
		}
		growth["rdcc."+gate.Host] = own
	}
	growth["rdcc"] = all
}

// rdccAlias are the short names of the counters that the specification asks for.
var rdccAlias = map[string][]string{
	"receiver_granted_octets":     {"granted"},
	"receiver_unscheduled_octets": {"unscheduled"},
	"receiver_reclaimed_octets":   {"reclaimed"},
	"receiver_returned_octets":    {"returned"},
	"receiver_breaker_trips":      {"breaker_trips"},
	"sender_messages_new":         {"messages"},
	"sender_messages_done":        {"done"},
	"sender_messages_aborted":     {"aborted"},
	"sender_grants_expired":       {"expired"},
}

// named are the parameters under the names that playbooks have for them.
func (a *RDCCAmounts) named() map[string]int64 {
	return map[string]int64{"G": a.G, "Gs": a.Gs, "Gu": a.Gu, "U": a.U, "BDP": a.BDP, "segment": a.Segment, "packet": a.PacketBytes, "senders": int64(a.Senders)}
}

// rdccChecks says whether credit control was applied: that each receiver granted, that each sender asked, and that neither found the rules
// broken. What was measured under a gate that did nothing is not its work.
func (r *Runner) rdccChecks() {
	plan := r.plan.RDCC
	if plan == nil {
		return
	}
	if plan.Off {
		r.result.warn("every flow went without RDCC: rdcc is off")
		return
	}
	for _, f := range r.plan.Flows {
		if !slices.Contains(plan.Receivers, f.To) {
			r.result.warn(fmt.Sprintf("flow %s went without RDCC: rdcc names no receiver %s", f.Name, f.To))
		}
	}
	for _, gate := range plan.Hosts {
		if len(gate.Grants) > 0 {
			r.rdccCheck(gate.Host, "grants", []string{"granted", "unscheduled", "invariant_violations", "excess_octets"}, func(v map[string]int64) string {
				switch {
				case v["invariant_violations"] > 0:
					return fmt.Sprintf("%d times more was granted than G", v["invariant_violations"])
				case v["excess_octets"] > 0:
					return fmt.Sprintf("%d octets came beyond their credit", v["excess_octets"])
				case v["granted"] == 0 && v["unscheduled"] == 0:
					return "treatment not applied: it granted nothing"
				}
				return ""
			})
		}
		if len(gate.Sends) > 0 {
			r.rdccCheck(gate.Host, "waits for credit", []string{"requests", "without", "refused", "beyond_credit"}, func(v map[string]int64) string {
				switch {
				case v["beyond_credit"] > 0:
					return fmt.Sprintf("%d octets were sent beyond their credit", v["beyond_credit"])
				case v["without"] > 0 && r.allWait(gate):
					return fmt.Sprintf("%d messages of %s went without RDCC: the receiver did not answer, or refused", v["without"], strings.Join(gate.Sends, ", "))
				case v["refused"] > 0:
					return fmt.Sprintf("%d messages of %s failed: the receiver refused them", v["refused"], strings.Join(gate.Sends, ", "))
				case v["requests"] == 0:
					return "treatment not applied: no message asked for credit"
				}
				return ""
			})
		}
	}
}

// allWait says that every flow of a host goes to a receiver that grants; others go without, as planned.
func (r *Runner) allWait(gate PlannedGate) bool {
	return !slices.ContainsFunc(r.plan.Flows, func(f PlannedFlow) bool { return f.From == gate.Host && !slices.Contains(gate.Sends, f.Name) })
}

func (r *Runner) rdccCheck(host, does string, counters []string, wrong func(map[string]int64) string) {
	c := CheckResult{Name: fmt.Sprintf("rdcc %s on %s", does, host), Verdict: Pass}
	n := r.result.growth["rdcc."+host]
	values := map[string]int64{}
	for _, name := range counters {
		v, ok := n[name]
		if !ok && c.Reason == "" {
			c.Verdict, c.Reason, c.unmeasured = Skip, "its NIC has no counter rdcc_"+name, true
		}
		values[name] = v
		c.Values = append(c.Values, MetricValue{Call: "rdcc." + host + "." + name, Value: float64(v)})
	}
	if c.Verdict == Pass {
		if c.Reason = wrong(values); c.Reason != "" {
			c.Verdict = Fail
		}
	}
	r.result.Checks = append(r.result.Checks, c)
}
