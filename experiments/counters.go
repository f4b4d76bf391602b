package experiments

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/fabric"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/nicbackends/counters"
)

// SwitchKind knows how one kind of switch is asked on the host that stands for it.
type SwitchKind interface {
	Counters(ctx context.Context, h remote.Host, s *inventory.Switch) (*fabric.Counters, error)
	// ResetTiming forgets the lateness seen so far; a no-op for hardware.
	ResetTiming(ctx context.Context, h remote.Host, s *inventory.Switch) error
}

// SoftwareSwitch is pcmlab's own switch; it answers on a socket of its host.
type SoftwareSwitch struct{}

// fabricSocket is where the software switch listens on its host.
const fabricSocket = "/run/pcmlab/fabric.sock"

// Counters implements SwitchKind.
func (SoftwareSwitch) Counters(ctx context.Context, h remote.Host, s *inventory.Switch) (*fabric.Counters, error) {
	step := "read the counters of switch " + s.Name
	res, err := h.Run(ctx, remote.Cmd{Args: []string{"pcmlab", "fabric-counters", "--socket", fabricSocket}, Step: step})
	if err != nil {
		return nil, err
	}
	if res.Code != 0 {
		return nil, &remote.Error{Host: h.Name(), Step: step, Err: fmt.Errorf("exit status %d (%s)", res.Code, lastLine(res.Stderr))}
	}
	var c fabric.Counters
	if err := json.Unmarshal(res.Stdout, &c); err != nil {
		return nil, &remote.Error{Host: h.Name(), Step: step, Err: err}
	}
	return &c, nil
}

// ResetTiming implements SwitchKind.
func (SoftwareSwitch) ResetTiming(ctx context.Context, h remote.Host, s *inventory.Switch) error {
	return mustRun(ctx, h, "reset the lateness of switch "+s.Name, "pcmlab", "fabric-counters", "--socket", fabricSocket, "--reset-lateness")
}

// counterSet is what all NICs and switches of a run say at one time.
type counterSet struct {
	NICs     map[string]map[string]uint64 `json:"nics"` // by host
	Switches map[string]*fabric.Counters  `json:"switches"`
	Linux    map[string]LinuxPorts        `json:"linux_switches,omitempty"`
	At       time.Time                    `json:"at"`
}

// ends are the hosts that send or receive, each with its NIC, once.
func (r *Runner) ends() map[string]*inventory.NIC {
	nics := map[string]*inventory.NIC{}
	for _, f := range r.plan.Flows {
		nics[f.From], nics[f.To] = f.fromNIC, f.toNIC
	}
	return nics
}

// asked are the switches that can be asked, each with its host and kind.
func (r *Runner) asked() map[*inventory.Switch]SwitchKind {
	found := map[*inventory.Switch]SwitchKind{}
	for _, s := range r.Lab.Switches {
		if kind, ok := r.Switches[s.Backend]; ok && s.Host != "" && r.hosts[s.Host] != nil {
			found[s] = kind
		}
	}
	return found
}

// linuxSwitches are the Linux machines of the run that switch.
func (r *Runner) linuxSwitches() []*inventory.Switch {
	var found []*inventory.Switch
	for _, s := range r.Lab.Switches {
		if s.Backend == inventory.LinuxSwitch && r.hosts[s.Host] != nil {
			found = append(found, s)
		}
	}
	return found
}

