package check

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends/facts"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

const nonce = "0123456789abcdef0123456789abcdef"

// recorded is a host of the testbed as it answered (see nicbackends/facts), under another name and address.
func recorded(t testing.TB, file string, lab *inventory.Lab, host string) facts.Facts {
	t.Helper()
	b, err := os.ReadFile("../facts/testdata/" + file + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	f := facts.Parse(string(b), nonce, facts.Of(lab, "h1"))
	f.Hostname, f.BootID = facts.Value(host), facts.Value("boot of "+host)
	f.Offset = &facts.Offset{Offset: time.Millisecond, Error: 2 * time.Millisecond, N: 6}
	if h := lab.Host(host); len(h.NICs) > 0 {
		ip := h.NICs[0].IP
		f.NICs[0].Addresses = []netip.Prefix{ip}
		f.NICs[0].GIDs = slices.Clone(f.NICs[0].GIDs)
		for i := range f.NICs[0].GIDs {
			if f.NICs[0].GIDs[i].GID.Is4In6() {
				f.NICs[0].GIDs[i].GID = netip.AddrFrom16(ip.Addr().As16())
			}
		}
		return f
	}
	f.NICs = nil
	for _, tap := range lab.Taps {
		f.NICs = append(f.NICs, facts.NIC{Name: tap.Iface, Netdev: "yes", Oper: "up", Qdiscs: "fq_codel root"})
	}
	return f
}

func testbed(t testing.TB) (*inventory.Lab, []Answer) {
	t.Helper()
	lab, err := inventory.Load("../../labs/testbed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var answers []Answer
	for _, h := range lab.Hosts {
		answers = append(answers, Answer{Host: h.Name, Facts: recorded(t, "testbed-h1", lab, h.Name)})
	}
	return lab, answers
}

// show lists findings that are no pass.
func show(f []Finding) string {
	var b strings.Builder
	for _, x := range f {
		if x.Verdict != Pass {
			b.WriteString(strings.Join([]string{x.Host, x.NIC, x.What, string(x.Verdict), x.Found, x.Why, x.Fix}, " | ") + "\n")
		}
	}
	return b.String()
}

func TestJudge_testbedIsWell(t *testing.T) {
	t.Parallel()
	lab, answers := testbed(t)
	found := Judge(lab, answers)
	if n := Count(found); n[Fail]+n[Warn] > 0 || n[Pass] < 50 || n[Skip] == 0 {
		t.Errorf("counts %v:\n%s", n, show(found))
	}
	for _, f := range found {
		if f.Verdict != Pass && f.Why == "" || f.Verdict == Fail && f.Fix == "" {
			t.Errorf("%+v: no reason, or no fix", f)
		}
	}
}

// TestJudge_plantedProblems plants each problem once on a lab that is well: it is found on its host, with its fix, and
// nothing else is.
func TestJudge_plantedProblems(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, why string
		plant     func(lab *inventory.Lab, h2 *Answer)
		what      string
		verdict   Verdict
		words     []string // in what it says and how to mend it
	}{
		{"down", "no answer at all", func(_ *inventory.Lab, a *Answer) {
			*a = Answer{Host: "h2", Err: &remote.Error{Host: "h2", Step: "connect", Fix: "is sshd running there, and the port right?", Err: errors.New("connect to 127.0.0.1:2212: connection refused")}}
		}, "reach", Fail, []string{"connection refused", "is sshd running"}},
		{"ptp_lost", "captures are merged by these clocks", func(_ *inventory.Lab, a *Answer) { a.Facts.PTP = "UNCALIBRATED, offset 0 ns" }, "PTP", Warn,
			[]string{"no port of ptp4l follows a master (UNCALIBRATED)", "on h2: pmc -u -b 0"}},
		{"ptp_unsettled", "it was started a moment ago", func(_ *inventory.Lab, a *Answer) { a.Facts.PTP = "SLAVE, offset 1200000 ns" }, "PTP", Warn, []string{"1.2ms off its master"}},
		{"mtu_small", "USERS: MTU", func(_ *inventory.Lab, a *Answer) { a.Facts.NICs[0].MTU = "1000" }, "MTU", Fail,
			[]string{"the lab file says 1500", "512 instead of 1024", "on h2: ip link set eth0 mtu 1500"}},
		{"mtu_large", "works, and is not what was written down", func(_ *inventory.Lab, a *Answer) { a.Facts.NICs[0].MTU = "9000" }, "MTU", Warn, []string{"1500", "mtu: 9000"}},
		{"port_down", "USERS O15, S11", func(_ *inventory.Lab, a *Answer) { a.Facts.NICs[0].State = "DOWN" }, "port", Fail, []string{"not ACTIVE", "ip link set eth0 up"}},
		{"infiniband", "USERS O15", func(_ *inventory.Lab, a *Answer) { a.Facts.NICs[0].LinkLayer = "InfiniBand" }, "link layer", Fail, []string{"LINK_TYPE_P1=2"}},
		{"perftest_differs", "USERS O15: both ends", func(_ *inventory.Lab, a *Answer) { a.Facts.Perftest = "6.20" }, "perftest version", Fail, []string{"6.06 on h1, h3, r1"}},
		{"no_perftest", "a minimal install", func(_ *inventory.Lab, a *Answer) { delete(a.Facts.Tools, "ib_write_bw") }, "tool ib_write_bw", Fail, []string{"apt-get install perftest"}},
		{"no_ethtool", "less is known, no more", func(_ *inventory.Lab, a *Answer) { delete(a.Facts.Tools, "ethtool") }, "tool ethtool", Warn, []string{"apt-get install ethtool"}},
		{"address_missing", "the wrong interface", func(_ *inventory.Lab, a *Answer) { a.Facts.NICs[0].Addresses = nil }, "address", Fail, []string{"ip addr add 192.0.2.12/24 dev eth0"}},
		{"prefix_differs", "another network", func(_ *inventory.Lab, a *Answer) {
			a.Facts.NICs[0].Addresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.12/16")}
		}, "address", Fail, []string{"another prefix length", "192.0.2.12/24"}},
		{"gid_index_wrong", "link-local in place of IPv4", func(l *inventory.Lab, _ *Answer) { l.Host("h2").NICs[0].GIDIndex = new(int) }, "GID", Fail,
			[]string{"index 0 is not the data address 192.0.2.12", "gid_index: 1"}},
		{"gid_index_unused", "beyond the table", func(l *inventory.Lab, _ *Answer) { n := 77; l.Host("h2").NICs[0].GIDIndex = &n }, "GID", Fail, []string{"index 77 is not in use", "gid_index: 1"}},
		{"gid_v1", "routable is v2", func(l *inventory.Lab, a *Answer) {
			n := 1
			l.Host("h2").NICs[0].GIDIndex = &n
			a.Facts.NICs[0].GIDs[1].Type = "IB/RoCE v1"
		}, "GID", Fail, []string{"not RoCE v2"}},
		{"no_device", "rmmod, or a wrong name", func(_ *inventory.Lab, a *Answer) {
			a.Facts.NICs[0].Present, a.Facts.Devices = facts.Unavailable("no /sys/class/infiniband/rxe0"), nil
		}, "device", Fail, []string{"rdma link add rxe0 type rxe netdev eth0"}},
		{"other_device", "a wrong name", func(_ *inventory.Lab, a *Answer) {
			a.Facts.NICs[0].Present, a.Facts.Devices = facts.Unavailable("no /sys/class/infiniband/rxe0"), []string{"mlx5_0"}
		}, "device", Fail, []string{"it has mlx5_0"}},
		{"no_interface", "renamed", func(_ *inventory.Lab, a *Answer) {
			a.Facts.NICs[0].Netdev, a.Facts.Netdevs = facts.Unavailable("no /sys/class/net/eth0"), []string{"ens1", "lo"}
		}, "interface", Fail, []string{"it has ens1"}},
		{"other_interface", "the device is behind another", func(_ *inventory.Lab, a *Answer) { a.Facts.NICs[0].Behind = []string{"eth1"} }, "interface of the device", Fail, []string{"netdev: eth1"}},
		{"interface_down", "cable", func(_ *inventory.Lab, a *Answer) { a.Facts.NICs[0].Oper = "down" }, "interface", Fail, []string{"cable"}},
		{"memlock", "64 KiB is a login's default", func(_ *inventory.Lab, a *Answer) { a.Facts.Memlock, a.Facts.User = "64", "lab (1000)" }, "memlock", Fail, []string{"64 KiB", "limits.d"}},
		{"sudo_asks", "USERS: NEED_SUDO", func(l *inventory.Lab, a *Answer) {
			l.Host("h2").Sudo = true
			a.Facts.User, a.Facts.Sudo = "nosudo (1001)", facts.Unavailable("exit status 1: sudo: a password is required")
		}, "sudo", Fail, []string{"a password is required", "nosudo ALL=(root) NOPASSWD: ALL"}},
		{"clock_stepped", "by two seconds", func(_ *inventory.Lab, a *Answer) {
			a.Facts.Offset = &facts.Offset{Offset: -2 * time.Second, Error: time.Millisecond, N: 6}
		}, "clock", Fail, []string{"-2000.0 ms", "chrony"}},
		{"clock_off", "a drifting clock", func(_ *inventory.Lab, a *Answer) {
			a.Facts.Offset = &facts.Offset{Offset: 30 * time.Millisecond, Error: time.Millisecond, N: 6}
		}, "clock", Warn, []string{"+30.0 ms"}},
		{"disk_full", "~/.cache", func(_ *inventory.Lab, a *Answer) { a.Facts.DiskKB = "1000" }, "disk", Fail, []string{"100 MiB", "cleanup"}},
		{"governor", "powersave", func(_ *inventory.Lab, a *Answer) { a.Facts.Governor = "powersave" }, "CPU governor", Warn, []string{"cpupower frequency-set -g performance"}},
		{"clock_source", "a broken TSC", func(_ *inventory.Lab, a *Answer) { a.Facts.ClockSource = "hpet" }, "clock source", Warn, []string{"tsc"}},
		{"leftover", "USERS O09", func(_ *inventory.Lab, a *Answer) {
			a.Facts.Leftovers = []facts.Leftover{{Run: "20261130-1-incast", Owner: "ann", At: time.Unix(0, 0), What: "ib_write_bw -d rxe0"}}
		}, "leftover", Fail, []string{"run 20261130-1-incast of ann since 1970", "ib_write_bw -d rxe0", "pcmlab cleanup --run 20261130-1-incast -i"}},
		{"at_work", "somebody's run", func(_ *inventory.Lab, a *Answer) {
			a.Facts.Leftovers = []facts.Leftover{{Run: "r9", Owner: "bob", What: "a guard", Alive: true, PID: 7}}
		}, "run at work", Warn, []string{"run r9 of bob", "pcmlab stop r9"}},
		{"locked", "by a person", func(_ *inventory.Lab, a *Answer) {
			a.Facts.Leftovers = []facts.Leftover{{Owner: "eve@desk", What: "measuring", Alive: true, Until: time.Unix(7200, 0)}}
		}, "lock", Warn, []string{"of eve@desk", "measuring; until 1970-01-01 02:00:00Z", "pcmlab who"}},
		{"same_machine", "two names of one address", func(_ *inventory.Lab, a *Answer) { a.Facts.Hostname, a.Facts.BootID = "h1", "boot of h1" }, "same machine", Fail, []string{"host h1", "HostName"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			lab, answers := testbed(t)
			tc.plant(lab, &answers[1])
			var bad []Finding
			for _, f := range Judge(lab, answers) {
				if f.Verdict == Fail || f.Verdict == Warn {
					bad = append(bad, f)
				}
			}
			if len(bad) != 1 || bad[0].Host != "h2" || bad[0].What != tc.what || bad[0].Verdict != tc.verdict {
				t.Fatalf("found\n%swant h2 | %s | %s alone (%s)", show(bad), tc.what, tc.verdict, tc.why)
			}
			for _, w := range tc.words {
				if all := bad[0].Found + " " + bad[0].Why + " " + bad[0].Fix; !strings.Contains(all, w) {
					t.Errorf("%q lacks %q", all, w)
				}
			}
		})
	}
}

// TestJudge_softRoCEInANamespace is USERS S14: what to type for a soft-RoCE device that is not there, by what the kernel says of
// network namespaces, and what does without one.
func TestJudge_softRoCEInANamespace(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		mode  facts.Value
		words []string
	}{
		{"shared", []string{"rdma link add rxe0 type rxe netdev eth0, on the machine itself", "netns shared"}},
		{"exclusive", []string{"rdma link add rxe0 type rxe netdev eth0, in the machine's own network namespace", "rdma dev set NAME netns NS"}},
		{facts.Unavailable("no /sys/class/infiniband"), []string{"modprobe rdma_rxe && rdma link add rxe0", "no /sys/class/infiniband"}},
		{facts.Unavailable("exit status 1: RDMA is not supported"), []string{"modprobe rdma_rxe && rdma link add rxe0", "RDMA is not supported"}},
	} {
		lab, answers := testbed(t)
		answers[1].Facts.RDMANetns = tc.mode
		answers[1].Facts.NICs[0].Present, answers[1].Facts.Devices = facts.Unavailable("no /sys/class/infiniband/rxe0"), nil
		found := Judge(lab, answers)
		i := slices.IndexFunc(found, func(f Finding) bool { return f.Host == "h2" && f.What == "device" && f.Verdict == Fail })
		if i < 0 {
			t.Fatalf("%s: no finding in\n%s", tc.mode, show(found))
		}
		for _, w := range append(tc.words, "RoCEv2 over UDP", "pcmlab lab up labs/virtual-4.yaml") {
			if !strings.Contains(found[i].Fix, w) {
				t.Errorf("%s: fix %q lacks %q", tc.mode, found[i].Fix, w)
			}
		}
	}
}

