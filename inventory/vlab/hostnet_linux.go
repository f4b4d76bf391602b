package vlab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// tunDevice is the file that TAP devices are made from.
const tunDevice = "/dev/net/tun"

// queueLen is the length of the queue between a host and the fabric. The fabric shapes a host by not reading from it;
// the kernel drops what does not fit here, so it is longer than any sender's window.
const queueLen = 10000

// openTAP makes a TAP device in the network namespace of this process. The descriptor blocks: io_uring wants that.
// Without IFF_VNET_HDR the kernel completes checksums and segments before the packet is read.
func openTAP(name string) (int, error) {
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: tunDevice, Err: err}
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = os.NewSyscallError("TUNSETIFF", unix.IoctlIfreq(fd, unix.TUNSETIFF, req))
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// network sets up the interfaces of a host from inside it.
type network struct {
	spec *hostSpec
	nl   *netlink.Handle
	taps []int // one per NIC, then one per mirror; empty with veth pairs
	offs []Offload
}

// quiet keeps the kernel from talking on new interfaces: no IPv6 addresses, no router solicitations, no reports.
func quietIPv6() error {
	if _, err := os.Stat("/proc/sys/net/ipv6/conf"); errors.Is(err, os.ErrNotExist) {
		return nil // a kernel without IPv6
	}
	for _, key := range []string{"default", "all"} {
		if err := sysctl("net/ipv6/conf/"+key+"/disable_ipv6", "1"); err != nil {
			return err
		}
	}
	return nil
}

func sysctl(key, value string) error { return os.WriteFile("/proc/sys/"+key, []byte(value), 0) }

func (n *network) close() {
	closeAll(n.taps)
	n.taps = nil
	if n.nl != nil {
		n.nl.Close()
	}
}

// setup brings lo up and makes and configures every interface. With veth pairs the keeper has put our ends here.
func (n *network) setup() error {
	var err error
	if n.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return err
	}
	if err := quietIPv6(); err != nil {
		return fmt.Errorf("switch IPv6 off: %w", err)
	}
	lo, err := n.nl.LinkByName("lo")
	if err == nil {
		err = n.nl.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("interface lo: %w", err)
	}
	for _, p := range n.spec.NICs {
		if err := n.nic(p); err != nil {
			return fmt.Errorf("interface %s: %w", p.Netdev, err)
		}
	}
	for _, m := range n.spec.Mirrors {
		if err := n.mirror(m); err != nil {
			return fmt.Errorf("interface %s: %w", m.Netdev, err)
		}
	}
	return nil
}

// attach makes the TAP, or finds our end of the veth pair.
func (n *network) attach(name string) (netlink.Link, error) {
	if n.spec.IO == IOTap {
		fd, err := openTAP(name)
		if err != nil {
			return nil, err
		}
		n.taps = append(n.taps, fd)
	}
	link, err := n.nl.LinkByName(name)
	if err != nil {
		return nil, err
	}
	if !n.spec.KeepOffloads {
		off, err := offloadsOff(name, Offload{Host: n.spec.Name, Netdev: name, End: "host"})
		if err != nil {
			return nil, err
		}
		n.offs = append(n.offs, off...)
	}
	if err := n.nl.LinkSetTxQLen(link, queueLen); err != nil {
		return nil, fmt.Errorf("queue length %d: %w", queueLen, err)
	}
	return link, nil
}

func (n *network) nic(p nicPlan) error {
	link, err := n.attach(p.Netdev)
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(p.MAC)
	if err != nil {
		return err
	}
	if err := n.nl.LinkSetHardwareAddr(link, mac); err != nil {
		return fmt.Errorf("address %s: %w", mac, err)
	}
	if err := n.nl.LinkSetMTU(link, p.MTU); err != nil {
		return fmt.Errorf("mtu %d: %w", p.MTU, err)
	}
	family := unix.AF_INET
	if p.IP.Addr().Is6() {
		family = unix.AF_INET6
		for key, value := range map[string]string{"disable_ipv6": "0", "accept_dad": "0", "accept_ra": "0", "autoconf": "0"} {
			if err := sysctl("net/ipv6/conf/"+p.Netdev+"/"+key, value); err != nil {
				return fmt.Errorf("switch IPv6 on: %w", err)
			}
		}
	}
	if err := n.nl.LinkSetUp(link); err != nil {
		return fmt.Errorf("up: %w", err)
	}
	ipnet := &net.IPNet{IP: p.IP.Addr().AsSlice(), Mask: net.CIDRMask(p.IP.Bits(), p.IP.Addr().BitLen())}
	addr := &netlink.Addr{IPNet: ipnet}
	if family == unix.AF_INET6 {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := n.nl.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("address %s: %w", p.IP, err)
	}
	for _, o := range p.Neighbours {
		mac, err := net.ParseMAC(o.MAC)
		if err != nil {
			return err
		}
		err = n.nl.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, Family: family, State: netlink.NUD_PERMANENT, IP: o.IP.AsSlice(), HardwareAddr: mac})
		if err != nil {
			return fmt.Errorf("neighbour %s: %w", o.IP, err)
		}
	}
	return nil
}

