package vlab

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/fabric"
)

// layout is what a lab file comes to: values as built, nothing made yet. Computing it touches nothing.
type layout struct {
	Hosts   []hostPlan
	Fabrics []fabricPlan
	Trunks  []trunkPlan
}

// trunkPlan is the wire between two switches: a veth pair, each end with the packet socket of one fabric.
type trunkPlan struct {
	A, B wire
	MTU  int
}

// hostPlan is the network of one host.
type hostPlan struct {
	Name    string       `json:"name"`
	NICs    []nicPlan    `json:"nics,omitempty"`
	Mirrors []mirrorPlan `json:"mirrors,omitempty"`
}

// nicPlan is one interface with its wire.
type nicPlan struct {
	Netdev     string       `json:"netdev"`
	IP         netip.Prefix `json:"ip"`
	MAC        string       `json:"mac"`
	MTU        int          `json:"mtu"`
	Neighbours []neighbour  `json:"neighbours,omitempty"`
	Device     string       `json:"device,omitempty"`
	Daemon     *nicConfig   `json:"daemon,omitempty"` // nil: no software NIC
}

// neighbour is another interface on the same subnet.
type neighbour struct {
	IP  netip.Addr `json:"ip"`
	MAC string     `json:"mac"`
}

// mirrorPlan is an interface that only shows copies.
type mirrorPlan struct {
	Netdev string `json:"netdev"`
	MTU    int    `json:"mtu"`
}

// nicConfig is what `pcmlab nic serve --config` reads: the fields of softnic.Config that a lab decides. The package is
// not imported because daemons are started by exec only.
type nicConfig struct {
	Device   string       `json:"device"`
	Netdev   string       `json:"netdev"`
	IP       netip.Prefix `json:"ip"`
	MAC      string       `json:"mac,omitempty"`
	RateBps  int64        `json:"rate_bps"`
	MTU      int          `json:"mtu"`
	DSCP     int          `json:"dscp"`
	ECN      bool         `json:"ecn"`
	Priority int          `json:"priority"`
	DCQCN    dcqcnConfig  `json:"dcqcn"`
	Scale    float64      `json:"time_scale"`
	Socket   string       `json:"socket"`
	Sysfs    string       `json:"sysfs"`
	HostName string       `json:"host_name"`
}

type dcqcnConfig struct {
	Enabled bool `json:"enabled"`
}

// fabricPlan is one switch. Its descriptors are filled in when the interfaces exist.
type fabricPlan struct {
	Switch  string        `json:"switch"`
	Host    string        `json:"host,omitempty"` // host whose /run/pcmlab holds the control socket; empty: the lab's folder
	Socket  string        `json:"socket"`         // its name there
	Config  fabric.Config `json:"config"`
	Ports   []wire        `json:"ports"`   // which interface each port of Config goes to
	Mirrors []wire        `json:"mirrors"` // and each mirror
}

// wire names an interface of a host, or, without a host, one of the keeper's own namespace.
type wire struct {
	Host   string `json:"host"`
	Netdev string `json:"netdev"`
}

const (
	softnicBackend = "softnic"
	sysfsDir       = "/sys/class/infiniband"
	nicRunDir      = "/run/pcmlab/nic"
	fabricSocket   = "fabric.sock" // in /run/pcmlab of the switch's host
	maxNetdev      = 15            // IFNAMSIZ without the zero
)

// plan checks that the lab can be built and scales it. All mistakes are reported at once.
func plan(lab *inventory.Lab) (*layout, error) {
	p := planner{lab: lab, scale: lab.Scale(), macs: map[wire]string{}, linked: map[wire]bool{}}
	if lab.Virtual == nil {
		return nil, errors.New("no virtual section: this lab's hosts exist already")
	}
	p.hosts()
	p.switches()
	for _, h := range lab.Hosts {
		for _, n := range h.NICs {
			if !p.linked[wire{h.Name, n.Netdev}] {
				p.bad("host %q: netdev %q: no link joins it to a switch", h.Name, n.Netdev)
			}
		}
	}
	if err := errors.Join(p.errs...); err != nil {
		return nil, err
	}
	return &p.out, nil
}

type planner struct {
	lab    *inventory.Lab
	scale  units.Scale
	out    layout
	macs   map[wire]string
	linked map[wire]bool
	errs   []error
}

