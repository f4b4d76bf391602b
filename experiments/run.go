package experiments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/internal/build"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/nicbackends/facts"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

// Runner drives one run of a playbook on a lab. It sees hosts through Dial alone, so it cannot tell a virtual host from
// a machine in a rack.
type Runner struct {
	Playbook *Playbook
	Lab      *inventory.Lab
	Backends nicbackends.Registry
	Switches map[string]SwitchKind // by inventory.Switch.Backend
	Dial     func(ctx context.Context, host string) (remote.Host, error)
	Out      string            // folder that the bundle is made in
	ID       string            // of the run; "" makes one from the time
	Folder   string            // name of the run's folder in Out; "" means ID
	Seed     uint64            // of what the lab draws, for the record
	Command  []string          // the command line, for the record
	Sets     map[string]string // --set values, for the record
	Trial    *Trial            // which part of a sweep this is; nil: none
	Made     any               // how the lab was made, for the record (lab-made.json); nil: it was there
	Wait     time.Duration     // how long others' locks and ports are waited for
	Progress func(Event)       // called with each event as it happens; may be nil

	plan     *Plan
	bundle   *Bundle
	result   *Result
	hosts    map[string]remote.Host
	dirs     map[string]string // the run's own folder on each host
	undo     []undoStep
	began    time.Time // the first phase
	windows  []window  // what the phases were
	failures int       // flows that failed while others went on
	captured *runningCaptures
	readings *readings
	there    *analysis.Document // of captures that were analysed on their host
	thereOf  *AnalysisInput     // what it was made from
	syncs    map[string]string  // what keeps each host's clock right
	settings []heldSettings
	ptps     map[string]*capture.PTP         // of hosts that have it
	deployed map[string]nicbackends.Deployed // handlers that a process of their host keeps in its NIC, by host
}

type undoStep struct {
	what   string
	do     func(context.Context) error
	within time.Duration
}

type window struct {
	phase      PlannedPhase
	start, end time.Time
}

// How long the parts of a run may take besides its phases.
const (
	dialTimeout  = 60 * time.Second
	factsTimeout = time.Minute      // some hundred small commands on a busy host
	pushTimeout  = 10 * time.Minute // pcmlab itself, over a slow connection to many hosts
	drainTimeout = 10 * time.Second
	undoTimeout  = 60 * time.Second
	fetchTimeout = 15 * time.Minute // a capture of gigabytes over a slow connection
)

// NewRunID is a name for a run that begins now: sortable, unique to the millisecond.
func NewRunID(playbook string, now time.Time) string {
	return now.UTC().Format("20060102-150405.000") + "-" + playbook
}

// Run does it all: dial, prepare, capture, drive, drain, collect, analyse, judge, report. When something breaks, or
// ctx ends, what was measured is kept, marked partial, and returned beside the error. Result is nil only when no
// bundle could be made.
func (r *Runner) Run(ctx context.Context) (*Result, error) {
	plan, err := NewPlan(r.Playbook, r.Lab, r.Backends)
	if err != nil {
		return nil, err
	}
	r.plan = plan
	if r.ID == "" {
		r.ID = NewRunID(r.Playbook.Name, time.Now())
	}
	if r.bundle, err = CreateBundle(r.Out, cmp.Or(r.Folder, r.ID)); err != nil {
		return nil, err
	}
	r.bundle.ID = r.ID
	r.result = &Result{Schema: "pcmlab/result/v1", Run: r.ID, Dir: r.bundle.Dir, Playbook: r.Playbook.Name, Lab: r.Lab.Name,
		State: StateComplete, TimeScale: plan.Scale, Flows: []FlowResult{}, Checks: []CheckResult{}, Agreement: []CheckResult{},
		Timing: map[string]TimingRow{}, Warnings: []string{}}
	r.hosts, r.dirs, r.syncs, r.ptps = map[string]remote.Host{}, map[string]string{}, map[string]string{}, map[string]*capture.PTP{}

	for _, n := range plan.Notes {
		r.event(Event{Event: "note", Text: n})
	}
	runErr := r.measure(ctx)
	if runErr != nil {
		r.result.State, r.result.Reason = StatePartial, runErr.Error()
		if ctx.Err() != nil {
			r.result.Reason = Interrupted
			runErr = errors.Join(ctx.Err(), runErr)
		}
	}
	// From here on nothing touches a host: it goes on after an interrupt too.
	judgeErr := r.assess(context.WithoutCancel(ctx))
	if judgeErr != nil && r.result.State == StateComplete {
		r.result.State, r.result.Reason = StatePartial, judgeErr.Error()
	}
	r.result.judge()
	closeErr := r.finish()
	return r.result, errors.Join(runErr, judgeErr, closeErr)
}

