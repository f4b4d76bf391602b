package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/internal/testwait"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote/knobs/mft/mfttest"
	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/nicbackends/check"
	"github.com/pcmlab/pcmlab/nicbackends/docapcc/docapcctest"
)

// The lab of fakes: hosts of a virtual lab whose NICs are called as ConnectX NICs are, with NVIDIA's tools and DOCA, all of which are fakes. The
// orchestrator is given a lab file without virtual:, in which they are hardware. What it builds, loads, watches and takes out is what it would
// on a machine with such a NIC; packets are the software NIC's. h1 has a NIC of two planes, each an RDMA device.
const cxLab = `lab: cx
virtual: {time_scale: 1}
defaults:
  nic: {device: mlx5_0, netdev: eth0, backend: softnic, rate: 200Mbit/s, mtu: 4200, dscp: 26, priority: 3}
  link: {rate: 200Mbit/s, delay: 50us}
hosts:
  h1: {nics: [{ip: 192.0.2.11/24}, {device: mlx5_1, netdev: eth1, ip: 192.0.2.21/24}]}
  h2: {nics: [{ip: 192.0.2.12/24}]}
  r1: {nics: [{ip: 192.0.2.14/24}]}
  r2: {nics: [{ip: 192.0.2.15/24}]}
  sw: {}
switches: {sw: {host: sw, buffer: 4MiB, ecn: {kmin: 40KiB, kmax: 160KiB, pmax: 0.2}}}
links: [{from: h1.eth0, to: sw}, {from: h1.eth1, to: sw}, {from: h2, to: sw}, {from: r1, to: sw}, {from: r2, to: sw}]
taps: {sw-out-r1: {host: sw, iface: mir-out, switch: sw, ports: [r1], direction: both}}
`

const cxBook = `playbook: cx
hosts: {senders: [h1, h2], receiver: r1}
handler: swift
traffic: {size: 64KiB, margin: 0}
flows: {h1: {from: h1, to: r1}, h2: {from: h2, to: r1}}
phases: [{name: both, start: [h1, h2], for: 2s}]
measure: {trim_start: 20%, trim_end: 10%}
captures: [{tap: sw-out-r1}]
expect: [{that: goodput() > 0}]
`

// A mirror session on a switch that Linux drives, for the time of a run: r1's interface stands for a port of it.
const cxMirror = `setup:
  - {host: r1, show: [ls, /sys/class/net], do: [ip, link, add, mon, type, veth, peer, name, monitor], undo: [ip, link, del, mon]}
  - {host: r1, mirror: eth0, to: mon, direction: ingress}
`

// cx is the lab of fakes, up.
type cx struct {
	*home
	lab, plane string // lab files: planes 0, and plane 1 of h1 with r2
	book       string
}

const cxState = "/run/fakes"

