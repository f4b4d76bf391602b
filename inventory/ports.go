package inventory

import (
	"regexp"

	"github.com/pcmlab/pcmlab/internal/spec"
)

var ifaceName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,14}$`)

// checkPorts holds the ports of a Linux switch against what is linked to it. Without them nobody knows which of its
// interfaces leads where.
func (b *builder) checkPorts(p spec.Path, s *Switch) {
	if b.doc.Bad(p) || b.doc.Bad(p.With("ports")) || b.doc.Bad(p.With("backend")) {
		return
	}
	switch {
	case s.Backend != LinuxSwitch && len(s.Ports) > 0:
		b.doc.Errorf(p.With("ports"), "add backend: linux, or leave ports out", "the ports of a switch are named where it is a Linux machine")
		return
	case s.Backend == LinuxSwitch && b.lab.Virtual != nil:
		b.doc.Errorf(p.With("backend"), "leave it out", "the switch of a virtual lab is pcmlab's own")
		return
	case s.Backend == LinuxSwitch && len(s.Ports) == 0:
		b.doc.Errorf(p, "add ports: {h1: swp1, ...}, its interfaces by the host behind each", "a Linux switch without ports has no counters")
		return
	}
	behind := b.lab.behind(s.Name)
	ifaces := map[string]string{}
	for _, port := range s.Ports {
		at := p.With("ports", port.Name)
		if b.doc.Bad(at) {
			continue
		}
		if !ifaceName.MatchString(port.Iface) {
			b.doc.Errorf(at, "up to 15 letters, digits and _.:@-", "%q is no name of an interface", port.Iface)
		} else if other, ok := ifaces[port.Iface]; ok {
			b.doc.Errorf(at, "give each its own", "interface %q is also that of port %s", port.Iface, other)
		}
		ifaces[port.Iface] = port.Name
		if b.lab.Host(port.Name) == nil && b.lab.Switch(port.Name) == nil {
			if !b.doc.Wrong(spec.P("hosts")) {
				b.doc.Errorf(at, spec.Suggest(port.Name, b.file.Hosts.Keys()), "%q is neither a host nor a switch", port.Name)
			}
		} else if len(b.lab.Links) > 0 && !behind[port.Name] && !b.danglingLink() {
			b.doc.Errorf(at, "add the link, or remove the port", "%q has no link to switch %q", port.Name, s.Name)
		}
	}
}
