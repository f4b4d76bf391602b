package fabric

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
)

// Defaults of Config's zero values.
const (
	// DefaultBuffer is the shared packet buffer, that of a common data-center switch.
	DefaultBuffer = 16 * units.MiB
	// DefaultOverhead is what Ethernet adds to a frame on the wire: preamble 8, FCS 4 and interframe gap 12 bytes.
	DefaultOverhead = 24
	// DefaultMaxFrame is a frame of MTU 9216 with one VLAN tag.
	DefaultMaxFrame = 9216 + 18
	// DefaultIngressLimit is the backlog of one host's link above which the host is not read.
	DefaultIngressLimit = 4 * units.MiB
	// DefaultMaxCatchUp is how far virtual time runs ahead at once after the driver was late.
	DefaultMaxCatchUp = 20 * time.Millisecond
)

// IO names a way to move packets between the kernel and the switch.
type IO string

// IOAuto takes io_uring where it works, otherwise read and write (TAP) or recvmmsg and sendmmsg (packet sockets).
const (
	IOAuto      IO = ""
	IOUring     IO = "io_uring"
	IOReadWrite IO = "readwrite"
	IOPacket    IO = "packet"
)

// maxSocketPath is what sun_path holds besides its end.
const maxSocketPath = 107

// EnvIO is the environment variable that forces a path when Config.IO does not.
const EnvIO = "PCMLAB_FABRIC_IO"

// Kind says what a descriptor is.
type Kind string

// The zero value is read as KindTAP.
const (
	KindTAP    Kind = "tap"    // a TAP device without packet information and without offloads
	KindPacket Kind = "packet" // an AF_PACKET SOCK_RAW socket bound to one end of a veth pair
)

// Direction is what a mirror sees of its ports, from the switch's point of view. The zero value is read as Egress.
type Direction string

// Ingress copies packets as they arrive at the switch, before the queue; Egress as they depart, after marks and drops.
const (
	Ingress Direction = "ingress"
	Egress  Direction = "egress"
	Both    Direction = "both"
)

// Config is what a fabric is built from. Rates, delays and sizes are values as built: already divided or multiplied by
// the time scale.
type Config struct {
	Name      string         `json:"name"`
	TimeScale float64        `json:"time_scale,omitempty"` // only reported
	Buffer    units.Size     `json:"buffer,omitempty"`     // shared by all egress queues; 0: DefaultBuffer
	Ports     []PortConfig   `json:"ports"`
	Mirrors   []MirrorConfig `json:"mirrors,omitempty"`
	Control   string         `json:"control,omitempty"` // path of the UNIX control socket; empty: none

	ReadyFD int    `json:"ready_fd,omitempty"` // "ready\n" is written here, and it is closed, when packets flow; 0: none
	IO      IO     `json:"io,omitempty"`
	Seed    uint64 `json:"seed,omitempty"` // of the RED draws

	Overhead     *int          `json:"overhead_bytes,omitempty"`  // per frame on the wire; nil: DefaultOverhead
	MaxFrame     int           `json:"max_frame_bytes,omitempty"` // 0: DefaultMaxFrame; longer frames are dropped and counted
	IngressLimit units.Size    `json:"ingress_limit,omitempty"`   // per port; 0: DefaultIngressLimit
	MaxCatchUp   time.Duration `json:"max_catch_up_ns,omitempty"` // 0: DefaultMaxCatchUp

	// Quantum, when not 0, is the least time for which the fabric sleeps, so that several packets share a wake-up. It
	// saves processor time and adds up to as much lateness; io_uring gathers arrivals for it, too.
	Quantum time.Duration `json:"quantum_ns,omitempty"`
	// Realtime runs the data path under SCHED_FIFO where that is allowed: less lateness on a busy machine, but more
	// wake-ups, and nothing else gets its processor while it is saturated.
	Realtime bool `json:"realtime,omitempty"`
}

