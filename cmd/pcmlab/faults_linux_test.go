package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/internal/testwait"
	"github.com/pcmlab/pcmlab/inventory/remote/remotetest"
)

// fault is something that breaks in a run, and what must come of it.
type fault struct {
	name, why string
	adds      string        // to testdata/chaos/faults.yaml
	at        string        // the timeline's word at which it breaks; "": before the run
	breaks    func(*broken) // may say what mends it
	code      int
	bounded   time.Duration     // how long the run may go on after it; 0: half a minute
	says      []string          // on standard error
	reason    string            // why the run is partial, in its folder; "": it is complete
	flows     map[string]string // their states
	empty     bool              // nothing was captured
	cut       bool              // there is no end of it: no result, no manifest
	lost      string            // a host that is no more
}

// broken is one run that something breaks.
type broken struct {
	*chaos
	fault
	proc *started
	out  string
	mend func()
	path *remotetest.Proxy // to h1, where the row asks for it
}

// TestRun_faults breaks a run in one way after the other. What must hold after each: the exit code and an error that names host and step; a
// folder that says what happened and keeps what was measured; and hosts and machine as they were before.
func TestRun_faults(t *testing.T) {
	newHome(t).needLab()
	all := map[string]string{"h1": "ok", "h2": "ok"}
	for k, rows := range [][]fault{{
		{name: "interrupted_once", why: "the first Ctrl-C keeps what was measured", at: during, breaks: func(b *broken) { b.interrupt() },
			code: exitInterrupted, says: []string{"pcmlab: interrupted\n"}, reason: "interrupted", flows: map[string]string{"h1": "interrupted", "h2": "interrupted"}},
		{name: "interrupted_twice", why: "the second ends at once, and guards clean up", at: during, breaks: func(b *broken) { b.interruptAgain() },
			code: exitInterrupted, bounded: 5 * time.Second, says: []string{"once more ends at once"}, cut: true},
		{name: "killed_as_captures_are_analysed_there", why: "what lies there by then goes with the run's folder", adds: "measure: {analyze: there}\n", at: `"analysing_there"`,
			breaks: func(b *broken) { b.proc.cmd.Process.Kill() }, code: 128 + int(syscall.SIGKILL), cut: true},
		{name: "analysis_there_dies", why: "the captures stay where the folder says, until they are fetched", adds: "measure: {analyze: there}\n", at: `"phases_end"`,
			breaks: func(b *broken) { b.killsAnalysis("sw") }, code: exitInfra, says: []string{"host sw", "analyse the captures where they lie", "signal KILL"}, reason: "host sw", flows: all, empty: true},
		{name: "client_dies", why: "the other flow goes on", at: during, breaks: func(b *broken) { b.signal("h2", "KILL", tool) },
			code: exitInfra, says: []string{"flow h2", "host h2"}, reason: "flow h2", flows: map[string]string{"h1": "ok", "h2": "failed"}},
		{name: "server_dies", why: "the client's failed completion is not the cause", at: during, breaks: func(b *broken) { b.signal("r1", "KILL", b.serverOf("h2")) },
			code: exitInfra, says: []string{"flow h2", "host r1"}, reason: "flow h2", flows: map[string]string{"h1": "ok", "h2": "failed"}},
		{name: "capture_killed", why: "the traffic was fine, the eyes were not", at: during, breaks: func(b *broken) { b.signal("sw", "KILL", "pcmlab capture ") },
			code: exitInfra, says: []string{"host sw", "capture out", "signal KILL", "find out who"}, reason: "capture out", flows: all},
		{name: "disk_full_on_host", why: "what could be written is kept", breaks: func(b *broken) {
			b.ask("sw", "mkdir -p ~/.cache/pcmlab/runs && mount -t tmpfs -o size=1m none ~/.cache/pcmlab/runs")
			b.mend = func() { b.ask("sw", "umount ~/.cache/pcmlab/runs; rm -rf /run/mount") } // mount's own
		}, code: exitInfra, says: []string{"host sw", "capture", "no space left"}, reason: "no space left", flows: all},
	}, {
		{name: "both_hang", why: "neither side says anything any more, and the run ends", at: during, breaks: func(b *broken) {
			b.signal("r1", "STOP", b.serverOf("h2"))
			b.signal("h2", "STOP", tool)
		}, code: exitInfra, bounded: 90 * time.Second, says: []string{"flow h2", "host h2"}, reason: "flow h2", flows: map[string]string{"h1": "ok", "h2": "failed"}},
		{name: "netdev_down", why: "packets are lost, nobody ends", at: during, breaks: func(b *broken) {
			b.ask("h1", "ip link set eth0 down")
			b.mend = func() { b.ask("h1", "ip link set eth0 up") }
		}, code: exitInfra, bounded: time.Minute, says: []string{"flow h1", "host h1"}, reason: "flow h1", flows: map[string]string{"h1": "failed", "h2": "ok"}},
		{name: "disk_full_here", why: "there is room for the last words", breaks: func(b *broken) { b.smallDisk("2m") },
			code: exitInfra, says: []string{"no space left", "pcapng"}, reason: "no space left", flows: all, empty: true},
	}, {
		{name: "host_down_before", why: "no traffic yet: there is nothing to keep", at: `"traffic_ready"`, breaks: func(b *broken) { b.down("h1") }, lost: "h1",
			code: exitInfra, says: []string{"host h1", "lost"}, reason: "host h1", empty: true},
		{name: "host_down_during", why: "the other flow goes on", at: during, breaks: func(b *broken) { b.down("h2") }, lost: "h2",
			code: exitInfra, says: []string{"host h2", "lost", "pcmlab cleanup --run"}, reason: "host h2", flows: map[string]string{"h1": "ok", "h2": "failed"}},
		{name: "host_down_after", why: "all was measured, not all can be put back", at: `"capture_stopped"`, breaks: func(b *broken) { b.down("h1") }, lost: "h1",
			code: exitInfra, says: []string{"host h1"}, reason: "host h1", flows: all},
		{name: "connection_cut_and_back", why: "the run goes on over a new connection", at: during, breaks: func(b *broken) { b.path.Cut() },
			code: exitOK, flows: all},
		{name: "connection_cut_for_good", why: "guards on the host end what was started there", at: during, breaks: func(b *broken) { b.path.Block(true) },
			code: exitInfra, bounded: time.Minute, says: []string{"LOST on the client (host h1)", "pcmlab cleanup --run"}, reason: "host h1", flows: map[string]string{"h1": "failed", "h2": "ok"}},
	}} {
		t.Run(fmt.Sprint("lab", k), func(t *testing.T) {
			t.Parallel()
			c := newChaos(t, "testdata/chaos/faults.yaml", false, nil)
			for _, row := range rows {
				t.Run(row.name, func(t *testing.T) {
					c.home.t = t
					c.fault(row)
				})
				c.home.t = t
				if row.lost != "" || c.dirty {
					c.anew()
				}
			}
		})
	}
}

