package capture

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// ring is a packet socket with a TPACKET_V3 receive ring (Documentation/networking/packet_mmap.rst): blocks that the kernel
// fills with packets and hands over when they are full or their time is up.
type ring struct {
	fd      int
	iface   string
	index   int
	link    roce.LinkType
	mem     []byte
	block   int // size of one
	blocks  int
	next    int // block that comes next
	snaplen int
	nic     *hardware // stamps the packets; nil: the host does
}

// ringPacket is one packet in the ring; its data are valid until the block goes back.
type ringPacket struct {
	timeNS  int64
	data    []byte
	origLen int
	byNIC   bool // the time is the NIC's
	tagged  bool // tag holds a VLAN tag that the kernel took out
	tag     [4]byte
}

// openRing makes the socket, its filter and its ring. Nothing is received before bind.
func openRing(o TapOptions) (r *ring, err error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("capture on %s: packet sockets are not allowed here: %w (run as root, or: setcap cap_net_raw+ep pcmlab)", o.Iface, err)
	} else if err != nil {
		return nil, fmt.Errorf("capture on %s: packet socket: %w", o.Iface, err)
	}
	r = &ring{fd: fd, iface: o.Iface, block: o.BlockSize, blocks: o.Blocks, snaplen: o.Snaplen}
	defer func() {
		if err != nil {
			r.close()
			r = nil
		}
	}()
	if err := r.lookUp(); err != nil {
		return r, err
	}
	prog, err := compileFilter(o.Filter, r.link, o.Snaplen)
	if err != nil {
		return r, fmt.Errorf("capture on %s: %w", o.Iface, err)
	}
	if err := r.attach(prog); err != nil {
		return r, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V3); err != nil {
		return r, fmt.Errorf("capture on %s: TPACKET_V3: %w", o.Iface, err)
	}
	const frame = 2048 // V3 packs packets of any length; the number only has to divide the block
	for {
		req := unix.TpacketReq3{Block_size: uint32(r.block), Block_nr: uint32(r.blocks), Frame_size: frame,
			Frame_nr: uint32(r.block / frame * r.blocks), Retire_blk_tov: uint32(o.Retire.Milliseconds())}
		err = unix.SetsockoptTpacketReq3(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req)
		if !errors.Is(err, unix.ENOMEM) || r.blocks <= 2 {
			break
		}
		r.blocks /= 2
	}
	if err != nil {
		return r, fmt.Errorf("capture on %s: ring of %d blocks of %d bytes: %w", o.Iface, r.blocks, r.block, err)
	}
	if r.mem, err = unix.Mmap(fd, 0, r.block*r.blocks, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return r, fmt.Errorf("capture on %s: map the ring of %d bytes: %w", o.Iface, r.block*r.blocks, err)
	}
	if o.Hardware {
		if r.nic, err = openHardware(fd, o.Iface); err != nil {
			return r, err
		}
	}
	if !o.KeepMAC {
		m := unix.PacketMreq{Ifindex: int32(r.index), Type: unix.PACKET_MR_PROMISC}
		if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
			return r, fmt.Errorf("capture on %s: promiscuous mode: %w", o.Iface, err)
		}
	}
	return r, nil
}

// lookUp finds the interface's index and link type and holds it to being up.
func (r *ring) lookUp() error {
	req, err := unix.NewIfreq(r.iface)
	if err != nil {
		return fmt.Errorf("capture: interface name %q: %w", r.iface, err)
	}
	if err := unix.IoctlIfreq(r.fd, unix.SIOCGIFINDEX, req); err != nil {
		return fmt.Errorf("capture: interface %q: %w (there are: %s)", r.iface, err, interfaceNames())
	}
	r.index = int(req.Uint32())
	if err := unix.IoctlIfreq(r.fd, unix.SIOCGIFFLAGS, req); err != nil {
		return fmt.Errorf("capture: interface %q: flags: %w", r.iface, err)
	}
	if req.Uint16()&unix.IFF_UP == 0 {
		return fmt.Errorf("capture: interface %q is down (bring it up: ip link set %s up)", r.iface, r.iface)
	}
	if err := unix.IoctlIfreq(r.fd, unix.SIOCGIFHWADDR, req); err != nil {
		return fmt.Errorf("capture: interface %q: hardware type: %w", r.iface, err)
	}
	switch t := req.Uint16(); t { // the address family of the hardware address comes first
	case unix.ARPHRD_ETHER:
		r.link = roce.LinkEthernet
	case unix.ARPHRD_LOOPBACK:
		r.link = roce.LinkEthernet
		// Each packet passes here twice, going out and coming in: take it once.
		if err := unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
			return fmt.Errorf("capture on %s: leave out what goes out: %w", r.iface, err)
		}
	case unix.ARPHRD_NONE:
		r.link = roce.LinkRaw
	default:
		return fmt.Errorf("capture: interface %q has hardware type %d: only Ethernet, loopback and tun are supported", r.iface, t)
	}
	return nil
}