// PortConfig is one port with its link.
type PortConfig struct {
	Name   string        `json:"name"`
	FD     int           `json:"fd"`
	Kind   Kind          `json:"kind,omitempty"`
	MAC    string        `json:"mac,omitempty"`      // static address of the host behind the port; empty: learned only
	Rate   units.Rate    `json:"rate"`               // of the link, each way
	Delay  time.Duration `json:"delay_ns,omitempty"` // one way, each way
	Buffer units.Size    `json:"buffer,omitempty"`   // limit of the egress queue; 0: the shared buffer alone
	ECN    *ECNConfig    `json:"ecn,omitempty"`      // nil: no marking
}

// ECNConfig is a RED curve on the egress queue: no marks below KMin, PMax at KMax, all above.
type ECNConfig struct {
	KMin units.Size `json:"kmin"`
	KMax units.Size `json:"kmax"`
	PMax float64    `json:"pmax"`
}

// MirrorConfig is a port that only gets copies.
type MirrorConfig struct {
	Name      string    `json:"name"`
	FD        int       `json:"fd"`
	Kind      Kind      `json:"kind,omitempty"`
	Ports     []string  `json:"ports,omitempty"` // names of the mirrored ports; empty: all
	Direction Direction `json:"direction,omitempty"`
}

// LoadConfig reads and checks a configuration file.
func LoadConfig(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("fabric configuration: %w", err)
	}
	defer f.Close()
	var c Config
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return Config{}, fmt.Errorf("fabric configuration %s: %w", path, err)
	}
	if err := c.check(); err != nil {
		return Config{}, fmt.Errorf("fabric configuration %s: %w", path, err)
	}
	return c, nil
}

// withDefaults is a copy of c with the zero values replaced.
func (c Config) withDefaults() Config {
	if c.TimeScale <= 0 {
		c.TimeScale = 1
	}
	if c.Buffer == 0 {
		c.Buffer = DefaultBuffer
	}
	if c.Overhead == nil {
		overhead := DefaultOverhead
		c.Overhead = &overhead
	}
	if c.MaxFrame == 0 {
		c.MaxFrame = DefaultMaxFrame
	}
	if c.IngressLimit == 0 {
		c.IngressLimit = DefaultIngressLimit
	}
	if c.MaxCatchUp == 0 {
		c.MaxCatchUp = DefaultMaxCatchUp
	}
	c.Ports = append([]PortConfig(nil), c.Ports...)
	for i := range c.Ports {
		if c.Ports[i].Kind == "" {
			c.Ports[i].Kind = KindTAP
		}
	}
	c.Mirrors = append([]MirrorConfig(nil), c.Mirrors...)
	for i := range c.Mirrors {
		if c.Mirrors[i].Kind == "" {
			c.Mirrors[i].Kind = KindTAP
		}
		if c.Mirrors[i].Direction == "" {
			c.Mirrors[i].Direction = Egress
		}
	}
	return c
}

