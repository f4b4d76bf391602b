package perftest

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
)

// RoCEv2 is how sysfs names the GID type that is routed over UDP.
const RoCEv2 = "RoCE v2"

// GIDTable is the GID table of one port of one device, used entries alone, in order of index.
type GIDTable []GIDEntry

// GIDError says that no GID of a port fits; its text holds the table, so that a user can choose.
type GIDError struct {
	Device string
	Port   int
	Data   netip.Addr
	Reason string
	Table  GIDTable
}

func (e *GIDError) Error() string {
	return fmt.Sprintf("GID of %s port %d for data address %v: %s\n%s", e.Device, e.Port, e.Data, e.Reason, e.Table)
}

// ParseGIDTable reads what `grep -rs . gids gid_attrs/types gid_attrs/ndevs` prints of a port's folder: lines of
// PATH:VALUE in any order. Entries that are zero, or have no type, are not in use and left out.
func ParseGIDTable(text string) (GIDTable, error) {
	byIndex := map[int]*GIDEntry{}
	for n, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		file, value, ok := strings.Cut(line, ":")
		dir, name, okName := cutLast(file, "/")
		index, err := strconv.Atoi(name)
		if !ok || !okName || err != nil {
			return nil, fmt.Errorf("GID table line %d: %q is not PATH/INDEX:VALUE", n+1, line)
		}
		e := byIndex[index]
		if e == nil {
			e = &GIDEntry{Index: index}
			byIndex[index] = e
		}
		value = strings.TrimSpace(value)
		switch {
		case strings.HasSuffix(dir, "types"):
			e.Type = value
		case strings.HasSuffix(dir, "ndevs"):
			e.Netdev = value
		case strings.HasSuffix(dir, "gids"):
			if e.GID, err = parseGID(value); err != nil {
				return nil, fmt.Errorf("GID table line %d: %w", n+1, err)
			}
		}
	}
	var table GIDTable
	for _, e := range byIndex {
		if e.GID.IsValid() && !e.GID.IsUnspecified() && e.Type != "" {
			table = append(table, *e)
		}
	}
	slices.SortFunc(table, func(a, b GIDEntry) int { return a.Index - b.Index })
	return table, nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+1:], true
}

// parseGID reads sysfs' eight groups of four hex digits. A v4-mapped GID keeps its sixteen bytes.
func parseGID(s string) (netip.Addr, error) {
	raw, err := hex.DecodeString(strings.ReplaceAll(s, ":", ""))
	if err != nil || len(raw) != 16 {
		return netip.Addr{}, fmt.Errorf("GID %q: need 16 bytes in hex", s)
	}
	return netip.AddrFrom16([16]byte(raw)), nil
}

// Resolve finds the entry that carries data: RoCE v2 and the same address, an IPv4 one in its v4-mapped form. Where
// several fit (VLAN interfaces repeat addresses), one on netdev comes first, then the lowest index.
func (t GIDTable) Resolve(device string, port int, data netip.Addr, netdev string) (GIDEntry, error) {
	fail := func(format string, args ...any) (GIDEntry, error) {
		return GIDEntry{}, &GIDError{device, port, data, fmt.Sprintf(format, args...), t}
	}
	if !data.IsValid() {
		return fail("no data address is given")
	}
	var found, other []GIDEntry
	for _, e := range t {
		switch {
		case e.GID.Unmap() != data.Unmap():
		case e.Type == RoCEv2:
			found = append(found, e)
		default:
			other = append(other, e)
		}
	}
	if len(found) == 0 {
		if len(other) > 0 {
			return fail("the address is there at index %d, but as %s, not %s (switch the NIC's RoCE mode, or give gid_index)", other[0].Index, other[0].Type, RoCEv2)
		}
		return fail("no entry has that address (is it set on the NIC's interface? otherwise give gid_index)")
	}
	for _, e := range found {
		if e.Netdev == netdev {
			return e, nil
		}
	}
	return found[0], nil
}