// measure does all that touches hosts, and undoes it in reverse order whatever happens.
func (r *Runner) measure(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, r.unwind(context.WithoutCancel(ctx))) }()
	if err := r.writeInputs(); err != nil {
		return err
	}
	if err := r.dialAll(ctx); err != nil {
		return err
	}
	if err := r.takeLocks(ctx); err != nil {
		return err
	}
	if err := r.leftovers(ctx); err != nil {
		return err
	}
	if err := r.changeSettings(ctx); err != nil {
		return err
	}
	if err := r.prepareHosts(ctx); err != nil {
		return err
	}
	if err := r.setupNICs(ctx); err != nil {
		return err
	}
	if err := r.deployHandlers(ctx); err != nil {
		return err
	}
	if err := r.setRDCC(ctx); err != nil {
		return err
	}
	if err := r.startCalls(ctx); err != nil {
		return err
	}
	r.readings = r.startReadings(ctx)
	traffic, err := r.prepareTraffic(ctx)
	if err != nil {
		return err
	}
	captures, err := r.startCaptures(ctx)
	if err != nil {
		return err
	}
	before, err := r.readCounters(ctx, "before")
	if err != nil {
		return err
	}
	r.readings.mark(ctx, "before", "")
	driveErr := r.drive(ctx, traffic)
	// Traffic first, then capture; counters after both are quiet. An interrupt must not keep what was measured from
	// being collected.
	var after *counterSet
	collectErr := collect(context.WithoutCancel(ctx),
		step{"stop the flows", undoTimeout, func(ctx context.Context) error { return traffic.stop(ctx) }},
		step{"wait for the wire to be quiet", drainTimeout + undoTimeout, r.drain},
		step{"read counters after", undoTimeout, func(ctx context.Context) (err error) { after, err = r.readCounters(ctx, "after"); return err }},
		step{"see whether settings held", undoTimeout, r.settingsHeld},
		step{"take handlers out", deployTimeout, r.removeHandlers},
		step{"read clocks and counters for the last time", undoTimeout, r.readings.end},
		step{"fetch logs of handlers", fetchTimeout, r.collectCalls},
		step{"stop captures", undoTimeout, captures.stop})
	r.result.counters(before, after)
	r.countersMoved(before, after)
	r.plan.addRDCC(r.result.growth)
	bringErr := collect(context.WithoutCancel(ctx), step{"fetch captures, or analyse them where they lie", fetchTimeout, r.bring})
	return errors.Join(driveErr, collectErr, bringErr)
}

func (r *Runner) writeInputs() error {
	lab, err := inventory.Marshal(r.Lab)
	if err != nil {
		return err
	}
	inputs, err := r.plan.inputs(r.Playbook, r.Lab)
	if err != nil {
		return err
	}
	var made error
	if r.Made != nil {
		made = r.bundle.WriteJSON("lab-made.json", r.Made)
	}
	var trial error
	if r.Trial != nil {
		trial = r.bundle.WriteJSON("trial.json", r.Trial)
	}
	return errors.Join(made, trial,
		r.bundle.Write("playbook.yaml", r.Playbook.Source),
		r.bundle.Write("lab.yaml", lab),
		r.bundle.WriteJSON("plan.json", r.plan),
		r.bundle.WriteJSON("command.json", map[string]any{"schema": "pcmlab/command/v1", "argv": r.Command, "set": r.Sets, "inputs_sha256": inputs, "seed": r.Seed, "build": build.Version()}),
	)
}

