package experiments

import (
	"context"
	"fmt"
	"strings"

	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends/facts"
)

// guardedHost says whether commands run under a guard on a host, and if not, why not. A host that does not say (of this process) is one.
func guardedHost(h remote.Host) (ok bool, why string) {
	if g, says := h.(interface{ Guarded() (bool, string) }); says {
		return g.Guarded()
	}
	return true, ""
}

// guarded is guardedHost of a host of the run.
func (r *Runner) guarded(host string) (ok bool, why string) { return guardedHost(r.hosts[host]) }

// plainWill says that a host's part in the run can be played by plain commands: it captures or is asked for counters, such as a switch that cannot take
// our binary. A host that sends, receives or has settings changed needs a guard, so that nothing is left on it.
func (r *Runner) plainWill(host string) bool {
	if r.ends()[host] != nil {
		return false
	}
	for _, s := range r.plan.Settings {
		if s.Host == host {
			return false
		}
	}
	return true
}

// plainDir makes the run's own folder on a host that has no guard.
func (r *Runner) plainDir(ctx context.Context, h remote.Host) (string, error) {
	const step = "make the run's folder"
	res, err := h.Run(ctx, remote.Cmd{Args: []string{"sh", "-c", `mktemp -d "${TMPDIR:-/tmp}/pcmlab-XXXXXXXX"`}, Step: step})
	dir := strings.TrimSpace(string(res.Stdout))
	if err == nil && (res.Code != 0 || !strings.HasPrefix(dir, "/")) {
		err = &remote.Error{Host: h.Name(), Step: step, Err: fmt.Errorf("exit status %d (%s)", res.Code, lastLine(append(res.Stdout, res.Stderr...)))}
	}
	return dir, err
}

// syncOf is what a host says keeps its clock right: PTP before what else there is.
func syncOf(f Facts) string {
	var parts []string
	for _, v := range []struct {
		name  string
		value facts.Value
	}{{"ptp", f.PTP}, {"system clock", f.ClockSync}} {
		if v.value.Known() {
			parts = append(parts, v.name+": "+string(v.value))
		}
	}
	return strings.Join(parts, "; ")
}
