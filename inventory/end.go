package inventory

import (
	"strings"

	"github.com/pcmlab/pcmlab/internal/spec"
)

// String is how a lab file names the end: host.netdev, or a switch.
func (e End) String() string {
	if e.Switch != "" {
		return e.Switch
	}
	return e.Host + "." + e.Netdev
}

// end reads one end of a link. A name without a netdev is a switch, or a host with one NIC.
func (b *builder) end(p spec.Path, text string) End {
	if text == "" || b.doc.Bad(p) {
		return End{}
	}
	name, netdev, dotted := strings.Cut(text, ".")
	if !dotted && b.lab.Switch(name) != nil {
		return End{Switch: name}
	}
	h := b.lab.Host(name)
	if h == nil {
		if b.doc.Wrong(spec.P("hosts")) || !dotted && b.doc.Wrong(spec.P("switches")) {
			return End{}
		}
		known := append(b.file.Switches.Keys(), b.file.Hosts.Keys()...)
		b.doc.Errorf(p, spec.Suggest(name, unique(known)), "%q is neither a host nor a switch", name)
		return End{}
	}
	var netdevs []string
	for _, n := range h.NICs {
		if n.Netdev != "" {
			netdevs = append(netdevs, n.Netdev)
		}
	}
	netdevs = unique(netdevs)
	switch {
	case len(h.NICs) == 0:
		if !b.doc.Bad(spec.P("hosts", name)) {
			b.doc.Errorf(p, "add it under hosts."+name+".nics", "host %q has no NIC", name)
		}
		return End{}
	case !dotted && len(netdevs) == 1:
		return End{Host: name, Netdev: netdevs[0]}
	case !dotted:
		if len(netdevs) > 1 {
			b.doc.Errorf(p, "write "+name+"."+netdevs[0], "host %q has several NICs: %s", name, strings.Join(netdevs, ", "))
		}
		return End{}
	}
	if b.lab.nic(End{Host: name, Netdev: netdev}) == nil {
		if !b.doc.Bad(spec.P("hosts", name)) {
			b.doc.Errorf(p, spec.Suggest(netdev, netdevs), "host %q has no NIC on netdev %q", name, netdev)
		}
		return End{}
	}
	return End{Host: name, Netdev: netdev}
}
