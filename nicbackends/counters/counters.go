package counters

import (
	"maps"
	"math"
	"slices"
	"time"
)

// Source is where counters are read.
type Source string

// The sources.
const (
	HWCounters   Source = "hw_counters" // /sys/class/infiniband/DEVICE/ports/PORT/hw_counters
	PortCounters Source = "counters"    // /sys/class/infiniband/DEVICE/ports/PORT/counters
	Ethtool      Source = "ethtool"     // ethtool -S
	Netdev       Source = "netdev"      // /sys/class/net/INTERFACE/statistics
	Qdisc        Source = "qdisc"       // tc -s qdisc show dev INTERFACE
)

// Set is what one source says of one object.
type Set struct {
	Source Source `json:"source"`
	Object string `json:"object"` // mlx5_0/1, eth0; of a queueing discipline also its kind and handle: "p_r1 red 10:"
	// Birth changes when the object is made anew, and with it its counters: the inode of its folder in sysfs, the index of an
	// interface. "" where nothing tells.
	Birth   string            `json:"birth,omitempty"`
	Parent  string            `json:"parent,omitempty"` // of a queueing discipline inside another: the class there
	Values  map[string]uint64 `json:"values"`
	Missing string            `json:"unavailable,omitempty"` // why there are none
}

// Reading is what a host said at one time.
type Reading struct {
	At     time.Time `json:"at"` // by this machine's clock, when it was asked
	BootID string    `json:"boot_id,omitempty"`
	Sets   []Set     `json:"sets"`
}

// Set finds what a source says of an object, or nil.
func (r *Reading) Set(source Source, object string) *Set {
	for i := range r.Sets {
		if r.Sets[i].Source == source && r.Sets[i].Object == object {
			return &r.Sets[i]
		}
	}
	return nil
}

// Kind says what became of a counter between two readings.
type Kind string

// The kinds. Only a counter that is counted or wrapped has a growth.
const (
	Counted   Kind = "counted"
	Wrapped   Kind = "wrapped"   // it passed the end of its 32 or 64 bits, once
	Reset     Kind = "reset"     // it began again: the host rebooted, the driver was loaded again, or somebody cleared it
	Saturated Kind = "saturated" // it stands at its end, where counters of ports stop (IBTA volume 1, 16.1.3.5)
	Absent    Kind = "absent"    // one of the two readings does not have it
)

// Change is how a counter moved between two readings.
type Change struct {
	Name   string  `json:"name"` // as the source calls it, or the name of ours
	Source Source  `json:"source"`
	Object string  `json:"object"`
	Before *uint64 `json:"before"`
	After  *uint64 `json:"after"`
	Growth *int64  `json:"growth"` // null: not known
	Kind   Kind    `json:"kind"`
	Why    string  `json:"why,omitempty"`

	Raw   []string `json:"raw,omitempty"`   // of a name of ours: the counters that it is made of
	Scope Scope    `json:"scope,omitempty"` // of a name of ours
	Unit  string   `json:"unit,omitempty"`
}

// Compare says how each counter of two readings of one host moved, in the order of the readings and of names.
func Compare(before, after *Reading) []Change {
	var out []Change
	if before == nil || after == nil {
		return out
	}
	rebooted := ""
	if before.BootID != "" && after.BootID != "" && before.BootID != after.BootID {
		rebooted = "the host rebooted"
	}
	for i := range before.Sets {
		b := &before.Sets[i]
		a := after.Set(b.Source, b.Object)
		if a == nil {
			a = &Set{Missing: "it is not in the later reading"}
		}
		out = append(out, compareSets(b, a, rebooted)...)
	}
	for i := range after.Sets {
		if a := &after.Sets[i]; before.Set(a.Source, a.Object) == nil {
			out = append(out, compareSets(&Set{Source: a.Source, Object: a.Object, Missing: "it is not in the earlier reading"}, a, rebooted)...)
		}
	}
	return out
}

