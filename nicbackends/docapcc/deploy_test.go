package docapcc

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/internal/testwait"
	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/knobs"
	"github.com/pcmlab/pcmlab/inventory/remote/knobs/mft/mfttest"
	"github.com/pcmlab/pcmlab/inventory/remote/remotetest"
	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/nicbackends/docapcc/docapcctest"
)

// rig is a host with a NIC that is none: an OpenSSH server, fakes of NVIDIA's tools and of DOCA, and a tree that stands for sysfs.
type rig struct {
	*testing.T
	nic  *mfttest.NIC
	b    Backend
	host remote.Host
	d    nicbackends.Deployment
	sys  string
	doca string
	said []string
	mu   sync.Mutex
}

var shared struct {
	sync.Once
	home, doca string
}

// install makes what all rigs share: the home of the hosts, with what was pushed and built there, and the libraries of DOCA, which are fakes.
func install(t *testing.T) (home, doca string) {
	t.Helper()
	shared.Do(func() {
		shared.home, shared.doca = filepath.Join(tempDir, "home"), filepath.Join(tempDir, "doca")
		os.MkdirAll(shared.home, 0o755)
		docapcctest.Install(t, shared.doca, "")
	})
	return shared.home, shared.doca
}

func newRig(t *testing.T) *rig {
	t.Helper()
	home, libs := install(t)
	r := &rig{T: t, nic: mfttest.New(t)}
	r.doca = libs

	root := t.TempDir()
	r.sys = root + "/sys/class/infiniband/" + mfttest.Device + "/"
	for name, text := range map[string]string{"fw_ver": "40.44.1036", "hca_type": "MT4131", "sys_image_guid": "0c42:a103:00ab:cd00", "ports/1/link_layer": "Ethernet"} {
		place(t, r.sys+name, text+"\n")
	}
	pci := root + "/sys/devices/pci0000:16/0000:17:00.0"
	place(t, pci+"/vendor", "0x15b3\n")
	if err := os.Symlink(pci, r.sys+"device"); err != nil {
		t.Fatal(err)
	}
	s := remotetest.StartSSHD(t, home, "")
	lab := s.Lab(t)
	lab.File = "lab.yaml"
	nic := &inventory.NIC{Device: mfttest.Device, Netdev: mfttest.Netdev, Backend: "docapcc", Rate: 100 * units.GbitPerSec, MTU: 4200, Handlers: []inventory.HandlerRule{{Handler: "swift"}}}
	lab.Hosts[0].NICs = []*inventory.NIC{nic}
	lab.Links = []*inventory.Link{{A: inventory.End{Host: "h3", Netdev: nic.Netdev}, B: inventory.End{Switch: "sw"}, Rate: nic.Rate, Delay: time.Microsecond}}
	knobsDir, err := os.MkdirTemp("/dev/shm", "docapcc-*") // in memory: each change of a journal is waited for until it is on disk
	if err != nil {
		knobsDir = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(knobsDir) })
	r.b = Backend{Root: root, AnyUser: true, Every: 100 * time.Millisecond, Within: 20 * time.Second, Env: []string{"PATH=" + r.nic.Bin + ":" + os.Getenv("PATH"), "DOCA=" + libs, "FLEXIO=" + libs, "PCM_FAKE=" + r.nic.Dir,
		"PCMLAB_KNOBS_DIR=" + knobsDir}}
	r.host = r.dial(lab)
	r.d = nicbackends.Deployment{Host: r.host, Lab: lab, NIC: nic, Run: "run-" + filepath.Base(r.nic.Dir) + filepath.Base(knobsDir), Owner: "alice@desk", For: time.Minute, Say: func(s string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.said = append(r.said, s)
	}}
	return r
}

// ownDOCA gives the host a DOCA in a place of its own: what it builds is nobody else's.
func (r *rig) ownDOCA() {
	r.Helper()
	dir := r.TempDir()
	for _, link := range []string{"include", "lib", "applications", "tools/dpacc"} {
		to := filepath.Join(dir, link)
		os.MkdirAll(filepath.Dir(to), 0o755)
		if err := os.Symlink(filepath.Join(r.doca, link), to); err != nil {
			r.Fatal(err)
		}
	}
	r.doca = dir
	r.b.Env[1], r.b.Env[2] = "DOCA="+dir, "FLEXIO="+dir
}

