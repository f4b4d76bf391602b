//go:build linux

package vlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/fabric"
)

// TestMain lets the test binary stand in for pcmlab: as the lab's processes, and as a caller that is to be killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "lab-host":
			os.Exit(HostMain(context.Background(), os.Args[2:], os.Stderr))
		case "fabric":
			cfg, err := fabric.LoadConfig(os.Args[3])
			if err == nil {
				err = fabric.Main(context.Background(), cfg)
			}
			exit(err)
		case "nic":
			exit(fakeNIC(os.Args[4]))
		case "rtt":
			exit(leastRTT(os.Args[2]))
		case "try-mount":
			exit(syscall.Mount("proc", "/proc", "proc", 0, ""))
		case "try-userns":
			exit(tryUserNS())
		case "up-and-die":
			exit(upAndDie(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// leastRTT prints the least of 10 times that a TCP connection took to be made: one round trip.
func leastRTT(addr string) error {
	least := time.Hour
	for range 10 {
		began := time.Now()
		c, err := net.DialTimeout("tcp", addr, 5*time.Second)
		if err != nil {
			return err
		}
		least = min(least, time.Since(began))
		c.Close()
	}
	fmt.Println(least)
	return nil
}

// fakeNIC is the least that counts as a NIC daemon here: it reads its configuration, opens its socket, fills its
// folder and stays. The real one is tested where it is made.
func fakeNIC(config string) error {
	var c nicConfig
	b, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return err
	}
	if c.Device == "broken0" {
		return errors.New("broken on purpose")
	}
	ports := filepath.Join(c.Sysfs, c.Device, "ports", "1")
	if err := os.MkdirAll(ports, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(ports, "state"), []byte("4: ACTIVE\n"), 0o644); err != nil {
		return err
	}
	l, err := net.Listen("unix", c.Socket)
	if err != nil {
		return err
	}
	defer l.Close()
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	<-term
	return nil
}

// testLab has n hosts with one NIC each, a switch and its host, and one mirror.
func testLab(name string, n int) *inventory.Lab {
	lab := &inventory.Lab{Name: name, File: name + ".yaml", Virtual: &inventory.Virtual{TimeScale: 50}}
	var first string
	for i := range n {
		h := fmt.Sprintf("h%d", i+1)
		if first == "" {
			first = h
		}
		lab.Hosts = append(lab.Hosts, &inventory.Host{Name: h, NICs: []*inventory.NIC{{
			Device: "softnic0", Netdev: "eth0", Backend: "softnic", Rate: 25 * units.GbitPerSec, MTU: 4200, DSCP: 26, ECN: true, Priority: 3,
			IP: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), 24),
		}}})
		lab.Links = append(lab.Links, &inventory.Link{A: inventory.End{Host: h, Netdev: "eth0"}, B: inventory.End{Switch: "sw"},
			Rate: 25 * units.GbitPerSec, Delay: time.Microsecond})
	}
	lab.Hosts = append(lab.Hosts, &inventory.Host{Name: "sw"})
	lab.Switches = []*inventory.Switch{{Name: "sw", Host: "sw", Buffer: 2 * units.MiB, ECN: &inventory.ECN{KMin: 100 * units.KiB, KMax: 400 * units.KiB, PMax: 0.2}}}
	lab.Taps = []*inventory.Tap{{Name: "out", Host: "sw", Iface: "mir0", Switch: "sw", Ports: []string{first}, Direction: inventory.Egress}}
	return lab
}

func testOptions(t testing.TB) Options {
	t.Helper()
	dir := t.TempDir()
	return Options{StateDir: filepath.Join(dir, "labs"), DataDir: filepath.Join(dir, "data")}
}

// needLab skips where no lab can be made at all.
func needLab(t testing.TB) {
	t.Helper()
	if look().admin {
		return
	}
	if err := tryUserNS(); err != nil {
		t.Skipf("neither root nor a user namespace, so no lab can be made here: %v", err)
	}
}

// tryUserNS starts a program in a user namespace in which it may mount.
func tryUserNS() error {
	cmd := exec.Command("/proc/self/exe", "try-mount")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	if out, err := cmd.CombinedOutput(); err != nil {
		return look().namespaceError(true, fmt.Errorf("%w %s", err, out))
	}
	return nil
}

// up builds a lab that the test takes down whatever happens.
func up(t testing.TB, lab *inventory.Lab, o Options) *Instance {
	t.Helper()
	needLab(t)
	o.Ephemeral = true // dies with the test binary too
	inst, err := Up(context.Background(), lab, o)
	if err != nil {
		t.Fatalf("up: %v", err)
	}
	t.Cleanup(func() { Down(context.Background(), inst.ID, o) })
	return inst
}

// run executes a command on a host and gives its output; anything but exit status 0 fails the test.
func run(t testing.TB, inst *Instance, host string, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var out, errs strings.Builder
	code, err := inst.Exec(ctx, host, argv, Stdio{Out: &out, Err: &errs})
	if err != nil || code != 0 {
		t.Fatalf("%s: %q: exit status %d, %v\n%s%s", host, argv, code, err, out.String(), errs.String())
	}
	return strings.TrimSpace(out.String())
}

// world is what a lab may not leave behind: the namespaces of all processes, and this namespace's mounts and links.
type world struct {
	Namespaces []string
	Mounts     string
	Links      []string
	Processes  []string // of this program
}

func lookAround(t testing.TB) world {
	t.Helper()
	var w world
	spaces := map[string]bool{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name()[0] < '0' || e.Name()[0] > '9' {
			continue
		}
		dir := "/proc/" + e.Name()
		exe, err := os.Stat(dir + "/exe") // the file, whatever path a mount namespace shows it under
		if err != nil || !os.SameFile(exe, self) {
			continue // other programs of this machine come and go
		}
		if b, err := os.ReadFile(dir + "/cmdline"); err == nil {
			w.Processes = append(w.Processes, e.Name()+" "+strings.ReplaceAll(string(b), "\x00", " "))
		}
		for _, ns := range []string{"net", "mnt", "uts", "pid", "user", "ipc"} {
			if l, err := os.Readlink(dir + "/ns/" + ns); err == nil {
				spaces[l] = true
			}
		}
	}
	for s := range spaces {
		w.Namespaces = append(w.Namespaces, s)
	}
	sort.Strings(w.Namespaces)
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	w.Mounts = string(b)
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		w.Links = append(w.Links, l.Name)
	}
	return w
}
