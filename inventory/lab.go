// Package inventory describes a lab: hosts, their NICs, the links and switches between them, and the taps that watch.
//
// A lab file says what exists, not what is done with it. Rates, delays and protocol times are hardware values; a
// virtual lab builds them scaled by Virtual.TimeScale.
package inventory

import (
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
)

// Lab is one checked lab file.
type Lab struct {
	Name     string
	File     string   // where it was read from
	Virtual  *Virtual // nil: the hosts exist already (hardware)
	Hosts    []*Host  // in file order
	Switches []*Switch
	Links    []*Link
	Taps     []*Tap
	RDCC     *RDCC // nil: the lab file says nothing of credit control
}

// Virtual says how a lab of network namespaces is built.
type Virtual struct {
	TimeScale   units.Scale   // S: rates /S, delays and protocol times *S; 0 is read as 1
	MaxLateness time.Duration // a run whose fabric or NIC timers were later than this (p99) is not judged; 0 means DefaultMaxLateness
}

// DefaultMaxLateness bounds the timer lateness of a run that is judged.
const DefaultMaxLateness = 20 * time.Millisecond

// Scale is the lab's time scale; 1 on hardware.
func (l *Lab) Scale() units.Scale {
	if l.Virtual == nil {
		return 1
	}
	return units.Scale(l.Virtual.TimeScale.Factor())
}

// Host is a machine that is reached by SSH.
type Host struct {
	Name string
	SSH  SSH
	Sudo bool // run commands that need it under sudo -n
	NICs []*NIC
}

// SSH says how a host is reached. Empty fields are filled from ssh_config, as ssh does.
type SSH struct {
	Address    string // host name, alias of ssh_config, or IP address; empty means the host's name
	Port       int    // 0: ssh_config, then 22
	User       string
	Key        string // identity file
	Jump       string // ProxyJump chain "a,b"; "none" switches ssh_config's off
	KnownHosts string // known_hosts file; empty: the user's own
}

// NIC is one RDMA port of a host.
type NIC struct {
	Device   string       // RDMA device, such as mlx5_0, rxe0 or softnic0
	Netdev   string       // its network interface
	IP       netip.Prefix // data address with prefix length
	IP6      netip.Prefix // a second one, of IPv6, for playbooks that ask for it; not valid: none
	Port     int          // RDMA port number; 0 means 1
	GIDIndex *int         // nil: resolved from sysfs (RoCE v2 whose address is IP)
	Backend  string       // softnic, rxe, mlx5, docapcc
	BuildOn  string       // host that builds the handlers of a docapcc NIC; "": its own
	Rate     units.Rate   // line rate in hardware terms
	MTU      int          // MTU of the network interface; 0 means 1500
	DSCP     int          // DSCP of data packets, 0..63
	ECN      bool         // data packets are ECN-capable (ECT(0)); default true
	Priority int          // 802.1p priority, 0..7
	DCQCN    *bool        // nil: the backend's default (softnic: on)

	Handlers []HandlerRule // PCM handlers that decide in place of the NIC's own control loop, by flow
}

// ConnectX says that it is a NIC of NVIDIA's, with its firmware, tools and driver.
func (n *NIC) ConnectX() bool { return n.Backend == "mlx5" || n.Backend == DOCAPCC }

// DOCAPCC is the backend of NICs whose handlers are programs of NVIDIA DOCA PCC.
const DOCAPCC = "docapcc"

// Switch is a switch of the lab. Its thresholds hold for each of its ports.
type Switch struct {
	Name    string
	Host    string       // host on which its counters and taps are read; empty: it cannot be asked
	Backend string       // how it is asked: "fabric" is the software switch, "linux" a machine with tc; empty: it cannot be asked
	Ports   []SwitchPort // of a linux switch
	Buffer  units.Size   // shared packet buffer
	ECN     *ECN         // nil: no marking
	PFC     *PFC         // nil: off
}

// SwitchPort is an interface of a switch's host, and the host or switch behind it.
type SwitchPort struct{ Name, Iface string }

// ECN is a RED marking curve on the instantaneous queue: no marks below KMin, PMax at KMax, all above.
type ECN struct {
	KMin, KMax units.Size
	PMax       float64
}

// PFC holds the per-priority pause thresholds.
type PFC struct {
	Priorities []int
	XOff, XOn  units.Size
}

// Link joins a host's NIC to a switch, or two switches.
type Link struct {
	A, B   End
	Rate   units.Rate    // hardware terms
	Delay  time.Duration // one way, hardware terms
	Buffer units.Size    // limit of the switch's egress queue on this link; 0: the switch's shared buffer alone
}

// End is one end of a link: a host's interface or a switch.
type End struct {
	Host   string // with Netdev; empty for a switch
	Netdev string
	Switch string
}

// Tap is a place where packets can be captured.
type Tap struct {
	Name      string
	Host      string // the host on which the capture runs
	Iface     string
	Switch    string   // the switch whose ports it mirrors; empty: the host's own interface
	Ports     []string // names of the hosts behind the mirrored ports
	Direction Direction
}

// Direction is what a mirror sees of its ports, from the switch's point of view.
type Direction string

// Ingress sees packets as they arrive at the switch, before its queue; egress after queue, marks and drops.
const (
	Ingress Direction = "ingress"
	Egress  Direction = "egress"
	Both    Direction = "both"
)

// Host finds a host by name, or nil.
func (l *Lab) Host(name string) *Host {
	for _, h := range l.Hosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// Tap finds a tap by name, or nil.
func (l *Lab) Tap(name string) *Tap {
	for _, t := range l.Taps {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// Switch finds a switch by name, or nil.
func (l *Lab) Switch(name string) *Switch {
	for _, s := range l.Switches {
		if s.Name == name {
			return s
		}
	}
	return nil
}
