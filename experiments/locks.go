package experiments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote/locks"
)

// lockSlack is how much longer than its phases a run may hold its locks.
const lockSlack = 30 * time.Minute

// takeLocks keeps others from the NICs of this run, and whole hosts of it from being locked, until it ends: all or none.
// TCP ports are claimed one by one when the flows are prepared.
func (r *Runner) takeLocks(ctx context.Context) error {
	now := time.Now()
	var wants []locks.Want
	for _, ph := range r.plan.Hosts {
		if ok, _ := r.guarded(ph.Name); !ok {
			continue // whoever else captures there is not asked
		}
		claims, err := r.claims(ctx, ph.Name)
		if err != nil {
			return err
		}
		wants = append(wants, locks.Want{Host: r.hosts[ph.Name], Lock: locks.Lock{ID: r.ID, Run: true, Owner: Owner(), Reason: "playbook " + r.Playbook.Name,
			Since: now.UTC(), Expires: now.Add(r.Wait + r.plan.Duration + lockSlack).UTC(), Resources: append(r.plan.resources(ph.Name), claims...)}})
	}
	release, err := locks.Hold(ctx, wants, r.Wait, func(busy string) { r.event(Event{Event: "waiting", Text: busy}) })
	var busy *locks.BusyError
	if errors.As(err, &busy) {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if err != nil {
		return err
	}
	r.onUndo("give the locks back", release)
	return nil
}

// resources are what the run needs of a host for itself.
func (p *Plan) resources(host string) []locks.Resource {
	out := []locks.Resource{{Kind: locks.Use}}
	add := func(at string, nic *inventory.NIC) {
		r := locks.Resource{Kind: locks.NIC, Name: cmp.Or(nic.Netdev, nic.Device)}
		if at == host && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	for _, f := range p.Flows {
		add(f.From, f.fromNIC)
		add(f.To, f.toNIC)
	}
	return out
}
