package check

import (
	"context"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends"
)

// Programs looks at the NICs whose handlers are programs in them, as a run does before it loads one. What a NIC needs to run a handler fails; what it
// needs to answer the handlers of others is a warning, because no lab file says which NICs send. Firmware and registers are read with the vendor's
// tools by pcmlab itself, which is pushed for that; nothing is changed.
func Programs(ctx context.Context, pool *remote.Pool, lab *inventory.Lab, answers []Answer, backends nicbackends.Registry, within time.Duration) []Finding {
	type nic struct {
		host *inventory.Host
		nic  *inventory.NIC
		d    nicbackends.Deployer
		out  []Finding
	}
	var all []*nic
	for _, a := range answers {
		h := lab.Host(a.Host)
		if h == nil || a.Facts.Hostname == "" {
			continue
		}
		for i, n := range h.NICs {
			b, err := backends.Find(n.Backend)
			if d, ok := b.(nicbackends.Deployer); err == nil && ok && i < len(a.Facts.NICs) && a.Facts.NICs[i].Present.Known() {
				all = append(all, &nic{host: h, nic: n, d: d})
			}
		}
	}
	var g errgroup.Group
	for _, n := range all {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, within)
			defer cancel()
			h, err := pool.Host(ctx, n.host.Name)
			if err != nil {
				n.out = programFindings(n.host.Name, n.nic.Device, nicbackends.Readiness{}, err, nicbackends.Readiness{}, nil)
				return nil
			}
			d := nicbackends.Deployment{Host: h, Sudo: n.host.Sudo, Lab: lab, NIC: n.nic, Run: pool.Run()}
			sends, err := n.d.Ready(ctx, d, true)
			answers, aerr := n.d.Ready(ctx, d, false)
			n.out = programFindings(n.host.Name, n.nic.Device, sends, err, answers, aerr)
			return nil
		})
	}
	_ = g.Wait()
	var out []Finding
	for _, n := range all {
		out = append(out, n.out...)
	}
	return out
}

// programFindings are those of one NIC. What both ends need alike is said once.
func programFindings(host, device string, sends nicbackends.Readiness, serr error, answers nicbackends.Readiness, aerr error) (out []Finding) {
	for _, err := range []error{serr, aerr} {
		if err != nil {
			why, fix := text(err)
			return []Finding{{Host: host, NIC: device, What: "handlers", Verdict: Fail, Why: why, Fix: fix}}
		}
	}
	verdicts := map[nicbackends.ConditionState]Verdict{nicbackends.Holds: Pass, nicbackends.Lacks: Fail, nicbackends.HoldsNow: Warn, nicbackends.NotKnown: Skip}
	said := map[string]bool{}
	for i, r := range []nicbackends.Readiness{sends, answers} {
		for _, c := range r.Conditions {
			if said[c.What] {
				continue
			}
			said[c.What] = true
			f := Finding{Host: host, NIC: device, What: "handlers: " + c.What, Verdict: verdicts[c.State], Found: c.Found, Why: c.Why, Fix: c.Fix}
			if i == 1 && f.Verdict == Fail {
				f.Verdict, f.Why = Warn, strings.TrimSpace("where it receives from a NIC that runs a handler: "+c.Why)
			}
			out = append(out, f)
		}
	}
	return out
}