// mirror brings up an interface that has no address and never sends.
func (n *network) mirror(m mirrorPlan) error {
	link, err := n.attach(m.Netdev)
	if err != nil {
		return err
	}
	if err := n.nl.LinkSetMTU(link, m.MTU); err != nil {
		return fmt.Errorf("mtu %d: %w", m.MTU, err)
	}
	if err := n.nl.LinkSetARPOff(link); err != nil {
		return fmt.Errorf("arp off: %w", err)
	}
	return n.nl.LinkSetUp(link)
}

// makeVeth makes a pair in this namespace and hands one end to the namespace of process pid under the name that the
// host knows. It returns a packet socket on the end that stays, and that end's offloads.
func makeVeth(nl *netlink.Handle, w wire, index, mtu, pid int, keepOffloads bool) (fd int, offs []Offload, err error) {
	near := fmt.Sprintf("wire%d", index)
	far := fmt.Sprintf("end%d", index)
	if err := nl.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: near, MTU: mtu, TxQLen: queueLen}, PeerName: far}); err != nil {
		return -1, nil, fmt.Errorf("veth pair of mtu %d: %w", mtu, err)
	}
	peer, err := nl.LinkByName(far)
	if err != nil {
		return -1, nil, err
	}
	if err := nl.LinkSetName(peer, w.Netdev); err != nil {
		return -1, nil, fmt.Errorf("name %s: %w", w.Netdev, err)
	}
	if err := nl.LinkSetNsPid(peer, pid); err != nil {
		return -1, nil, fmt.Errorf("hand over: %w", err)
	}
	return wireEnd(nl, w, near, keepOffloads)
}

// wireEnd prepares the end of a veth pair that a fabric holds.
func wireEnd(nl *netlink.Handle, w wire, name string, keepOffloads bool) (fd int, offs []Offload, err error) {
	link, err := nl.LinkByName(name)
	if err != nil {
		return -1, nil, err
	}
	if !keepOffloads {
		if offs, err = offloadsOff(name, Offload{Host: w.Host, Netdev: w.Netdev, End: "fabric"}); err != nil {
			return -1, nil, err
		}
	}
	if err := nl.LinkSetARPOff(link); err != nil {
		return -1, nil, err
	}
	if err := nl.LinkSetUp(link); err != nil {
		return -1, nil, err
	}
	fd, err = packetSocket(link.Attrs().Index)
	return fd, offs, err
}

// packetSocket is an AF_PACKET socket on one interface, deaf to what it sends itself.
func packetSocket(index int) (int, error) {
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // network byte order
	// Protocol 0 until it is bound: otherwise packets of other interfaces would be queued first.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("packet socket", err)
	}
	fail := func(what string, err error) (int, error) {
		unix.Close(fd)
		return -1, os.NewSyscallError(what, err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
		return fail("PACKET_IGNORE_OUTGOING", err)
	}
	for _, opt := range []int{unix.SO_RCVBUF, unix.SO_SNDBUF} {
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt, 8<<20) // as much as the machine allows
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all & 0xffff, Ifindex: index}); err != nil {
		return fail("bind packet socket", err)
	}
	return fd, nil
}

// tapProblem is what the next opening of a TAP device would say, without making one.
func tapProblem() error {
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: tunDevice, Err: err}
	}
	defer unix.Close(fd)
	var features uint32 // the module may be absent although the node exists; this ioctl needs no rights
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNGETFEATURES, uintptr(unsafe.Pointer(&features))); e != 0 {
		return os.NewSyscallError("TUNGETFEATURES", e)
	}
	return nil
}