// cxUp raises it. Each host gets the fakes into file systems of its own.
func cxUp(h *home) *cx {
	t := h.t
	t.Helper()
	c := &cx{home: h, lab: filepath.Join(h.dir, "cx.yaml"), plane: filepath.Join(h.dir, "plane.yaml"), book: filepath.Join(h.dir, "cxbook.yaml")}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	virtual := filepath.Join(h.dir, "virtual.yaml")
	write(virtual, cxLab)
	write(c.book, cxBook)
	if out := h.run("lab", "up", virtual, "--id", "cx"); out.code == exitUsage {
		t.Fatalf("%+v", out)
	} else if out.code != exitOK {
		t.Skipf("this machine raises no virtual lab: %s", out.stderr)
	}
	root := t.TempDir()
	for _, dir := range []string{"opt/mellanox", "run/pcmlab/bin", cxState} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	docapcctest.Install(t, root+"/opt/mellanox/doca", cxState)
	mfttest.At(t, root+cxState, root+"/run/pcmlab/bin", cxState)
	tar := exec.Command("tar", "-C", root, "-cf", filepath.Join(h.dir, "fakes.tar"), "opt", "run")
	if out, err := tar.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v %s", err, out)
	}
	for _, host := range []string{"h1", "h2", "r1", "r2"} {
		cmd := h.command("lab", "exec", "--lab", "cx", host, "--", "sh", "-c", `set -e
mount -t tmpfs tmpfs /opt
tar -C / -xf -
for d in /sys/class/infiniband/mlx5_*; do
	echo MT4131 >$d/hca_type
	echo 40.44.1036 >$d/fw_ver
	cat /sys/class/infiniband/mlx5_0/node_guid >$d/sys_image_guid # planes of one NIC
	p=/run/pci/0000:17:00.${d#*mlx5_}
	mkdir -p /run/pci && mv $d/device $p && ln -s $p $d/device
	echo 0x15b3 >$p/vendor
done
echo mlx5_0 mlx5_1 >`+cxState+`/device`)
		fakes, err := os.Open(filepath.Join(h.dir, "fakes.tar"))
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin = fakes
		out, err := cmd.CombinedOutput()
		fakes.Close()
		if err != nil {
			t.Fatalf("install the fakes on %s: %v\n%s", host, err, out)
		}
	}
	up := h.run("lab", "inventory", "cx")
	write(virtual, up.stdout)
	for path, plane := range map[string]bool{c.lab: false, c.plane: true} {
		lab, err := inventory.Load(virtual)
		if err != nil {
			t.Fatal(err)
		}
		lab.Virtual = nil
		lab.Switches = append(lab.Switches, &inventory.Switch{Name: "leaf", Host: "r1", Backend: inventory.LinuxSwitch, Ports: []inventory.SwitchPort{{Name: "sw", Iface: "eth0"}}})
		lab.Links = append(lab.Links, &inventory.Link{A: inventory.End{Switch: "sw"}, B: inventory.End{Switch: "leaf"}, Rate: lab.Links[0].Rate, Delay: lab.Links[0].Delay})
		for _, host := range lab.Hosts {
			for _, nic := range host.NICs {
				nic.Backend = inventory.DOCAPCC
			}
			if plane && len(host.NICs) == 2 { // the first carries the flows
				host.NICs[0], host.NICs[1] = host.NICs[1], host.NICs[0]
			}
		}
		text, err := inventory.Marshal(lab)
		if err != nil {
			t.Fatal(err)
		}
		write(path, string(text))
	}
	return c
}

// on runs a line of shell on a host.
func (c *cx) on(host, script string) string {
	c.t.Helper()
	out := c.home.run("lab", "exec", "--lab", "cx", host, "--", "sh", "-c", "cd "+cxState+"\n"+script)
	if out.code != exitOK {
		c.t.Fatalf("%s: %s: exit %d\n%s%s", host, script, out.code, out.stdout, out.stderr)
	}
	return strings.TrimSpace(out.stdout)
}

// clean: no program of ours in a NIC, no process of one, no journal, no lock, no folder of a run.
func (c *cx) clean(hosts ...string) {
	c.t.Helper()
	for _, host := range hosts {
		if left := c.on(host, `ls -d ppcc/0/id ~/.cache/pcmlab/knobs/* ~/.cache/pcmlab/runs/* /run/lock/pcmlab/*.lock 2>/dev/null
for p in /proc/[0-9]*; do case $(tr '\0' ' ' <$p/cmdline 2>/dev/null) in *[p]cm_load* | *[p]"cc hold"* | *[i]"b_write_bw -"*) tr '\0' ' ' <$p/cmdline ;; esac; done; true`); left != "" {
			c.t.Errorf("left on %s: %s", host, left)
		}
	}
}

