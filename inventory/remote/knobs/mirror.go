package knobs

import (
	"errors"
	"fmt"
	"strings"
)

// mirrorPref is the preference of our filters among those of an interface.
const mirrorPref = "4791"

// Which packets of a port are mirrored, as the port sees them. "" is both.
const (
	Ingress = "ingress" // what it receives
	Egress  = "egress"  // what it sends
	Both    = "both"
)

func (k Knob) directions() []string {
	switch k.Direction {
	case Ingress, Egress:
		return []string{k.Direction}
	}
	return []string{Ingress, Egress}
}

func (k Knob) checkMirror() error {
	var errs []error
	if (k.Mirror == "") != (k.To == "") {
		errs = append(errs, errors.New("mirror and to belong together: the interface whose packets are copied, and that which gets the copies"))
	}
	if k.Mirror != "" && k.Mirror == k.To {
		errs = append(errs, fmt.Errorf("mirror %s to itself: its own copies would be copied again", k.Mirror))
	}
	for _, name := range []string{k.Mirror, k.To} {
		if strings.HasPrefix(name, "-") || strings.ContainsAny(name, " \t\n/") {
			errs = append(errs, fmt.Errorf("%q is no name of an interface", name))
		}
	}
	switch k.Direction {
	case "", Ingress, Egress, Both:
	default:
		errs = append(errs, fmt.Errorf("direction %q: known are ingress, egress and both", k.Direction))
	}
	if k.Direction != "" && k.Mirror == "" {
		errs = append(errs, errors.New("direction belongs to mirror and to"))
	}
	return errors.Join(errs...)
}

// showMirror prints the filters of an interface, and what they hang on; nothing of it counts.
func (k Knob) showMirror() []string {
	return []string{"sh", "-c", `tc qdisc show dev "$1" && for d in ingress egress; do echo "$d:" && tc filter show dev "$1" $d || exit 1; done`, "show", k.Mirror}
}

// settledMirror says how a mirror is made and undone. What somebody made there stays (tc-mirred(8), tc-u32(8); matchall is not in every kernel).
func (k Knob) settledMirror(before string) (Knob, error) {
	if strings.Contains(before, " pref "+mirrorPref+" ") {
		return k, fmt.Errorf("%s has a filter with preference %s already, which somebody made: remove it first (tc filter del dev %s ingress pref %s), or give show, do and undo", k.Mirror, mirrorPref, k.Mirror, mirrorPref)
	}
	dev, to := quote(k.Mirror), quote(k.To)
	lines := []string{"set -e", "ip link show dev " + to + " >/dev/null"}
	undo := []string{"set -e"}
	if strings.Contains(before, "qdisc clsact ") {
		for _, d := range k.directions() {
			undo = append(undo, fmt.Sprintf("tc filter del dev %s %s pref %s", dev, d, mirrorPref))
		}
	} else {
		lines = append(lines, "tc qdisc add dev "+dev+" clsact")
		undo = append(undo, "tc qdisc del dev "+dev+" clsact")
	}
	for _, d := range k.directions() {
		lines = append(lines, fmt.Sprintf("tc filter add dev %s %s pref %s protocol all u32 match u32 0 0 action mirred egress mirror dev %s", dev, d, mirrorPref, to))
	}
	k.Do = []string{"sh", "-c", strings.Join(lines, "\n")}
	k.Undo = []string{"sh", "-c", strings.Join(undo, "\n")}
	return k, nil
}