// event notes what happens in the timeline and shows it.
func (r *Runner) event(e Event) {
	e = r.bundle.Note(e)
	r.readings.follow(e)
	if r.Progress != nil {
		r.Progress(e)
	}
}

func (r *Runner) onUndo(what string, do func(context.Context) error) {
	r.undo = append(r.undo, undoStep{what, do, undoTimeout})
}

func (r *Runner) unwind(ctx context.Context) error {
	var steps []step
	for _, u := range slices.Backward(r.undo) {
		steps = append(steps, step{"undo: " + u.what, u.within, func(ctx context.Context) error {
			if err := u.do(ctx); err != nil {
				return fmt.Errorf("undo: %s: %w", u.what, err)
			}
			return nil
		}})
	}
	r.undo = nil
	return collect(ctx, steps...)
}

func (r *Runner) dialAll(ctx context.Context) error {
	dial, cancel := context.WithTimeoutCause(ctx, dialTimeout, fmt.Errorf("not reached within %v", dialTimeout))
	defer cancel()
	push, cancelPush := context.WithTimeoutCause(ctx, pushTimeout, fmt.Errorf("not done within %v", pushTimeout))
	defer cancelPush()
	found := make([]remote.Host, len(r.plan.Hosts))
	errs := make([]error, len(r.plan.Hosts))
	g := errgroup.Group{}
	g.SetLimit(16)
	for i, ph := range r.plan.Hosts {
		g.Go(func() error {
			h, err := r.Dial(dial, ph.Name)
			if err == nil {
				found[i] = h
				if _, err = h.Binary(push); err != nil && r.plainWill(ph.Name) {
					if ok, why := guardedHost(h); !ok && why != "" {
						err = nil // it gets plain commands
					}
				}
			}
			errs[i] = err
			return nil
		})
	}
	g.Wait()
	for i, ph := range r.plan.Hosts {
		if h := found[i]; h != nil {
			r.hosts[ph.Name] = h
			r.onUndo("close "+ph.Name, func(context.Context) error { return h.Close() })
			r.event(Event{Event: "host_reached", Host: ph.Name})
			if ok, why := r.guarded(ph.Name); !ok && errs[i] == nil {
				r.result.warn(fmt.Sprintf("pcmlab does not run on %s (%s): it gets plain commands, takes no lock, and nobody there cleans up when this machine is lost", ph.Name, why))
			}
		}
	}
	return errors.Join(errs...)
}

// prepareHosts makes the run's own folder on each host, which a lease removes again when the run ends or its owner is
// lost, and records what each host is.
func (r *Runner) prepareHosts(ctx context.Context) error {
	found := make([]Facts, len(r.plan.Hosts))
	dirs := make([]string, len(r.plan.Hosts))
	leases := make([]remote.Process, len(r.plan.Hosts))
	cut := make([]error, len(r.plan.Hosts)) // why the facts are not whole
	g, gctx := errgroup.WithContext(ctx)
	for i, ph := range r.plan.Hosts {
		h := r.hosts[ph.Name]
		g.Go(func() (err error) {
			q := facts.Of(r.Lab, ph.Name)
			q.Run = r.ID
			if ok, _ := r.guarded(ph.Name); !ok {
				q.Plain = true
				if dirs[i], err = r.plainDir(gctx, h); err == nil {
					found[i], err = facts.Read(gctx, h, q)
				}
				return err
			}
			bin, err := h.Binary(gctx)
			if err != nil {
				return err
			}
			dirs[i] = path.Join(path.Dir(path.Dir(bin)), "runs", r.ID)
			// The lease comes before the folder: whenever this process dies, there is somebody to remove it.
			deadline := r.plan.Duration + 30*time.Minute
			leases[i], err = h.Start(gctx, remote.Cmd{Args: []string{"sleep", fmt.Sprint(int(deadline.Seconds()))},
				Deadline: deadline, Step: "hold the run's folder", Restore: forget(dirs[i], r.ID)})
			if err != nil {
				return err
			}
			if err := mustRun(gctx, h, "make the run's folder", "mkdir", "-p", dirs[i]); err != nil {
				return err
			}
			q.Plain, q.Within = true, factsTimeout
			found[i], cut[i] = facts.Read(gctx, h, q)
			return nil
		})
	}
	err := errors.Join(g.Wait(), context.Cause(ctx))
	for i, ph := range r.plan.Hosts {
		if lease := leases[i]; lease != nil {
			r.onUndo("remove the run's folder on "+ph.Name, func(ctx context.Context) error {
				if err := lease.Stop(ctx, "TERM"); err != nil {
					return err
				}
				_, err := lease.Wait(ctx)
				return err
			})
		} else if dirs[i] != "" {
			r.onUndo("remove the run's folder on "+ph.Name, func(ctx context.Context) error {
				return mustRun(ctx, r.hosts[ph.Name], "remove the run's folder", "rm", "-rf", dirs[i])
			})
		}
	}
	if err != nil {
		return err
	}
	for i, ph := range r.plan.Hosts {
		r.dirs[ph.Name] = dirs[i]
		r.syncs[ph.Name] = syncOf(found[i])
		if found[i].PTP.Known() {
			r.ptps[ph.Name] = capture.ParsePTP(string(found[i].PTP))
		}
		if cut[i] != nil { // what is known is kept, and the rest is "unavailable"; no run fails for it
			r.result.warn("provenance: " + cut[i].Error())
		}
		if err := r.bundle.WriteJSON("hosts/"+ph.Name+"/facts.json", found[i]); err != nil {
			return err
		}
	}
	r.preflight(found, cut)
	return nil
}

