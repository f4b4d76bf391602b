package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"github.com/pcmlab/pcmlab/inventory/remote/knobs/mft"
)

// need is a setting of the firmware without which handlers do not run, or run blind.
type need struct{ name, value, why string }

// What a NIC needs that runs handlers (the reaction point), and one that answers their probes (the notification point), by the DOCA PCC guide, 3.3.
var (
	reaction = []need{{"USER_PROGRAMMABLE_CC", "1", "the NIC takes no programs for congestion control"}}
	probing  = []need{{"REAL_TIME_CLOCK_ENABLE", "1", "timestamps are not those of the real-time clock"},
		{"ROCE_CC_RTT_TIMESTAMP_FORMAT", "2", "probes carry no such timestamps: the handler would be blind to round trips"}}
	answering = []need{{"PCC_INT_EN", "0", "the legacy notification point takes probes away"},
		{"REAL_TIME_CLOCK_ENABLE", "1", "timestamps are not those of the real-time clock"},
		{"FLEX_PARSER_PROFILE_ENABLE", "10", "answers to probes carry no timestamps"}}
)

func (o *Order) needs() []need {
	switch {
	case o.Answers:
		return answering
	case o.Probes:
		return append(append([]need(nil), reaction...), probing...)
	}
	return reaction
}

// families whose floor of firmware NVIDIA publishes. That of the DOCA PCC guide is BlueField-3's; for other families there is none, and
// theirs is not to be guessed from it.
var families = map[string]struct{ name, floor string }{
	"MT41692": {"BlueField-3", "32.38.1000"}, "MT4129": {"ConnectX-7", ""}, "MT4131": {"ConnectX-8", ""}, "MT41686": {"BlueField-2", ""},
	"MT4125": {"ConnectX-6 Dx", ""}, "MT4127": {"ConnectX-6 Lx", ""}, "MT4123": {"ConnectX-6", ""}, "MT4119": {"ConnectX-5", ""},
}

// Unknown is what cannot be read, and a floor that is not published.
const Unknown = "unknown"

// looker reads a host.
type looker struct {
	o   *Order
	run runner

	found    Found
	problems []Problem
}

func (l *looker) wrong(what, fix, format string, args ...any) {
	l.problems = append(l.problems, Problem{what, fmt.Sprintf(format, args...), fix})
}

func (l *looker) note(format string, args ...any) {
	l.found.Notes = append(l.found.Notes, fmt.Sprintf(format, args...))
}