// during says that both flows run.
const during = `"flow":"h2"`

// tool is in the command lines of both sides of a flow.
const tool = "ib_write_bw "

// fault breaks one run, and holds all that must be so then.
func (c *chaos) fault(row fault) {
	t := c.t
	t.Helper()
	c.dirty = true
	b := &broken{chaos: c, fault: row, out: filepath.Join(c.dir, "killed", row.name), mend: func() {}}
	lab := c.lab
	if strings.HasPrefix(row.name, "connection_") {
		lab, b.path = b.throughProxy("h1")
	}
	if row.at == "" {
		row.breaks(b)
	}
	playbook := c.playbook
	if row.adds != "" {
		text, err := os.ReadFile(c.playbook)
		if err == nil {
			playbook = filepath.Join(t.(*testing.T).TempDir(), "playbook.yaml")
			err = os.WriteFile(playbook, append(text, row.adds...), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b.proc = c.start("run", playbook, "-i", lab, "--out", b.out)
	ended := make(chan struct{})
	go func() { b.proc.cmd.Wait(); close(ended) }()
	is := func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}
	defer func() {
		if !is() {
			b.proc.cmd.Process.Signal(syscall.SIGQUIT)
			<-ended
			t.Logf("it did not end:\n%s\n%s", &b.proc.out, &b.proc.err)
		}
	}()
	began := time.Now()
	if row.at != "" {
		c.awaits(b.out, row.at, ended)
		if is() {
			t.Fatalf("it ended before %s: %s", row.at, &b.proc.err)
		}
		row.breaks(b)
		began = time.Now()
	}
	testwait.For(t, max(row.bounded, 30*time.Second), "the run to end", is)
	t.Logf("ended after %v with\n%s\n%s", time.Since(began), &b.proc.err, &b.proc.out)
	b.mend()
	b.asBefore()
	b.told()
	c.dirty = t.Failed()
}

// asBefore: hosts and machine are as in their pictures.
func (b *broken) asBefore() {
	t := b.t
	t.Helper()
	for host, want := range b.hosts {
		if host == b.lost {
			continue
		}
		if got := b.picture(host, want, gone); got != "" {
			t.Errorf("left on %s (-before +now):\n%s", host, cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
		}
	}
	var d string
	defer func() {
		if d != "" {
			t.Errorf("left here (-before +now):\n%s", d)
		}
	}()
	testwait.For(t, gone, "the machine as it was", func() bool {
		d = cmp.Diff(b.without(b.here), b.without(b.look()))
		return d == ""
	})
}

// without leaves out what a host that is lost takes with it, or keeps on its disk: its processes look like those of the others.
func (b *broken) without(found []string) []string {
	if b.lost == "" {
		return found
	}
	return slices.DeleteFunc(slices.Clone(found), func(s string) bool {
		return strings.Contains(s, "/hosts/"+b.lost+"/") || strings.HasPrefix(s, "process ") && slices.Contains(b.here, s)
	})
}

// told: exit code, error and folder say what happened.
func (b *broken) told() {
	t := b.t.(*testing.T)
	t.Helper()
	code := b.proc.cmd.ProcessState.ExitCode()
	if ws := b.proc.cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		code = 128 + int(ws.Signal()) // as a shell says it
	}
	if code != b.code && (b.code != exitOK || code != exitData) { // a busy machine has no figures
		t.Errorf("exit %d, want %d", code, b.code)
	}
	said := b.proc.err.String()
	for _, words := range b.says {
		if !strings.Contains(said, words) {
			t.Errorf("%q is not said in:\n%s", words, said)
		}
	}
	t.Log(b.folder(b.name, b.out))
	if b.cut {
		return
	}
	dirs, _ := filepath.Glob(filepath.Join(b.out, "[0-9]*"))
	if len(dirs) != 1 {
		t.Fatalf("folders: %q", dirs)
	}
	var result experiments.Result
	var doc analysis.Document
	read(t, filepath.Join(dirs[0], "result.json"), &result)
	if b.reason != "" && (result.State != experiments.StatePartial || !strings.Contains(result.Reason, b.reason)) || b.reason == "" && result.State == experiments.StatePartial {
		t.Errorf("state %s, reason %q; want %q", result.State, result.Reason, b.reason)
	}
	if b.flows != nil {
		flows := map[string]string{}
		for _, f := range result.Flows {
			flows[f.Name] = f.State
		}
		if d := cmp.Diff(b.flows, flows); d != "" {
			t.Errorf("flows (-want +got):\n%s", d)
		}
	}
	if !b.empty {
		read(t, filepath.Join(dirs[0], "analysis.json"), &doc)
		if doc.Totals.RoCEPackets == 0 || len(doc.Aggregate.PerPhase) == 0 {
			t.Errorf("what was measured is not kept: %d packets, %d phases", doc.Totals.RoCEPackets, len(doc.Aggregate.PerPhase))
		}
	}
	if m, differences, err := experiments.CheckManifest(dirs[0]); err != nil || len(differences) > 0 || m.State != result.State || m.Reason != result.Reason {
		t.Errorf("manifest: %v, %v; it says %s (%s)", err, differences, m.State, m.Reason)
	}
	if o := b.run("runs", "show", dirs[0]); b.reason != "" && !strings.Contains(o.stdout, "partial") {
		t.Errorf("runs show: %+v", o)
	}
}

// anew takes the lab down and raises it again, after a host was lost or something was left.
func (c *chaos) anew() {
	c.run("lab", "down", "up")
	if out := c.run("lab", "up", c.file, "--id", "up"); out.code != 0 {
		c.t.Fatalf("lab up: %+v", out)
	}
	c.settle(slices.Sorted(maps.Keys(c.hosts))...)
	c.dirty = false
}

func (b *broken) interrupt() {
	b.t.Helper()
	if err := b.proc.cmd.Process.Signal(os.Interrupt); err != nil {
		b.t.Error(err)
	}
}

// interruptAgain goes on until the process is no more: which of them is the second to be seen is not ours to know.
func (b *broken) interruptAgain() {
	b.t.Helper()
	testwait.For(b.t, b.bounded, "the run to end at the second Ctrl-C", func() bool { return b.proc.cmd.Process.Signal(os.Interrupt) != nil })
}

// signal sends a signal to all processes of a host whose command line has some words, but not to their guards.
func (b *broken) signal(host, signal, words string) {
	b.t.Helper()
	script := fmt.Sprintf(`for d in /proc/[0-9]*; do c=$(tr '\0' ' ' <$d/cmdline 2>/dev/null); case "$c" in *" guard "* | "sh -c"* | "bash -c"*) ;; *'%s'*) kill -%s ${d#/proc/} && echo "$c";; esac; done; true`, words, signal)
	got := b.ask(host, script)
	if got == "" {
		b.t.Errorf("%s: nothing to send %s to", host, signal)
	}
	b.t.Logf("%s to %s", signal, got)
}

// killsAnalysis kills the analysis on a host when it is there, and has the captures fetched at the end.
func (b *broken) killsAnalysis(host string) {
	killer := b.start("lab", "exec", "--lab", "up", host, "--", "sh", "-c", `while :; do for d in /proc/[0-9]*; do
		case "$(tr '\0' ' ' <$d/cmdline 2>/dev/null)" in *" guard "* | "sh -c"* | "bash -c"*) ;; *"pcmlab analyze "*) kill -9 ${d#/proc/} && exit;; esac
	done; done`)
	b.mend = func() {
		dirs, _ := filepath.Glob(filepath.Join(b.out, "[0-9]*"))
		if o := b.finish(killer); o.code != 0 || len(dirs) != 1 {
			b.t.Fatalf("nothing was killed: %+v; folders %q", o, dirs)
		}
		if o := b.chaos.run("runs", "fetch", dirs[0], "-i", "up"); o.code != exitOK || !strings.Contains(o.stdout, "bytes from "+host) {
			b.t.Errorf("runs fetch: %+v", o)
		}
		if o := b.chaos.run("analyze", dirs[0], "-o", "json"); o.code != exitOK && o.code != exitData || !strings.Contains(o.stdout, `"roce_packets"`) {
			b.t.Errorf("analyze of what was fetched: %+v", o)
		}
	}
}

var port = regexp.MustCompile(` (-p|--port)[ =](\d+) `)

// serverOf is what the command line of a flow's server has and no other.
func (b *broken) serverOf(flow string) string {
	b.t.Helper()
	line := b.ask(flow, `for d in /proc/[0-9]*; do tr '\0' ' ' <$d/cmdline 2>/dev/null; echo; done`)
	m := port.FindStringSubmatch(line)
	if m == nil {
		b.t.Fatalf("no port of %s in:\n%s", flow, line)
	}
	return m[0]
}

// down ends a virtual host as a loss of power would: its init process, and the kernel all others.
func (b *broken) down(host string) {
	b.t.Helper()
	own, err := os.Stat(b.program)
	if err != nil {
		b.t.Fatal(err)
	}
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range procs {
		args, _ := os.ReadFile(d + "/cmdline")
		name, _ := os.ReadFile(d + "/root/etc/hostname")
		if exe, err := os.Stat(d + "/exe"); err != nil || !os.SameFile(exe, own) || !strings.Contains(string(args), "lab-host\x00host") || strings.TrimSpace(string(name)) != host {
			continue
		}
		if err := syscall.Kill(numeral(b.t.(*testing.T), filepath.Base(d)), syscall.SIGKILL); err != nil {
			b.t.Error(err)
		}
		return
	}
	b.t.Errorf("no init process of %s", host)
}

// throughProxy is a lab file by which a host is reached through a path that can be cut.
func (b *broken) throughProxy(host string) (lab string, p *remotetest.Proxy) {
	b.t.Helper()
	text := b.run("lab", "inventory", "up").stdout
	at := regexp.MustCompile(`(?s)  ` + host + `:\n    ssh:\n      address: (\S+)\n      port: (\d+)`).FindStringSubmatch(text)
	known := regexp.MustCompile(`known_hosts: (\S+)`).FindStringSubmatch(text)
	if at == nil || known == nil {
		b.t.Fatalf("no %s in:\n%s", host, text)
	}
	p = remotetest.NewProxy(b.t, at[1]+":"+at[2])
	keys, err := os.ReadFile(known[1])
	if err != nil {
		b.t.Fatal(err)
	}
	dir := b.t.(*testing.T).TempDir()
	there := fmt.Sprintf("[127.0.0.1]:%d ", p.Port())
	keys = []byte(strings.Replace(string(keys), "["+at[1]+"]:"+at[2]+" ", there, 1))
	changed := strings.Replace(at[0], "address: "+at[1], "address: 127.0.0.1", 1)
	changed = strings.Replace(changed, "port: "+at[2], fmt.Sprint("port: ", p.Port()), 1)
	text = strings.ReplaceAll(strings.Replace(text, at[0], changed, 1), known[1], filepath.Join(dir, "known_hosts"))
	lab = filepath.Join(dir, "lab.yaml")
	for name, data := range map[string][]byte{lab: []byte(text), filepath.Join(dir, "known_hosts"): keys} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
	return lab, p
}

// smallDisk is where the run's folder will be.
func (b *broken) smallDisk(size string) {
	b.t.Helper()
	b.out = b.t.(*testing.T).TempDir()
	if err := syscall.Mount("none", b.out, "tmpfs", 0, "size="+size); err != nil {
		b.t.Skipf("no small disk can be mounted here: %v", err)
	}
	b.t.Cleanup(func() {
		if err := syscall.Unmount(b.out, 0); err != nil {
			b.t.Error(err)
		}
	})
}