// check reports every mistake at once.
func (c Config) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Ports) == 0 {
		bad("ports: need at least one")
	}
	switch c.IO {
	case IOAuto, IOUring, IOReadWrite, IOPacket:
	default:
		bad("io %q: need %s, %s, %s or nothing", c.IO, IOUring, IOReadWrite, IOPacket)
	}
	if n := len(c.Control); n > maxSocketPath {
		bad("control %q: %d bytes, a UNIX socket's path has at most %d: use a shorter state directory", c.Control, n, maxSocketPath)
	}
	if c.Buffer < 0 || c.IngressLimit < 0 || c.MaxCatchUp < 0 || c.Quantum < 0 {
		bad("buffer %d, ingress_limit %d, max_catch_up_ns %d, quantum_ns %d: none may be negative", c.Buffer, c.IngressLimit, c.MaxCatchUp, c.Quantum)
	}
	if c.Overhead != nil && (*c.Overhead < 0 || *c.Overhead > 1024) {
		bad("overhead_bytes %d: need 0 to 1024", *c.Overhead)
	}
	if c.MaxFrame != 0 && (c.MaxFrame < 64 || c.MaxFrame > 65535) {
		bad("max_frame_bytes %d: need 64 to 65535", c.MaxFrame)
	}
	names := map[string]bool{}
	fds := map[int]string{}
	once := func(what, name string, fd int, kind Kind) {
		switch {
		case name == "":
			bad("%s: name is empty", what)
		case names[name]:
			bad("%s %q: name is used twice", what, name)
		}
		names[name] = true
		if other, dup := fds[fd]; dup {
			bad("%s %q: fd %d is also that of %q", what, name, fd, other)
		}
		fds[fd] = name
		if fd < 0 {
			bad("%s %q: fd %d is no descriptor", what, name, fd)
		}
		switch kind {
		case "", KindTAP, KindPacket:
		default:
			bad("%s %q: kind %q: need %s or %s", what, name, kind, KindTAP, KindPacket)
		}
	}
	ports := map[string]bool{}
	macs := map[string]string{}
	for _, p := range c.Ports {
		once("port", p.Name, p.FD, p.Kind)
		ports[p.Name] = true
		if err := p.link().check(); err != nil {
			bad("port %q: %w", p.Name, err)
		}
		if p.MAC == "" {
			continue
		}
		mac, err := parseMAC(p.MAC)
		if err != nil {
			bad("port %q: %w", p.Name, err)
		} else if other, dup := macs[mac.String()]; dup {
			bad("port %q: mac %s is also that of port %q", p.Name, mac, other)
		} else {
			macs[mac.String()] = p.Name
		}
	}
	for _, m := range c.Mirrors {
		once("mirror", m.Name, m.FD, m.Kind)
		for _, p := range m.Ports {
			if !ports[p] {
				bad("mirror %q: no port %q", m.Name, p)
			}
		}
		switch m.Direction {
		case "", Ingress, Egress, Both:
		default:
			bad("mirror %q: direction %q: need %s, %s or %s", m.Name, m.Direction, Ingress, Egress, Both)
		}
	}
	return errors.Join(errs...)
}

func parseMAC(s string) (net.HardwareAddr, error) {
	mac, err := net.ParseMAC(s)
	if err != nil || len(mac) != 6 {
		return nil, fmt.Errorf("mac %q: need six octets such as 02:00:00:00:00:01", s)
	}
	if mac[0]&1 != 0 {
		return nil, fmt.Errorf("mac %q: is a group address", s)
	}
	return mac, nil
}

// link is the part of a port that the machine needs.
func (p PortConfig) link() Link {
	l := Link{Rate: p.Rate, Delay: p.Delay, Buffer: p.Buffer}
	if p.ECN != nil {
		e := *p.ECN
		l.ECN = &e
	}
	return l
}

// Link is what can be set of one port of the machine.
type Link struct {
	Rate   units.Rate
	Delay  time.Duration
	Buffer units.Size // 0: the shared buffer alone
	ECN    *ECNConfig // nil: no marking
}

func (l Link) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	// The upper bound keeps bytes * 8e9 and the remainders of the serialisation in 64 bits.
	if l.Rate <= 0 || l.Rate > 10*1000*units.GbitPerSec {
		bad("rate %s: need more than 0 and at most 10Tbit/s", l.Rate)
	}
	if l.Delay < 0 || l.Delay > time.Minute {
		bad("delay %s: need 0 to 1m", l.Delay)
	}
	if l.Buffer < 0 {
		bad("buffer %d: is negative", l.Buffer)
	}
	if e := l.ECN; e != nil {
		if e.KMin < 0 || e.KMax < e.KMin {
			bad("ecn kmin %s, kmax %s: need 0 <= kmin <= kmax", e.KMin, e.KMax)
		}
		if !(e.PMax >= 0 && e.PMax <= 1) {
			bad("ecn pmax %g: need 0 to 1", e.PMax)
		}
	}
	return errors.Join(errs...)
}
