package softnic

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/dcqcn"
)

// Config is one software NIC, as `pcmlab nic serve --config FILE.json` reads it. Rates and delays of the link are as
// built (already divided by the time scale); protocol constants are hardware values and are scaled by the NIC.
type Config struct {
	Device   string       `json:"device"`              // RDMA device name, such as softnic0
	Netdev   string       `json:"netdev"`              // network interface that carries IP
	IP       netip.Prefix `json:"ip"`                  // data address with prefix length; IPv4
	MAC      string       `json:"mac,omitempty"`       // for the GUID and link-local GID; empty: read from the netdev
	RateBps  int64        `json:"rate_bps"`            // line rate as built, bit/s
	MTU      int          `json:"mtu"`                 // MTU of the netdev, bytes; 0: read from the netdev
	DSCP     int          `json:"dscp"`                // of data packets, unless a QP asks for its own traffic class
	ECN      bool         `json:"ecn"`                 // data packets carry ECT(0)
	Priority int          `json:"priority"`            // 802.1p priority, set as SO_PRIORITY
	DCQCN    DCQCNConfig  `json:"dcqcn"`               //
	Scale    units.Scale  `json:"time_scale"`          // S; 0 means 1
	Socket   string       `json:"socket,omitempty"`    // UNIX socket; empty: SocketPath(Device)
	Sysfs    string       `json:"sysfs,omitempty"`     // stands in for /sys/class/infiniband; empty: nothing is published
	HostName string       `json:"host_name,omitempty"` // for node_desc; empty: the kernel's

	AckEvery       int           `json:"ack_every,omitempty"`        // packets between acknowledgement requests; 0 means 64
	MaxOutstanding int           `json:"max_outstanding,omitempty"`  // unacknowledged packets of one QP; 0 means 512
	MaxCatchUp     time.Duration `json:"max_catch_up_ns,omitempty"`  // packets overdue for longer lose their slot; 0 means 2ms
	Quantum        time.Duration `json:"quantum_ns,omitempty"`       // shortest wait for the pacer; 0 means 100us
	Receive        string        `json:"receive,omitempty"`          // "udp", "packet", "auto" (default): see Receiving in the package comment
	ForeignICRC    string        `json:"foreign_icrc,omitempty"`     // "drop" (default) or "accept", for an ICRC that does not match
	PublishEvery   time.Duration `json:"publish_every_ns,omitempty"` // 0 means 500ms
}

// DCQCNConfig switches the native control loop. With Enabled false the NIC neither sends CNPs nor obeys them.
type DCQCNConfig struct {
	Enabled bool          `json:"enabled"`
	Params  *ParamsConfig `json:"params,omitempty"` // hardware values; nil and absent keys: dcqcn.Defaults
}

// ParamsConfig is dcqcn.Params whose absent keys keep their default.
type ParamsConfig struct{ dcqcn.Params }

// UnmarshalJSON fills in over the defaults and refuses unknown keys.
func (p *ParamsConfig) UnmarshalJSON(b []byte) error {
	p.Params = dcqcn.Defaults()
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	return d.Decode(&p.Params)
}

// Hardware gives the constants in hardware terms.
func (d DCQCNConfig) Hardware() dcqcn.Params {
	if d.Params == nil {
		return dcqcn.Defaults()
	}
	return d.Params.Params
}

// RunDir is where NICs of a host listen. Virtual hosts have their own /run, so one fixed place serves all labs;
// PCMLAB_NIC_DIR overrides it where /run cannot be written.
func RunDir() string {
	if dir := os.Getenv("PCMLAB_NIC_DIR"); dir != "" {
		return dir
	}
	return "/run/pcmlab/nic"
}

// SocketPath is where the NIC of that name listens when its configuration does not say otherwise.
func SocketPath(device string) string { return filepath.Join(RunDir(), device+".sock") }

// LoadConfig reads and checks a configuration file. Unknown keys are mistakes.
func LoadConfig(path string) (Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("NIC configuration: %w", err)
	}
	var c Config
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return Config{}, fmt.Errorf("NIC configuration %s: %w", path, err)
	}
	if _, err := c.withDefaults(); err != nil {
		return Config{}, fmt.Errorf("NIC configuration %s: %w", path, err)
	}
	return c, nil
}

func (c Config) withDefaults() (Config, error) {
	var errs []error
	bad := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(c.Device != "" && !strings.ContainsAny(c.Device, "/\x00") && c.Device != "." && c.Device != "..",
		"device %q: want a name such as softnic0", c.Device)
	bad(c.IP.IsValid() && c.IP.Addr().Is4(), "ip %q: want an IPv4 address with prefix length, such as 192.0.2.11/24", c.IP)
	bad(c.RateBps > 0, "rate_bps %d: want the line rate in bit/s", c.RateBps)
	bad(c.MTU >= 0 && c.MTU <= 65535, "mtu %d: want 0 to 65535", c.MTU)
	bad(c.DSCP >= 0 && c.DSCP < 64, "dscp %d: want 0 to 63", c.DSCP)
	bad(c.Priority >= 0 && c.Priority < 8, "priority %d: want 0 to 7", c.Priority)
	bad(c.Scale >= 0, "time_scale %v: want 1 or more", float64(c.Scale))
	bad(c.AckEvery >= 0 && c.MaxOutstanding >= 0 && c.MaxOutstanding <= 1<<20,
		"ack_every %d, max_outstanding %d: want 0 or more (at most %d)", c.AckEvery, c.MaxOutstanding, 1<<20)
	bad(c.MaxCatchUp >= 0 && c.Quantum >= 0 && c.PublishEvery >= 0,
		"max_catch_up_ns %d, quantum_ns %d, publish_every_ns %d: want 0 or more", c.MaxCatchUp, c.Quantum, c.PublishEvery)
	bad(c.Receive == "" || c.Receive == "auto" || c.Receive == "udp" || c.Receive == "packet", "receive %q: want auto, udp or packet", c.Receive)
	bad(c.ForeignICRC == "" || c.ForeignICRC == "drop" || c.ForeignICRC == "accept",
		"foreign_icrc %q: want drop or accept", c.ForeignICRC)
	if err := c.DCQCN.Hardware().Validate(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return Config{}, errors.Join(errs...)
	}
	orInt := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	orDuration := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	orInt(&c.AckEvery, 64)
	orInt(&c.MaxOutstanding, 512)
	orDuration(&c.MaxCatchUp, 2*time.Millisecond)
	orDuration(&c.Quantum, 100*time.Microsecond)
	orDuration(&c.PublishEvery, 500*time.Millisecond)
	if c.Scale == 0 {
		c.Scale = 1
	}
	if c.Receive == "" {
		c.Receive = "auto"
	}
	if c.Socket == "" {
		c.Socket = SocketPath(c.Device)
	}
	return c, nil
}
