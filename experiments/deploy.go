package experiments

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/locks"
	"github.com/pcmlab/pcmlab/nicbackends"
)

const (
	deployTimeout = 90 * time.Second // for a NIC to be as it was
	deploySlack   = 30 * time.Minute // how much longer than its phases a handler may stay: until the traffic is ready and at rest again
)

// deploys says what a NIC with a program needs besides itself.
func (b *planner) deploys(s *sender) {
	on := s.host
	if s.nic.BuildOn != "" {
		on = s.nic.BuildOn
		b.takePart(on, "builds the handler of "+s.host)
	}
	b.note("the handler of %s is built on %s with DPACC, loaded into %s for the time of the run, and taken out; the NIC needs USER_PROGRAMMABLE_CC=1, and its host root", s.host, on, s.nic.Device)
}

// deployer is the backend of a NIC whose handlers are programs; nil: it is another one.
func (r *Runner) deployer(nic *inventory.NIC) nicbackends.Deployer {
	backend, err := r.Backends.Find(nic.Backend)
	if err != nil {
		return nil
	}
	d, _ := backend.(nicbackends.Deployer)
	return d
}

// programmed are the hosts with such NICs, those that send with a handler, and those that receive from them.
func (r *Runner) programmed() (send, receive []string) {
	for _, h := range r.plan.Handlers {
		nic := r.ends()[h.Host]
		if nic == nil || r.deployer(nic) == nil || slices.Contains(send, h.Host) {
			continue
		}
		send = append(send, h.Host)
	}
	for _, f := range r.plan.Flows {
		for _, end := range [][2]string{{f.From, f.To}, {f.To, f.From}} {
			from, to := end[0], end[1]
			if slices.Contains(send, from) && !slices.Contains(send, to) && !slices.Contains(receive, to) && r.deployer(r.ends()[to]) != nil {
				receive = append(receive, to)
			}
		}
	}
	return send, receive
}

// claims are what handlers need of a host besides its network interfaces: what one program has of a NIC no other can have.
func (r *Runner) claims(ctx context.Context, host string) ([]locks.Resource, error) {
	send, receive := r.programmed()
	sends := slices.Contains(send, host)
	if !sends && !slices.Contains(receive, host) {
		return nil, nil
	}
	nic := r.ends()[host]
	return r.deployer(nic).Claims(ctx, r.hosts[host], nic, sends)
}

func (r *Runner) deployment(host string) nicbackends.Deployment {
	nic := r.ends()[host]
	return nicbackends.Deployment{Host: r.hosts[host], Sudo: r.Lab.Host(host).Sudo, Build: r.hosts[nic.BuildOn], Lab: r.Lab, NIC: nic, Run: r.ID, Owner: Owner(),
		For: r.plan.Duration + deploySlack, Say: func(text string) { r.event(Event{Event: "handler", Host: host, Text: text}) }}
}

// deployHandlers loads the handlers that are programs, into all NICs at once.
func (r *Runner) deployHandlers(ctx context.Context) error {
	r.deployed = map[string]nicbackends.Deployed{}
	send, receive := r.programmed()
	var mu sync.Mutex
	var g errgroup.Group
	errs := make([]error, len(send)+len(receive))
	for i, host := range slices.Concat(send, receive) { // all of them, before anything is built or changed
		g.Go(func() error {
			d := r.deployment(host)
			sends := i < len(send)
			ready, err := r.deployer(d.NIC).Ready(ctx, d, sends)
			mu.Lock()
			defer mu.Unlock()
			for _, n := range ready.Notes {
				if !sends { // those of senders are in what became of their handlers
					r.result.warn(fmt.Sprintf("NIC %s of %s: %s", d.NIC.Device, host, n))
				}
			}
			errs[i] = errors.Join(err, lacking(d, ready, sends))
			return nil
		})
	}
	g.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, host := range send {
		g.Go(func() error {
			d := r.deployment(host)
			x, err := r.deployer(d.NIC).Deploy(ctx, d)
			if errs[i] = err; err != nil {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			r.deployed[host] = x
			return nil
		})
	}
	g.Wait()
	if len(r.deployed) > 0 {
		r.undo = append(r.undo, undoStep{what: "take handlers out", do: r.removeHandlers, within: deployTimeout})
	}
	return errors.Join(errs...)
}

// lacking is an error for each thing that a NIC lacks.
func lacking(d nicbackends.Deployment, ready nicbackends.Readiness, sends bool) error {
	step := "look at a NIC that answers probes"
	if sends {
		step = "look at a NIC that is to run " + d.NIC.Handlers[0].Handler
	}
	var errs []error
	for _, c := range ready.Conditions {
		if c.State == nicbackends.Lacks {
			errs = append(errs, &remote.Error{Host: d.Host.Name(), Step: step, Err: fmt.Errorf("%s: %s: %s", d.NIC.Device, c.What, c.Why), Fix: c.Fix})
		}
	}
	return errors.Join(errs...)
}

// removeHandlers takes them out, notes what became of each, and judges that it ran from the start of the run to its end: a NIC that fell back
// to its own control loop in silence measures that.
func (r *Runner) removeHandlers(ctx context.Context) error {
	hosts, _ := r.programmed()
	errs := make([]error, len(hosts))
	reports := make([]nicbackends.DeployReport, len(hosts))
	var g errgroup.Group
	for i, host := range hosts {
		if x := r.deployed[host]; x != nil {
			g.Go(func() error { reports[i], errs[i] = x.Remove(ctx); return nil })
		}
	}
	g.Wait()
	for i, host := range hosts {
		if r.deployed[host] == nil {
			continue
		}
		delete(r.deployed, host)
		d := reports[i]
		errs[i] = errors.Join(errs[i], r.bundle.WriteJSON("handlers/"+host+".deployment.json", d))
		c := CheckResult{Name: fmt.Sprintf("handler %s runs on %s from start to end", d.Handler, host), Verdict: Pass}
		switch {
		case d.Stopped != "":
			c.Verdict, c.Reason = Fail, "it stopped at "+d.At.UTC().Format(time.RFC3339)+", and what was measured from then on is the NIC's own control loop: "+d.Stopped
		case d.Start != "active" || d.End != "active":
			c.Verdict, c.Reason = Fail, fmt.Sprintf("its state was %q at the start and %q at the end", d.Start, d.End)
		}
		r.result.Checks = append(r.result.Checks, c)
		r.event(Event{Event: "handler_removed", Host: host, Text: d.Handler})
	}
	return errors.Join(errs...)
}