func (p *planner) bad(format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf(format, args...))
}

// maxQuantum bounds for how long the fabric gathers packets.
const maxQuantum = 200 * time.Microsecond

// quantum is how long the fabric may gather packets before it hands them over: half of the shortest one-way path, host
// to switch to host, so that what a host measures as round trip stays within a quarter of what the lab file says.
// Gathering takes a wake-up a quantum instead of one a packet.
func (p *planner) quantum() time.Duration {
	shortest := maxQuantum
	for _, l := range p.lab.Links {
		shortest = min(shortest, p.scale.Time(l.Delay))
	}
	return shortest
}

func (p *planner) hosts() {
	if len(p.lab.Hosts) == 0 {
		p.bad("no hosts")
	}
	taken := map[string]wire{}
	for _, h := range p.lab.Hosts {
		hp := hostPlan{Name: h.Name}
		for _, n := range h.NICs {
			w := wire{h.Name, n.Netdev}
			if _, dup := p.macs[w]; dup {
				p.bad("host %q: netdev %q: used twice", h.Name, n.Netdev)
			}
			p.checkName(h.Name, n.Netdev)
			if !n.IP.IsValid() {
				p.bad("host %q: netdev %q: no data address", h.Name, n.Netdev)
			}
			mac := macOf(n.IP.Addr(), p.lab.Name+"/"+h.Name+"/"+n.Netdev)
			if other, dup := taken[mac]; dup {
				p.bad("host %q: netdev %q: data address %s is also that of %s %s", h.Name, n.Netdev, n.IP.Addr(), other.Host, other.Netdev)
			}
			taken[mac] = w
			p.macs[w] = mac
			hp.NICs = append(hp.NICs, p.nic(h, n, mac))
		}
		for _, t := range p.lab.Taps {
			if t.Host == h.Name && t.Switch != "" {
				p.checkName(h.Name, t.Iface)
				hp.Mirrors = append(hp.Mirrors, mirrorPlan{Netdev: t.Iface, MTU: p.maxMTU()})
			}
		}
		p.out.Hosts = append(p.out.Hosts, hp)
	}
	for i := range p.out.Hosts {
		for j := range p.out.Hosts[i].NICs {
			n := &p.out.Hosts[i].NICs[j]
			n.Neighbours = p.neighbours(p.out.Hosts[i].Name, *n)
		}
	}
}

func (p *planner) nic(h *inventory.Host, n *inventory.NIC, mac string) nicPlan {
	mtu := n.MTU
	if mtu == 0 {
		mtu = 1500
	}
	np := nicPlan{Netdev: n.Netdev, IP: n.IP, MAC: mac, MTU: mtu, Device: n.Device}
	if n.Backend != "" && n.Backend != softnicBackend {
		p.bad("host %q: device %q: backend %q needs real hardware (a virtual lab has %s only)", h.Name, n.Device, n.Backend, softnicBackend)
	}
	if n.Device == "" {
		return np
	}
	rate := n.Rate
	if rate == 0 {
		if l := p.link(h.Name, n.Netdev); l != nil {
			rate = l.Rate
		}
	}
	np.Daemon = &nicConfig{
		Device: n.Device, Netdev: n.Netdev, IP: n.IP, MAC: mac, RateBps: int64(p.scale.Rate(rate)), MTU: mtu,
		DSCP: n.DSCP, ECN: n.ECN, Priority: n.Priority, DCQCN: dcqcnConfig{Enabled: n.DCQCN == nil || *n.DCQCN},
		Scale: p.scale.Factor(), Socket: nicRunDir + "/" + n.Device + ".sock", Sysfs: sysfsDir, HostName: h.Name,
	}
	return np
}

// neighbours are all other interfaces on n's subnet: nobody asks by ARP in a lab, so no such packets are in captures.
func (p *planner) neighbours(host string, n nicPlan) []neighbour {
	var out []neighbour
	for _, h := range p.lab.Hosts {
		for _, o := range h.NICs {
			if (h.Name != host || o.Netdev != n.Netdev) && n.IP.Contains(o.IP.Addr()) {
				out = append(out, neighbour{IP: o.IP.Addr(), MAC: p.macs[wire{h.Name, o.Netdev}]})
			}
		}
	}
	return out
}