// readCounters asks every NIC and switch of the run, and keeps the answers under counters/when.json.
func (r *Runner) readCounters(ctx context.Context, when string) (*counterSet, error) {
	set := &counterSet{NICs: map[string]map[string]uint64{}, Switches: map[string]*fabric.Counters{}, Linux: map[string]LinuxPorts{}, At: time.Now().UTC()}
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	for host, nic := range r.ends() {
		backend, err := r.Backends.Find(nic.Backend)
		if err != nil {
			return nil, err
		}
		g.Go(func() error {
			c, err := backend.Counters(gctx, r.hosts[host], nic)
			var own map[string]uint64
			var lost error
			if d := r.deployed[host]; d != nil && err == nil {
				own, lost = d.Counters(gctx)
			}
			mu.Lock()
			defer mu.Unlock()
			if lost != nil { // absent, not an end of the run: that the handler is gone is judged by itself
				r.result.warn("handler's counters on " + host + ": " + lost.Error())
			} else if len(own) > 0 && c != nil {
				maps.Copy(c, own)
			}
			set.NICs[host] = c
			return err
		})
	}
	for s, kind := range r.asked() {
		g.Go(func() error {
			if when == "before" {
				if err := kind.ResetTiming(gctx, r.hosts[s.Host], s); err != nil {
					return err
				}
			}
			c, err := kind.Counters(gctx, r.hosts[s.Host], s)
			mu.Lock()
			defer mu.Unlock()
			set.Switches[s.Name] = c
			return err
		})
	}
	for _, s := range r.linuxSwitches() {
		g.Go(func() error {
			c, err := readLinuxSwitch(gctx, r.hosts[s.Host], s)
			mu.Lock()
			defer mu.Unlock()
			set.Linux[s.Name] = c
			return err
		})
	}
	err := g.Wait()
	r.event(Event{Event: "counters_" + when})
	if werr := r.bundle.WriteJSON("counters/"+when+".json", set); err == nil {
		err = werr
	}
	if when == "after" && err == nil {
		err = r.readTiming(ctx, set)
	}
	return set, err
}

// quietPoll is how often counters are compared while waiting for traffic to end.
const quietPoll = 150 * time.Millisecond