// forget is the command that removes from a host what has no process: the run's folder, and what it claimed.
func forget(dir, run string) []string {
	return append([]string{"sh", "-c", `d=$1; shift; "$@"; rm -rf -- "$d"`, "sh", dir}, perftest.ForgetPorts(run)...)
}

func (r *Runner) setupNICs(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	done := map[string]bool{}
	for _, f := range r.plan.Flows {
		for _, end := range []struct {
			host string
			nic  *inventory.NIC
		}{{f.From, f.fromNIC}, {f.To, f.toNIC}} {
			if done[end.host] {
				continue
			}
			done[end.host] = true
			backend, err := r.Backends.Find(end.nic.Backend)
			if err != nil {
				return err
			}
			h := r.hosts[end.host]
			g.Go(func() error {
				return backend.Setup(gctx, h, r.Lab, end.nic)
			})
		}
	}
	return g.Wait()
}

// mustRun is for short commands whose failure is an error.
func mustRun(ctx context.Context, h remote.Host, step string, argv ...string) error {
	res, err := h.Run(ctx, remote.Cmd{Args: argv, Step: step, Plain: argv[0] != "pcmlab"})
	if err != nil {
		return err
	}
	if res.Code != 0 {
		return &remote.Error{Host: h.Name(), Step: step, Err: fmt.Errorf("exit status %d (%s)", res.Code, lastLine(res.Stderr))}
	}
	return nil
}

// finish writes what is left of the bundle, the manifest last.
func (r *Runner) finish() error {
	err := r.bundle.WriteJSON("result.json", r.result)
	if err == nil {
		err = writeReport(r.bundle, r.result, r.Playbook, r.plan)
	}
	err = errors.Join(err, r.bundle.Last())
	if err != nil { // most likely a full disk: there is some room now
		if r.result.State != StatePartial {
			r.result.State, r.result.Reason = StatePartial, err.Error()
		}
		err = errors.Join(err, r.bundle.WriteJSON("result.json", r.result))
	}
	if summary, sumErr := Summarise(r.bundle.Dir); sumErr != nil {
		err = errors.Join(err, sumErr)
	} else {
		summary.Ended = time.Now().UTC()
		err = errors.Join(err, r.bundle.WriteJSON(SummaryFile, summary))
	}
	r.event(Event{Event: "done", Text: filepath.Join(r.bundle.Dir, "report.html")})
	_, closeErr := r.bundle.Close(r.result.State, r.result.Reason, build.Version().String())
	return errors.Join(err, closeErr)
}
