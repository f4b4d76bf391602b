package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
)

// text splits an error of a host into what is wrong and how to mend it; the host's name stands beside it already.
func text(err error) (why, fix string) {
	var e *remote.Error
	if !errors.As(err, &e) {
		return err.Error(), ""
	}
	c := *e
	c.Host, c.Fix = "", ""
	return c.Error(), e.Fix
}

const (
	clockWarn = 10 * time.Millisecond // beyond the measurement's own error: captures are aligned by estimates of their own
	clockFail = time.Second           // logs and certificates go wrong, and a stepped clock looks like this

	diskFail = 100 << 10 // KiB free for pcmlab itself and a run's files
	diskWarn = 400 << 10 // on a host that captures

	memlockNeed = 64 << 10 // KiB: what perftest registers and its queues
)

// system looks at what the host itself is.
func (j *judge) system() {
	j.clock()
	j.sudo()
	j.tools()
	j.memlock()
	j.disk()
	j.capture()
	j.tuning()
}

func (j *judge) clock() {
	if p := capture.ParsePTP(string(j.f.PTP)); j.f.PTP.Known() && p != nil {
		if why := p.Trouble(); why != "" {
			j.say(Warn, "PTP", string(j.f.PTP), why+": times of captures are no better than the comparisons over SSH", j.on("pmc -u -b 0 'GET PORT_DATA_SET'; journalctl -u ptp4l"))
		} else {
			j.pass("PTP", j.f.PTP)
		}
	} else {
		j.say(Skip, "PTP", "", j.f.PTP.Reason(), "")
	}
	o := j.f.Offset
	if o == nil || o.Why != "" {
		why := "not measured"
		if o != nil {
			why = o.Why
		}
		j.say(Skip, "clock", "", why, "")
		return
	}
	found := fmt.Sprintf("%+.1f ms ± %.1f ms", o.Offset.Seconds()*1e3, o.Error.Seconds()*1e3)
	fix := j.on("chronyc makestep, or systemctl restart systemd-timesyncd")
	if !j.f.ClockSync.Known() {
		fix = j.on("apt-get install chrony")
	}
	switch beyond := o.Offset.Abs() - o.Error; {
	case beyond > clockFail:
		j.say(Fail, "clock", found, "far from this machine's clock", fix)
	case beyond > clockWarn:
		j.say(Warn, "clock", found, "off from this machine's clock", fix)
	default:
		j.pass("clock", found)
	}
}

func (j *judge) sudo() {
	switch {
	case strings.HasSuffix(string(j.f.User), "(0)"):
		j.pass("sudo", "not needed: "+j.f.User)
	case !j.host.Sudo:
		j.say(Skip, "sudo", string(j.f.User), "the lab file does not ask for it (sudo: true)", "")
	case j.f.Sudo.Known():
		j.pass("sudo", j.f.Sudo)
	default:
		user, _, _ := strings.Cut(string(j.f.User), " (")
		j.say(Fail, "sudo", string(j.f.User), j.f.Sudo.Reason(),
			fmt.Sprintf("on %s, as root: echo '%s ALL=(root) NOPASSWD: ALL' > /etc/sudoers.d/pcmlab", j.host.Name, user))
	}
}

// tools are those without which a run cannot be made with the host's NICs and role, and those that make it better.
func (j *judge) tools() {
	type tool struct{ name, pkg, why string }
	var must, may []tool
	for _, n := range j.host.NICs {
		if n.Backend != "softnic" {
			must = append(must, tool{"ib_write_bw", "perftest", "it makes the traffic"})
			may = append(may, tool{"ip", "iproute2", "addresses are read with it"}, tool{"ethtool", "ethtool", "link and offloads are read with it"})
		}
		if n.ConnectX() && j.f.Tools["dcb"] == "" {
			may = append(may, tool{"mlnx_qos", "MLNX_OFED or DOCA-Host; dcb of iproute2 does as well", "PFC and maps are read with it"})
		}
	}
	for _, s := range j.lab.Switches {
		if s.Host == j.host.Name && (s.Backend == "" || s.Backend == inventory.LinuxSwitch) {
			must = append(must, tool{"tc", "iproute2", "the switch's queues are set with it"})
		}
	}
	missing := false
	for i, list := range [][]tool{must, may} {
		for k, t := range list {
			if j.f.Tools[t.name] != "" || slices.Contains(list[:k], t) {
				continue
			}
			missing = true
			v := Fail
			if i == 1 {
				v = Warn
			}
			fix := j.on("apt-get install %s", t.pkg)
			if strings.Contains(t.pkg, " ") {
				fix = "on " + j.host.Name + ": install " + t.pkg
			}
			j.say(v, "tool "+t.name, "", "not installed: "+t.why, fix)
		}
	}
	if !missing && len(must) > 0 {
		j.pass("tools", len(must)+len(may))
	}
	if kernelNIC(j.host) {
		if j.need("perftest", j.f.Perftest) {
			j.pass("perftest", j.f.Perftest)
		}
		if j.need("rdma-core", j.f.RDMACore) {
			j.pass("rdma-core", j.f.RDMACore)
		}
	}
}

