package docapcc

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/nicbackends/docapcc/keeper"
	"github.com/pcmlab/pcmlab/pcm"
)

func (b Backend) order(d nicbackends.Deployment) keeper.Order {
	return keeper.Order{Run: d.Run, Owner: d.Owner, Device: d.NIC.Device, Port: d.NIC.Port, Root: b.Root, AnyUser: b.AnyUser, Every: b.Every, Within: b.Within, End: b.End, Tool: b.Tool}
}

// check asks what stands in the way.
func (b Backend) check(ctx context.Context, d nicbackends.Deployment, o keeper.Order) (c keeper.Checked, err error) {
	step := "look at NIC " + d.NIC.Device
	data, err := json.Marshal(o)
	if err != nil {
		return c, err
	}
	res, err := d.Host.Run(ctx, remote.Cmd{Args: []string{"pcmlab", "pcc", "check", string(data)}, Env: b.Env, Sudo: d.Sudo, Step: step, Deadline: 2 * time.Minute})
	if err != nil {
		return c, err
	}
	if res.Code != 0 || json.Unmarshal(res.Stdout, &c) != nil {
		return c, &remote.Error{Host: d.Host.Name(), Step: step, Err: fmt.Errorf("exit status %d (%s)", res.Code, oneLine(append(res.Stdout, res.Stderr...)))}
	}
	return c, nil
}

// problems are errors of a host, one for each.
func problems(d nicbackends.Deployment, step string, list []keeper.Problem) error {
	var errs []error
	for _, p := range list {
		errs = append(errs, &remote.Error{Host: d.Host.Name(), Step: step, Err: fmt.Errorf("%s: %s: %s", d.NIC.Device, p.What, p.Why), Fix: p.Fix})
	}
	return errors.Join(errs...)
}

// loaded is the program of a deployment's NIC.
func loaded(d nicbackends.Deployment) (*pcm.Package, error) {
	i := slices.IndexFunc(d.NIC.Handlers, func(r inventory.HandlerRule) bool { return r.Handler != inventory.NoHandler })
	if i < 0 {
		return nil, fmt.Errorf("host %s: NIC %s has no handler", d.Host.Name(), d.NIC.Device)
	}
	p, mistakes := packages().Load(nicbackends.Fabric(d.Lab, d.NIC, 0), i, &d.NIC.Handlers[i])
	if len(mistakes) > 0 {
		return nil, fmt.Errorf("host %s: NIC %s: %w", d.Host.Name(), d.NIC.Device, mistakes[0])
	}
	return program(p)
}

// Deploy implements nicbackends.Deployer.
func (b Backend) Deploy(ctx context.Context, d nicbackends.Deployment) (nicbackends.Deployed, error) {
	p, err := loaded(d)
	if err != nil {
		return nil, err
	}
	o := b.order(d)
	o.Name, o.Probes = p.Name, probes(p)
	if o.Hash, err = p.Hash(); err != nil {
		return nil, err
	}
	made, err := b.build(ctx, d, p)
	if err != nil {
		return nil, err
	}
	o.Loader = made.loader
	x := &deployed{d: d, name: p.Name, changed: make(chan struct{}),
		report: nicbackends.DeployReport{Schema: "pcmlab/deployment/v1", Backend: b.Name(), Handler: p.Name, Hash: o.Hash, Device: d.NIC.Device, BuiltOn: made.on, Compile: made.compiler, Notes: []string{}}}
	return x, x.load(ctx, b, o)
}

// deployed is a handler that a keeper holds in a NIC.
type deployed struct {
	d       nicbackends.Deployment
	name    string
	process remote.Process
	in      *io.PipeWriter

	mu      sync.Mutex
	partial []byte
	events  []keeper.Event
	changed chan struct{} // closed and made anew with each event
	wide    map[string]uint64
	report  nicbackends.DeployReport
	removed bool
	err     error
}

func (x *deployed) load(ctx context.Context, b Backend, o keeper.Order) error {
	step := "load handler " + o.Name + " into " + o.Device
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	bin, err := x.d.Host.Binary(ctx)
	if err != nil {
		return err
	}
	var stdin *io.PipeReader
	stdin, x.in = io.Pipe()
	x.process, err = x.d.Host.Start(ctx, remote.Cmd{Args: []string{"pcmlab", "pcc", "hold", string(data)}, Env: b.Env, Sudo: x.d.Sudo, Stdin: stdin, Stdout: x, Step: step,
		Deadline: x.d.For, Term: keeper.TermWait, Restore: []string{bin, "knobs", "restore", o.Run}})
	if err != nil {
		return err
	}
	go func() { // nobody reads any more: what is asked then fails at once
		<-x.process.Done()
		stdin.CloseWithError(io.ErrClosedPipe)
	}()
	e, err := x.wait(ctx, 0, keeper.Running, keeper.Refused)
	switch {
	case err == nil && e.Event == keeper.Refused:
		err = problems(x.d, step, e.Problems)
	case err == nil:
		x.mu.Lock()
		x.report.Start, x.report.Found = e.State, e.Found
		if e.Found != nil {
			x.report.Notes = append(x.report.Notes, e.Found.Notes...)
		}
		x.mu.Unlock()
		return nil
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), keeper.TermWait)
	defer cancel()
	_ = x.process.Stop(end, "TERM")
	_, _ = x.process.Wait(end)
	return err
}