// TestDOCAPCC: handlers of a playbook in NICs, well and badly, on one lab of fakes.
func TestDOCAPCC(t *testing.T) {
	c := cxUp(newHome(t))
	for _, part := range []struct {
		name string
		do   func(*cx)
	}{
		{"check", (*cx).checked}, {"run", (*cx).good}, {"refused", (*cx).refused}, {"standby", (*cx).standby}, {"lost_later", (*cx).lostLater}, {"one_owner_of_a_NIC_and_killed", (*cx).oneOwner},
	} {
		t.Run(part.name, func(t *testing.T) {
			here, h := *c, *c.home
			h.t, here.home = t, &h
			part.do(&here)
		})
	}
}

// checked: everything that a handler needs of a NIC is in check, at once, without changing anything.
func (c *cx) checked() {
	look := func() map[string]check.Finding {
		out := c.run("check", "-i", c.lab, "--no-ping", "-o", "json")
		var doc checkDocument
		if err := json.Unmarshal([]byte(out.stdout), &doc); err != nil {
			c.t.Fatalf("%v: %+v", err, out)
		}
		found := map[string]check.Finding{}
		for _, f := range doc.Findings {
			found[f.Host+" "+f.NIC+" "+f.What] = f
		}
		return found
	}
	got := look()
	for name, want := range map[string]check.Finding{
		"h1 mlx5_0 handlers: USER_PROGRAMMABLE_CC": {Verdict: check.Pass, Found: "runs 1, staged 1"},
		"h1 mlx5_1 handlers: owner":                {Verdict: check.Pass, Found: "no handler; the NIC runs NVIDIA's own DCQCN, of the fake in slot 15"},
		"h2 mlx5_0 handlers: firmware":             {Verdict: check.Skip, Found: "40.44.1036 of ConnectX-8, floor: unknown", Why: "NVIDIA publishes a floor for BlueField-3 alone"},
		"r1 mlx5_0 handlers: PCC_INT_EN":           {Verdict: check.Pass, Found: "runs 0, staged 0"},
	} {
		if g := got[name]; g.Verdict != want.Verdict || g.Found != want.Found || g.Why != want.Why {
			c.t.Errorf("%s: %+v, want %+v", name, g, want)
		}
	}
	c.on("h1", "sed -i 's/^USER_PROGRAMMABLE_CC.*/USER_PROGRAMMABLE_CC False(0) False(0) True(1)/' config")
	c.on("h2", "echo MT41692 >/sys/class/infiniband/mlx5_0/hca_type; echo 32.37.1306 >/sys/class/infiniband/mlx5_0/fw_ver")
	c.on("r1", "sed -i 's/^PCC_INT_EN.*/PCC_INT_EN True(1) True(1) True(1)/' config")
	got = look()
	for name, want := range map[string]check.Finding{
		"h1 mlx5_0 handlers: USER_PROGRAMMABLE_CC": {Verdict: check.Fail, Why: "is 0, and 1 is only staged", Fix: "switch its power off and on"},
		"h2 mlx5_0 handlers: firmware":             {Verdict: check.Fail, Why: "32.37.1306 of BlueField-3 is older than 32.38.1000", Fix: "mlxfwmanager -d mlx5_0"},
		"r1 mlx5_0 handlers: PCC_INT_EN":           {Verdict: check.Warn, Why: "where it receives from a NIC that runs a handler: is 1, need 0", Fix: "mlxconfig -d mlx5_0 -y set PCC_INT_EN=0, then shut the host down"},
	} {
		if g := got[name]; g.Verdict != want.Verdict || !strings.Contains(g.Why, want.Why) || !strings.Contains(g.Fix, want.Fix) {
			c.t.Errorf("%s: %+v, want %+v", name, g, want)
		}
	}
	for _, host := range []string{"h1", "h2", "r1"} {
		if asked := c.on(host, "cat asked"); !strings.Contains(asked, "mlxconfig -d mlx5_0 -e q") || strings.Contains(asked, " set ") || strings.Contains(asked, "--set") {
			c.t.Errorf("%s was asked %s", host, asked)
		}
	}
	// A run says the same of its senders and receivers, all of it before anything is built or changed.
	out := c.run("run", c.book, "-i", c.lab)
	c.wants(out, exitInfra, "host h1: look at a NIC that is to run swift: mlx5_0: USER_PROGRAMMABLE_CC: is 0, and 1 is only staged", "host h2: look at a NIC that is to run swift: mlx5_0: firmware: 32.37.1306 of BlueField-3",
		"host r1: look at a NIC that answers probes: mlx5_0: PCC_INT_EN: is 1, need 0")
	if strings.Contains(out.stderr, "is built on h1 (") {
		c.t.Errorf("it was built all the same:\n%s", out.stderr)
	}
	c.on("h1", "sed -i 's/^USER_PROGRAMMABLE_CC.*/USER_PROGRAMMABLE_CC False(0) True(1) True(1)/' config")
	c.on("h2", "echo MT4131 >/sys/class/infiniband/mlx5_0/hca_type; echo 40.44.1036 >/sys/class/infiniband/mlx5_0/fw_ver")
	c.on("r1", "sed -i 's/^PCC_INT_EN.*/PCC_INT_EN True(1) False(0) False(0)/' config")
	c.clean("h1", "h2", "r1")
}

