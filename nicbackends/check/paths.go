package check

import (
	"fmt"
	"strings"
	"time"
)

// packetVerdict judges a path by what was sent at one end and seen at the other.
func (m *mesh) packetVerdict(p *Path, from, to port, sent []Sent, sendErr error, l *listener) {
	if sendErr != nil {
		p.Verdict, p.Why = Skip, sendErr.Error()
		return
	}
	large := full(from.nic)
	var tooLarge string
	for _, s := range sent {
		if s.To != to.nic.IP.Addr() {
			continue
		}
		if s.Size == large && s.Size != smallest {
			p.Full, tooLarge = s.Sent, s.Err
			continue
		}
		p.Sent = s.Sent
		if s.RTT > 0 {
			p.RTT = &s.RTT
		}
		if s.Err != "" {
			p.Verdict, p.Why, p.Fix = Fail, "cannot be sent: "+s.Err, "on "+from.host.Name+": ip route get "+to.nic.IP.Addr().String()
			return
		}
	}
	if l.err != nil {
		p.Verdict, p.Why = Skip, "nobody could look at "+to.name+": "+l.err.Error()
		if strings.Contains(p.Why, "operation not permitted") {
			p.Fix = "write sudo: true for host " + to.host.Name + " in " + m.lab.File
		}
		return
	}
	p.Arrived, p.FullIn = new(int), new(int)
	for _, s := range l.seen {
		if s.From != from.nic.IP.Addr() {
			continue
		}
		dscp, ecn := s.TOS>>2, s.TOS&3
		p.DSCP, p.ECN = &dscp, &ecn
		if s.Size == large && s.Size != smallest {
			*p.FullIn = s.N
		} else {
			*p.Arrived = s.N
		}
	}
	p.judge(from, to, tooLarge, m.o)
}

func (p *Path) judge(from, to port, tooLarge string, o MeshOptions) {
	p.Verdict = Pass
	want := tos(from.nic)
	lost := p.Sent + p.Full - *p.Arrived - *p.FullIn
	switch {
	case *p.Arrived == 0 && *p.FullIn == 0:
		p.Verdict, p.Why = Fail, fmt.Sprintf("none of %d datagrams to %s, UDP 4791, arrived", p.Sent+p.Full, to.nic.IP.Addr())
		p.Fix = fmt.Sprintf("cable, VLAN and port of the switch; on %s: nft list ruleset; on %s: ip neigh show dev %s", to.host.Name, from.host.Name, from.nic.Netdev)
	case tooLarge != "":
		p.Verdict, p.Why = Fail, fmt.Sprintf("%d bytes, the lab file's MTU, cannot be sent: %s", full(from.nic)+28, tooLarge)
		p.Fix = fmt.Sprintf("on %s: ip link set %s mtu %d", from.host.Name, from.nic.Netdev, from.nic.MTU)
	case *p.FullIn == 0:
		p.Verdict, p.Why = Fail, fmt.Sprintf("small datagrams arrive, those of the lab file's MTU (%d) do not", from.nic.MTU)
		p.Fix = fmt.Sprintf("raise the MTU on the way: the switch's ports, and on %s: ip link set %s mtu %d", to.host.Name, to.nic.Netdev, to.nic.MTU)
	case o.MaxLost != nil && lost > *o.MaxLost:
		p.Verdict, p.Why = Fail, fmt.Sprintf("%d of %d datagrams were lost, at most %d may be", lost, p.Sent+p.Full, *o.MaxLost)
		p.Fix = "look at drops of the switch's ports, and whether somebody else's run is going on"
	case o.MaxRTT > 0 && p.RTT == nil:
		p.Verdict, p.Why = Skip, "no answer came back, so there is no round trip to hold against the bar"
	case o.MaxRTT > 0 && *p.RTT > o.MaxRTT.Nanoseconds():
		p.Verdict, p.Why = Fail, fmt.Sprintf("the round trip took %v, at most %v may pass", time.Duration(*p.RTT), o.MaxRTT)
		p.Fix = "look for queues on the way (tc -s qdisc on the switch), somebody else's run, and CPUs that sleep (cpupower idle-set -D 0)"
	case lost > 0:
		p.Verdict, p.Why = Warn, fmt.Sprintf("%d of %d datagrams were lost", lost, p.Sent+p.Full)
		p.Fix = "look at drops of the switch's ports, and whether somebody else's run is going on"
	case *p.DSCP != want>>2:
		p.Verdict, p.Why = Warn, fmt.Sprintf("sent with DSCP %d, arrived with %d: the switch writes it", want>>2, *p.DSCP)
		p.Fix = "let the switch trust the DSCP of its ports"
	case *p.ECN == 0 && want&3 != 0:
		p.Verdict = Warn
		p.Why, p.Fix = "sent ECN-capable, arrived without: nothing would be marked", "let the switch leave the ECN bits alone"
	}
}

// EachPath is every path as a finding of its receiving host.
func EachPath(paths []Path) []Finding {
	var out []Finding
	for _, p := range paths {
		out = append(out, Finding{Host: p.toHost, What: "path from " + p.From, Verdict: p.Verdict, Found: p.Probe, Why: p.Why, Fix: p.Fix})
	}
	return out
}

// PathFindings are the paths as findings: one for each that is no pass, and one for all that are.
func PathFindings(paths []Path) []Finding {
	var out []Finding
	good := 0
	for _, f := range EachPath(paths) {
		if f.Verdict == Pass {
			good++
			continue
		}
		out = append(out, f)
	}
	if good > 0 {
		out = append(out, Finding{Host: "all", What: "paths", Verdict: Pass, Found: fmt.Sprintf("%d of %d between data addresses", good, len(paths))})
	}
	return out
}