func (r *rig) dial(lab *inventory.Lab) remote.Host {
	r.Helper()
	h, err := remote.Dial(r.Context(), lab, lab.Hosts[0].Name, remote.Options{Home: r.TempDir(), ConfigFiles: []string{}, SameMachine: true})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { h.Close() })
	return h
}

// left are the journals of the host.
func (r *rig) left() []*knobs.Journal {
	r.Helper()
	all, err := knobs.List(strings.TrimPrefix(r.b.Env[len(r.b.Env)-1], "PCMLAB_KNOBS_DIR="))
	if err != nil {
		r.Fatal(err)
	}
	return all
}

// clean: the NIC is as it was.
func (r *rig) clean() {
	r.Helper()
	if _, err := os.Stat(r.nic.Dir + "/ppcc/0/id"); err == nil {
		r.Error("the program is still in the NIC")
	}
	if l := r.left(); len(l) > 0 {
		r.Errorf("journals are left: %+v", l[0])
	}
}

func (r *rig) deploy() *deployed {
	r.Helper()
	x, err := r.b.Deploy(r.Context(), r.d)
	if err != nil {
		r.Fatal(err)
	}
	return x.(*deployed)
}

func (r *rig) remove(x *deployed) (nicbackends.DeployReport, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), time.Minute)
	defer cancel()
	return x.Remove(ctx)
}

// TestDeploy_holdsAHandlerForARun: looked at, built, loaded, proven by the NIC, counted, taken out; nothing is left.
func TestDeploy_holdsAHandlerForARun(t *testing.T) {
	r := newRig(t)
	x := r.deploy()
	if about := r.nic.Get("ppcc/0/about"); about != "pcm swift "+x.report.Hash || r.nic.Get("ppcc/0/counter_en") != "1" {
		t.Errorf("the NIC runs %q, its counters are %q", about, r.nic.Get("ppcc/0/counter_en"))
	}
	if len(r.left()) != 1 || !r.left()[0].Holder.Alive() || r.left()[0].Part != "pcc-"+mfttest.Device {
		t.Errorf("journals while it runs: %+v", r.left())
	}
	before, err := x.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var after map[string]uint64
	testwait.For(t, 20*time.Second, "the handler to act", func() bool {
		after, err = x.Counters(t.Context())
		return err == nil && after["handler_runs_swift"] > before["handler_runs_swift"] && after["handler_changes_swift"] > before["handler_changes_swift"] &&
			after["handler_rtt_swift"] > before["handler_rtt_swift"]
	})
	report, err := r.remove(x)
	if err != nil || report.Start != "active" || report.End != "active" || report.Stopped != "" || report.BuiltOn != "h3" || !strings.Contains(report.Compile, "dpacc version 1.11.0 (fake)") {
		t.Errorf("%v, %+v", err, report)
	}
	if again, err := r.remove(x); err != nil || again.End != "active" {
		t.Errorf("a second time: %v, %+v", err, again)
	}
	r.clean()
	if strings.Contains(r.nic.Get("asked"), "mlxconfig -d mlx5_0 -y") {
		t.Error("settings of the firmware were staged")
	}
	if !strings.Contains(strings.Join(report.Notes, "\n"), "floor unknown, none is published for this family") {
		t.Errorf("notes: %q", report.Notes)
	}
	// What was built is not built again.
	r.mu.Lock()
	r.said = nil
	r.mu.Unlock()
	x = r.deploy()
	if _, err := r.remove(x); err != nil {
		t.Error(err)
	}
	if said := strings.Join(r.said, "\n"); strings.Contains(said, "is built") || !strings.Contains(said, "active, as the NIC says") {
		t.Errorf("said %q", said)
	}
}

