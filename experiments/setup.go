package experiments

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/inventory/remote/knobs"
	"github.com/pcmlab/pcmlab/inventory/remote/knobs/mft"
)

// setupSpec is one setting of a host that a run changes and puts back.
type setupSpec struct {
	Host  string                      `yaml:"host,required" doc:"host of the lab"`
	File  string                      `yaml:"file" example:"/sys/class/net/eth0/mtu" doc:"file of one value, of the kernel or another; with value"`
	Value spec.Scalar                 `yaml:"value" doc:"what is written to file, and must be read back; of cma_roce_tos the byte of the IP header: 106 is DSCP 26 with ECT(0)"`
	CMToS string                      `yaml:"cma_roce_tos" example:"mlx5_0" doc:"RDMA device whose connections of the connection manager have the type of service value, unless their program chooses; with value, and port where it is not 1"`
	Port  int                         `yaml:"port" min:"1" max:"255" doc:"port of that device"`
	Dev   string                      `yaml:"dev" example:"p_r1" doc:"network interface; with tc"`
	TC    spec.OneOrMany[string]      `yaml:"tc" example:"netem loss 1%" doc:"queueing discipline that becomes the root of dev, as tc takes it; of several, each is inside the one before"`
	Only  string                      `yaml:"only" enum:"roce" doc:"with tc: RoCEv2 alone goes through it, in a band of its own"`
	Show  spec.OneOrMany[spec.Scalar] `yaml:"show" doc:"command, in words, that shows a setting and changes nothing; with do and undo"`
	Do    spec.OneOrMany[spec.Scalar] `yaml:"do" doc:"command that changes it"`
	Undo  spec.OneOrMany[spec.Scalar] `yaml:"undo" doc:"command that changes it back: show must then show what it did before"`

	Mirror    string `yaml:"mirror" example:"p_r1" doc:"network interface whose packets are copied, as a switch's mirror session does; with to"`
	To        string `yaml:"to" example:"p_mon" doc:"network interface that gets the copies; with mirror"`
	Direction string `yaml:"direction" enum:"ingress,egress,both" doc:"with mirror: what the interface receives, what it sends, or both, which is so when absent"`
	DCB       string `yaml:"dcb" example:"swp1" doc:"network interface whose priority flow control and buffers are changed, as dcb of iproute2 does; with set: prio_pfc, prio_buffer, buffer_size"`

	MLXConfig string                `yaml:"mlxconfig" example:"mlx5_0" doc:"device whose firmware settings are staged for the next boot, as mlxconfig does; with set. What runs stays as it is"`
	MLXReg    string                `yaml:"mlxreg" example:"mlx5_0" doc:"device whose access register is written, as mlxreg does; with reg and set"`
	Reg       string                `yaml:"reg" pattern:"[A-Za-z][A-Za-z0-9_]*" example:"PPCC" doc:"name of the register"`
	Indexes   string                `yaml:"indexes" example:"local_port=1,pnat=0,lp_msb=0,algo_slot=1,algo_param_index=7" doc:"fields that say which part of the register: NAME=VALUE,NAME=VALUE"`
	GetOp     string                `yaml:"get_op" example:"cmd_type=6" doc:"fields that say what is read, where a register knows commands"`
	SetOp     string                `yaml:"set_op" example:"cmd_type=8" doc:"fields that say what is written"`
	MLNXQoS   string                `yaml:"mlnx_qos" example:"ens1f0np0" doc:"network interface whose quality of service is changed, as mlnx_qos does; with set: pfc, prio_tc, trust, dscp2prio, cable_len, prio2buffer, buffer_size"`
	Set       spec.Map[spec.Scalar] `yaml:"set" keys:"[A-Za-z][A-Za-z0-9_]*(\\[[0-9]+\\])?" doc:"settings and their values, of dcb, mlxconfig, mlxreg or mlnx_qos"`
}

// Setting is a setting of a host that a run changes and puts back.
type Setting struct {
	Host string
	Knob knobs.Knob
}

func (s setupSpec) knob() knobs.Knob {
	words := func(list []spec.Scalar) (out []string) {
		for _, w := range list {
			out = append(out, string(w))
		}
		return out
	}
	k := knobs.Knob{File: s.File, Value: string(s.Value), CMToS: s.CMToS, Port: s.Port, Dev: s.Dev, TC: strings.Join(s.TC, " | "), Only: s.Only, Show: words(s.Show), Do: words(s.Do), Undo: words(s.Undo),
		Mirror: s.Mirror, To: s.To, Direction: s.Direction, DCB: s.DCB, MLXConfig: s.MLXConfig, MLXReg: s.MLXReg, Reg: s.Reg, Indexes: s.Indexes, GetOp: s.GetOp, SetOp: s.SetOp, MLNXQoS: s.MLNXQoS}
	for _, e := range s.Set {
		k.Set = append(k.Set, mft.Assign{Name: e.Key, Value: string(e.Value)})
	}
	return k
}

