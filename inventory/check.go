package inventory

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/internal/units"
)

// check adds what only the whole file shows: names that point nowhere, things that contradict each other.
func (b *builder) check() {
	b.checkHosts()
	b.checkSwitches()
	b.checkLinks()
	b.checkTaps()
	if b.lab.Virtual != nil {
		b.checkVirtual()
	}
}

// nicPath is the place of a NIC's setting: its own, or the default that it comes from.
func (b *builder) nicPath(n *NIC, key string) spec.Path {
	p := b.nicPaths[n].With(key)
	if d := spec.P("defaults", "nic", key); !b.doc.Has(p) && b.doc.Has(d) {
		return d
	}
	return p
}

func (b *builder) checkHosts() {
	addresses := map[netip.Addr]string{}
	for _, h := range b.lab.Hosts {
		netdevs, devices := map[string]int{}, map[string]int{}
		for i, n := range h.NICs {
			p := b.nicPaths[n]
			if b.doc.Bad(p) && !b.doc.Has(p.With("ip")) {
				continue // not a mapping, or without its required keys: said already
			}
			b.needed(p, "device", n.Device, "softnic0")
			b.needed(p, "netdev", n.Netdev, "eth0")
			b.needed(p, "backend", n.Backend, "softnic")
			if b.doc.Has(p.With("build_on")) && n.Backend != DOCAPCC && !b.doc.Bad(b.nicPath(n, "backend")) {
				b.doc.Errorf(b.nicPath(n, "build_on"), "leave it out, or write backend: docapcc", "a %s NIC has no programs to build", n.Backend)
			}
			b.hostNamed(b.nicPath(n, "build_on"), n.BuildOn)
			if n.Netdev == "lo" {
				b.doc.Errorf(b.nicPath(n, "netdev"), "name the NIC's own interface", "RDMA does not run on the loopback interface")
			}
			if first, ok := netdevs[n.Netdev]; ok && n.Netdev != "" {
				b.doc.Errorf(b.nicPath(n, "netdev"), "each NIC has its own", "netdev %q is also that of nics[%d]", n.Netdev, first)
			}
			netdevs[n.Netdev] = i
			key := fmt.Sprintf("%s port %d", n.Device, n.Port)
			if first, ok := devices[key]; ok && n.Device != "" {
				b.doc.Errorf(b.nicPath(n, "device"), "each NIC has its own, or another port of it", "device %q is also that of nics[%d]", n.Device, first)
			}
			devices[key] = i
			b.checkAddress(h, n, addresses)
		}
	}
}

func (b *builder) needed(p spec.Path, key, value, example string) {
	if value == "" && !b.doc.Bad(p.With(key)) && !b.doc.Bad(spec.P("defaults", "nic", key)) && !b.doc.Bad(p) {
		b.doc.Errorf(p, fmt.Sprintf("add %s: %s here or under defaults.nic", key, example), "%s is missing", key)
	}
}

func (b *builder) checkAddress(h *Host, n *NIC, seen map[netip.Addr]string) {
	b.usable[n] = b.addressOf(h, n, "ip", n.IP, seen)
	if n.IP6.IsValid() && n.IP6.Addr().Is4() {
		b.doc.Errorf(b.nicPaths[n].With("ip6"), "write the IPv6 address, such as 2001:db8::11/64, and the IPv4 one under ip", "%s is an IPv4 address", n.IP6.Addr())
		return
	}
	b.addressOf(h, n, "ip6", n.IP6, seen)
}

// addressOf says whether a host can have the address, and notes whose it is.
func (b *builder) addressOf(h *Host, n *NIC, key string, ip netip.Prefix, seen map[netip.Addr]string) bool {
	if !ip.IsValid() {
		return false
	}
	p, a := b.nicPaths[n].With(key), ip.Addr()
	unusable := ""
	switch {
	case a.IsUnspecified():
		unusable = "the unspecified address"
	case a.IsLoopback():
		unusable = "a loopback address"
	case a.IsMulticast():
		unusable = "a multicast address"
	case a.Is4In6():
		unusable = "an IPv4 address in IPv6 form"
	case a.Is6() && a.IsLinkLocalUnicast():
		unusable = "a link-local address, which other hosts cannot tell apart"
	case a.Is4() && ip.Bits() < 31 && a == ip.Masked().Addr():
		unusable = "the network's own address"
	case a.Is4() && ip.Bits() < 31 && a == broadcast(ip):
		unusable = "the network's broadcast address"
	}
	if unusable != "" {
		b.doc.Errorf(p, "give the NIC an address of its own, such as 192.0.2.11/24", "%s is %s", a, unusable)
		return false
	}
	if other, ok := seen[a]; ok {
		b.doc.Errorf(p, "every data address is used once", "%s is already the address of %s", a, other)
	} else {
		seen[a] = h.Name + "." + n.Netdev
	}
	return true
}

