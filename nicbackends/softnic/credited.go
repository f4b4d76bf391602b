package softnic

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/rdcc/domain"
)

var _ nicbackends.Credited = Backend{}

// frameOverhead is what a full data packet has on a virtual lab's link besides its payload: Ethernet, IPv4, UDP, BTH and ICRC. The software
// switch knows no preamble and no gap.
const frameOverhead = 14 + 20 + 8 + 12 + 4

// Path implements nicbackends.Credited. The round trip is the one that handlers are told of, with what software adds: see fabricOf.
func (Backend) Path(lab *inventory.Lab, nic *inventory.NIC, c domain.Config) domain.Config {
	f := fabricOf(lab, nic)
	value := func(name string) int64 { n, _ := f.Values[name].Int64(); return n }
	if c.LineRate == 0 {
		c.LineRate = accessRate(lab, nic)
	}
	if !c.BaseRTT.Given() {
		c.BaseRTT = domain.Time(time.Duration(value("FABRIC_BRTT")))
	}
	if c.Payload == 0 {
		c.Payload = units.Size(value("FABRIC_LINK_MSS"))
	}
	if c.Wire == 0 {
		c.Wire = c.Payload + frameOverhead
		if nic.IP.Addr().Is6() {
			c.Wire += 20
		}
	}
	c.TimeScale = lab.Scale().Factor()
	return c
}

// accessRate is the rate of the NIC's own link.
func accessRate(lab *inventory.Lab, nic *inventory.NIC) units.Rate {
	rate := nic.Rate
	for _, l := range lab.Links {
		for _, end := range []inventory.End{l.A, l.B} {
			if h := lab.Host(end.Host); h != nil && slices.Contains(h.NICs, nic) && end.Netdev == nic.Netdev && l.Rate > 0 && (rate == 0 || l.Rate < rate) {
				rate = l.Rate
			}
		}
	}
	return rate
}

// RDCC implements nicbackends.Credited.
func (Backend) RDCC(ctx context.Context, h remote.Host, nic *inventory.NIC) (*domain.Config, error) {
	s, err := show(ctx, h, nic)
	if err != nil || s.RDCC == nil {
		return nil, err
	}
	return &s.RDCC.Config, nil
}

// SetRDCC implements nicbackends.Credited.
func (b Backend) SetRDCC(ctx context.Context, h remote.Host, nic *inventory.NIC, c *domain.Config) error {
	step := "set credit control of NIC " + nic.Device
	if _, err := run(ctx, h, step, b.RDCCCommand(nic, c)...); err != nil {
		return err
	}
	now, err := b.RDCC(ctx, h, nic)
	if err != nil {
		return err
	}
	if want, have := rdccSettings(c), rdccSettings(now); !slices.Equal(want, have) {
		return fmt.Errorf("host %s: %s: it was told %s, and says that it has %s", h.Name(), step, strings.Join(want, " "), strings.Join(have, " "))
	}
	return nil
}

// RDCCCommand implements nicbackends.Credited.
func (Backend) RDCCCommand(nic *inventory.NIC, c *domain.Config) []string {
	return append([]string{"pcmlab", "nic", "set", "--device", nic.Device}, rdccSettings(c)...)
}

// rdccSettings are the words of `pcmlab nic set` that make a NIC's credit control that of c.
func rdccSettings(c *domain.Config) []string {
	if c == nil || c.Off {
		return []string{"rdcc=off"}
	}
	text, err := json.Marshal(c)
	var fields map[string]any
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		panic(err) // numbers and words all of them
	}
	words := flatten("rdcc", fields)
	slices.Sort(words)
	return append([]string{"rdcc=on"}, words...)
}

// flatten writes KEY.KEY=VALUE for each value.
func flatten(key string, v any) (words []string) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			words = append(words, flatten(key+"."+name, value)...)
		}
	case []any:
		var list []string
		for _, value := range v {
			list = append(list, fmt.Sprint(value))
		}
		words = []string{key + "=" + strings.Join(list, ",")}
	case float64:
		words = []string{key + "=" + strconv.FormatFloat(v, 'f', -1, 64)}
	default:
		words = []string{fmt.Sprintf("%s=%v", key, v)}
	}
	return words
}