func compareSets(b, a *Set, reset string) []Change {
	if reset == "" && b.Birth != "" && a.Birth != "" && b.Birth != a.Birth {
		reset = "it was made anew (driver loaded again, interface or queue replaced)"
	}
	names := map[string]bool{}
	for n := range b.Values {
		names[n] = true
	}
	for n := range a.Values {
		names[n] = true
	}
	sorted := slices.Sorted(maps.Keys(names))
	if reset == "" {
		// One counter that went back and cannot have wrapped tells that all of them began again.
		for _, n := range sorted {
			was, ok1 := b.Values[n]
			is, ok2 := a.Values[n]
			if _, wrapped := wrap(was, is); ok1 && ok2 && is < was && !wrapped && !level(b.Source, n) {
				reset = "it went back: somebody cleared the counters"
				break
			}
		}
	}
	var out []Change
	for _, n := range sorted {
		if level(b.Source, n) {
			continue
		}
		c := Change{Name: n, Source: b.Source, Object: b.Object}
		if v, ok := b.Values[n]; ok {
			c.Before = &v
		}
		if v, ok := a.Values[n]; ok {
			c.After = &v
		}
		c.judge(b, a, reset)
		out = append(out, c)
	}
	return out
}

// judge fills in kind and growth.
func (c *Change) judge(b, a *Set, reset string) {
	grew := func(n uint64) {
		if n > math.MaxInt64 {
			c.Kind, c.Why = Reset, "it moved by more than any counter can"
			return
		}
		g := int64(n)
		c.Growth = &g
	}
	switch {
	case c.Before == nil:
		c.Kind, c.Why = Absent, orElse(b.Missing, "the earlier reading does not have it")
	case c.After == nil:
		c.Kind, c.Why = Absent, orElse(a.Missing, "the later reading does not have it")
	case reset != "":
		c.Kind, c.Why = Reset, reset
	case c.Source == PortCounters && *c.Before == *c.After && (*c.After == math.MaxUint8 || *c.After == math.MaxUint16 || *c.After == math.MaxUint32):
		c.Kind, c.Why = Saturated, "it stands at the end of its range"
	case *c.After >= *c.Before:
		c.Kind = Counted
		grew(*c.After - *c.Before)
	default:
		n, _ := wrap(*c.Before, *c.After)
		c.Kind = Wrapped
		grew(n)
	}
}

// Grow is how far one counter moved that was read as was and as is, of which nothing else is known: ok is false when it went back without having
// wrapped.
func Grow(was, is uint64) (growth int64, ok bool) {
	n := is - was
	if is < was {
		if n, ok = wrap(was, is); !ok {
			return 0, false
		}
	}
	return int64(n), n <= math.MaxInt64
}

// wrap is how far a counter went that passed the end of its 32 or 64 bits. It was in the upper half and is in the lower:
// readings that are so far apart that more than half of the range may have passed tell nothing anyway.
func wrap(was, is uint64) (growth uint64, ok bool) {
	switch {
	case was > math.MaxUint32>>1 && was <= math.MaxUint32 && is <= math.MaxUint32>>1:
		return math.MaxUint32 - was + is + 1, true
	case was > math.MaxUint64>>1 && is <= math.MaxUint64>>1:
		return is - was, true
	}
	return 0, false
}

// level says that a value is no counter but stands for the present: it goes up and down.
func level(source Source, name string) bool {
	switch source {
	case Qdisc:
		return name == "backlog_bytes" || name == "backlog_packets"
	case HWCounters:
		return name == "lifespan" || name == "active_pds" || name == "active_ahs" || name == "active_qps" || name == "active_rc_qps" || name == "active_ud_qps" ||
			name == "active_srqs" || name == "active_cqs" || name == "active_mrs" || name == "active_mws"
	case Ethtool: // of User-Mode Linux's vector driver
		return name == "rx_queue_running_average" || name == "tx_queue_running_average" || name == "rx_queue_max" || name == "tx_queue_max"
	}
	return false
}

func orElse(s, or string) string {
	if s == "" {
		return or
	}
	return s
}