// broadcast is the last address of an IPv4 network.
func broadcast(p netip.Prefix) netip.Addr {
	a := p.Masked().Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		a[bit/8] |= 0x80 >> (bit % 8)
	}
	return netip.AddrFrom4(a)
}

// hostNamed reports a name that is not a host.
func (b *builder) hostNamed(p spec.Path, name string) bool {
	if name == "" || b.doc.Bad(p) || b.doc.Wrong(spec.P("hosts")) {
		return false
	}
	if b.lab.Host(name) == nil {
		b.doc.Errorf(p, spec.Suggest(name, b.file.Hosts.Keys()), "host %q is not under hosts", name)
		return false
	}
	return true
}

func (b *builder) checkSwitches() {
	for _, s := range b.lab.Switches {
		p := spec.P("switches", s.Name)
		b.hostNamed(p.With("host"), s.Host)
		if s.Backend != "" && s.Host == "" && !b.doc.Bad(p) {
			b.doc.Errorf(p.With("backend"), "add host: the host on which it runs", "backend %q needs a host to ask", s.Backend)
		}
		b.checkPorts(p, s)
		if e := s.ECN; e != nil && e.KMin > e.KMax && !b.doc.Bad(p.With("ecn")) {
			b.doc.Errorf(p.With("ecn", "kmin"), "kmin is at most kmax", "kmin %s is above kmax %s", e.KMin, e.KMax)
		}
		f := s.PFC
		if f == nil || b.doc.Bad(p.With("pfc")) {
			continue
		}
		if f.XOn >= f.XOff {
			b.doc.Errorf(p.With("pfc", "xon"), "xon is below xoff, or pauses never end", "xon %s is not below xoff %s", f.XOn, f.XOff)
		}
		if s.Buffer > 0 && f.XOff > s.Buffer {
			b.doc.Errorf(p.With("pfc", "xoff"), "pause must come before packets are dropped", "xoff %s is above the buffer %s", f.XOff, s.Buffer)
		}
		seen := map[int]bool{}
		for i, prio := range f.Priorities {
			if seen[prio] {
				b.doc.Errorf(p.With("pfc", "priorities", i), "name each once", "priority %d is here twice", prio)
			}
			seen[prio] = true
		}
	}
}

func (b *builder) checkLinks() {
	used := map[End]int{}
	for i, l := range b.lab.Links {
		p := spec.P("links", i)
		if l.A != (End{}) && l.A == l.B {
			b.doc.Errorf(p.With("to"), "a link has two different ends", "both ends are %s", l.A)
			continue
		}
		for key, e := range map[string]End{"from": l.A, "to": l.B} {
			if e.Host == "" {
				continue
			}
			if other, ok := used[e]; ok {
				b.doc.Errorf(p.With(key), "a NIC has one cable: remove one of the links", "NIC %s is already on links[%d]", e, other)
			}
			used[e] = i
		}
		if b.lab.Virtual != nil && l.A != (End{}) && l.B != (End{}) && (l.A.Host == "") == (l.B.Host == "") {
			b.doc.Errorf(p, "join a host's NIC to a switch", "a virtual lab has no link from %s to %s, only from hosts to a switch", l.A, l.B)
		}
		b.checkRate(p, l)
	}
}

func (b *builder) checkRate(p spec.Path, l *Link) {
	if b.lab.Virtual == nil || b.doc.Bad(p) || b.doc.Bad(spec.P("defaults")) || l.A == (End{}) || l.B == (End{}) {
		return
	}
	if l.Rate == 0 {
		b.doc.Errorf(p, "add rate: 25Gbit/s to the link, its NIC, or defaults.link", "the link has no rate")
		return
	}
	if built := b.lab.Scale().Rate(l.Rate); built < units.MbitPerSec {
		b.doc.Errorf(p, "at least 1Mbit/s is needed: lower virtual.time_scale or raise the rate", "at time scale %v the link is built with %s", b.lab.Scale().Factor(), built)
	}
}

