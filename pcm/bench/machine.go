package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Core is a hardware thread.
type Core struct {
	ID       int
	Siblings []int // threads of the same core, itself not included
	Node     int   // of memory
}

// Cores reads what is known of the hardware threads that may be used. sys is /sys; what it does not say is taken for: no siblings, one node.
func Cores(sys string, usable []int) []Core {
	var all []Core
	for _, id := range usable {
		c := Core{ID: id}
		dir := filepath.Join(sys, "devices/system/cpu", "cpu"+strconv.Itoa(id))
		for _, s := range list(filepath.Join(dir, "topology/thread_siblings_list")) {
			if s != id && slices.Contains(usable, s) {
				c.Siblings = append(c.Siblings, s)
			}
		}
		if nodes, _ := filepath.Glob(filepath.Join(dir, "node[0-9]*")); len(nodes) == 1 {
			c.Node, _ = strconv.Atoi(strings.TrimPrefix(filepath.Base(nodes[0]), "node"))
		}
		all = append(all, c)
	}
	return all
}

// list reads a file such as 0-3,8.
func list(file string) []int {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var all []int
	for _, part := range strings.Split(strings.TrimSpace(string(data)), ",") {
		from, to, span := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		if err != nil {
			return nil
		}
		b := a
		if span {
			if b, err = strconv.Atoi(to); err != nil || b-a > 4096 {
				return nil
			}
		}
		for ; a <= b; a++ {
			all = append(all, a)
		}
	}
	return all
}

// Spread takes n threads for workers, one a core as long as there are cores, then their siblings.
func Spread(cores []Core, n int) ([]int, error) {
	var first, rest []int
	used := map[int]bool{}
	for _, c := range cores {
		if used[c.ID] {
			rest = append(rest, c.ID)
			continue
		}
		first = append(first, c.ID)
		for _, s := range c.Siblings {
			used[s] = true
		}
	}
	all := append(first, rest...)
	if n > len(all) {
		return nil, fmt.Errorf("%d workers: this machine has %d threads to pin them to", n, len(all))
	}
	return all[:n], nil
}

// Placement is where the control plane runs, seen from the datapath's core.
type Placement struct {
	Name     string // "SMT sibling", "cores" of one memory node, "nodes"
	Datapath int
	Control  int
}

// Placements are those that the machine has, nearest first, from its first core.
func Placements(cores []Core) []Placement {
	var all []Placement
	if len(cores) == 0 {
		return nil
	}
	from := cores[0]
	add := func(name string, ok func(Core) bool) {
		for _, c := range cores[1:] {
			if ok(c) {
				all = append(all, Placement{name, from.ID, c.ID})
				return
			}
		}
	}
	sibling := func(c Core) bool { return slices.Contains(from.Siblings, c.ID) }
	add("SMT sibling", sibling)
	add("cores", func(c Core) bool { return !sibling(c) && c.Node == from.Node })
	add("nodes", func(c Core) bool { return !sibling(c) && c.Node != from.Node })
	return all
}

// Ticks are the times that all cores have spent, in ticks of the clock.
type Ticks struct{ Busy, All uint64 }

// ReadTicks reads them of a file such as /proc/stat; time that a hypervisor gave to others counts as busy.
func ReadTicks(file string) (Ticks, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Ticks{}, err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return Ticks{}, fmt.Errorf("%s: no line of all cores", file)
	}
	var t Ticks
	for i, text := range f[1:9] { // user nice system idle iowait irq softirq steal; guests are in user
		v, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return Ticks{}, fmt.Errorf("%s: %q is no number", file, text)
		}
		t.All += v
		if i != 3 && i != 4 {
			t.Busy += v
		}
	}
	return t, nil
}

// Load is the share of the machine that others used between two readings, when we used own seconds of it and there are hz ticks a second.
func Load(before, after Ticks, own, hz float64) float64 {
	all := float64(after.All - before.All)
	if all <= 0 {
		return 0
	}
	return max(0, (float64(after.Busy-before.Busy)-own*hz)/all)
}
