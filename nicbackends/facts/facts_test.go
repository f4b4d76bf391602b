package facts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/remotetest"
	"github.com/pcmlab/pcmlab/inventory/remote/sshserver"
)

const nonce = "0123456789abcdef0123456789abcdef"

// runScript runs the script here, in each POSIX shell that is there, over a tree.
func runScript(t testing.TB, shell, root string, q Question) string {
	t.Helper()
	cmd := exec.Command(shell, append([]string{"-c", script, "facts"}, q.args(nonce, root)...)...)
	cmd.Env = []string{"LOGNAME=lab", "HOME=" + filepath.Join(root, "home"), "PATH=" + filepath.Join(root, "bin") + ":/usr/bin:/bin"}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%s: %v, standard error %q", shell, err, stderr.String())
	}
	return string(out)
}

var node1 = Question{Sudo: true, NICs: []Ask{{Device: "mlx5_0", Netdev: "ens1f0np0", IP: netip.MustParseAddr("198.51.100.11")}}}

func TestRead_fakeConnectX(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"dash", "bash", "busybox"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue // dash or bash is sh everywhere
		}
		t.Run(shell, func(t *testing.T) {
			if shell == "busybox" {
				link := filepath.Join(t.TempDir(), "sh")
				if err := os.Symlink(path, link); err != nil {
					t.Fatal(err)
				}
				path = link
			}
			f := Parse(runScript(t, path, mlx5Tree(t, nil), node1), nonce, node1)
			want := map[string]string{
				"hostname": "node1", "kernel": "6.8.0-51-generic", "machine": "x86_64", "system": "Ubuntu 24.04.1 LTS", "cpus": "64", "cpu": "Intel(R) Xeon(R) Gold 6338",
				"governor": "performance powersave", "smt": "on", "numa_nodes": "0-1", "clock_source": "tsc", "huge_pages": "2048kB: 500 of 512 free",
				"rdma_core": "2410mlnx54-1.2410068", "perftest": "6.23", "ofed": "MLNX_OFED_LINUX-24.10-1.1.4.0:", "doca": "2.9.1", "rdma_netns": "shared",
				"user": "lab (1000)", "sudo": "yes", "capture": "capability",
				"nic.mlx5_0.present": "yes", "nic.mlx5_0.state": "ACTIVE", "nic.mlx5_0.phys_state": "LinkUp", "nic.mlx5_0.link_layer": "Ethernet", "nic.mlx5_0.rdma_rate": "100 Gb/sec (2X HDR)",
				"nic.mlx5_0.model": "ConnectX-6 Dx (MT4125)", "nic.mlx5_0.psid": "MT_0000000359", "nic.mlx5_0.firmware": "22.39.1002", "nic.mlx5_0.driver": "mlx5_core",
				"nic.mlx5_0.driver_version": "24.10-1.1.4", "nic.mlx5_0.pci": "0000:17:00.0", "nic.mlx5_0.numa": "0", "nic.mlx5_0.gid_index": "3",
				"nic.mlx5_0.traffic_class": "Global tclass=106", "nic.mlx5_0.cm_tos": "106", "nic.mlx5_0.netdev_present": "yes",
				"nic.mlx5_0.operstate": "up", "nic.mlx5_0.mtu": "4200", "nic.mlx5_0.speed_mbps": "100000", "nic.mlx5_0.fec": "active RS, configured Auto RS BaseR",
				"nic.mlx5_0.offloads": "rx-checksumming on, generic-receive-offload on, large-receive-offload off", "nic.mlx5_0.pause": "rx off, tx off",
				"nic.mlx5_0.rings": "rx 1024 of 8192, tx 1024 of 8192", "nic.mlx5_0.coalesce": "adaptive-rx on, rx-usecs 8", "nic.mlx5_0.timestamps": "hardware, clock ptp2",
				"nic.mlx5_0.qdiscs": "mq root; 2 x fq_codel limit 10240p flows 1024", "nic.mlx5_0.pfc": "3", "nic.mlx5_0.trust": "dscp",
				"nic.mlx5_0.dscp_map":     "0:0 1:0 2:0 3:0 4:0 5:0 6:0 7:0 24:3 25:3 26:3 27:3 28:3 29:3 30:3 31:3",
				"nic.mlx5_0.priority_map": "1:0 3:3", "nic.mlx5_0.ecn": "np 3, rp 3", "nic.mlx5_0.dcqcn": "roce_np/min_time_between_cnps=4 roce_rp/rpg_ai_rate=5",
			}
			got := f.flat()
			for _, k := range []string{"memlock", "clock_sync"} { // of this machine
				delete(got, k)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("facts (-want +got):\n%s", d)
			}
			if f.DiskKB != "123456789" || f.Cut != "" || !f.ClockNS.Known() {
				t.Errorf("disk %q, cut %q, clock %q", f.DiskKB, f.Cut, f.ClockNS)
			}
			if d := cmp.Diff([]Socket{{"udp", netip.IPv4Unspecified(), 4791, 0}, {"tcp", netip.IPv4Unspecified(), 18517, 1000}}, f.Sockets, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
				t.Errorf("sockets (-want +got):\n%s", d)
			}
		})
	}
}