// drain waits until nothing moves any more: two readings in a row are equal, and no switch holds a packet.
func (r *Runner) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	tick := time.NewTicker(quietPoll)
	defer tick.Stop()
	last := uint64(0)
	for first := true; ; first = false {
		now, held, err := r.traffic(ctx)
		switch {
		case ctx.Err() != nil:
			r.result.warn(fmt.Sprintf("traffic did not come to rest within %v after the last flow ended", drainTimeout))
			return nil
		case err != nil:
			return err
		case !first && now == last && held == 0:
			r.event(Event{Event: "drained"})
			return nil
		}
		last = now
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// traffic is how many packets have moved so far and how many are held: by the switches' counters where they can be
// asked, else by those of the NICs.
func (r *Runner) traffic(ctx context.Context) (packets, held uint64, err error) {
	switches := r.asked()
	for s, kind := range switches {
		c, err := kind.Counters(ctx, r.hosts[s.Host], s)
		if err != nil {
			return 0, 0, err
		}
		for _, p := range c.Ports {
			packets += p.RxPackets + p.TxPackets + p.DroppedPackets
			held += p.QueuedPackets
		}
	}
	if len(switches) > 0 {
		return packets, held, nil
	}
	for _, s := range r.linuxSwitches() { // other packets than the run's pass there, too: only what is held counts
		ports, err := readLinuxSwitch(ctx, r.hosts[s.Host], s)
		if err != nil {
			return 0, 0, err
		}
		for _, p := range ports {
			held += p[queuedPackets]
		}
	}
	for host, nic := range r.ends() {
		backend, err := r.Backends.Find(nic.Backend)
		if err != nil {
			return 0, 0, err
		}
		values, err := backend.Counters(ctx, r.hosts[host], nic)
		if err != nil {
			return 0, 0, err
		}
		for _, v := range values {
			packets += v
		}
	}
	return packets, 0, nil
}

// readTiming notes how late software switches and NICs were, and marks the run noisy when one was too late.
func (r *Runner) readTiming(ctx context.Context, set *counterSet) error {
	bound := time.Duration(inventory.DefaultMaxLateness)
	if v := r.Lab.Virtual; v != nil && v.MaxLateness > 0 {
		bound = v.MaxLateness
	}
	add := func(name string, p50, p99, max *int64, samples uint64) {
		row := TimingRow{p50, p99, max, samples, int64(bound), p99 == nil || *p99 <= int64(bound)}
		r.result.Timing[name] = row
		if !row.OK {
			r.result.State = StateNoisy
			r.result.Reason = fmt.Sprintf("%s was late by %v (p99), above the bound of %v: this machine was too busy, the figures are not judged",
				name, time.Duration(*p99).Round(10*time.Microsecond), bound)
			r.result.warn(r.result.Reason)
		}
	}
	for name, c := range set.Switches {
		add("switch."+name, c.Lateness.P50, c.Lateness.P99, c.Lateness.Max, c.Lateness.Samples)
	}
	for host, nic := range r.ends() {
		backend, err := r.Backends.Find(nic.Backend)
		if err != nil {
			return err
		}
		timed, ok := backend.(nicbackends.Timed)
		if !ok {
			continue
		}
		t, err := timed.Timing(ctx, r.hosts[host], nic)
		if err != nil {
			return err
		}
		if t != nil {
			p50, p99, max := int64(t.P50), int64(t.P99), int64(t.Max)
			add("nic."+host, &p50, &p99, &max, t.Samples)
		}
	}
	return nil
}

// growth is what counters moved by between two readings, by owner: "nic.h1", "switch.sw", "switch.sw.r1".
func growth(before, after *counterSet) map[string]map[string]int64 {
	out := map[string]map[string]int64{}
	if before == nil || after == nil {
		return out
	}
	for host, b := range before.NICs {
		a, ok := after.NICs[host]
		if !ok {
			continue
		}
		set := map[string]int64{}
		for name, v := range a {
			if was, ok := b[name]; ok {
				if n, ok := counters.Grow(was, v); ok { // one that began again has no growth: what it had counted is not known
					set[name] = n
				}
			}
		}
		out["nic."+host] = set
	}
	for name, b := range before.Switches {
		a, ok := after.Switches[name]
		if !ok || a == nil || b == nil {
			continue
		}
		total := map[string]int64{}
		for _, ap := range a.Ports {
			bp := b.Port(ap.Name)
			if bp == nil {
				continue
			}
			set := portGrowth(*bp, ap)
			out["switch."+name+"."+ap.Name] = set
			for k, v := range set {
				if k == "peak_queue_bytes" {
					total[k] = max(total[k], v)
				} else {
					total[k] += v
				}
			}
		}
		out["switch."+name] = total
	}
	return out
}

// linuxGrowth adds what Linux switches counted, under the names of growth.
func linuxGrowth(out map[string]map[string]int64, before, after *counterSet) {
	if before == nil || after == nil {
		return
	}
	for name, ports := range after.Linux {
		total := map[string]int64{}
		for port, a := range ports {
			set := growthOf(before.Linux[name][port], a)
			out["switch."+name+"."+port] = set
			for k, v := range set {
				total[k] += v
			}
		}
		out["switch."+name] = total
	}
}

// portGrowth subtracts one reading of a port from another, field by field under the JSON names; peaks are taken as they are.
func portGrowth(before, after fabric.PortCounters) map[string]int64 {
	set := map[string]int64{}
	b, a := reflect.ValueOf(before), reflect.ValueOf(after)
	for i := range a.NumField() {
		field := a.Type().Field(i)
		name := field.Tag.Get("json")
		if field.Type.Kind() != reflect.Uint64 {
			continue
		}
		switch name {
		case "queued_packets", "queued_bytes", "ingress_queued_bytes":
		case "peak_queue_bytes", "peak_ingress_queued_bytes":
			set[name] = int64(a.Field(i).Uint())
		default:
			set[name] = int64(a.Field(i).Uint() - b.Field(i).Uint())
		}
	}
	return set
}

func (r *Result) counters(before, after *counterSet) {
	r.growth = growth(before, after)
	linuxGrowth(r.growth, before, after)
}