func (l *looker) file(path ...string) string {
	data, err := os.ReadFile(filepath.Join(append([]string{l.o.Root + "/sys/class/infiniband", l.o.Device}, path...)...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// look finds everything that stands in the way, all at once. It changes nothing.
func (l *looker) look(ctx context.Context) {
	l.found = Found{Floor: Unknown, Settings: map[string]Setting{}, Slots: []Slot{}}
	if os.Geteuid() != 0 && !l.o.AnyUser {
		l.wrong("user", "write sudo: true for the host in the lab file", "programs of the NIC run with root's permissions alone")
	}
	dir := filepath.Join(l.o.Root+"/sys/class/infiniband", l.o.Device)
	if _, err := os.Stat(dir); err != nil {
		l.wrong("device", "", "there is no %s; this host has %s", l.o.Device, l.devices())
		return
	}
	l.firmware()
	l.found.Link = cmp.Or(l.file("ports", strconv.Itoa(l.o.port()), "link_layer"), Unknown)
	if l.found.Link != "Ethernet" {
		l.wrong("link type", fmt.Sprintf("mlxconfig -d %s -y set LINK_TYPE_P%d=2, then switch its power off and on", l.o.Device, l.o.port()), "port %d is %s: DOCA PCC works on Ethernet alone", l.o.port(), l.found.Link)
	}
	l.settings(ctx)
	if l.o.Answers {
		return
	}
	slots, err := l.ppcc().slots(ctx)
	if err != nil {
		l.wrong("register PPCC", "install NVIDIA's firmware tools (MFT), and see that the firmware has programmable congestion control", "%v", err)
		return
	}
	l.found.Slots = slots
	for _, s := range slots {
		if s.Slot == ourSlot && s.Enabled && strings.HasPrefix(s.About, "pcm ") {
			l.wrong("owner", "end it: pcmlab who, or see which process has the device open"+l.users(), "the NIC runs a PCM handler already (%s)", s.About)
		}
	}
}

func (l *looker) ppcc() ppcc { return ppcc{l.run, l.o.Device, l.o.port()} }

func (l *looker) devices() string {
	entries, _ := os.ReadDir(l.o.Root + "/sys/class/infiniband")
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return cmp.Or(strings.Join(names, ", "), "no RDMA device")
}

func (l *looker) firmware() {
	hca := l.file("hca_type")
	f := families[hca]
	l.found.Model, l.found.Firmware = cmp.Or(f.name, hca, Unknown), cmp.Or(l.file("fw_ver"), Unknown)
	if f.floor == "" {
		l.note("firmware %s of %s: floor unknown, none is published for this family", l.found.Firmware, l.found.Model)
		return
	}
	l.found.Floor = f.floor
	older, err := before(l.found.Firmware, f.floor)
	switch {
	case err != nil:
		l.wrong("firmware", "", "%v", err)
	case older:
		l.wrong("firmware", "update it: mlxfwmanager -d "+l.o.Device+" --online -u", "%s of %s is older than %s, from which on it runs programs", l.found.Firmware, l.found.Model, f.floor)
	}
}

// before says that version a is older than b: three numbers each.
func before(a, b string) (bool, error) {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	if len(x) != 3 {
		return false, fmt.Errorf("%q is no version", a)
	}
	for i := range x {
		m, err := strconv.Atoi(x[i])
		if err != nil {
			return false, fmt.Errorf("%q is no version", a)
		}
		if n, _ := strconv.Atoi(y[i]); m != n {
			return m < n, nil
		}
	}
	return false, nil
}

// settings holds what runs and what is staged against what is needed.
func (l *looker) settings(ctx context.Context) {
	needs := l.o.needs()
	all, err := l.query(ctx, needs)
	if err != nil {
		l.wrong("firmware settings", "install NVIDIA's firmware tools (MFT)", "%v", err)
		return
	}
	var set, cycle []string
	for _, n := range needs {
		c, there := all[n.name]
		if !there {
			l.found.Settings[n.name] = Setting{Need: n.value}
			if n.value == "0" {
				l.note("%s is not known to this NIC", n.name)
			} else {
				l.wrong(n.name, "", "is not known to this NIC, need %s: %s", n.value, n.why)
			}
			continue
		}
		running, told := c.Running()
		s := Setting{Running: running, Staged: c.Next, Need: n.value}
		if !told {
			s.Running = ""
			l.note("the firmware does not tell what runs: %s is what is staged", n.name)
		}
		l.found.Settings[n.name] = s
		switch {
		case mft.Same(running, n.value) && mft.Same(c.Next, n.value):
		case mft.Same(running, n.value):
			l.note("%s runs with %s, but %s is staged: the next boot changes it", n.name, running, c.Next)
		case mft.Same(c.Next, n.value):
			cycle = append(cycle, n.name)
			l.problems = append(l.problems, Problem{n.name, fmt.Sprintf("is %s, and %s is only staged: %s", running, c.Next, n.why), ""})
		default:
			set = append(set, n.name+"="+n.value)
			l.problems = append(l.problems, Problem{n.name, fmt.Sprintf("is %s, need %s: %s", running, n.value, n.why), ""})
		}
	}
	const power = "shut the host down and switch its power off and on (a reboot is not enough)"
	switch {
	case len(set) > 0:
		l.problems[len(l.problems)-1].Fix = "mlxconfig -d " + l.o.Device + " -y set " + strings.Join(set, " ") + ", then " + power
	case len(cycle) > 0:
		l.problems[len(l.problems)-1].Fix = power
	}
}

// query asks for the settings. One that the NIC does not have makes the tool refuse all: it is asked again without.
func (l *looker) query(ctx context.Context, needs []need) (map[string]mft.Config, error) {
	var names []string
	for _, n := range needs {
		names = append(names, n.name)
	}
	for len(names) > 0 {
		out, err := l.run(ctx, mft.QueryArgs(l.o.Device, names...))
		if err == nil {
			return mft.ParseQuery(out)
		}
		rest := names[:0:0]
		missing := mft.Unsupported(err.Error())
		for _, n := range names {
			if n != missing {
				rest = append(rest, n)
			}
		}
		if len(rest) == len(names) {
			return nil, err
		}
		names = rest
	}
	return map[string]mft.Config{}, nil
}

// users says which processes have the device open; "" none that can be seen.
func (l *looker) users() string {
	root := l.o.Root
	verbs, _ := filepath.Glob(root + "/sys/class/infiniband_verbs/uverbs*")
	node := ""
	for _, v := range verbs {
		if data, err := os.ReadFile(filepath.Join(v, "ibdev")); err == nil && strings.TrimSpace(string(data)) == l.o.Device {
			node = "/dev/infiniband/" + filepath.Base(v)
		}
	}
	if node == "" {
		return ""
	}
	links, _ := filepath.Glob(root + "/proc/[0-9]*/fd/*")
	seen := map[string]bool{}
	var names []string
	for _, link := range links {
		if to, err := os.Readlink(link); err != nil || to != node {
			continue
		}
		pid := filepath.Base(filepath.Dir(filepath.Dir(link)))
		if seen[pid] {
			continue
		}
		seen[pid] = true
		comm, _ := os.ReadFile(filepath.Join(root+"/proc", pid, "comm"))
		names = append(names, fmt.Sprintf("%s %s", pid, strings.TrimSpace(string(comm))))
	}
	if len(names) == 0 {
		return ""
	}
	sort.Strings(names)
	return "; " + l.o.Device + " is open in process " + strings.Join(names, ", ")
}

// joined makes one error of problems.
func joined(problems []Problem) error {
	var errs []error
	for _, p := range problems {
		errs = append(errs, errors.New(p.String()))
	}
	return errors.Join(errs...)
}