// TestRead_saysWhyNot: what is missing, forbidden or broken is a reason, and nothing else is harmed.
func TestRead_saysWhyNot(t *testing.T) {
	t.Parallel()
	ib := "sys/class/infiniband/mlx5_0/"
	for _, tc := range []struct {
		name, why string
		change    map[string]string
		key, want string
	}{
		{"no_tool", "a minimal system", map[string]string{"bin/ethtool": ""}, "nic.mlx5_0.fec", "unavailable: ethtool is not installed"},
		{"tool_fails", "its words are the reason", map[string]string{"bin/ethtool": "echo 'netlink error: Operation not supported' >&2; exit 95"}, "nic.mlx5_0.fec",
			"unavailable: exit status 95: netlink error: Operation not supported"},
		{"needs_root", "said by the tool", map[string]string{"bin/ethtool": "echo 'Operation not permitted'; exit 1"}, "nic.mlx5_0.pause",
			"unavailable: needs root (exit status 1: Operation not permitted)"},
		{"tool_hangs", "a driver that does not answer", map[string]string{"bin/timeout": "exit 124"}, "perftest", "unavailable: no answer within 10 s"},
		{"sudo_asks", "as nosudo on the testbed", map[string]string{"bin/sudo": "echo 'sudo: a password is required' >&2; exit 1"}, "sudo",
			"unavailable: exit status 1: sudo: a password is required"},
		{"no_device", "wrong name, or no driver", map[string]string{ib + "fw_ver": "", ib + "board_id": ""}, "nic.mlx5_0.psid", "MT_0000000359"},
		{"gid_of_another", "the address moved", map[string]string{ib + "ports/1/gids/3": "0000:0000:0000:0000:0000:ffff:c633:6463"}, "nic.mlx5_0.gid_index",
			"unavailable: GID of mlx5_0 port 1 for data address 198.51.100.11: the address is there at index 2, but as IB/RoCE v1, not RoCE v2 (switch the NIC's RoCE mode, or give gid_index)"},
		{"gid_table_damaged", "never a guess", map[string]string{ib + "ports/1/gids/3": "zz"}, "nic.mlx5_0.gid_index", `unavailable: GID table line N: GID "zz": need 16 bytes in hex`},
		{"no_governor", "a virtual machine", map[string]string{"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "", "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": ""},
			"governor", "unavailable: no cpufreq in /sys (a virtual machine, or its firmware decides)"},
		{"speed_unknown", "-1 is no speed", map[string]string{"sys/class/net/ens1f0np0/speed": "-1"}, "nic.mlx5_0.speed_mbps", "unavailable: the driver does not know the link's speed"},
		{"dcb_instead", "upstream tools in place of NVIDIA's", map[string]string{"bin/mlnx_qos": "", "bin/dcb": "case $* in *pfc*) echo 'pfc-cap 8 macsec-bypass off delay 0'; echo 'prio-pfc 0:off 1:off 2:off 3:on 4:on';; *app*) echo 'dscp-prio 26:3 48:6';; esac"},
			"nic.mlx5_0.pfc", "3 4"},
		{"dcb_says_none", "off is not unknown", map[string]string{"bin/mlnx_qos": "", "bin/dcb": "echo 'prio-pfc 0:off 1:off'"}, "nic.mlx5_0.pfc", "none"},
		{"text_like_a_reason", "a host cannot pass for us", map[string]string{"bin/ib_write_bw": "echo 'Version: unavailable: yes'"}, "perftest", "\u200bunavailable: yes"},
		{"control_characters", "they would break tables and terminals", map[string]string{"bin/ib_write_bw": `printf 'Version: 6\033[31m.23\000\377\n'`}, "perftest", "6[31m.23"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := Parse(runScript(t, "sh", mlx5Tree(t, tc.change), node1), nonce, node1)
			got := regexp.MustCompile(`table line \d+`).ReplaceAllString(f.flat()[tc.key], "table line N") // folders have no order
			if got != tc.want {
				t.Errorf("%s (%s):\n got %q\nwant %q", tc.key, tc.why, got, tc.want)
			}
			if f.Hostname != "node1" || f.Cut != "" {
				t.Errorf("hostname %q, cut %q: the rest was harmed", f.Hostname, f.Cut)
			}
		})
	}
}

