package docapcc

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/nicbackends/docapcc/keeper"
)

// Ready implements nicbackends.Deployer. What a handler that is not known needs is what one needs that lives on round trips.
func (b Backend) Ready(ctx context.Context, d nicbackends.Deployment, sends bool) (r nicbackends.Readiness, err error) {
	o := b.order(d)
	o.Answers, o.Probes = !sends, true
	if sends && len(d.NIC.Handlers) > 0 {
		p, err := loaded(d)
		if err != nil {
			return r, err
		}
		o.Name, o.Probes = p.Name, probes(p)
	}
	c, err := b.check(ctx, d, o)
	if err != nil {
		return r, err
	}
	return nicbackends.Readiness{Conditions: conditions(c, sends), Notes: c.Found.Notes}, nil
}

// conditions are what stands in the way, and then what does not.
func conditions(c keeper.Checked, sends bool) (all []nicbackends.Condition) {
	wrong := map[string]bool{}
	f := c.Found
	for _, p := range c.Problems {
		wrong[p.What] = true
		found := ""
		if s, ok := f.Settings[p.What]; ok && s.Running+s.Staged != "" {
			found = setting(s)
		}
		all = append(all, nicbackends.Condition{What: p.What, State: nicbackends.Lacks, Found: found, Why: p.Why, Fix: p.Fix})
	}
	if wrong["device"] {
		return all
	}
	add := func(what, found string) {
		if !wrong[what] {
			all = append(all, nicbackends.Condition{What: what, Found: found})
		}
	}
	firmware := fmt.Sprintf("%s of %s, floor: %s", f.Firmware, f.Model, f.Floor)
	if add("firmware", firmware); f.Floor == keeper.Unknown && !wrong["firmware"] {
		all[len(all)-1].State, all[len(all)-1].Why = nicbackends.NotKnown, "NVIDIA publishes a floor for BlueField-3 alone"
	}
	add("link type", f.Link)
	for _, name := range slices.Sorted(maps.Keys(f.Settings)) {
		s := f.Settings[name]
		switch add(name, setting(s)); {
		case wrong[name]:
		case s.Running+s.Staged == "":
			all[len(all)-1].Found = "not known to this NIC, hence off"
		case s.Running != s.Staged && s.Running != "":
			all[len(all)-1].State, all[len(all)-1].Why = nicbackends.HoldsNow, "the next boot changes it"
			all[len(all)-1].Fix = fmt.Sprintf("stage what runs: mlxconfig set %s=%s", name, s.Need)
		}
	}
	if sends && !wrong["register PPCC"] {
		var slots []string
		for _, s := range f.Slots {
			if s.Enabled {
				slots = append(slots, fmt.Sprintf("%s in slot %d", s.About, s.Slot))
			}
		}
		add("owner", "no handler; the NIC runs "+strings.Join(append(slots, "nothing")[:max(len(slots), 1)], ", "))
	}
	return all
}

func setting(s keeper.Setting) string {
	running := s.Running
	if running == "" {
		running = "?"
	}
	return fmt.Sprintf("runs %s, staged %s", running, s.Staged)
}
