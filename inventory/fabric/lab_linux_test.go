package fabric

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// insideEnv marks a test process that has been started again as root of its own user namespace.
const insideEnv = "PCMLAB_FABRIC_TEST_USERNS"

// TestMain starts the tests again in a user namespace when the user is not root, so that the live tests can make
// network namespaces. Where that is not allowed they are skipped with the reason.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(childMain())
	}
	if os.Getuid() != 0 && os.Getenv(insideEnv) == "" {
		cmd := exec.Command(os.Args[0], os.Args[1:]...)
		cmd.Env = append(os.Environ(), insideEnv+"=yes")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			Pdeathsig:   syscall.SIGKILL,
		}
		err := cmd.Run()
		var exit *exec.ExitError
		switch {
		case err == nil:
			os.Exit(0)
		case errors.As(err, &exit):
			os.Exit(exit.ExitCode())
		}
	}
	os.Exit(m.Run())
}

// host is a network namespace with one interface, whose other side (a TAP descriptor or a packet socket on the other
// end of a veth pair) is for the fabric. Its namespace lives as long as its thread.
type host struct {
	name  string
	mac   net.HardwareAddr
	ip    net.IP
	iface string
	fd    int // for the fabric
	jobs  chan func()
}

// do runs f on the host's thread.
func (h *host) do(f func() error) error {
	result := make(chan error)
	h.jobs <- func() { result <- f() }
	return <-result
}

const testMTU = 4200

// newHosts makes n hosts that know each other's addresses, or skips.
func newHosts(t testing.TB, n int, kind Kind) []*host {
	t.Helper()
	hosts := make([]*host, n)
	for i := range hosts {
		hosts[i] = newHost(t, i, kind)
	}
	for _, h := range hosts {
		err := h.do(func() error {
			link, err := netlink.LinkByName(h.iface)
			if err != nil {
				return err
			}
			for _, peer := range hosts {
				if peer == h {
					continue
				}
				err := netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: peer.ip, HardwareAddr: peer.mac})
				if err != nil {
					return fmt.Errorf("neighbour: %w", err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return hosts
}

func newHost(t testing.TB, i int, kind Kind) *host {
	t.Helper()
	h := &host{
		name: fmt.Sprintf("h%d", i+1), iface: "eth0", jobs: make(chan func()),
		mac: net.HardwareAddr{2, 0, 0, 0, 0, byte(i + 1)}, ip: net.IPv4(192, 0, 2, byte(i+1)).To4(),
	}
	go func() {
		runtime.LockOSThread() // never unlocked: the namespace goes away with the thread
		for job := range h.jobs {
			job()
		}
	}()
	err := h.do(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("new network namespace: %w", err)
		}
		var err error
		if kind == KindTAP {
			h.fd, err = openTAP(h.iface)
		} else {
			h.fd, err = openVeth(h.iface)
		}
		if err != nil {
			return err
		}
		link, err := netlink.LinkByName(h.iface)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetHardwareAddr(link, h.mac); err != nil {
			return err
		}
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+h.iface+"/disable_ipv6", []byte("1"), 0)
		if err := netlink.LinkSetMTU(link, testMTU); err != nil {
			return err
		}
		if err := netlink.LinkSetTxQLen(link, 10000); err != nil {
			return err
		}
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: h.ip, Mask: net.CIDRMask(24, 32)}}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
	t.Cleanup(func() { close(h.jobs) })
	if err != nil {
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOENT) {
			t.Skipf("live fabric (%s): %v: needs root, or user namespaces and an accessible /dev/net/tun", kind, err)
		}
		t.Fatal(err)
	}
	return h
}

func openTAP(name string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("/dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return -1, err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return -1, fmt.Errorf("TUNSETIFF: %w", err)
	}
	return fd, nil
}

func openVeth(name string) (int, error) {
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: testMTU}, PeerName: "fab0"}
	if err := netlink.LinkAdd(pair); err != nil {
		return -1, fmt.Errorf("veth: %w", err)
	}
	peer, err := netlink.LinkByName("fab0")
	if err != nil {
		return -1, err
	}
	if err := netlink.LinkSetMTU(peer, testMTU); err != nil {
		return -1, err
	}
	for _, link := range []string{name, "fab0"} {
		if err := checksumsInSoftware(link); err != nil {
			return -1, err
		}
	}
	if err := netlink.LinkSetUp(peer); err != nil {
		return -1, err
	}
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	if err != nil {
		return -1, fmt.Errorf("packet socket: %w", err)
	}
	return fd, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: peer.Attrs().Index})
}

// checksumsInSoftware turns transmit checksum offload off: a veth would hand out packets without checksums.
func checksumsInSoftware(iface string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	value := struct{ cmd, data uint32 }{unix.ETHTOOL_STXCSUM, 0}
	req := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(req.name[:], iface)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return fmt.Errorf("%s: checksum offload off: %w", iface, errno)
	}
	runtime.KeepAlive(&value)
	return nil
}

func delLink(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkDel(link)
}

func linkIndex(name string) (int, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return 0, err
	}
	return link.Attrs().Index, nil
}

func setLink(name string, up bool) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if up {
		return netlink.LinkSetUp(link)
	}
	return netlink.LinkSetDown(link)
}
