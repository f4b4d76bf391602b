package inventory

import (
	"time"

	"github.com/pcmlab/pcmlab/internal/spec"
)

// Marshal writes the lab as a lab file in which nothing is left to defaults. Parse reads it back to an equal lab, apart
// from Lab.File.
func Marshal(l *Lab) ([]byte, error) { return spec.Marshal(toFile(l)) }

// toFile is the lab in the shape of a file. It shares nothing with the lab.
func toFile(l *Lab) *fileLab {
	f := &fileLab{Name: l.Name}
	if v := l.Virtual; v != nil {
		s := v.TimeScale.Factor()
		f.Virtual = &fileVirtual{TimeScale: &s, MaxLateness: v.MaxLateness}
	}
	for _, h := range l.Hosts {
		f.Hosts = append(f.Hosts, spec.Entry[fileHost]{Key: h.Name, Value: hostFile(h)})
	}
	for _, s := range l.Switches {
		w := fileSwitch{Host: s.Host, Backend: s.Backend, Buffer: s.Buffer}
		for _, p := range s.Ports {
			w.Ports = append(w.Ports, spec.Entry[string]{Key: p.Name, Value: p.Iface})
		}
		if s.ECN != nil {
			w.ECN = &fileECN{KMin: s.ECN.KMin, KMax: s.ECN.KMax, PMax: s.ECN.PMax}
		}
		if s.PFC != nil {
			w.PFC = &filePFC{Priorities: append([]int(nil), s.PFC.Priorities...), XOff: s.PFC.XOff, XOn: s.PFC.XOn}
		}
		f.Switches = append(f.Switches, spec.Entry[fileSwitch]{Key: s.Name, Value: w})
	}
	for _, k := range l.Links {
		w := fileLink{From: k.A.String(), To: k.B.String(), linkValues: linkValues{Rate: k.Rate, Buffer: k.Buffer}}
		w.Delay = unless(k.Delay, time.Duration(0))
		f.Links = append(f.Links, w)
	}
	for _, t := range l.Taps {
		f.Taps = append(f.Taps, spec.Entry[fileTap]{Key: t.Name, Value: fileTap{Host: t.Host, Iface: t.Iface, Switch: t.Switch,
			Ports: append(spec.OneOrMany[string](nil), t.Ports...), Direction: string(t.Direction)}})
	}
	f.RDCC = rdccFile(l.RDCC)
	return f
}

func hostFile(h *Host) fileHost {
	f := fileHost{Sudo: unless(h.Sudo, false)}
	if h.SSH != (SSH{}) {
		f.SSH = &fileSSH{Address: h.SSH.Address, Port: h.SSH.Port, User: h.SSH.User, Key: h.SSH.Key, Jump: h.SSH.Jump, KnownHosts: h.SSH.KnownHosts}
	}
	for _, n := range h.NICs {
		w := fileNIC{IP: n.IP, IP6: n.IP6, nicSettings: nicSettings{
			Device: n.Device, Netdev: n.Netdev, Port: unless(max(n.Port, 1), 1), GIDIndex: pick(n.GIDIndex, nil), Backend: n.Backend, BuildOn: n.BuildOn, Rate: n.Rate,
			MTU: unless(first(n.MTU, 1500), 1500), DSCP: unless(n.DSCP, 0), ECN: unless(n.ECN, true), Priority: unless(n.Priority, 0), DCQCN: pick(n.DCQCN, nil)}}
		writeHandlers(&w.nicSettings, n.Handlers)
		f.NICs = append(f.NICs, w)
	}
	return f
}

// unless is nil for the value that an absent key has.
func unless[T comparable](v, absent T) *T {
	if v == absent {
		return nil
	}
	return &v
}