func (p *planner) maxMTU() int {
	mtu := 1500
	for _, h := range p.lab.Hosts {
		for _, n := range h.NICs {
			mtu = max(mtu, n.MTU)
		}
	}
	return mtu
}

func (p *planner) link(host, netdev string) *inventory.Link {
	for _, l := range p.lab.Links {
		for _, e := range []inventory.End{l.A, l.B} {
			if e.Host == host && e.Netdev == netdev {
				return l
			}
		}
	}
	return nil
}

func (p *planner) checkName(host, netdev string) {
	if netdev == "" || len(netdev) > maxNetdev || netdev == "lo" {
		p.bad("host %q: interface %q: need 1 to %d characters and not lo", host, netdev, maxNetdev)
	}
}

func (p *planner) switches() {
	if len(p.lab.Switches) == 0 {
		p.bad("no switch")
	}
	fabrics := map[string]*fabricPlan{}
	for _, s := range p.lab.Switches {
		if s.Host != "" && p.lab.Host(s.Host) == nil {
			p.bad("switch %q: host %q: not in this lab", s.Name, s.Host)
		}
		if s.PFC != nil {
			p.bad("switch %q: pfc: the virtual lab's switch has none yet", s.Name)
		}
		socket := fabricSocket
		for _, f := range p.out.Fabrics {
			if f.Host == s.Host {
				socket = "fabric-" + s.Name + ".sock" // the first on a host has the short name
			}
		}
		p.out.Fabrics = append(p.out.Fabrics, fabricPlan{Switch: s.Name, Host: s.Host, Socket: socket,
			Config: fabric.Config{Name: s.Name, TimeScale: p.scale.Factor(), Buffer: s.Buffer, MaxFrame: max(fabric.DefaultMaxFrame, p.maxMTU()+18), Quantum: p.quantum()}})
	}
	for i, s := range p.lab.Switches {
		fabrics[s.Name] = &p.out.Fabrics[i]
	}
	trees := map[string]string{} // the parent of each switch among those that trunks join
	for _, l := range p.lab.Links {
		if l.A.Switch != "" && l.B.Switch != "" {
			p.trunk(l, fabrics, trees)
			continue
		}
		host, sw := l.A, l.B
		if host.Switch != "" {
			host, sw = sw, host
		}
		if sw.Switch == "" {
			p.bad("link %s to %s: the virtual lab has no cables from host to host, put a switch between them", endName(l.A), endName(l.B))
			continue
		}
		f := fabrics[sw.Switch]
		w := wire{host.Host, host.Netdev}
		mac, known := p.macs[w]
		switch {
		case f == nil:
			p.bad("link of %s: switch %q: not in this lab", endName(host), sw.Switch)
			continue
		case !known:
			p.bad("link to switch %q: no NIC %s", sw.Switch, endName(host))
			continue
		case p.linked[w]:
			p.bad("host %q: netdev %q: has two links", w.Host, w.Netdev)
			continue
		}
		p.linked[w] = true
		rate := l.Rate
		if rate == 0 {
			rate = p.nicOf(w).Rate
		}
		f.Ports = append(f.Ports, w)
		f.Config.Ports = append(f.Config.Ports, fabric.PortConfig{Name: portName(p.lab, w), MAC: mac,
			Rate: p.scale.Rate(rate), Delay: p.scale.Time(l.Delay), Buffer: l.Buffer, ECN: ecnOf(p.lab.Switch(sw.Switch))})
	}
	for _, t := range p.lab.Taps {
		if t.Switch == "" {
			continue
		}
		f := fabrics[t.Switch]
		if f == nil || p.lab.Host(t.Host) == nil {
			p.bad("tap %q: needs a switch and a host of this lab (%q on %q)", t.Name, t.Switch, t.Host)
			continue
		}
		m := fabric.MirrorConfig{Name: t.Name, Direction: fabric.Direction(t.Direction)}
		for _, name := range t.Ports {
			found := false
			for i, w := range f.Ports {
				if w.Host == name || f.Config.Ports[i].Name == name {
					m.Ports, found = append(m.Ports, f.Config.Ports[i].Name), true
				}
			}
			if !found {
				p.bad("tap %q: port %q: no host of that name is linked to switch %q", t.Name, name, t.Switch)
			}
		}
		if dup(f.Config, m.Name) {
			m.Name = t.Name + "@" + t.Iface // a tap may be called like a host
		}
		f.Mirrors = append(f.Mirrors, wire{t.Host, t.Iface})
		f.Config.Mirrors = append(f.Config.Mirrors, m)
	}
}