func (b *builder) checkTaps() {
	places := map[string]string{}
	for _, t := range b.lab.Taps {
		p := spec.P("taps", t.Name)
		known := b.hostNamed(p.With("host"), t.Host)
		if place := t.Host + "." + t.Iface; known && t.Iface != "" {
			if other, ok := places[place]; ok {
				b.doc.Errorf(p.With("iface"), "one tap per interface", "interface %q of host %q is already tap %q", t.Iface, t.Host, other)
			}
			places[place] = t.Name
		}
		if t.Switch == "" {
			if len(t.Ports) > 0 && !b.doc.Bad(p) {
				b.doc.Errorf(p.With("ports"), "add switch: NAME, or leave ports out", "ports are given without a switch")
			}
			continue
		}
		if b.doc.Bad(p.With("switch")) || b.doc.Wrong(spec.P("switches")) {
			continue
		}
		s := b.lab.Switch(t.Switch)
		if s == nil {
			b.doc.Errorf(p.With("switch"), spec.Suggest(t.Switch, b.file.Switches.Keys()), "switch %q is not under switches", t.Switch)
			continue
		}
		b.checkMirror(p, t, s)
	}
}

// checkMirror holds a tap against the switch that feeds it.
func (b *builder) checkMirror(p spec.Path, t *Tap, s *Switch) {
	if len(t.Ports) == 0 && !b.doc.Bad(p.With("ports")) {
		b.doc.Errorf(p, "add ports: [r1], the hosts behind them", "no port of switch %q is mirrored", s.Name)
	}
	if !b.doc.Has(p.With("direction")) && !b.doc.Bad(p) {
		b.doc.Errorf(p, "add direction: egress (what leaves the switch), ingress or both", "direction is missing")
	}
	behind := b.lab.behind(s.Name)
	seen := map[string]bool{}
	for i, port := range t.Ports {
		at := p.With("ports", i)
		if port == "" || b.doc.Bad(at) {
			continue
		}
		if seen[port] {
			b.doc.Errorf(at, "name each once", "port %q is here twice", port)
		}
		seen[port] = true
		if b.lab.Host(port) == nil && b.lab.Switch(port) == nil {
			if b.doc.Wrong(spec.P("hosts")) {
				continue
			}
			b.doc.Errorf(at, spec.Suggest(port, b.file.Hosts.Keys()), "%q is neither a host nor a switch", port)
		} else if len(b.lab.Links) > 0 && !behind[port] && !b.danglingLink() {
			b.doc.Errorf(at, "add the link, or remove the port", "%q has no link to switch %q", port, s.Name)
		}
	}
	known := (s.Host == "" || b.lab.Host(s.Host) != nil) && b.lab.Host(t.Host) != nil
	if b.lab.Virtual != nil && s.Host != t.Host && known && !b.doc.Bad(p) && !b.doc.Bad(spec.P("switches", s.Name)) {
		b.doc.Errorf(p.With("host"), fmt.Sprintf("mirrors of switch %s end on its host: write host: %s there and here", s.Name, first(s.Host, t.Host)),
			"the tap is on %q, but switch %q is on %q", t.Host, s.Name, s.Host)
	}
}

// behind are the names at the far ends of a switch's links.
func (l *Lab) behind(name string) map[string]bool {
	out := map[string]bool{}
	for _, k := range l.Links {
		if k.A.Switch == name {
			out[k.B.Host+k.B.Switch] = true
		}
		if k.B.Switch == name {
			out[k.A.Host+k.A.Switch] = true
		}
	}
	return out
}

// RoCEPathMTU is the RDMA path MTU that an interface MTU leaves room for, or 0. IP takes 20 bytes (IPv6 40), UDP 8,
// BTH 12, RETH 16, ImmDt 4 and ICRC 4 (IBTA annex A17).
func RoCEPathMTU(mtu int, v6 bool) int {
	room := mtu - (20 + 8 + 12 + 16 + 4 + 4)
	if v6 {
		room -= 20
	}
	for size := 4096; size >= 256; size /= 2 {
		if room >= size {
			return size
		}
	}
	return 0
}