// wants holds an outcome against its exit status and words.
func (c *cx) wants(out outcome, code int, words ...string) {
	c.t.Helper()
	for _, w := range words {
		if out.code != code || !strings.Contains(out.stderr, w) {
			c.t.Errorf("exit %d, want %d and %q in\n%s\n%s", out.code, code, w, out.stderr, out.stdout)
		}
	}
}

// good: a playbook's handler goes into the NICs of its senders, is proven to be there, watched, counted and taken out, and everything is as it was.
func (c *cx) good() {
	text, err := os.ReadFile(c.book)
	if err != nil {
		c.t.Fatal(err)
	}
	const mirrored = "switch.leaf.sw.mirrored_ingress_packets"
	book := filepath.Join(c.dir, "mirror.yaml")
	if err := os.WriteFile(book, []byte(strings.Replace(string(text), "{that: goodput() > 0}", "{that: goodput() > 0}, {that: "+mirrored+" > 1000}", 1)+cxMirror), 0o644); err != nil {
		c.t.Fatal(err)
	}
	const show = "ls /sys/class/net; tc qdisc show dev eth0; tc filter show dev eth0 ingress"
	before := c.on("r1", show)
	out := c.run("run", book, "-i", c.lab)
	if out.code != exitOK && out.code != exitCheckFailed { // rates need a machine that is not busy
		c.t.Fatalf("exit %d\n%s\n%s", out.code, out.stdout, out.stderr)
	}
	dir, result, _ := c.bundle(out)
	// The software NICs behind these names have no room for some packets when the machine has no time for them. They count those, but a ConnectX has no
	// such counter, and as ones they are asked here: CNPs are held exactly in TestRun_incast, where the counter is known.
	result.Agreement = slices.DeleteFunc(result.Agreement, func(k experiments.CheckResult) bool {
		return k.Name == "CNPs: receivers = capture = senders" && k.Verdict == experiments.Fail
	})
	c.counts(result)
	for _, host := range []string{"h1", "h2"} {
		for _, name := range []string{"handler swift runs on " + host + " from start to end", "handler swift acts on " + host} {
			if k := checkNamed(result, name); k == nil || k.Verdict != experiments.Pass {
				c.t.Errorf("%s: %+v", name, k)
			}
		}
		var d nicbackends.DeployReport
		read(c.t.(*testing.T), filepath.Join(dir, "handlers", host+".deployment.json"), &d)
		if d.Start != "active" || d.End != "active" || d.BuiltOn != host || !strings.Contains(d.Compile, "(fake)") || !strings.Contains(strings.Join(d.Notes, "\n"), "floor unknown") {
			c.t.Errorf("%s: %+v", host, d)
		}
	}
	if n := checkNamed(result, "handler swift acts on h1").Values[0]; n.Value != 1 {
		c.t.Errorf("%+v, want one flow", n)
	}
	if k := checkNamed(result, mirrored); k == nil || k.Verdict != experiments.Pass {
		c.t.Errorf("%s: %+v", mirrored, k)
	}
	for _, when := range []string{"before", "after"} { // the session stood before the first packet, and until after the last
		data, err := os.ReadFile(filepath.Join(dir, "counters", when+".json"))
		if err != nil || !strings.Contains(string(data), "mirrored_ingress_packets") {
			c.t.Errorf("counters %s: %v\n%s", when, err, data)
		}
	}
	if after := c.on("r1", show); after != before {
		c.t.Errorf("r1 has %q, it had %q", after, before)
	}
	c.clean("h1", "h2", "r1", "sw")
}