func (p *Playbook) buildSetup(f *playbookFile) {
	for i, s := range f.Setup {
		k := s.knob()
		if err := k.Validate(); err != nil {
			p.doc.Errorf(spec.P("setup", i), "", "setting %d: %v", i+1, err)
		}
		p.Setup = append(p.Setup, Setting{s.Host, k})
	}
}

// PlannedSetting is one setting as it is changed.
type PlannedSetting struct {
	Host string     `json:"host"`
	Knob knobs.Knob `json:"knob"`
	Sudo bool       `json:"sudo"`
}

// settings plans the settings. Hosts that the lab does not have are mistakes.
func (b *planner) settings() {
	for i, s := range b.p.Setup {
		h := b.lab.Host(s.Host)
		if h == nil {
			b.doc.Errorf(spec.P("setup", i, "host"), spec.Suggest(s.Host, b.hostNames()), "no host %q in lab %q", s.Host, b.lab.Name)
			continue
		}
		b.takePart(s.Host, "setting")
		b.Settings = append(b.Settings, PlannedSetting{s.Host, s.Knob, h.Sudo})
		if s.Knob.MLXConfig != "" {
			b.note("%s on %s is staged for the next boot and put back at the end: this run sees what the NIC has now", mft.Join(s.Knob.Set, ", "), s.Host)
		}
	}
}

// settingSlack is how much longer than its phases a run may keep settings changed.
const settingSlack = 20 * time.Minute

// leftovers looks for what earlier runs changed on this run's hosts and nobody put back: figures would be those of their
// settings.
func (r *Runner) leftovers(ctx context.Context) error {
	errs := make([]error, len(r.plan.Hosts))
	var wg sync.WaitGroup
	for i, ph := range r.plan.Hosts {
		if ok, _ := r.guarded(ph.Name); !ok {
			continue // settings are changed under a guard alone
		}
		wg.Go(func() {
			left, err := knobs.Left(ctx, r.hosts[ph.Name], r.Lab.Host(ph.Name).Sudo)
			errs[i] = err
			for _, j := range left {
				for _, s := range j.Steps {
					errs[i] = errors.Join(errs[i], fmt.Errorf("host %s: %v was changed by run %s of %s and not put back: pcmlab cleanup --run %s -i %s", ph.Name, s.Knob, j.Run, j.Owner, j.Run, r.Lab.File))
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// changeSettings makes the changes of the playbook, in its order on each host.
func (r *Runner) changeSettings(ctx context.Context) error {
	lists := map[string][]knobs.Knob{}
	for _, s := range r.plan.Settings {
		lists[s.Host] = append(lists[s.Host], s.Knob)
	}
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for host, list := range lists {
		wg.Go(func() {
			held, err := knobs.Hold(ctx, r.hosts[host], r.ID, Owner(), r.Lab.Host(host).Sudo, r.plan.Duration+settingSlack, list)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			r.onUndo("put the settings of "+host+" back", held.Release)
			r.settings = append(r.settings, heldSettings{host, held})
			for _, k := range list {
				r.event(Event{Event: "setting_changed", Host: host, Text: k.String()})
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// heldSettings are what a run has changed on a host.
type heldSettings struct {
	host string
	held *knobs.Held
}

// settingsHeld looks after the traffic whether settings are still what the run made them: other tools turn the same knobs,
// and what takes a folder of configfs away takes the setting in it out of sight (USERS S04).
func (r *Runner) settingsHeld(ctx context.Context) error {
	slices.SortFunc(r.settings, func(a, b heldSettings) int { return strings.Compare(a.host, b.host) })
	for _, s := range r.settings {
		changed, err := s.held.Changed(ctx)
		c := CheckResult{Name: "settings of " + s.host + " held to the end of the traffic", Verdict: Pass}
		var why []string
		for _, x := range changed {
			why = append(why, fmt.Sprintf("%v was %q when the traffic began and is %q after it: nobody knows since when", x.Knob, x.Made, x.Now))
		}
		switch {
		case len(why) > 0:
			c.Verdict, c.Reason = Fail, strings.Join(why, "; ")
		case err != nil:
			c.Verdict, c.Reason = Skip, "could not be looked at: "+err.Error()
		}
		r.result.Checks = append(r.result.Checks, c)
	}
	return nil
}