// TestDeploy_conditions: each thing without which a handler does not run, before anything is built or changed, all at once, with what to do.
func TestDeploy_conditions(t *testing.T) {
	const power = "switch its power off and on (a reboot is not enough)"
	for _, c := range []struct {
		name string
		with func(r *rig)
		want []string
	}{
		{"settings_to_stage", func(r *rig) {
			r.nic.SetConfig("USER_PROGRAMMABLE_CC", "False(0) False(0) False(0)")
			r.nic.SetConfig("REAL_TIME_CLOCK_ENABLE", "")
			r.nic.SetConfig("ROCE_CC_RTT_TIMESTAMP_FORMAT", "0 0 0")
		}, []string{"USER_PROGRAMMABLE_CC: is 0, need 1: the NIC takes no programs", "REAL_TIME_CLOCK_ENABLE: is not known to this NIC, need 1", "ROCE_CC_RTT_TIMESTAMP_FORMAT: is 0, need 2: probes carry no such timestamps",
			"mlxconfig -d mlx5_0 -y set USER_PROGRAMMABLE_CC=1 ROCE_CC_RTT_TIMESTAMP_FORMAT=2, then shut the host down and " + power}},
		{"only_staged", func(r *rig) { r.nic.SetConfig("USER_PROGRAMMABLE_CC", "False(0) False(0) True(1)") },
			[]string{"USER_PROGRAMMABLE_CC: is 0, and 1 is only staged", power}},
		{"wrong_firmware_and_link", func(r *rig) {
			place(t, r.sys+"hca_type", "MT41692\n")
			place(t, r.sys+"fw_ver", "32.37.1306\n")
			place(t, r.sys+"ports/1/link_layer", "InfiniBand\n")
		}, []string{"firmware: 32.37.1306 of BlueField-3 is older than 32.38.1000", "link type: port 1 is InfiniBand", "LINK_TYPE_P1=2"}},
		{"garbled_firmware", func(r *rig) { place(t, r.sys+"hca_type", "MT41692\n"); place(t, r.sys+"fw_ver", "N/A\n") }, []string{`"N/A" is no version`}},
		{"another_owner", func(r *rig) { r.nic.Slot("0", "bfc00100", "pcm timely 0123456789", true) }, []string{"owner: the NIC runs a PCM handler already (pcm timely 0123456789)"}},
		{"no_device", func(r *rig) { r.d.NIC.Device = "mlx5_9" }, []string{"device: there is no mlx5_9; this host has mlx5_0"}},
		{"mlxconfig_denied", func(r *rig) { r.nic.Mode("mlxconfig", "denied") }, []string{"firmware settings: mlxconfig -d mlx5_0 -e q USER_PROGRAMMABLE_CC", "Failed to open the device"}},
		{"mlxconfig_garbled", func(r *rig) { r.nic.Mode("mlxconfig", "garbled") }, []string{"firmware settings: mlxconfig printed no settings"}},
		{"mlxreg_missing", func(r *rig) { os.Remove(r.nic.Bin + "/mlxreg") }, []string{"register PPCC: mlxreg is not installed", "install NVIDIA's firmware tools"}},
		{"mlxreg_generic", func(r *rig) { r.nic.Mode("mlxreg", "generic") }, []string{"register PPCC: ", "does not support generic access register"}},
		{"mlxreg_garbled", func(r *rig) { r.nic.Mode("mlxreg", "garbled") }, []string{"register PPCC: mlxreg printed no register"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c.with(r)
			ready, err := r.b.Ready(t.Context(), r.d, true)
			said := lacks(ready)
			for _, want := range c.want {
				if err != nil || !strings.Contains(said, want) {
					t.Errorf("no %q in\n%s (%v)", want, said, err)
				}
			}
			if c.name != "another_owner" {
				r.clean()
			}
			if len(r.said) > 0 {
				t.Errorf("it went on: %q", r.said)
			}
		})
	}
}

// TestDeploy_badLoaders: a program that does not come to run, or does not stay.
func TestDeploy_badLoaders(t *testing.T) {
	for _, c := range []struct {
		name, mode string
		tool       string // loader, or mlxreg, once it runs
		want       string // the error of loading, or why it stopped
	}{
		{"on_standby", "standby", "", "another program is active on mlx5_0: its reaction point is one for all ports of the NIC"},
		{"does_not_start", "refuses", "", "the loader ended before the handler ran: exit status 1; its last words: "},
		{"fails_at_once", "failed", "", "the loader ended before the handler ran: exit status 1; its last words: "},
		{"garbled", "garbled", "", `after 3s the handler does not run: the loader says "unknown"`},
		{"exits_later", "exits", "loader", "the loader ended: exit status 9"},
		{"crashes_later", "crashes", "loader", "the loader ended: signal: aborted"},
		{"deactivated_later", "deactivated", "loader", "it was active, and is deactivated"},
		{"standby_later", "standby", "loader", "it was active, and is standby"},
		{"disabled_later", "off", "mlxreg", "slot 0 of the NIC is not enabled"},
		{"replaced_later", "other", "mlxreg", `the NIC runs "somebody's own law, of the fake" in slot 0`},
		{"not_to_be_asked", "denied", "mlxreg", "the NIC could not be asked 3 times in a row"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if c.name == "garbled" {
				r.b.Within = 3 * time.Second
			}
			if c.tool == "" {
				r.nic.Mode("loader", c.mode)
				_, err := r.b.Deploy(t.Context(), r.d)
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "host h3: ") {
					t.Errorf("%v, want %q", err, c.want)
				}
				r.clean()
				return
			}
			x := r.deploy()
			r.nic.Mode(c.tool, c.mode)
			testwait.For(t, 20*time.Second, "the keeper to notice", func() bool {
				x.mu.Lock()
				defer x.mu.Unlock()
				return x.report.Stopped != ""
			})
			r.nic.Mode(c.tool, "")
			report, err := r.remove(x)
			if !strings.Contains(report.Stopped, c.want) || report.At.IsZero() {
				t.Errorf("stopped: %q, want %q; %v", report.Stopped, c.want, err)
			}
			if c.name == "crashes_later" || c.name == "exits_later" { // what such a loader leaves in the NIC is said, with what to type
				if err == nil || !strings.Contains(err.Error(), "by hand: sudo ") || !strings.Contains(err.Error(), "pcc back mlx5_0 1") {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Error(err)
			}
			r.clean()
		})
	}
}