// checkVirtual holds what the virtual lab is able to build.
func (b *builder) checkVirtual() {
	if len(b.lab.Switches) == 0 && !b.doc.Bad(spec.P("switches")) {
		b.doc.KeyErrorf(spec.P("virtual"), "add switches: {sw: {host: sw, buffer: 2MiB}}", "a virtual lab needs a switch")
	}
	if len(b.lab.Links) == 0 && !b.doc.Bad(spec.P("links")) {
		b.doc.KeyErrorf(spec.P("virtual"), "add links: one line {from: h1.eth0, to: sw} for each NIC", "a virtual lab needs links")
	}
	for _, s := range b.lab.Switches {
		if s.Buffer == 0 && !b.doc.Bad(spec.P("switches", s.Name)) {
			b.doc.KeyErrorf(spec.P("switches", s.Name), "add buffer: 2MiB", "a virtual switch needs its buffer")
		}
		if s.PFC != nil { // a lab that ignored it would pass for lossless
			b.doc.KeyErrorf(spec.P("switches", s.Name, "pfc"), "leave pfc out", "the switch of a virtual lab has no PFC yet")
		}
	}
	linked := map[End]bool{}
	for _, l := range b.lab.Links {
		linked[l.A], linked[l.B] = true, true
	}
	var ref *NIC
	for _, h := range b.lab.Hosts {
		for _, n := range h.NICs {
			if n.Backend != "" && n.Backend != "softnic" {
				b.doc.Errorf(b.nicPath(n, "backend"), "write backend: softnic", "a virtual lab has software NICs, not %s", n.Backend)
			}
			if n.Netdev != "" && len(b.lab.Links) > 0 && !linked[End{Host: h.Name, Netdev: n.Netdev}] && !b.danglingLink() {
				b.doc.Errorf(b.nicPaths[n], fmt.Sprintf("add {from: %s.%s, to: %s} to links", h.Name, n.Netdev, b.anySwitch()), "the NIC has no link")
			}
			b.checkMTU(n, ref)
			if b.usable[n] {
				b.checkSubnet(n, ref)
				if ref == nil {
					ref = n
				}
			}
		}
	}
	b.checkVirtualTaps()
}

// danglingLink says that some link has a mistake of its own, so that "has no link" may be wrong.
func (b *builder) danglingLink() bool {
	if b.doc.Bad(spec.P("links")) {
		return true
	}
	for _, l := range b.lab.Links {
		if l.A == (End{}) || l.B == (End{}) || l.A == l.B || l.A.Host != "" && l.B.Host != "" {
			return true
		}
	}
	return false
}

func (b *builder) anySwitch() string {
	if len(b.lab.Switches) > 0 {
		return b.lab.Switches[0].Name
	}
	return "sw"
}

func (b *builder) checkMTU(n, ref *NIC) {
	at := b.nicPath(n, "mtu")
	if b.doc.Bad(at) || b.doc.Bad(b.nicPaths[n]) {
		return
	}
	v6 := n.IP.Addr().Is6()
	if path := RoCEPathMTU(n.MTU, v6); path < 1024 {
		b.doc.Errorf(at, "write 1500 (path MTU 1024) or 4200 (path MTU 4096)", "MTU %d leaves a RoCE path MTU of %d, the software NIC needs 1024", n.MTU, path)
		return
	}
	if n.MTU == 4096 {
		b.doc.Errorf(at, "write 4200", "MTU 4096 leaves no room for the headers of a RoCE path MTU of 4096")
		return
	}
	if ref != nil && ref.MTU != n.MTU && !b.doc.Bad(b.nicPath(ref, "mtu")) {
		b.doc.Errorf(at, "give all NICs of the lab the same", "MTU %d, but %s has %d: larger packets would vanish", n.MTU, ref.IP.Addr(), ref.MTU)
	}
}

// checkSubnet: the fabric switches frames and routes nothing.
func (b *builder) checkSubnet(n, ref *NIC) {
	if ref == nil || n.IP.Masked() == ref.IP.Masked() {
		return
	}
	b.doc.Errorf(b.nicPaths[n].With("ip"), "write an address in "+ref.IP.Masked().String(), "%s is not in the subnet of the other NICs", n.IP)
}

func (b *builder) checkVirtualTaps() {
	for _, t := range b.lab.Taps {
		h, p := b.lab.Host(t.Host), spec.P("taps", t.Name)
		if h == nil || t.Iface == "" || b.doc.Bad(p) {
			continue
		}
		var netdevs []string
		for _, n := range h.NICs {
			netdevs = append(netdevs, n.Netdev)
		}
		isNIC := b.lab.nic(End{Host: t.Host, Netdev: t.Iface}) != nil
		switch {
		case t.Switch == "" && len(t.Ports) == 0 && !isNIC && !b.doc.Bad(spec.P("hosts", t.Host)):
			fix := "add switch:, ports: and direction: to mirror a switch's ports"
			if len(netdevs) > 0 {
				fix += ", or capture on " + strings.Join(netdevs, ", ")
			}
			b.doc.Errorf(p.With("iface"), fix, "host %q has no interface %q", t.Host, t.Iface)
		case t.Switch != "" && (isNIC || t.Iface == "lo"):
			b.doc.Errorf(p.With("iface"), "give the mirror an interface of its own", "interface %q of host %q is not free for a mirror", t.Iface, t.Host)
		}
	}
}
