package locks

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/internal/process"
)

// Resource is what a lock holds on a host.
type Resource struct {
	Kind  Kind   `json:"kind"`
	Name  string `json:"name,omitempty"`  // of a NIC: its network interface, else its RDMA device; of PCC contexts: the NIC's GUID, the owner's PCI address
	First int    `json:"first,omitempty"` // of ports
	Last  int    `json:"last,omitempty"`
}

// Kind is the kind of a resource.
type Kind string

// The kinds. A whole host excludes everything of others there; use excludes only that, so that many may use a switch.
const (
	Host  Kind = "host"
	Use   Kind = "use"
	NIC   Kind = "nic"
	Ports Kind = "ports"

	// The contexts in which programs of NVIDIA DOCA PCC run: that of the reaction point is one for a whole NIC, however many ports and
	// interfaces it has, and that of the notification point one for each owner of an embedded switch (DOCA PCC guide, 3.3).
	PCCRP Kind = "pcc-rp"
	PCCNP Kind = "pcc-np"
)

// String is the resource as people read it: "host", "nic eth0", "ports 18515-18578".
func (r Resource) String() string {
	switch r.Kind {
	case NIC, PCCRP, PCCNP:
		return string(r.Kind) + " " + r.Name
	case Ports:
		return fmt.Sprintf("ports %d-%d", r.First, r.Last)
	}
	return string(r.Kind)
}

// Parse reads what String wrote.
func Parse(s string) (Resource, error) {
	kind, rest, _ := strings.Cut(s, " ")
	switch r := (Resource{Kind: Kind(kind), Name: rest}); r.Kind {
	case Host, Use:
		if rest == "" {
			return r, nil
		}
	case NIC, PCCRP, PCCNP:
		if rest != "" {
			return r, nil
		}
	case Ports:
		first, last, ok := strings.Cut(rest, "-")
		a, err1 := strconv.ParseUint(first, 10, 16)
		b, err2 := strconv.ParseUint(last, 10, 16)
		if ok && err1 == nil && err2 == nil && a <= b {
			return Resource{Kind: Ports, First: int(a), Last: int(b)}, nil
		}
	}
	return Resource{}, fmt.Errorf("resource %q: want host, use, nic NAME, pcc-rp NAME, pcc-np NAME or ports FIRST-LAST", s)
}

// overlaps says that two cannot be held by different holders at once.
func (r Resource) overlaps(o Resource) bool {
	switch {
	case r.Kind == Host || o.Kind == Host:
		return true
	case r.Kind != o.Kind || r.Kind == Use:
		return false
	case r.Kind != Ports:
		return r.Name == o.Name
	}
	return r.First <= o.Last && o.First <= r.Last
}

// Lock is one lock on one host.
type Lock struct {
	ID        string     `json:"id"` // the run's, or the owner's
	Run       bool       `json:"run"`
	Owner     string     `json:"owner"` // user@machine that asked
	Reason    string     `json:"reason"`
	Since     time.Time  `json:"since"`
	Expires   time.Time  `json:"expires"`
	Process   process.ID `json:"process"` // of a run's lock: it ends with this process of the host
	Resources []Resource `json:"resources"`
}

// Live says that the lock still counts at an instant.
func (l *Lock) Live(now time.Time) bool {
	return now.Before(l.Expires) && (!l.Run || l.Process.Alive())
}

// conflicts are the resources of o that are in the way of l. Use is named only where there is nothing else.
func (l *Lock) conflicts(o *Lock) []Resource {
	if l.Run == o.Run && l.ID == o.ID || l.Run != o.Run && l.Owner == o.Owner {
		return nil
	}
	var all, named []Resource
	for _, b := range o.Resources {
		if slices.ContainsFunc(l.Resources, b.overlaps) {
			all = append(all, b)
			if b.Kind != Use {
				named = append(named, b)
			}
		}
	}
	if len(named) > 0 {
		return named
	}
	return all
}

// Holder is who holds it, in words: "run 2026… of alice@gateway".
func (l *Lock) Holder() string {
	if l.Run {
		return "run " + l.ID + " of " + l.Owner
	}
	return l.Owner
}

// Held is a lock in somebody's way.
type Held struct {
	HostName string   `json:"host"` // as the lab calls it
	Resource Resource `json:"resource"`
	Lock     Lock     `json:"lock"`
}

// BusyError says whose locks are in the way.
type BusyError struct{ Held []Held }

// Error names each lock once, with all that it holds of what was wanted.
func (e *BusyError) Error() string {
	var b strings.Builder
	seen := map[string]bool{}
	for _, h := range e.Held {
		who := h.Lock.Holder()
		if seen[who] {
			continue
		}
		seen[who] = true
		if b.Len() > 0 {
			b.WriteString("; ")
		}
		sep := who + " holds "
		for _, o := range e.Held {
			if o.Lock.Holder() == who {
				b.WriteString(sep + o.what())
				sep = ", "
			}
		}
		fmt.Fprintf(&b, " until %s", h.Lock.Expires.UTC().Format(time.RFC3339))
		if h.Lock.Reason != "" {
			fmt.Fprintf(&b, " (%s)", h.Lock.Reason)
		}
	}
	return b.String() + ": wait (--wait 10m), use other hosts, or ask (pcmlab who -i LAB)"
}

// what is "h1 nic eth0", or "h1" alone for the whole host.
func (h Held) what() string {
	switch {
	case h.HostName == "":
		return h.Resource.String()
	case h.Resource.Kind == Host:
		return h.HostName
	case h.Resource.Kind == Use:
		return "a part of " + h.HostName
	}
	return h.HostName + " " + h.Resource.String()
}
