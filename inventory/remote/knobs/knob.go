package knobs

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pcmlab/pcmlab/inventory/remote/knobs/mft"
)

// Knob is one setting: a file, a queueing discipline, a mirror session, the connection manager's type of service, settings of dcb
// or of one of NVIDIA's tools, or commands.
type Knob struct {
	// File has one value: all of it, or the word in brackets where the kernel lists what can be chosen.
	File  string `json:"file,omitempty"`
	Value string `json:"value,omitempty"`

	// CMToS is an RDMA device whose queue pairs of the connection manager have type of service Value unless their program
	// says otherwise; Port is its port, 1 when 0.
	CMToS string `json:"cma_roce_tos,omitempty"`
	Port  int    `json:"port,omitempty"`

	// TC replaces the root queueing discipline of a network interface: "netem loss 1%". Of several with " | " between,
	// each is inside the one before. Only "roce": RoCEv2 goes through them, everything else past them; the first has
	// handle 4791: then.
	Dev  string `json:"dev,omitempty"`
	TC   string `json:"tc,omitempty"`
	Only string `json:"only,omitempty"`

	// Mirror copies packets of one interface to another, as a switch's mirror session does: those that it receives (Direction ingress), sends
	// (egress), or both.
	Mirror    string `json:"mirror,omitempty"`
	To        string `json:"to,omitempty"`
	Direction string `json:"direction,omitempty"`

	// DCB is a network interface whose priority flow control and buffers Set are changed.
	DCB string `json:"dcb,omitempty"`

	// MLXConfig is a device whose firmware settings Set are staged for the next boot. What runs stays as it is.
	MLXConfig string `json:"mlxconfig,omitempty"`
	// MLXReg is a device whose register Reg is written: the fields Set. What the register is asked for when it is read, and told when it is
	// written, may differ (PPCC: cmd_type=6 and cmd_type=8).
	MLXReg  string `json:"mlxreg,omitempty"`
	Reg     string `json:"reg,omitempty"`
	Indexes string `json:"indexes,omitempty"`
	GetOp   string `json:"get_op,omitempty"`
	SetOp   string `json:"set_op,omitempty"`
	// MLNXQoS is a network interface whose quality of service Set is changed.
	MLNXQoS string       `json:"mlnx_qos,omitempty"`
	Set     []mft.Assign `json:"set,omitempty"`

	// Show prints the state and changes nothing; Do changes it; Undo changes it back.
	Show []string `json:"show,omitempty"`
	Do   []string `json:"do,omitempty"`
	Undo []string `json:"undo,omitempty"`
}

// String names the knob in errors and lists.
func (k Knob) String() string {
	switch {
	case k.File != "":
		return k.File
	case k.CMToS != "":
		return fmt.Sprintf("default_roce_tos of %s port %d", k.CMToS, max(k.Port, 1))
	case k.Dev != "":
		return "root qdisc of " + k.Dev
	case k.Mirror != "":
		return "mirror of " + k.Mirror + " to " + k.To
	case k.vendor() != "":
		return k.vendorName()
	}
	return strings.Join(k.Do, " ")
}

// Validate says everything that is wrong with a knob's description.
func (k Knob) Validate() error {
	var errs []error
	kinds := 0
	for _, is := range []bool{k.File != "", k.CMToS != "", k.Dev != "" || k.TC != "", k.Mirror != "" || k.To != "", k.DCB != "", k.MLXConfig != "", k.MLXReg != "", k.MLNXQoS != "", len(k.Show)+len(k.Do)+len(k.Undo) > 0} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		errs = append(errs, errors.New("need one of file and value, cma_roce_tos and value, dev and tc, mirror and to, dcb and set, mlxconfig and set, mlxreg, reg and set, mlnx_qos and set, or show, do and undo"))
	}
	errs = append(errs, k.checkVendor(), k.checkCM(), k.checkMirror())
	if k.File != "" && (!strings.HasPrefix(k.File, "/") || strings.Contains(k.File, "\x00")) {
		errs = append(errs, fmt.Errorf("file %q: need an absolute path", k.File))
	}
	if k.CMToS == "" && (k.File == "") != (k.Value == "") {
		errs = append(errs, errors.New("file and value belong together"))
	}
	if strings.Contains(k.Value, "\n") {
		errs = append(errs, fmt.Errorf("value %q: need one line", k.Value))
	}
	if (k.Dev == "") != (strings.TrimSpace(k.TC) == "") {
		errs = append(errs, errors.New("dev and tc belong together"))
	}
	for _, q := range strings.Split(k.TC, "|") {
		if k.TC != "" && strings.TrimSpace(q) == "" {
			errs = append(errs, fmt.Errorf("tc %q: an empty discipline", k.TC))
		}
	}
	if k.Only != "" && k.Only != "roce" {
		errs = append(errs, fmt.Errorf("only %q: known is roce", k.Only))
	}
	if k.Only != "" && k.TC == "" {
		errs = append(errs, errors.New("only belongs to dev and tc"))
	}
	if n := len(k.Show) + len(k.Do) + len(k.Undo); n > 0 && (len(k.Show) == 0 || len(k.Do) == 0 || len(k.Undo) == 0) {
		errs = append(errs, errors.New("show, do and undo belong together: without show nobody can tell whether undo has worked"))
	}
	return errors.Join(errs...)
}