// String is the table as users know it from show_gids.
func (t GIDTable) String() string {
	if len(t) == 0 {
		return "(the GID table is empty)"
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "INDEX\tGID\tADDRESS\tTYPE\tNETDEV")
	for _, e := range t {
		address := "-"
		if e.GID.Is4In6() {
			address = e.GID.Unmap().String()
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", e.Index, e.GID.StringExpanded(), address, e.Type, e.Netdev)
	}
	w.Flush()
	return strings.TrimRight(b.String(), "\n")
}

// ReadGIDTable reads a port's GID table from the host's sysfs with one command.
func ReadGIDTable(ctx context.Context, h remote.Host, device string, port int) (GIDTable, error) {
	step := fmt.Sprintf("read the GID table of %s port %d", device, port)
	dir := fmt.Sprintf("/sys/class/infiniband/%s/ports/%d", device, port)
	// Unused entries cannot be read (EINVAL), so grep ends with 2 on every real NIC.
	res, err := h.Run(ctx, remote.Cmd{Args: []string{"grep", "-rs", ".", dir + "/gids", dir + "/gid_attrs/types", dir + "/gid_attrs/ndevs"}, Step: step, Plain: true})
	if err != nil {
		return nil, err
	}
	if len(res.Stdout) == 0 {
		return nil, fmt.Errorf("host %s: %s: nothing at %s (is the RDMA device there? ls /sys/class/infiniband)", h.Name(), step, dir)
	}
	table, err := ParseGIDTable(string(res.Stdout))
	if err != nil {
		return nil, fmt.Errorf("host %s: %s: %w", h.Name(), step, err)
	}
	return table, nil
}

// GIDChoice is the GID that one end of a flow uses, and how it was found.
type GIDChoice struct {
	Entry GIDEntry `json:"entry"`
	Given bool     `json:"given"` // by the inventory, not resolved
	Notes []string `json:"notes,omitempty"`
}

// ResolveGID chooses the GID of a NIC on its host: the inventory's index where it gives one, else the RoCE v2 entry of
// the data address. A given index is held against the table, and what looks wrong about it is noted.
func ResolveGID(ctx context.Context, h remote.Host, nic *inventory.NIC) (GIDChoice, error) {
	port := max(nic.Port, 1)
	table, err := ReadGIDTable(ctx, h, nic.Device, port)
	if nic.GIDIndex == nil {
		if err != nil {
			return GIDChoice{}, err
		}
		e, err := table.Resolve(nic.Device, port, nic.IP.Addr(), nic.Netdev)
		if err != nil {
			return GIDChoice{}, fmt.Errorf("host %s: %w", h.Name(), err)
		}
		return GIDChoice{Entry: e}, nil
	}
	choice := GIDChoice{Entry: GIDEntry{Index: *nic.GIDIndex}, Given: true}
	if err != nil {
		choice.Notes = []string{fmt.Sprintf("gid_index %d is taken as given: %v", *nic.GIDIndex, err)}
		return choice, nil
	}
	i := slices.IndexFunc(table, func(e GIDEntry) bool { return e.Index == *nic.GIDIndex })
	if i < 0 {
		return GIDChoice{}, fmt.Errorf("host %s: %w", h.Name(),
			&GIDError{nic.Device, port, nic.IP.Addr(), fmt.Sprintf("gid_index %d of the inventory is not in use", *nic.GIDIndex), table})
	}
	choice.Entry = table[i]
	if choice.Entry.Type != RoCEv2 {
		choice.Notes = append(choice.Notes, fmt.Sprintf("gid_index %d is %s, not %s", choice.Entry.Index, choice.Entry.Type, RoCEv2))
	}
	if nic.IP.IsValid() && choice.Entry.GID.Unmap() != nic.IP.Addr().Unmap() {
		choice.Notes = append(choice.Notes, fmt.Sprintf("gid_index %d is %v, not the data address %v", choice.Entry.Index, choice.Entry.GID.Unmap(), nic.IP.Addr()))
	}
	return choice, nil
}
