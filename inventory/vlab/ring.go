package vlab

import "net/netip"

// probePair is one exchange of the self-test.
type probePair struct{ Host, From, Peer, To string }

// ring pairs each NIC with the next one on its subnet, the last with the first. Two NICs give one pair in each
// direction; a NIC that is alone on its subnet has nobody to talk to.
func ring(hosts []hostSpec) []probePair {
	type end struct {
		host string
		ip   netip.Addr
	}
	var order []netip.Prefix
	nets := map[netip.Prefix][]end{}
	for _, h := range hosts {
		for _, n := range h.NICs {
			p := n.IP.Masked()
			if _, seen := nets[p]; !seen {
				order = append(order, p)
			}
			nets[p] = append(nets[p], end{h.Name, n.IP.Addr()})
		}
	}
	var out []probePair
	for _, p := range order {
		ends := nets[p]
		if len(ends) < 2 {
			continue
		}
		for i, e := range ends {
			next := ends[(i+1)%len(ends)]
			out = append(out, probePair{Host: e.host, From: e.ip.String(), Peer: next.host, To: next.ip.String()})
		}
	}
	return out
}