// settled is the knob as commands and files alone: what is run on the host. before is what Show says now.
func (k Knob) settled(before string) (Knob, error) {
	if k.Mirror != "" {
		return k.settledMirror(before)
	}
	if k.Dev == "" {
		return k, nil
	}
	// The kernel's own choice comes back when the root is deleted; a discipline that somebody made does not.
	if root, made := madeRoot(before); made {
		return k, fmt.Errorf("%s has %q, which somebody made and which deleting ours would not bring back: remove it first, or give show, do and undo", k.Dev, root)
	}
	k.Do = k.disciplines()
	k.Undo = []string{"tc", "qdisc", "del", "dev", k.Dev, "root"}
	return k, nil
}

// disciplines is the command that makes the disciplines of a TC knob.
func (k Knob) disciplines() []string {
	if k.Only == "" && !strings.Contains(k.TC, "|") {
		return append([]string{"tc", "qdisc", "replace", "dev", k.Dev, "root"}, strings.Fields(k.TC)...)
	}
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, "tc "+fmt.Sprintf(format, args...)) }
	dev := quote(k.Dev)
	parent, first := "root", 0x10
	if k.Only == "roce" {
		// Band 1 has everything, band 2 what is sent to UDP port 4791. Without that, RED drops the tool's own exchange
		// over TCP, whose packets are not ECN-capable.
		add("qdisc replace dev %s root handle 1: prio bands 2 priomap%s", dev, strings.Repeat(" 0", 16))
		add("qdisc add dev %s parent 1:1 handle 2: pfifo limit 1000", dev)
		for i, ip := range []string{"ip", "ip6"} {
			protocol := []string{"ip", "ipv6"}[i]
			add("filter add dev %s parent 1: protocol %s prio %d u32 match %s dport 4791 0xffff flowid 1:2", dev, protocol, i+1, ip)
		}
		parent, first = "parent 1:2", 0x4791
	}
	for i, q := range strings.Split(k.TC, "|") {
		verb := "add"
		if parent == "root" {
			verb = "replace"
		}
		words := strings.Fields(q)
		for j := range words {
			words[j] = quote(words[j])
		}
		handle := fmt.Sprintf("%x:", first+i)
		add("qdisc %s dev %s %s handle %s %s", verb, dev, parent, handle, strings.Join(words, " "))
		parent = "parent " + handle + "1"
	}
	return []string{"sh", "-c", "set -e\n" + strings.Join(lines, "\n")}
}

// madeRoot finds the root discipline in what `tc qdisc show` prints, and whether it was made by hand: the kernel's own
// choice has handle 0.
func madeRoot(show string) (root string, made bool) {
	for line := range strings.Lines(show) {
		f := strings.Fields(line)
		if len(f) >= 4 && f[0] == "qdisc" && f[3] == "root" {
			return strings.TrimSpace(line), f[2] != "0:"
		}
	}
	return "", false
}

// show is the command that prints the state; nil for files.
func (k Knob) show() []string {
	if k.Dev != "" {
		return []string{"tc", "qdisc", "show", "dev", k.Dev}
	}
	if k.Mirror != "" {
		return k.showMirror()
	}
	return k.Show
}

// chosen is the value in a file's content: the word in brackets of a list, otherwise all of it.
func chosen(content string) string {
	content = strings.TrimSpace(content)
	var in []string
	words := strings.Fields(content)
	for _, w := range words {
		if len(w) > 2 && w[0] == '[' && w[len(w)-1] == ']' {
			in = append(in, w[1:len(w)-1])
		}
	}
	if len(in) == 1 && len(words) > 1 && !strings.Contains(content, "\n") {
		return in[0]
	}
	return content
}

// byHand is the command that a person types to put the knob back.
func (k Knob) byHand(before string) string {
	if k.File != "" {
		return fmt.Sprintf("echo %s | sudo tee %s", quote(before), quote(k.File))
	}
	if k.CMToS != "" {
		return k.cmByHand(before)
	}
	commands := [][]string{k.Undo}
	if k.vendor() != "" {
		k.Set = mft.Split(before)
		commands = k.setCommands()
	}
	lines := make([]string, len(commands))
	for i, c := range commands {
		words := make([]string, len(c))
		for j, w := range c {
			words[j] = quote(w)
		}
		lines[i] = "sudo " + strings.Join(words, " ")
	}
	return strings.Join(lines, " && ")
}

func quote(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-:=%+,@", r))
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