// TestDeploy_badEnds: a handler that does not leave the NIC is reported with what to do, and the journal tells whoever comes next.
func TestDeploy_badEnds(t *testing.T) {
	for mode, want := range map[string]string{"stubborn": "did not take the handler out within 1s", "ghost": `the NIC has "0:bfc00100 enabled=true counters=true; 15:ffff0100`} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.b.End = time.Second
			x := r.deploy()
			r.nic.Mode("loader", mode)
			report, err := r.remove(x)
			if err == nil || !strings.Contains(err.Error(), want) || report.End != "active" {
				t.Errorf("%v, %+v; want %q", err, report, want)
			}
			if len(r.left()) != 1 {
				t.Fatalf("journals: %+v", r.left())
			}
			left, err := knobs.Left(t.Context(), withEnv{r.host, r.b.Env}, false)
			if err != nil || len(left) != 1 || left[0].Run != r.d.Run || left[0].Owner != "alice@desk" {
				t.Errorf("%+v, %v", left, err)
			}
		})
	}
}

// withEnv is a host whose commands have an environment of their own.
type withEnv struct {
	remote.Host
	env []string
}

func (h withEnv) Run(ctx context.Context, c remote.Cmd) (remote.Result, error) {
	c.Env = append(c.Env, h.env...)
	return h.Host.Run(ctx, c)
}

// TestDeploy_orchestratorLost: when whoever asked for it is gone, the handler goes, and the journal with it.
func TestDeploy_orchestratorLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.deploy()
	r.host.Close()
	testwait.For(t, 40*time.Second, "the guard to take the handler out", func() bool {
		_, err := os.Stat(r.nic.Dir + "/ppcc/0/id")
		return err != nil && len(r.left()) == 0
	})
}

// TestDeploy_badCompilers: what DPACC may do wrong, said with the host and the step.
func TestDeploy_badCompilers(t *testing.T) {
	for mode, want := range map[string]string{"fails": "use of undeclared identifier", "nothing": "pcm_dev.a: No such file", "garbled": "build.sh: this failed: gcc", "foreign": `the NIC runs "pcm somebody 0123" in slot 0`, "missing": "there is no DPACC at "} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.nic.Mode("dpacc", mode)
			r.ownDOCA()
			if mode == "missing" {
				os.Remove(r.doca + "/tools/dpacc")
			}
			if mode == "foreign" {
				r.b.Within = 3 * time.Second
			}
			_, err := r.b.Deploy(t.Context(), r.d)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "host h3: ") {
				t.Errorf("%v, want %q", err, want)
			}
			r.clean()
		})
	}
	t.Run("warns", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.nic.Mode("dpacc", "warns")
		r.ownDOCA()
		if _, err := r.remove(r.deploy()); err != nil {
			t.Error(err)
		}
	})
}