// TestRead_ptp: what ptp4l says by pmc; the text is laid out as pmc.c of linuxptp 3.1 prints it.
func TestRead_ptp(t *testing.T) {
	t.Parallel()
	const pmc = `printf 'sending: GET TIME_STATUS_NP\n\t0c42a1.fffe.abcd00-0 seq 0 RESPONSE MANAGEMENT TIME_STATUS_NP \n\t\tmaster_offset              %s\n\t\tingress_time               1733000000000000000\n\t\tgmPresent                  true\n\t\tgmIdentity                 0c42a1.fffe.000001\nsending: GET PORT_DATA_SET\n\t0c42a1.fffe.abcd00-1 seq 1 RESPONSE MANAGEMENT PORT_DATA_SET \n\t\tportIdentity            0c42a1.fffe.abcd00-1\n\t\tportState               %s\n\t\tlogMinDelayReqInterval  0\n' `
	for pmc, want := range map[string]string{
		pmc + "-12 SLAVE":      "SLAVE, offset -12 ns",
		pmc + "0 UNCALIBRATED": "UNCALIBRATED, offset 0 ns",
		"echo 'sending: GET TIME_STATUS_NP'; echo 'sending: GET PORT_DATA_SET'": "unavailable: ptp4l does not answer pmc",
		"echo 'uds: bind failed: Permission denied' >&2; exit 255":              "unavailable: exit status 255: uds: bind failed: Permission denied",
		"": "unavailable: pmc (linuxptp) is not installed",
	} {
		f := Parse(runScript(t, "sh", mlx5Tree(t, map[string]string{"bin/pmc": pmc}), node1), nonce, node1)
		if string(f.PTP) != want {
			t.Errorf("%q, want %q", f.PTP, want)
		}
	}
}

// TestParse_cutAnywhere: an answer that ends anywhere gives what it says up to there, and says that it ended.
func TestParse_cutAnywhere(t *testing.T) {
	t.Parallel()
	out := runScript(t, "sh", mlx5Tree(t, nil), node1)
	whole := Parse(out, nonce, node1).Flat()
	for n := 0; n < len(out)-len(nonce)-5; n += 37 {
		f := Parse(out[:n], nonce, node1)
		if f.Cut == "" {
			t.Fatalf("cut after %d of %d bytes, and nothing says so", n, len(out))
		}
		for k, v := range f.flat() {
			if Value(v).Known() && v != whole[k] && !derived[k] {
				t.Fatalf("cut after %d bytes: %s is %q, want %q or a reason", n, k, v, whole[k])
			}
		}
		complete(t, f)
	}
}

