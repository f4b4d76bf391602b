package experiments

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends"
)

// callsFile is where the folder of a run has a sender's log of its handlers' invocations.
func callsFile(host string) string { return "handlers/" + host + ".calls.csv.gz" }

// logged are the hosts whose NICs log the invocations of their handlers, each with its NIC; none without the diagnostic mode.
func (r *Runner) logged() map[string]*inventory.NIC {
	nics := map[string]*inventory.NIC{}
	if !r.Playbook.Diagnostic {
		return nics
	}
	ends := r.ends()
	for _, h := range r.plan.Handlers {
		nics[h.Host] = ends[h.Host]
	}
	return nics
}

// startCalls begins the logs.
func (r *Runner) startCalls(ctx context.Context) error {
	nics := r.logged()
	if r.Playbook.Diagnostic && len(nics) == 0 {
		r.result.warn("diagnostic: no sender runs a handler, so there are no calls to log")
	}
	g, gctx := errgroup.WithContext(ctx)
	for host, nic := range nics {
		d, err := r.diagnosed(nic)
		if err != nil {
			return err
		}
		r.onUndo("end the log of handlers' calls on "+host, func(ctx context.Context) error { return d.LogCalls(ctx, r.hosts[host], nic, false) })
		g.Go(func() error { return d.LogCalls(gctx, r.hosts[host], nic, true) })
	}
	return g.Wait()
}

func (r *Runner) diagnosed(nic *inventory.NIC) (nicbackends.Diagnosed, error) {
	backend, err := r.Backends.Find(nic.Backend)
	if err != nil {
		return nil, err
	}
	d, ok := backend.(nicbackends.Diagnosed)
	if !ok {
		return nil, fmt.Errorf("%w: diagnostic: a %s NIC does not log the calls of its handlers", ErrInput, backend.Name())
	}
	return d, nil
}

// collectCalls puts the logs into the bundle. It comes after the traffic, because NICs write them then.
func (r *Runner) collectCalls(ctx context.Context) error {
	var errs []error
	for host, nic := range r.logged() {
		d, err := r.diagnosed(nic)
		if err != nil {
			return err
		}
		from := path.Join(r.dirs[host], "handler-calls.csv.gz")
		head, err := d.WriteCalls(ctx, r.hosts[host], nic, from)
		if err == nil {
			err = r.fetch(ctx, host, from, callsFile(host))
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if head.CutNS != 0 {
			r.result.warn(fmt.Sprintf("handler calls of %s: the log was full %v after the first phase began, and holds %d of %d calls", host, time.Unix(0, head.CutNS).Sub(r.began).Round(time.Millisecond), head.Logged, head.Calls))
		}
		r.event(Event{Event: "calls_collected", Host: host, Text: fmt.Sprintf("%d handler calls", head.Logged)})
	}
	return errors.Join(errs...)
}