// TestDeploy_hangs: a tool that does not answer costs its time and is named; it leaves no process, and nothing in the NIC.
func TestDeploy_hangs(t *testing.T) {
	for tool, want := range map[string]string{"mlxconfig": "firmware settings: mlxconfig -d mlx5_0 -e q USER_PROGRAMMABLE_CC", "mlxreg": "register PPCC: mlxreg -d mlx5_0 "} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.b.Tool = time.Second
			r.nic.Mode(tool, "hang")
			ready, err := r.b.Ready(t.Context(), r.d, true)
			if said := lacks(ready); err != nil || !strings.Contains(said, want) || !strings.Contains(said, "no answer within 1s") {
				t.Errorf("%v, %s", err, said)
			}
			r.clean()
		})
	}
	t.Run("mlxreg_while_it_runs", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.b.Tool = 3 * time.Second
		x := r.deploy()
		r.nic.Mode("mlxreg", "hang")
		testwait.For(t, time.Minute, "the keeper to notice", func() bool {
			x.mu.Lock()
			defer x.mu.Unlock()
			return x.report.Stopped != ""
		})
		r.nic.Mode("mlxreg", "")
		report, err := r.remove(x)
		if err != nil || !strings.Contains(report.Stopped, "the NIC could not be asked 3 times in a row: mlxreg -d mlx5_0 ") || !strings.Contains(report.Stopped, "no answer within 3s") {
			t.Errorf("%v, %q", err, report.Stopped)
		}
		r.clean()
	})
	t.Run("dpacc", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.ownDOCA()
		r.b.Build = 2 * time.Second
		r.nic.Mode("dpacc", "hangs")
		_, err := r.b.Deploy(t.Context(), r.d)
		if err == nil || !strings.Contains(err.Error(), "host h3: build handler swift: ") || !strings.Contains(err.Error(), "2s") {
			t.Errorf("%v", err)
		}
		if drafts, _ := filepath.Glob(shared.home + "/.cache/pcmlab/docapcc/*." + r.d.Run); len(drafts) != 0 {
			t.Errorf("left %v", drafts)
		}
		r.clean()
	})
}

// TestDeploy_floods: what a loader prints does not hold it up, nor us.
func TestDeploy_floods(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.nic.Mode("loader", "flood")
	x := r.deploy()
	if n, err := x.Counters(t.Context()); err != nil || n["handler_flows_swift"] > 1 {
		t.Errorf("%v, %v", n, err)
	}
	if report, err := r.remove(x); err != nil || report.Stopped != "" {
		t.Errorf("%v, %+v", err, report)
	}
	r.clean()
}

// TestDeploy_buildHost: built on another host of the lab, fetched, and checked to the byte on both.
func TestDeploy_buildHost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := t.TempDir() // a home of its own: it has nothing that was built
	s := remotetest.StartSSHD(t, other, "")
	lab := s.Lab(t)
	lab.Hosts[0].Name = "build1"
	r.d.Build = r.dial(lab)
	x := r.deploy()
	report, err := r.remove(x)
	if err != nil || report.BuiltOn != "build1" {
		t.Errorf("%v, %+v", err, report)
	}
	if files, _ := filepath.Glob(other + "/.cache/pcmlab/docapcc/*/build/pcm_load"); len(files) != 1 {
		t.Errorf("the build host has %v", files)
	}
	r.clean()
}

// lacks are the conditions that do not hold, one a line.
func lacks(r nicbackends.Readiness) string {
	var lines []string
	for _, c := range r.Conditions {
		if c.State == nicbackends.Lacks {
			lines = append(lines, c.What+": "+c.Why+" ("+c.Fix+")")
		}
	}
	return strings.Join(lines, "\n")
}