// derived are values from several items, of which one may say less than all.
var derived = map[string]bool{"capture": true, "nic.mlx5_0.driver": true, "nic.mlx5_0.model": true}

// complete checks that each value that was asked for is one or a reason.
func complete(t testing.TB, f Facts) {
	t.Helper()
	check := func(v reflect.Value) {
		for i := range v.NumField() {
			if x, ok := v.Field(i).Interface().(Value); ok && x == "" {
				t.Fatalf("%s.%s is empty", v.Type().Name(), v.Type().Field(i).Name)
			}
		}
	}
	check(reflect.ValueOf(f))
	for _, n := range f.NICs {
		check(reflect.ValueOf(n))
	}
}

// TestRDMANetns is what rdma-system(8) prints, of three releases of iproute2, and what is no answer of it.
func TestRDMANetns(t *testing.T) {
	t.Parallel()
	for text, want := range map[Value]Value{
		"netns shared":                 "shared",
		"netns shared copy-on-fork on": "shared",
		"netns exclusive copy-on-fork on privileged-qkey off": "exclusive",
		"netns":                "netns",
		Unavailable("no tool"): Unavailable("no tool"),
	} {
		if got := rdmaNetns(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestRead_leftovers: guards by their records, at work and not; locks of runs that live, of runs that do not, of people.
func TestRead_leftovers(t *testing.T) {
	t.Parallel()
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	boot, pid, start := "11111111-2222-3333-4444-555555555555", os.Getpid(), startOf(string(stat))
	guard := func(run, boot string, start uint64) string {
		return fmt.Sprintf(`{"event":"guarding","at":"2026-11-30T12:00:00Z","run":%q,"boot_id":%q,"pid":%d,"start":%d,"args":["ib_write_bw","-d"]}`, run, boot, pid, start)
	}
	hold := func(id string, run bool, start uint64, expires string) string {
		return fmt.Sprintf(`{"id":%q,"run":%v,"owner":"eve@desk","reason":"why","since":"2026-11-30T12:00:00Z","expires":%q,"process":{"pid":%d,"start":%d,"boot_id":%q}}`, id, run, expires, pid, start, boot)
	}
	const later, earlier = "2199-01-01T00:00:00Z", "2000-01-01T00:00:00Z"
	g, l := "home/.cache/pcmlab/guards/", "run/lock/pcmlab/"
	root := mlx5Tree(t, map[string]string{
		g + "a/1.json": guard("a", boot, start), g + "b/1.json": guard("b", "another boot", start), g + "c/1.json": guard("c", boot, start+1), g + "own/1.json": guard("own", boot, start),
		g + "d/1.json": "damaged", l + "1.json": hold("e", true, start, later), l + "2.json": hold("f", true, start+1, later), l + "3.json": hold("eve", false, 0, later),
		l + "4.json": hold("old", false, 0, earlier), l + "5.json": hold("own", true, start, later),
	})
	q := node1
	q.Run = "own"
	var got []string
	for _, x := range Parse(runScript(t, "sh", root, q), nonce, q).Leftovers {
		got = append(got, fmt.Sprintf("%s of %s, %s, %v", x.Run, x.Owner, x.What, x.Alive))
	}
	want := []string{"a of lab, ib_write_bw -d, true", "b of lab, ib_write_bw -d, false", "c of lab, ib_write_bw -d, false", "e of eve@desk, why, true", " of eve@desk, why, true"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("leftovers (-want +got):\n%s", d)
	}
}

func TestQuestion_ofALab(t *testing.T) {
	t.Parallel()
	lab, err := inventory.Load("../../labs/testbed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	q := Of(lab, "sw")
	var names []string
	for _, n := range q.NICs {
		names = append(names, n.Netdev+n.Device)
	}
	if d := cmp.Diff([]string{"p_r1", "p_h1", "p_h2", "p_h3"}, names); d != "" {
		t.Errorf("interfaces of sw's taps (-want +got):\n%s", d)
	}
	if q := Of(lab, "h1"); len(q.NICs) != 1 || q.NICs[0].Device != "rxe0" || q.NICs[0].IP != netip.MustParseAddr("192.0.2.11") {
		t.Errorf("h1: %+v", q.NICs)
	}
}

// TestRead_overSSH asks this machine over a connection, clock included: the clocks are one, and its offset is none.
func TestRead_overSSH(t *testing.T) {
	t.Parallel()
	s := remotetest.Start(t, "", sshserver.Options{})
	lab := s.Lab(t)
	h, err := remote.Dial(t.Context(), lab, "h3", remote.Options{Home: t.TempDir(), ConfigFiles: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	f, err := Read(t.Context(), h, Question{Plain: true, Clock: 5})
	if err != nil {
		t.Fatal(err)
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	if string(f.Kernel) != strings.TrimSpace(string(kernel)) {
		t.Errorf("kernel %q, want %q", f.Kernel, kernel)
	}
	if o := f.Offset; o == nil || o.N != 5 || o.Why != "" || o.Offset.Abs() > o.Error {
		t.Errorf("offset %+v, want none within its error", o)
	}
	complete(t, f)
}

func TestRead_withoutAnEnd(t *testing.T) {
	t.Parallel()
	s := remotetest.Start(t, "", sshserver.Options{Shell: script2(t, `echo "Welcome"; echo "no shell for you" >&2; exit 1`)})
	h, err := remote.Dial(t.Context(), s.Lab(t), "h3", remote.Options{Home: t.TempDir(), ConfigFiles: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	f, err := Read(t.Context(), h, Question{Plain: true, Clock: 5})
	if err == nil || !strings.Contains(err.Error(), "has no end") || !strings.Contains(err.Error(), "no shell for you") {
		t.Errorf("error %v, want what the host said", err)
	}
	if f.Offset == nil || f.Offset.Why == "" || f.Kernel.Known() {
		t.Errorf("offset %+v, kernel %q of a host that said nothing", f.Offset, f.Kernel)
	}
}

func script2(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shell")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFacts_readsOldRecords: bundles of earlier versions have fewer keys, of the same names.
func TestFacts_readsOldRecords(t *testing.T) {
	t.Parallel()
	old := `{"hostname":"h1","boot_id":"b","kernel":"6.1","machine":"x86_64","system":"Debian","cpus":"2","cpu":"AMD","clock_source":"tsc","clock_ns":"1"}`
	var f Facts
	if err := json.Unmarshal([]byte(old), &f); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"hostname": "h1", "kernel": "6.1", "machine": "x86_64", "system": "Debian", "cpus": "2", "cpu": "AMD", "clock_source": "tsc"}
	if d := cmp.Diff(want, f.Flat()); d != "" {
		t.Errorf("flat (-want +got):\n%s", d)
	}
}

func FuzzParse(f *testing.F) {
	out := runScript(f, "sh", mlx5Tree(f, nil), node1)
	f.Add(out)
	f.Add(out[:len(out)/2])
	f.Add(nonce + " + gids\nx\n" + nonce + " = 2\n" + nonce + " end\n")
	recorded, _ := filepath.Glob("testdata/*.txt")
	for _, name := range recorded {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	control := regexp.MustCompile(`[\x00-\x1f\x7f]`)
	f.Fuzz(func(t *testing.T, out string) {
		got := Parse(out, nonce, node1)
		complete(t, got)
		for k, v := range got.flat() {
			if control.MatchString(v) {
				t.Fatalf("%s = %q would break a table", k, v)
			}
		}
		b, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var back Facts
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		if d := cmp.Diff(got.flat(), back.flat()); d != "" {
			t.Fatalf("JSON and back (-before +after):\n%s", d)
		}
	})
}