func (j *judge) memlock() {
	if !kernelNIC(j.host) || !j.need("memlock", j.f.Memlock) {
		return
	}
	kib, ok := j.f.Memlock.Int()
	root := strings.HasSuffix(string(j.f.User), "(0)")
	switch {
	case j.f.Memlock == "unlimited":
		j.pass("memlock", "unlimited")
	case ok && kib < memlockNeed && !root: // root has CAP_IPC_LOCK
		j.say(Fail, "memlock", fmt.Sprintf("%d KiB", kib), fmt.Sprintf("RDMA pins memory: at least %d KiB are needed", memlockNeed),
			j.on("sh -c 'echo \"* - memlock unlimited\" > /etc/security/limits.d/rdma.conf', then log in again"))
	default:
		j.pass("memlock", string(j.f.Memlock)+" KiB")
	}
}

func (j *judge) disk() {
	if !j.need("disk", j.f.DiskKB) {
		return
	}
	kib, _ := j.f.DiskKB.Int()
	found := fmt.Sprintf("%.1f GiB free", float64(kib)/(1<<20))
	captures := slices.ContainsFunc(j.lab.Taps, func(t *inventory.Tap) bool { return t.Host == j.host.Name })
	fix := "on " + j.host.Name + ": du -sh ~/.cache/pcmlab; pcmlab cleanup --all-mine -i " + j.lab.File
	switch {
	case kib < diskFail:
		j.say(Fail, "disk", found, fmt.Sprintf("at least %d MiB are needed in ~/.cache", diskFail>>10), fix)
	case captures && kib < diskWarn:
		j.say(Warn, "disk", found, "captures are written there, and are cut when it is full", fix)
	default:
		j.pass("disk", found)
	}
}

func (j *judge) capture() {
	for _, t := range j.lab.Taps {
		if t.Host != j.host.Name {
			continue
		}
		if j.f.Capture.Known() {
			j.pass("capture", j.f.Capture)
		} else {
			j.say(Fail, "capture", string(j.f.User), "may not capture packets: "+j.f.Capture.Reason(), "write sudo: true for host "+j.host.Name+" in "+j.lab.File+", and let its user use sudo without a password")
		}
		return
	}
}

func (j *judge) tuning() {
	if len(j.host.NICs) == 0 {
		return
	}
	if j.need("CPU governor", j.f.Governor) {
		if j.f.Governor == "performance" {
			j.pass("CPU governor", j.f.Governor)
		} else {
			j.say(Warn, "CPU governor", string(j.f.Governor), "CPUs that change their speed make small messages and rates vary", j.on("cpupower frequency-set -g performance"))
		}
	}
	if j.need("clock source", j.f.ClockSource) {
		if slices.Contains([]string{"hpet", "acpi_pm", "jiffies", "refined-jiffies"}, string(j.f.ClockSource)) {
			j.say(Warn, "clock source", string(j.f.ClockSource), "reading the time is slow with it", j.on("sh -c 'echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource'"))
		} else {
			j.pass("clock source", j.f.ClockSource)
		}
	}
	if j.need("huge pages", j.f.HugePages) {
		j.pass("huge pages", j.f.HugePages)
	}
}

// work is what earlier runs left, and who holds what a run needs.
func (j *judge) work() {
	at := func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
	said := map[string]bool{}
	for _, l := range j.f.Leftovers {
		found := "of " + l.Owner
		if l.Run != "" {
			found = fmt.Sprintf("run %s of %s", l.Run, l.Owner)
		}
		if !l.At.IsZero() {
			found += " since " + at(l.At)
		}
		switch {
		case l.Alive && l.Run == "":
			j.say(Warn, "lock", found, fmt.Sprintf("%s; until %s", l.What, at(l.Until)), "ask "+l.Owner+"; pcmlab who -i "+j.lab.File)
		case l.Alive && said[l.Run]: // its guards and its lock are one run
		case l.Alive:
			said[l.Run] = true
			j.say(Warn, "run at work", found, fmt.Sprintf("%s, process %d", l.What, l.PID), "wait for it, or pcmlab stop "+l.Run)
		default:
			j.say(Fail, "leftover", found, "its guard had to act, or the host went down: "+l.What, fmt.Sprintf("pcmlab cleanup --run %s -i %s", l.Run, j.lab.File))
		}
	}
	if len(j.f.Leftovers) == 0 {
		j.pass("leftovers", "none")
	}
}