// TestReady_whatHolds: what was looked at is there, too, with what was found, and what could not be judged is no pass.
func TestReady_whatHolds(t *testing.T) {
	r := newRig(t)
	r.nic.SetConfig("REAL_TIME_CLOCK_ENABLE", "False(0) True(1) False(0)")
	for _, c := range []struct {
		sends bool
		want  []nicbackends.Condition
	}{
		{true, []nicbackends.Condition{
			{What: "firmware", State: nicbackends.NotKnown, Found: "40.44.1036 of ConnectX-8, floor: unknown", Why: "NVIDIA publishes a floor for BlueField-3 alone"},
			{What: "link type", Found: "Ethernet"},
			{What: "REAL_TIME_CLOCK_ENABLE", State: nicbackends.HoldsNow, Found: "runs 1, staged 0", Why: "the next boot changes it", Fix: "stage what runs: mlxconfig set REAL_TIME_CLOCK_ENABLE=1"},
			{What: "ROCE_CC_RTT_TIMESTAMP_FORMAT", Found: "runs 2, staged 2"},
			{What: "USER_PROGRAMMABLE_CC", Found: "runs 1, staged 1"},
			{What: "owner", Found: "no handler; the NIC runs NVIDIA's own DCQCN, of the fake in slot 15"},
		}},
		{false, []nicbackends.Condition{
			{What: "firmware", State: nicbackends.NotKnown, Found: "40.44.1036 of ConnectX-8, floor: unknown", Why: "NVIDIA publishes a floor for BlueField-3 alone"},
			{What: "link type", Found: "Ethernet"},
			{What: "FLEX_PARSER_PROFILE_ENABLE", Found: "runs 10, staged 10"},
			{What: "PCC_INT_EN", Found: "runs 0, staged 0"},
			{What: "REAL_TIME_CLOCK_ENABLE", State: nicbackends.HoldsNow, Found: "runs 1, staged 0", Why: "the next boot changes it", Fix: "stage what runs: mlxconfig set REAL_TIME_CLOCK_ENABLE=1"},
		}},
	} {
		ready, err := r.b.Ready(t.Context(), r.d, c.sends)
		if diff := cmp.Diff(c.want, ready.Conditions); err != nil || diff != "" {
			t.Errorf("sends %t: %v (-want +got)\n%s", c.sends, err, diff)
		}
	}
	if log := r.nic.Get("asked"); strings.Contains(log, " set ") || strings.Contains(log, "--set") {
		t.Errorf("something was changed: %s", log)
	}
}

// TestReady_receivers: a NIC that receives needs other settings; what it does not know cannot be on.
func TestReady_receivers(t *testing.T) {
	r := newRig(t)
	r.nic.SetConfig("PCC_INT_EN", "")
	if ready, err := r.b.Ready(t.Context(), r.d, false); err != nil || lacks(ready) != "" || !strings.Contains(strings.Join(ready.Notes, "\n"), "PCC_INT_EN is not known to this NIC") {
		t.Errorf("%v, %+v", err, ready)
	}
	r.nic.SetConfig("PCC_INT_EN", "True(1) True(1) False(0)")
	r.nic.SetConfig("FLEX_PARSER_PROFILE_ENABLE", "0 0 0")
	ready, err := r.b.Ready(t.Context(), r.d, false)
	for _, want := range []string{"PCC_INT_EN: is 1, and 0 is only staged", "FLEX_PARSER_PROFILE_ENABLE: is 0, need 10: answers to probes carry no timestamps", "mlxconfig -d mlx5_0 -y set FLEX_PARSER_PROFILE_ENABLE=10, then shut"} {
		if err != nil || !strings.Contains(lacks(ready), want) {
			t.Errorf("no %q in\n%+v (%v)", want, ready, err)
		}
	}
}

// TestClaims: the reaction point is that of the NIC, whatever port; the notification point that of the physical function.
func TestClaims(t *testing.T) {
	r := newRig(t)
	rp, err := r.b.Claims(t.Context(), r.host, r.d.NIC, true)
	if err != nil || len(rp) != 1 || rp[0].String() != "pcc-rp 0c42:a103:00ab:cd00" {
		t.Errorf("%v, %v", rp, err)
	}
	np, err := r.b.Claims(t.Context(), r.host, r.d.NIC, false)
	if err != nil || len(np) != 1 || np[0].String() != "pcc-np 0000:17:00.0" {
		t.Errorf("%v, %v", np, err)
	}
	root := strings.TrimSuffix(r.b.Root, "/")
	vf := root + "/sys/devices/pci0000:16/0000:17:00.2"
	place(t, vf+"/vendor", "0x15b3\n")
	if err := os.Symlink(root+"/sys/devices/pci0000:16/0000:17:00.0", vf+"/physfn"); err != nil {
		t.Fatal(err)
	}
	os.Remove(r.sys + "device")
	if err := os.Symlink(vf, r.sys+"device"); err != nil {
		t.Fatal(err)
	}
	if np, err = r.b.Claims(t.Context(), r.host, r.d.NIC, false); err != nil || np[0].String() != "pcc-np 0000:17:00.0" {
		t.Errorf("of a virtual function: %v, %v", np, err)
	}
	r.d.NIC.Device = "mlx5_9"
	if _, err := r.b.Claims(t.Context(), r.host, r.d.NIC, true); err == nil || !strings.Contains(err.Error(), "mlx5_9 tells neither GUID nor PCI address") {
		t.Error(err)
	}
}
