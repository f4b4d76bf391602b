package softnic

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// packetRing receives through a packet socket with a TPACKET_V2 ring (Documentation/networking/packet_mmap.rst)
// instead of the UDP socket, for two reasons: the ring's size is not bound by net.core.rmem_max, which an unprivileged
// NIC cannot pass and which is a few milliseconds of traffic; and it sees the IP header, so that the ICRC of foreign
// senders, whose IP identification is not 0, can be verified. Version 3 would hold packets back by its retire timer.
type packetRing struct {
	fd        int
	mem       []byte
	frameSize int
	perBlock  int
	blockSize int
	frames    int
	next      int
	drops     uint32 // taken from the socket, which forgets them
}

const (
	ringBlock  = 256 << 10
	ringBlocks = 64

	tpStatusUser = 1 // TP_STATUS_USER
)

// tpacket2Hdr is struct tpacket2_hdr.
type tpacket2Hdr struct {
	status, length, snaplen uint32
	mac, network            uint16
	sec, nsec               uint32
	vlanTCI, vlanTPID       uint16
	_                       [4]byte
}

func openPacketRing(netdev string, ip netip.Addr, mtu int) (*packetRing, error) {
	i, err := net.InterfaceByName(netdev)
	if err != nil {
		return nil, fmt.Errorf("netdev %q: %w", netdev, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("packet socket", err)
	}
	r := &packetRing{fd: fd, blockSize: ringBlock}
	r.frameSize = (mtu + 256 + 15) &^ 15 // header, link header, alignment
	r.perBlock = ringBlock / r.frameSize
	r.frames = r.perBlock * ringBlocks
	if err := r.setUp(i.Index, ip); err != nil {
		r.close()
		return nil, fmt.Errorf("packet socket on %q: %w", netdev, err)
	}
	return r, nil
}

func (r *packetRing) setUp(ifindex int, ip netip.Addr) error {
	if err := unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2); err != nil {
		return os.NewSyscallError("PACKET_VERSION", err)
	}
	const ignoreOutgoing = 23 // PACKET_IGNORE_OUTGOING
	if err := unix.SetsockoptInt(r.fd, unix.SOL_PACKET, ignoreOutgoing, 1); err != nil {
		return os.NewSyscallError("PACKET_IGNORE_OUTGOING", err)
	}
	// Ethernet, IPv4 without options to ip, UDP to 4791, whole packets: everything else stays out of the ring.
	a := ip.As4()
	ins := func(code uint16, k uint32, jf uint8) unix.SockFilter {
		return unix.SockFilter{Code: code, K: k, Jf: jf}
	}
	const (
		ldh = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS
		ldb = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
		ldw = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		jeq = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	)
	prog := []unix.SockFilter{
		ins(ldh, 12, 0), ins(jeq, unix.ETH_P_IP, 11),
		ins(ldb, 14, 0), ins(jeq, 0x45, 9),
		ins(ldb, 23, 0), ins(jeq, unix.IPPROTO_UDP, 7),
		ins(ldw, 30, 0), ins(jeq, binary.BigEndian.Uint32(a[:]), 5),
		ins(ldh, 20, 0), {Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: 0x3fff, Jt: 3},
		ins(ldh, 36, 0), ins(jeq, 4791, 1),
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 18},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	if err := unix.SetsockoptSockFprog(r.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}); err != nil {
		return os.NewSyscallError("SO_ATTACH_FILTER", err)
	}
	req := unix.TpacketReq{Block_size: ringBlock, Block_nr: ringBlocks, Frame_size: uint32(r.frameSize), Frame_nr: uint32(r.frames)}
	if err := unix.SetsockoptTpacketReq(r.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req); err != nil {
		return os.NewSyscallError("PACKET_RX_RING", err)
	}
	var err error
	if r.mem, err = unix.Mmap(r.fd, 0, ringBlock*ringBlocks, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	proto := uint16(unix.ETH_P_IP)
	proto = proto<<8 | proto>>8
	if nativeBig {
		proto = unix.ETH_P_IP
	}
	if err := unix.Bind(r.fd, &unix.SockaddrLinklayer{Protocol: proto, Ifindex: ifindex}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	return nil
}

var nativeBig = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// deafen lets the UDP socket drop all that comes, so that it holds the port against ICMP errors and nothing else.
func deafen(fd int) error {
	none := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}
	return os.NewSyscallError("SO_ATTACH_FILTER", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &none}))
}

// frame is the start of slot i.
func (r *packetRing) frame(i int) []byte {
	at := i/r.perBlock*r.blockSize + i%r.perBlock*r.frameSize
	return r.mem[at : at+r.frameSize]
}

// recv hands up to batchSize datagrams to f; their data is valid during the call.
func (r *packetRing) recv(f func(*message)) (n int) {
	var m message
	for ; n < batchSize; n++ {
		slot := r.frame(r.next)
		h := (*tpacket2Hdr)(unsafe.Pointer(&slot[0]))
		if atomic.LoadUint32(&h.status)&tpStatusUser == 0 {
			return n
		}
		end := int(h.network) + int(h.snaplen) - (int(h.network) - int(h.mac))
		if ip := slot[min(int(h.network), len(slot)):min(max(end, int(h.network)), len(slot))]; m.parse(ip) {
			f(&m)
		}
		atomic.StoreUint32(&h.status, 0)
		r.next = (r.next + 1) % r.frames
	}
	return n
}

// parse reads an IPv4 packet that passed the filter. Ethernet padding behind it is left off.
func (m *message) parse(ip []byte) bool {
	if len(ip) < 28 {
		return false
	}
	total := int(binary.BigEndian.Uint16(ip[2:]))
	udp := int(binary.BigEndian.Uint16(ip[24:]))
	if total > len(ip) || udp < 8 || 20+udp > total {
		return false
	}
	*m = message{src: [4]byte(ip[12:16]), sport: binary.BigEndian.Uint16(ip[20:]), tos: ip[1],
		ipID: binary.BigEndian.Uint16(ip[4:]), df: ip[6]&0x40 != 0, data: ip[28 : 20+udp]}
	return true
}

// dropped is the number of packets that found the ring full since it was opened.
func (r *packetRing) dropped() uint32 {
	if s, err := unix.GetsockoptTpacketStats(r.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		r.drops += s.Drops
	}
	return r.drops
}

func (r *packetRing) close() {
	if r.mem != nil {
		_ = unix.Munmap(r.mem)
	}
	unix.Close(r.fd)
}