func interfaceNames() string {
	list, err := net.Interfaces()
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, i := range list {
		names = append(names, i.Name)
	}
	return strings.Join(names[:min(len(names), 20)], " ")
}

// bind starts reception: all protocols, this interface only.
func (r *ring) bind() error {
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8 // in network byte order
	if err := unix.Bind(r.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: r.index}); err != nil {
		return fmt.Errorf("capture on %s: bind: %w", r.iface, err)
	}
	return nil
}

// attach replaces the filter in one step.
func (r *ring) attach(prog []bpf.RawInstruction) error {
	f := make([]unix.SockFilter, len(prog))
	for i, p := range prog {
		f[i] = unix.SockFilter{Code: p.Op, Jt: p.Jt, Jf: p.Jf, K: p.K}
	}
	if err := unix.SetsockoptSockFprog(r.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}); err != nil {
		return fmt.Errorf("capture on %s: filter of %d instructions: %w", r.iface, len(f), err)
	}
	return nil
}

// deafen lets no more packets in; those in the ring stay.
func (r *ring) deafen() error {
	return r.attach([]bpf.RawInstruction{{Op: 0x06, K: 0}}) // ret 0
}

// read walks one block, if the kernel has handed it over, and gives it back. ok is false when there is none.
func (r *ring) read(each func(*ringPacket) error) (ok bool, err error) {
	b := r.mem[r.next*r.block : (r.next+1)*r.block]
	h := (*unix.TpacketHdrV1)(unsafe.Pointer(&b[8])) // after version and offset of the private area
	if atomic.LoadUint32(&h.Block_status)&unix.TP_STATUS_USER == 0 {
		return false, nil
	}
	var p ringPacket
	off := int(h.Offset_to_first_pkt)
	for range h.Num_pkts {
		t := (*unix.Tpacket3Hdr)(unsafe.Pointer(&b[off]))
		mac, n := off+int(t.Mac), int(t.Snaplen)
		p.timeNS = int64(t.Sec)*1e9 + int64(t.Nsec)
		p.data = b[mac : mac+n : mac+n]
		p.origLen = int(t.Len)
		p.byNIC = t.Status&unix.TP_STATUS_TS_RAW_HARDWARE != 0
		p.tagged = t.Status&unix.TP_STATUS_VLAN_VALID != 0
		if p.tagged {
			tpid := uint16(0x8100)
			if t.Status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
				tpid = t.Hv1.Vlan_tpid
			}
			p.tag = [4]byte{byte(tpid >> 8), byte(tpid), byte(t.Hv1.Vlan_tci >> 8), byte(t.Hv1.Vlan_tci)}
		}
		if err := each(&p); err != nil {
			return true, err
		}
		off += int(t.Next_offset)
	}
	atomic.StoreUint32(&h.Block_status, unix.TP_STATUS_KERNEL)
	r.next = (r.next + 1) % r.blocks
	return true, nil
}

// statistics reads and resets the kernel's counters. Its packets include its drops.
func (r *ring) statistics() (packets, drops, freezes uint64, err error) {
	s, err := unix.GetsockoptTpacketStatsV3(r.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("capture on %s: PACKET_STATISTICS: %w", r.iface, err)
	}
	return uint64(s.Packets), uint64(s.Drops), uint64(s.Freeze_q_cnt), nil
}

// socketError takes the pending error of the socket, nil when there is none.
func (r *ring) socketError() error {
	n, err := unix.GetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	return unix.Errno(n)
}

// present reports that the interface still exists under its index, up or down.
func (r *ring) present() bool {
	req, err := unix.NewIfreq(r.iface)
	return err == nil && unix.IoctlIfreq(r.fd, unix.SIOCGIFINDEX, req) == nil && int(req.Uint32()) == r.index
}

func (r *ring) close() {
	if r.mem != nil {
		_ = unix.Munmap(r.mem)
		r.mem = nil
	}
	if r.nic != nil {
		_ = r.nic.close()
	}
	_ = unix.Close(r.fd)
}
