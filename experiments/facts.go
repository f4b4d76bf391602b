package experiments

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/inventory/remote"
)

// Facts say what a host is. A fact that could not be read holds "unavailable: reason".
type Facts struct {
	Hostname string `json:"hostname"`
	BootID   string `json:"boot_id"`
	Kernel   string `json:"kernel"`
	Machine  string `json:"machine"`
	System   string `json:"system"` // PRETTY_NAME of os-release
	CPUs     string `json:"cpus"`
	CPU      string `json:"cpu"`
	Clock    string `json:"clock_source"`
	ClockNS  string `json:"clock_ns"` // when the facts were read, by the host's clock
}

// factCommands print one fact each; a tag in front tells them apart.
var factCommands = []struct {
	name, command string
	set           func(*Facts, string)
}{
	{"hostname", "hostname", func(f *Facts, v string) { f.Hostname = v }},
	{"boot_id", "cat /proc/sys/kernel/random/boot_id", func(f *Facts, v string) { f.BootID = v }},
	{"kernel", "uname -r", func(f *Facts, v string) { f.Kernel = v }},
	{"machine", "uname -m", func(f *Facts, v string) { f.Machine = v }},
	{"system", `sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release`, func(f *Facts, v string) { f.System = v }},
	{"cpus", "getconf _NPROCESSORS_ONLN", func(f *Facts, v string) { f.CPUs = v }},
	{"cpu", "sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1", func(f *Facts, v string) { f.CPU = v }},
	{"clock", "cat /sys/devices/system/clocksource/clocksource0/current_clocksource", func(f *Facts, v string) { f.Clock = v }},
	{"clock_ns", "date +%s%N", func(f *Facts, v string) { f.ClockNS = v }},
}

// readFacts asks all of it with one command, which also makes the run's folder; "" makes none.
func readFacts(ctx context.Context, h remote.Host, dir string) (Facts, error) {
	var script strings.Builder
	if dir != "" {
		fmt.Fprintf(&script, "mkdir -p '%s' || exit 1\n", strings.ReplaceAll(dir, "'", `'\''`))
	}
	for _, c := range factCommands {
		fmt.Fprintf(&script, "printf '%%s\\t%%s\\n' %s \"$( { %s; } 2>&1 || echo \"unavailable: exit status $?\" )\"\n", c.name, c.command)
	}
	var f Facts
	res, err := h.Run(ctx, remote.Cmd{Args: []string{"sh", "-c", script.String()}, Step: "read what the host is", Deadline: 20 * time.Second})
	if err != nil {
		return f, err
	}
	if res.Code != 0 && dir != "" {
		return f, &remote.Error{Host: h.Name(), Step: "make the run's folder " + dir, Err: fmt.Errorf("exit status %d (%s)", res.Code, lastLine(res.Stderr))}
	}
	found := map[string]string{}
	for line := range strings.Lines(string(res.Stdout)) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok {
			found[name] = value
		}
	}
	for _, c := range factCommands {
		v, ok := found[c.name]
		if !ok || v == "" {
			v = "unavailable: nothing was printed"
		}
		c.set(&f, v)
	}
	return f, nil
}

func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}