// trunk joins two switches. Both ends of a fabric's link have its delay, so each takes half of it.
func (p *planner) trunk(l *inventory.Link, fabrics map[string]*fabricPlan, trees map[string]string) {
	root := func(s string) string {
		for trees[s] != "" {
			s = trees[s]
		}
		return s
	}
	a, b := fabrics[l.A.Switch], fabrics[l.B.Switch]
	name := fmt.Sprintf("link of switch %q to switch %q", l.A.Switch, l.B.Switch)
	switch {
	case a == nil || b == nil:
		p.bad("%s: not both in this lab", name)
		return
	case root(a.Switch) == root(b.Switch):
		p.bad("%s: closes a loop, in which flooded packets would run for ever", name)
		return
	case l.Rate == 0:
		p.bad("%s: no rate", name)
		return
	}
	trees[root(a.Switch)] = root(b.Switch)
	n := len(p.out.Trunks)
	t := trunkPlan{A: wire{Netdev: fmt.Sprintf("trunk%da", n)}, B: wire{Netdev: fmt.Sprintf("trunk%db", n)}, MTU: p.maxMTU()}
	p.out.Trunks = append(p.out.Trunks, t)
	delay := p.scale.Time(l.Delay)
	for _, e := range []struct {
		f, other *fabricPlan
		w        wire
		delay    time.Duration
	}{{a, b, t.A, delay / 2}, {b, a, t.B, delay - delay/2}} {
		port := fabric.PortConfig{Name: e.other.Switch, Rate: p.scale.Rate(l.Rate), Delay: e.delay, Buffer: l.Buffer, ECN: ecnOf(p.lab.Switch(e.f.Switch))}
		if dup(e.f.Config, port.Name) {
			port.Name = "switch " + port.Name // a host may be called like a switch
		}
		e.f.Ports = append(e.f.Ports, e.w)
		e.f.Config.Ports = append(e.f.Config.Ports, port)
	}
}

func (p *planner) nicOf(w wire) *inventory.NIC {
	for _, n := range p.lab.Host(w.Host).NICs {
		if n.Netdev == w.Netdev {
			return n
		}
	}
	return &inventory.NIC{}
}

func dup(c fabric.Config, name string) bool {
	for _, o := range c.Ports {
		if o.Name == name {
			return true
		}
	}
	for _, o := range c.Mirrors {
		if o.Name == name {
			return true
		}
	}
	return false
}

// portName is the host's name, as taps name ports; hosts with several NICs need more.
func portName(lab *inventory.Lab, w wire) string {
	if h := lab.Host(w.Host); h != nil && len(h.NICs) > 1 {
		return w.Host + "/" + w.Netdev
	}
	return w.Host
}

func endName(e inventory.End) string {
	if e.Switch != "" {
		return fmt.Sprintf("switch %q", e.Switch)
	}
	return fmt.Sprintf("%q of host %q", e.Netdev, e.Host)
}

func ecnOf(s *inventory.Switch) *fabric.ECNConfig {
	if s == nil || s.ECN == nil {
		return nil
	}
	return &fabric.ECNConfig{KMin: s.ECN.KMin, KMax: s.ECN.KMax, PMax: s.ECN.PMax}
}

// macOf gives a locally administered address that shows the IPv4 address it belongs to; for IPv6, a hash of the
// interface's place in the lab. The same lab always gets the same addresses.
func macOf(ip netip.Addr, place string) string {
	mac := net.HardwareAddr{0x02, 0x70, 0, 0, 0, 0}
	if ip.Is4() {
		a := ip.As4()
		copy(mac[2:], a[:])
	} else {
		sum := sha256.Sum256([]byte(place))
		mac[1] = 0x76
		copy(mac[2:], sum[:4])
	}
	return mac.String()
}

// probeTimeout bounds one self-test exchange: generous against a busy machine, longer on long links.
func (l *layout) probeTimeout() time.Duration {
	var longest time.Duration
	for _, f := range l.Fabrics {
		for _, p := range f.Config.Ports {
			longest = max(longest, p.Delay)
		}
	}
	return 3*time.Second + 8*longest
}
