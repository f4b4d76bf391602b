package inventory

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/internal/units"
)

// Load reads and checks a lab file. A file with mistakes gives *spec.Errors with all of them.
func Load(path string) (*Lab, error) {
	var f fileLab
	doc, err := spec.ReadFile(path, &f)
	if doc == nil {
		return nil, fmt.Errorf("lab file: %w", err)
	}
	return build(path, doc, &f)
}

// Parse is Load of data; file is its name in messages and the place at which relative paths in it start.
func Parse(file string, data []byte) (*Lab, error) {
	var f fileLab
	doc, _ := spec.Decode(file, data, &f) // its mistakes are in doc
	return build(file, doc, &f)
}

// build makes the lab of a file that was decoded, with defaults filled in. The lab is checked even when the file has
// mistakes, so that the user sees all of them.
func build(file string, doc *spec.Doc, f *fileLab) (*Lab, error) {
	b := &builder{doc: doc, file: f, lab: &Lab{Name: f.Name, File: file}, nicPaths: map[*NIC]spec.Path{}, usable: map[*NIC]bool{}}
	if f.Defaults == nil {
		f.Defaults = &fileDefaults{}
	}
	if v := f.Virtual; v != nil {
		b.lab.Virtual = &Virtual{TimeScale: 1, MaxLateness: v.MaxLateness}
		if v.TimeScale != nil {
			b.lab.Virtual.TimeScale = units.Scale(*v.TimeScale)
		}
	}
	for i := range f.Hosts {
		b.lab.Hosts = append(b.lab.Hosts, b.host(f.Hosts[i].Key, &f.Hosts[i].Value))
	}
	for i := range f.Switches {
		b.lab.Switches = append(b.lab.Switches, b.buildSwitch(f.Switches[i].Key, &f.Switches[i].Value))
	}
	for i := range f.Links {
		b.lab.Links = append(b.lab.Links, b.link(i, &f.Links[i]))
	}
	b.rates()
	for i := range f.Taps {
		t := &f.Taps[i].Value
		tap := &Tap{Name: f.Taps[i].Key, Host: t.Host, Iface: t.Iface, Switch: t.Switch, Ports: t.Ports, Direction: Direction(t.Direction)}
		if tap.Direction == "" && !doc.Bad(spec.P("taps", tap.Name, "direction")) {
			tap.Direction = Both
		}
		b.lab.Taps = append(b.lab.Taps, tap)
	}
	b.lab.RDCC = b.rdcc(f.RDCC)
	b.check()
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return b.lab, nil
}

// The ways of asking a switch: that of a virtual lab, and a Linux machine's own.
const (
	softwareSwitch = "fabric"
	LinuxSwitch    = "linux"
)

type builder struct {
	doc      *spec.Doc
	file     *fileLab
	lab      *Lab
	nicPaths map[*NIC]spec.Path
	usable   map[*NIC]bool // NICs with an address that a host can have
}

func (b *builder) host(name string, f *fileHost) *Host {
	h := &Host{Name: name, Sudo: or(f.Sudo, or(b.file.Defaults.Sudo, false))}
	own, def := f.SSH, b.file.Defaults.SSH
	if own == nil {
		own = &fileSSH{}
	}
	if def == nil {
		def = &fileSSH{}
	}
	h.SSH = SSH{
		Address: first(own.Address, def.Address), Port: first(own.Port, def.Port), User: first(own.User, def.User), Jump: first(own.Jump, def.Jump),
		Key: b.path(first(own.Key, def.Key)), KnownHosts: b.path(first(own.KnownHosts, def.KnownHosts)),
	}
	for i := range f.NICs {
		at := spec.P("hosts", name, "nics", i)
		n := b.nic(&f.NICs[i], at)
		b.nicPaths[n] = at
		h.NICs = append(h.NICs, n)
	}
	return h
}

