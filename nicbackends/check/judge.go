package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends/facts"
)

// Verdict is what became of one thing that was looked at.
type Verdict string

// The verdicts. Warn is something that makes results worse or a run likely to fail later; Skip could not be judged.
const (
	Pass Verdict = "pass"
	Fail Verdict = "fail"
	Warn Verdict = "warn"
	Skip Verdict = "skip"
)

// Finding is one thing that was looked at.
type Finding struct {
	Host    string  `json:"host"`
	NIC     string  `json:"nic,omitempty"` // RDMA device or interface; "" for the host as a whole
	What    string  `json:"what"`
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found,omitempty"`
	Why     string  `json:"why,omitempty"` // of anything but a pass
	Fix     string  `json:"fix,omitempty"` // what to type, or to change in the lab file
}

// Answer is what a host said, or why it said nothing.
type Answer struct {
	Host  string
	Facts facts.Facts
	Err   error // not nil: it could not be asked, or not to the end
}

// Judge holds the answers against the lab. Findings come in the order of the lab's hosts.
func Judge(lab *inventory.Lab, answers []Answer) []Finding {
	var out []Finding
	asked := map[string]*Answer{}
	for i := range answers {
		asked[answers[i].Host] = &answers[i]
	}
	across := acrossHosts(lab, answers)
	for _, h := range lab.Hosts {
		a := asked[h.Name]
		if a == nil {
			continue
		}
		j := &judge{lab: lab, host: h, f: &a.Facts}
		j.answer(a.Err)
		if a.Facts.Hostname != "" { // it said something
			j.system()
			j.work()
			for i := range j.f.NICs {
				j.interfaceOf(i)
			}
		}
		out = append(out, j.out...)
		for _, f := range across {
			if f.Host == h.Name {
				out = append(out, f)
			}
		}
	}
	return out
}

// judge looks at one host.
type judge struct {
	lab  *inventory.Lab
	host *inventory.Host
	f    *facts.Facts
	nic  string // that is looked at
	out  []Finding
}

func (j *judge) say(v Verdict, what, found, why, fix string) {
	j.out = append(j.out, Finding{Host: j.host.Name, NIC: j.nic, What: what, Verdict: v, Found: found, Why: why, Fix: fix})
}

func (j *judge) pass(what string, found any) { j.say(Pass, what, fmt.Sprint(found), "", "") }

// need is a value that something can be said about; without one it skips and reports false.
func (j *judge) need(what string, v facts.Value) bool {
	if v.Known() {
		return true
	}
	j.say(Skip, what, "", v.Reason(), "")
	return false
}

// on is a command to type on the host, with sudo where the user is not root.
func (j *judge) on(format string, a ...any) string {
	sudo := "sudo "
	if strings.HasPrefix(string(j.f.User), "root ") || strings.HasSuffix(string(j.f.User), "(0)") {
		sudo = ""
	}
	return "on " + j.host.Name + ": " + sudo + fmt.Sprintf(format, a...)
}

func (j *judge) answer(err error) {
	if err == nil {
		j.pass("reach", j.f.Hostname)
		return
	}
	why, fix := text(err)
	j.say(Fail, "reach", "", why, fix)
}

// acrossHosts are findings that need several hosts.
func acrossHosts(lab *inventory.Lab, answers []Answer) []Finding {
	return append(sameMachine(lab, answers), perftestVersions(lab, answers)...)
}

// sameMachine: two hosts of the lab that are one machine would measure nothing.
func sameMachine(lab *inventory.Lab, answers []Answer) []Finding {
	var out []Finding
	first := map[string]string{}
	for _, a := range answers {
		if !a.Facts.BootID.Known() || !a.Facts.Hostname.Known() {
			continue
		}
		key := string(a.Facts.Hostname + "/" + a.Facts.BootID)
		if other, ok := first[key]; ok {
			out = append(out, Finding{Host: a.Host, What: "same machine", Verdict: Fail, Found: string(a.Facts.Hostname),
				Why: "is the same machine as host " + other + ": both say hostname " + string(a.Facts.Hostname) + ", boot id " + string(a.Facts.BootID),
				Fix: "check address: of both in " + lab.File + ", and HostName in ssh_config"})
			continue
		}
		first[key] = a.Host
	}
	return out
}

// perftestVersions: both ends must have the same perftest; its README says so, and mixes fail in odd ways (USERS O15).
func perftestVersions(lab *inventory.Lab, answers []Answer) []Finding {
	hosts := map[string][]string{} // by version
	for _, a := range answers {
		if kernelNIC(lab.Host(a.Host)) && a.Facts.Perftest.Known() {
			hosts[string(a.Facts.Perftest)] = append(hosts[string(a.Facts.Perftest)], a.Host)
		}
	}
	if len(hosts) < 2 {
		return nil
	}
	versions := make([]string, 0, len(hosts))
	for v := range hosts {
		versions = append(versions, v)
	}
	// What most hosts have is what the others should get.
	slices.SortFunc(versions, func(a, b string) int {
		return cmp.Or(len(hosts[b])-len(hosts[a]), strings.Compare(b, a))
	})
	var out []Finding
	for _, v := range versions[1:] {
		for _, h := range hosts[v] {
			out = append(out, Finding{Host: h, What: "perftest version", Verdict: Fail, Found: v,
				Why: fmt.Sprintf("%s on %s: both ends need the same version", versions[0], strings.Join(hosts[versions[0]], ", ")),
				Fix: "on " + h + ": install the perftest of " + hosts[versions[0]][0] + " (" + versions[0] + ")"})
		}
	}
	return out
}

// kernelNIC says that a host has a NIC that is driven by the kernel's RDMA stack and perftest.
func kernelNIC(h *inventory.Host) bool {
	return h != nil && slices.ContainsFunc(h.NICs, func(n *inventory.NIC) bool { return n.Backend != "softnic" })
}

// NotAsked says that some host did not answer to the end.
func NotAsked(answers []Answer) bool {
	return slices.ContainsFunc(answers, func(a Answer) bool { return a.Err != nil })
}

// Count counts findings by verdict.
func Count(f []Finding) map[Verdict]int {
	n := map[Verdict]int{}
	for _, x := range f {
		n[x.Verdict]++
	}
	return n
}