// refused: tools that print rubbish, and that are not there; a NIC that another program has is left to it.
func (c *cx) refused() {
	c.on("h1", "echo garbled >mlxreg.mode")
	c.on("h2", "mkdir -p ppcc/0; cd ppcc/0; echo bfc00100 >id; echo 1 >enabled; echo 0 >counter_en; echo pcm timely 0123456789 >about; echo 0 0 0 >params; echo 0 >counters")
	c.on("r1", "mv /run/pcmlab/bin/mlxconfig .")
	out := c.run("run", c.book, "-i", c.lab)
	c.wants(out, exitInfra, "host h1: look at a NIC that is to run swift: mlx5_0: register PPCC: mlxreg printed no register",
		"host h2: look at a NIC that is to run swift: mlx5_0: owner: the NIC runs a PCM handler already (pcm timely 0123456789)", "host r1: look at a NIC that answers probes: mlx5_0: firmware settings: mlxconfig is not installed")
	if about := c.on("h2", "cat ppcc/0/about; rm -r ppcc/0"); about != "pcm timely 0123456789" {
		c.t.Errorf("its owner lost it: %q", about)
	}
	c.on("h1", "rm mlxreg.mode")
	c.on("r1", "mv mlxconfig /run/pcmlab/bin/")
	c.clean("h1", "h2", "r1")
}

// standby: somebody else's program is active in one NIC; the handler of the other is taken out again.
func (c *cx) standby() {
	c.on("h1", "echo standby >loader.mode")
	out := c.run("run", c.book, "-i", c.lab)
	c.wants(out, exitInfra, "host h1: ", "another program is active on mlx5_0: its reaction point is one for all ports of the NIC", "end it first")
	_, result, _ := c.part(out)
	if result.State != experiments.StatePartial {
		c.t.Errorf("%+v", result)
	}
	c.on("h1", "rm loader.mode")
	c.clean("h1", "h2", "r1")
}

// part reads a run that did not come to its traffic.
func (c *cx) part(out outcome) (dir string, result experiments.Result, timeline string) {
	c.t.Helper()
	m := runLine.FindStringSubmatch(out.stdout)
	if m == nil {
		c.t.Fatalf("no run folder named in:\n%s\n%s", out.stdout, out.stderr)
	}
	dir = m[1]
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(c.dir, dir)
	}
	read(c.t.(*testing.T), filepath.Join(dir, "result.json"), &result)
	data, err := os.ReadFile(filepath.Join(dir, "timeline.jsonl"))
	if err != nil {
		c.t.Fatal(err)
	}
	return dir, result, string(data)
}

// started begins a run, and comes back when its timeline has an event.
func (c *cx) started(event, book, lab, out string) (*started, string) {
	c.t.Helper()
	s := c.start("run", book, "-i", lab, "--out", filepath.Join(c.dir, out))
	var line string
	testwait.For(c.t, 2*time.Minute, event+" in the timeline", func() bool {
		files, _ := filepath.Glob(filepath.Join(c.dir, out, "*", "timeline.jsonl"))
		if len(files) == 0 {
			return false
		}
		line = files[0]
		data, err := os.ReadFile(files[0])
		return err == nil && strings.Contains(string(data), `"event":"`+event+`"`)
	})
	return s, filepath.Dir(line)
}