// path makes a relative path one from the lab file's folder, so that a lab can be used from everywhere.
func (b *builder) path(p string) string {
	if p == "" || filepath.IsAbs(p) || strings.HasPrefix(p, "~") || p == "none" {
		return p
	}
	abs, err := filepath.Abs(b.lab.File)
	if err != nil {
		return p
	}
	return filepath.Join(filepath.Dir(abs), p)
}

func (b *builder) nic(f *fileNIC, at spec.Path) *NIC {
	def := b.file.Defaults.NIC
	if def == nil {
		def = &nicSettings{}
	}
	build := first(f.BuildOn, def.BuildOn)
	if first(f.Backend, def.Backend) != DOCAPCC {
		build = ""
	}
	return &NIC{
		Device: first(f.Device, def.Device), Netdev: first(f.Netdev, def.Netdev), IP: f.IP, IP6: f.IP6,
		Port: or(f.Port, or(def.Port, 1)), GIDIndex: pick(f.GIDIndex, def.GIDIndex), Backend: first(f.Backend, def.Backend), BuildOn: build,
		Rate: first(f.Rate, def.Rate), MTU: or(f.MTU, or(def.MTU, 1500)), DSCP: or(f.DSCP, or(def.DSCP, 0)),
		ECN: or(f.ECN, or(def.ECN, true)), Priority: or(f.Priority, or(def.Priority, 0)), DCQCN: pick(f.DCQCN, def.DCQCN), Handlers: b.handlerRules(&f.nicSettings, at, def),
	}
}

func (b *builder) buildSwitch(name string, f *fileSwitch) *Switch {
	s := &Switch{Name: name, Host: f.Host, Backend: f.Backend, Buffer: f.Buffer}
	for _, p := range f.Ports {
		s.Ports = append(s.Ports, SwitchPort{p.Key, p.Value})
	}
	if b.lab.Virtual != nil && s.Host != "" {
		s.Backend = first(s.Backend, softwareSwitch)
	}
	if f.ECN != nil {
		s.ECN = &ECN{KMin: f.ECN.KMin, KMax: f.ECN.KMax, PMax: f.ECN.PMax}
	}
	if f.PFC != nil {
		s.PFC = &PFC{Priorities: f.PFC.Priorities, XOff: f.PFC.XOff, XOn: f.PFC.XOn}
	}
	return s
}

func (b *builder) link(i int, f *fileLink) *Link {
	def := b.file.Defaults.Link
	if def == nil {
		def = &linkValues{}
	}
	return &Link{
		A: b.end(spec.P("links", i, "from"), f.From), B: b.end(spec.P("links", i, "to"), f.To),
		Rate: first(f.Rate, def.Rate), Delay: or(f.Delay, or(def.Delay, time.Duration(0))), Buffer: first(f.Buffer, def.Buffer),
	}
}

// rates gives a link without a rate that of its NIC, the slower one of two, and a NIC without a rate that of its link.
func (b *builder) rates() {
	for _, l := range b.lab.Links {
		ends := []*NIC{b.lab.nic(l.A), b.lab.nic(l.B)}
		if l.Rate == 0 {
			for _, n := range ends {
				if n != nil && n.Rate > 0 && (l.Rate == 0 || n.Rate < l.Rate) {
					l.Rate = n.Rate
				}
			}
		}
		for _, n := range ends {
			if n != nil && n.Rate == 0 {
				n.Rate = l.Rate
			}
		}
	}
}

// nic finds the NIC at a link's end, or nil.
func (l *Lab) nic(e End) *NIC {
	if h := l.Host(e.Host); h != nil && e.Host != "" {
		for _, n := range h.NICs {
			if n.Netdev == e.Netdev {
				return n
			}
		}
	}
	return nil
}

// or is *p, or the default.
func or[T any](p *T, def T) T {
	if p == nil {
		return def
	}
	return *p
}

func pick[T any](a, b *T) *T {
	if a == nil {
		a = b
	}
	if a == nil {
		return nil
	}
	v := *a
	return &v
}

// first is the first value that is not zero.
func first[T comparable](a, b T) T {
	var zero T
	if a != zero {
		return a
	}
	return b
}