// Write takes what the keeper says, in lines. What is none of its own is kept as a note.
func (x *deployed) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.partial = append(x.partial, p...)
	for {
		line, rest, ok := bytes.Cut(x.partial, []byte("\n"))
		if !ok {
			if len(x.partial) > 1<<20 {
				x.partial = nil
			}
			return len(p), nil
		}
		x.partial = rest
		var e keeper.Event
		if err := json.Unmarshal(line, &e); err != nil || e.Event == "" {
			if len(x.report.Notes) < 20 {
				x.report.Notes = append(x.report.Notes, "the keeper printed "+oneLine(line))
			}
			continue
		}
		if len(x.events) < 10000 {
			x.events = append(x.events, e)
		}
		if e.Event == keeper.Stopped {
			x.report.Stopped, x.report.At = cmp.Or(x.report.Stopped, e.Why), e.At
		}
		if x.d.Say != nil && (e.Event == keeper.State || e.Event == keeper.Stopped || e.Event == keeper.Running) {
			x.d.Say(strings.TrimSpace(fmt.Sprintf("handler %s on %s is %s %s", x.name, x.d.NIC.Device, cmp.Or(map[string]string{keeper.Running: "active, as the NIC says", keeper.Stopped: "gone:"}[e.Event], e.State), e.Why)))
		}
		close(x.changed)
		x.changed = make(chan struct{})
	}
}

// wait is for one of some kinds of events, from the nth on.
func (x *deployed) wait(ctx context.Context, n int, kinds ...string) (keeper.Event, error) {
	for {
		x.mu.Lock()
		changed := x.changed
		for ; n < len(x.events); n++ {
			if slices.Contains(kinds, x.events[n].Event) {
				defer x.mu.Unlock()
				return x.events[n], nil
			}
		}
		x.mu.Unlock()
		select {
		case <-changed:
			continue
		case <-ctx.Done():
			return keeper.Event{}, context.Cause(ctx)
		case <-x.process.Done():
		}
		x.mu.Lock()
		more := n < len(x.events)
		x.mu.Unlock()
		if more {
			continue
		}
		res, err := x.process.Wait(ctx)
		if err == nil {
			err = &remote.Error{Host: x.d.Host.Name(), Step: "keep handler " + x.name + " in " + x.d.NIC.Device, Err: fmt.Errorf("exit status %d: %s", res.Code, oneLine(res.Stderr))}
		}
		return keeper.Event{}, err
	}
}

// ask sends a word to the keeper.
func (x *deployed) ask(word string) (n int, err error) {
	x.mu.Lock()
	n = len(x.events)
	x.mu.Unlock()
	_, err = io.WriteString(x.in, word+"\n")
	return n, err
}

// sampleWait is how long the keeper may need to read the counters: it may be looking at the NIC.
const sampleWait = time.Minute

// Counters implements nicbackends.Deployed. Those of the device have 32 bits; what comes round goes on. What cannot be read is absent.
func (x *deployed) Counters(ctx context.Context) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, sampleWait)
	defer cancel()
	n, err := x.ask("sample")
	if err != nil {
		return nil, err
	}
	e, err := x.wait(ctx, n, keeper.Sample)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if e.Why != "" {
		x.report.Notes = append(x.report.Notes, "counters: "+e.Why)
		return nil, nil
	}
	if x.wide == nil {
		x.wide = map[string]uint64{}
	}
	out := map[string]uint64{}
	for name, v := range e.Counters {
		w := x.wide[name]
		if low := w & (1<<32 - 1); v < low {
			w += 1 << 32
		}
		x.wide[name] = w&^(1<<32-1) | v
		out["handler_"+name+"_"+x.name] = x.wide[name]
	}
	return out, nil
}

// Remove implements nicbackends.Deployed.
func (x *deployed) Remove(ctx context.Context) (nicbackends.DeployReport, error) {
	x.mu.Lock()
	if x.removed {
		defer x.mu.Unlock()
		return x.report, x.err
	}
	x.removed = true
	x.mu.Unlock()
	n, err := x.ask("unload")
	var e keeper.Event
	if err == nil {
		e, err = x.wait(ctx, n, keeper.Unloaded)
	}
	if err != nil {
		_ = x.process.Stop(context.WithoutCancel(ctx), "TERM")
	}
	_, werr := x.process.Wait(ctx)
	x.in.Close()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.report.End = cmp.Or(e.State, "not known")
	if x.report.Stopped == "" && err != nil {
		x.report.Stopped, x.report.At = "its keeper was lost: "+err.Error(), time.Now().UTC()
	}
	if len(e.Problems) > 0 {
		err = errors.Join(err, problems(x.d, "take handler "+x.name+" out", e.Problems))
	} else if err == nil {
		err = werr
	}
	x.report.Events = []any{}
	for _, e := range x.events {
		x.report.Events = append(x.report.Events, e)
	}
	x.err = err
	return x.report, err
}
