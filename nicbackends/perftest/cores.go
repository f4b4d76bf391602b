package perftest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pcmlab/pcmlab/inventory/remote"
)

// Cores are the CPU cores of a host on which traffic processes of one NIC belong.
type Cores struct {
	Node    int    // NUMA node of the NIC; -1: the machine has one, or the device has none
	List    []int  // usable cores near the NIC, ascending; empty: no pinning
	Taskset bool   // taskset(1) is there
	Note    string // why List is empty, or what is odd
}

// ParseCPUList reads a kernel CPU list such as "0-3,8,10-11".
func ParseCPUList(s string) ([]int, error) {
	var out []int
	for _, part := range strings.Split(strings.TrimSpace(s), ",") {
		if part == "" {
			continue
		}
		first, last, isRange := strings.Cut(part, "-")
		lo, err := strconv.Atoi(first)
		hi := lo
		if err == nil && isRange {
			hi, err = strconv.Atoi(last)
		}
		if err != nil || lo < 0 || hi < lo || hi > 1<<16 {
			return nil, fmt.Errorf("CPU list %q: %q is not N or N-M", s, part)
		}
		for c := lo; c <= hi; c++ {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// coresScript prints what is known of the cores near interface $1, in lines of KEY VALUE.
const coresScript = `d=/sys/class/net/$1/device
echo "numa $(cat "$d/numa_node" 2>/dev/null)"
echo "local $(cat "$d/local_cpulist" 2>/dev/null)"
echo "allowed $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)"
command -v taskset >/dev/null && echo "taskset yes"
exit 0`

// ReadCores asks a host for the cores near a network interface, with one command.
func ReadCores(ctx context.Context, h remote.Host, netdev string) (Cores, error) {
	step := "read the cores near " + netdev
	res, err := h.Run(ctx, remote.Cmd{Args: []string{"sh", "-c", coresScript, "sh", netdev}, Step: step, Plain: true})
	if err != nil {
		return Cores{}, err
	}
	c, err := parseCores(string(res.Stdout))
	if err != nil {
		return Cores{}, fmt.Errorf("host %s: %s: %w", h.Name(), step, err)
	}
	return c, nil
}

func parseCores(text string) (Cores, error) {
	c := Cores{Node: -1}
	values := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		k, v, _ := strings.Cut(line, " ")
		values[k] = strings.TrimSpace(v)
	}
	c.Taskset = values["taskset"] == "yes"
	if v := values["numa"]; v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			return Cores{}, fmt.Errorf("numa_node %q: not a number", v)
		}
		c.Node = n
	}
	near, err := ParseCPUList(values["local"])
	if err != nil {
		return Cores{}, err
	}
	allowed, err := ParseCPUList(values["allowed"])
	if err != nil {
		return Cores{}, err
	}
	switch {
	case len(near) == 0:
		c.Note = "not pinned: the interface has no hardware device, hence no cores of its own"
	case !c.Taskset:
		c.Note = "not pinned: taskset is not on the host (Debian: util-linux)"
	default:
		c.List = near
		if len(allowed) > 0 {
			c.List = slices.DeleteFunc(near, func(n int) bool { return !slices.Contains(allowed, n) })
		}
		if len(c.List) == 0 {
			c.Note = fmt.Sprintf("not pinned: none of the NIC's cores (%s) is allowed here (%s)", values["local"], values["allowed"])
		}
	}
	return c, nil
}

// Assign gives each of n processes a core of its own. With more processes than cores it starts over; shared says so.
func (c Cores) Assign(n int) (cores []int, shared bool) {
	if len(c.List) == 0 {
		return nil, false
	}
	for i := range n {
		cores = append(cores, c.List[i%len(c.List)])
	}
	return cores, n > len(c.List)
}

// pinned is argv on one core.
func pinned(core int, argv []string) []string {
	return append([]string{"taskset", "-c", strconv.Itoa(core)}, argv...)
}