// TestJudge_switchesAndTaps: a switch is a host, and has queues and taps.
func TestJudge_switchesAndTaps(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		plant func(a *Answer)
		what  string
		words string
	}{
		{func(a *Answer) { a.Facts.NICs[1].Netdev = facts.Unavailable("no /sys/class/net/p_h1") }, "tap", "iface:"},
		{func(a *Answer) { a.Facts.NICs[0].Oper = "down" }, "tap", "ip link set p_r1 up"},
		{func(a *Answer) { delete(a.Facts.Tools, "tc") }, "tool tc", "apt-get install iproute2"},
		{func(a *Answer) { a.Facts.Capture = facts.Unavailable("needs root") }, "capture", "sudo: true"},
	} {
		lab, answers := testbed(t)
		tc.plant(&answers[4])
		found := Judge(lab, answers)
		i := slices.IndexFunc(found, func(f Finding) bool { return f.Verdict == Fail })
		if i < 0 || found[i].Host != "sw" || found[i].What != tc.what || !strings.Contains(found[i].Fix, tc.words) {
			t.Errorf("want %s on sw with %q, found\n%s", tc.what, tc.words, show(found))
		}
	}
}

// TestJudge_connectX is PFC, ECN and the way from DSCP to priority, of facts as a ConnectX would have them (no ConnectX was
// at hand: see the fake of nicbackends/facts).
func TestJudge_connectX(t *testing.T) {
	t.Parallel()
	lab, err := inventory.Load("../../labs/hardware-example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	lab.Switches[0].PFC = &inventory.PFC{Priorities: []int{3}, XOff: 512 << 10, XOn: 480 << 10}
	good := func() facts.NIC {
		nic := lab.Host("h1").NICs[0]
		return facts.NIC{Device: "mlx5_0", Name: "ens1f0np0", Present: "yes", State: "ACTIVE", LinkLayer: "Ethernet", Netdev: "yes", Oper: "up", MTU: "4200", Speed: "100000",
			PFC: "3", Trust: "dscp", DSCPMap: "26:3 48:6", ECN: "np 3, rp 3", NUMA: "0", FEC: "active RS", Offloads: "gro on", Addresses: []netip.Prefix{nic.IP},
			GIDs: perftest.GIDTable{{Index: 3, GID: netip.AddrFrom16(nic.IP.Addr().As16()), Type: perftest.RoCEv2, Netdev: "ens1f0np0"}}}
	}
	for _, tc := range []struct {
		plant func(n *facts.NIC)
		what  string
		want  Verdict
		words string
	}{
		{func(*facts.NIC) {}, "PFC", Pass, ""},
		{func(n *facts.NIC) { n.PFC = "none" }, "PFC", Fail, "mlnx_qos -i ens1f0np0 --pfc 0,0,0,1,0,0,0,0"},
		{func(n *facts.NIC) { n.ECN = "np 3, rp none" }, "ECN", Fail, "enable/3"},
		{func(n *facts.NIC) { n.Trust = "pcp" }, "DSCP map", Fail, "--trust dscp"},
		{func(n *facts.NIC) { n.DSCPMap = "26:0" }, "DSCP map", Fail, "--dscp2prio set,26,3"},
		{func(n *facts.NIC) { n.DSCPMap = "none" }, "DSCP map", Skip, ""},
		{func(n *facts.NIC) { n.PFC = facts.Unavailable("mlnx_qos is not installed") }, "PFC", Skip, ""},
		{func(n *facts.NIC) { n.Speed = "25000" }, "link rate", Fail, "ethtool ens1f0np0"},
		{func(n *facts.NIC) { n.Speed = facts.Unavailable("the driver does not know the link's speed") }, "link rate", Skip, ""},
	} {
		n := good()
		tc.plant(&n)
		found := Judge(lab, []Answer{{Host: "h1", Facts: facts.Facts{Hostname: "node1", BootID: "b", User: "lab (1000)", Sudo: "yes", NICs: []facts.NIC{n}}}})
		i := slices.IndexFunc(found, func(f Finding) bool { return f.What == tc.what && f.NIC == "mlx5_0" })
		if i < 0 || found[i].Verdict != tc.want || !strings.Contains(found[i].Fix, tc.words) || tc.words != "" && !strings.Contains(found[i].Fix, "sudo ") {
			t.Errorf("want %s %s with %q, found\n%s", tc.what, tc.want, tc.words, show(found))
		}
	}
}
