package check

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends/facts"
)

// Options say how hosts are asked. The zero value works.
type Options struct {
	Within    time.Duration // for one host, logging in included; 0 means 30 s
	Exchanges int           // of the clock; 0 means 6
}

// Ask asks all hosts of a lab at once, as far as the pool's limits on logins go. A host that hangs or is down costs its own
// time alone. Nothing is pushed to the hosts and nothing changed there.
func Ask(ctx context.Context, pool *remote.Pool, lab *inventory.Lab, o Options) []Answer {
	if o.Within == 0 {
		o.Within = 30 * time.Second
	}
	if o.Exchanges == 0 {
		o.Exchanges = 6
	}
	out := make([]Answer, len(lab.Hosts))
	var g errgroup.Group
	for i, h := range lab.Hosts {
		g.Go(func() error {
			out[i] = askOne(ctx, pool, lab, h.Name, o)
			return nil
		})
	}
	g.Wait()
	return out
}

func askOne(ctx context.Context, pool *remote.Pool, lab *inventory.Lab, name string, o Options) Answer {
	a := Answer{Host: name}
	h, err := pool.Host(ctx, name)
	if err != nil {
		a.Err = err
		return a
	}
	q := facts.Of(lab, name)
	q.Plain, q.Clock, q.Run, q.Within = true, o.Exchanges, pool.Run(), o.Within
	a.Facts, a.Err = facts.Read(ctx, h, q)
	if !a.Facts.Hostname.Known() && a.Err != nil {
		a.Facts = facts.Facts{} // it said nothing: a reason for each value would say the same fifty times
	}
	return a
}