// lostLater: a loader that ends by itself while it is measured. What was measured is kept, the run fails and says since when the NIC was on its own, and
// what such a loader leaves in the NIC is named to whoever comes next, with what to type.
func (c *cx) lostLater() {
	s, dir := c.started("phase_start", c.book, c.lab, "lost")
	c.on("h1", "echo exits >loader.mode")
	c.on("h2", "echo deactivated >loader.mode")
	out := c.finish(s)
	var result experiments.Result
	read(c.t.(*testing.T), filepath.Join(dir, "result.json"), &result)
	for host, want := range map[string]string{"h1": "the loader ended: exit status 9", "h2": "it was active, and is deactivated"} {
		k := checkNamed(result, "handler swift runs on "+host+" from start to end")
		if k == nil || k.Verdict != experiments.Fail || !strings.HasPrefix(k.Reason, "it stopped at 20") || !strings.Contains(k.Reason, "what was measured from then on is the NIC's own control loop: "+want) {
			c.t.Errorf("%s: %+v, want %q", host, k, want)
		}
	}
	c.wants(out, exitInfra, "host h1: take handler swift out: mlx5_0: restore: ", "by hand: sudo ", "pcc back mlx5_0 1 ")
	c.on("h2", "rm loader.mode")
	c.on("h1", "rm loader.mode")
	c.clean("h2", "r1", "sw")
	run := filepath.Base(dir)
	c.wants(c.run("run", c.book, "-i", c.lab), exitInfra, "host h1: ", run, "pcmlab cleanup --run "+run)
	c.wants(c.run("cleanup", "--run", run, "-i", c.lab), exitInfra, "host h1: ", "switch its power off and on")
	c.on("h1", "rm -r ppcc/0") // its power is off and on
	if out := c.run("cleanup", "--run", run, "-i", c.lab); out.code != exitOK || !strings.Contains(out.stdout, "put back") {
		c.t.Errorf("%+v", out)
	}
	c.clean("h1")
}

// oneOwner: a NIC has one reaction point for all its planes. A second run that wants the other plane of the same NIC is refused, and told who has it.
// Then the first is killed: nobody is left to take the handlers out but the hosts' guards.
func (c *cx) oneOwner() {
	text, err := os.ReadFile(c.book)
	if err != nil {
		c.t.Fatal(err)
	}
	write := func(name string, change ...string) string {
		path := filepath.Join(c.dir, name)
		if err := os.WriteFile(path, []byte(strings.NewReplacer(change...).Replace(string(text))), 0o644); err != nil {
			c.t.Fatal(err)
		}
		return path
	}
	long := write("long.yaml", "for: 2s", "for: 600s")
	other := write("other.yaml", "playbook: cx", "playbook: other", "[h1, h2]", "[h1]", ", h2: {from: h2, to: r1}", "", "start: [h1, h2]", "start: h1", "captures: [{tap: sw-out-r1}]\n", "", "r1", "r2")
	first, dir := c.started("phase_start", long, c.lab, "first")
	guid := c.on("h1", "cat /sys/class/infiniband/mlx5_1/sys_image_guid")
	c.wants(c.run("run", other, "-i", c.plane), exitBusy, "run "+filepath.Base(dir)+" of ", "holds h1 pcc-rp "+guid)
	if err := first.cmd.Process.Kill(); err != nil {
		c.t.Fatal(err)
	}
	c.finish(first)
	for _, host := range []string{"h1", "h2", "r1"} {
		testwait.For(c.t, 2*time.Minute, "guards of "+host+" to take out and end", func() bool {
			return c.on(host, "ls -d ppcc/0/id ~/.cache/pcmlab/knobs/* ~/.cache/pcmlab/runs/* 2>/dev/null; true") == ""
		})
	}
	c.clean("h1", "h2", "r1", "r2")
}
