package softnic

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/pcmlab/pcmlab/nicbackends/softnic/engine"
)

// sysfsView is a directory that stands in for /sys/class/infiniband, with the files that tools read there and the text
// that the kernel prints. Each file is replaced as a whole, so that a reader never sees half a number.
type sysfsView struct {
	root string // .../DEVICE
	last map[string]uint64
}

// gidText prints a GID as the kernel does: eight groups of four digits, none left out.
func gidText(a netip.Addr) string {
	b := a.As16()
	s := make([]byte, 0, 39)
	for i := 0; i < 16; i += 2 {
		if i > 0 {
			s = append(s, ':')
		}
		s = fmt.Appendf(s, "%02x%02x", b[i], b[i+1])
	}
	return string(s)
}

// guidText prints a GUID as the kernel does.
func guidText(g [8]byte) string {
	return fmt.Sprintf("%02x%02x:%02x%02x:%02x%02x:%02x%02x", g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7])
}

// eui64 is the interface identifier that follows from a MAC address (RFC 4291, appendix A).
func eui64(mac [6]byte) [8]byte {
	return [8]byte{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]}
}

// linkLocal is fe80::/64 with the MAC's interface identifier: GID 0 of a RoCE port.
func linkLocal(mac [6]byte) netip.Addr {
	b := [16]byte{0xfe, 0x80}
	id := eui64(mac)
	copy(b[8:], id[:])
	return netip.AddrFrom16(b)
}

// rateText prints a port's rate as the kernel does. The core knows only lane multiples; a rate between them, as a
// scaled lab has, is printed as it is.
func rateText(bps int64) string {
	known := map[int64]string{
		2_500_000_000: "2.5 Gb/sec (1X SDR)", 5_000_000_000: "5 Gb/sec (1X DDR)", 10_000_000_000: "10 Gb/sec (4X SDR)",
		25_000_000_000: "25 Gb/sec (1X EDR)", 40_000_000_000: "40 Gb/sec (4X QDR)", 50_000_000_000: "50 Gb/sec (2X EDR)",
		100_000_000_000: "100 Gb/sec (4X EDR)", 200_000_000_000: "200 Gb/sec (4X HDR)", 400_000_000_000: "400 Gb/sec (4X NDR)",
	}
	if s, ok := known[bps]; ok {
		return s
	}
	return strconv.FormatFloat(float64(bps)/1e9, 'f', -1, 64) + " Gb/sec (1X)"
}

func newSysfsView(c Config, mac [6]byte) (*sysfsView, error) {
	v := &sysfsView{root: filepath.Join(c.Sysfs, c.Device), last: map[string]uint64{}}
	host := c.HostName
	if host == "" {
		host, _ = os.Hostname()
	}
	guid := eui64(mac)
	port := "ports/1/"
	zero := gidText(netip.IPv6Unspecified())
	files := map[string]string{
		"fw_ver": "", "node_type": "1: CA", "node_desc": host + " " + c.Device, "node_guid": guidText(guid), "sys_image_guid": guidText(guid),
		"parent": c.Netdev, port + "state": "4: ACTIVE", port + "phys_state": "5: LinkUp", port + "rate": rateText(c.RateBps),
		port + "link_layer": "Ethernet", port + "lid": "0x0", port + "sm_lid": "0x0", port + "lid_mask_count": "0", port + "sm_sl": "0",
		port + "cap_mask": "0x00010000", port + "pkeys/0": "0xffff", port + "hw_counters/lifespan": "10",
		port + "gids/0": gidText(linkLocal(mac)), port + "gids/1": gidText(netip.AddrFrom16(c.IP.Addr().As16())),
	}
	for i := 0; i < 2; i++ {
		n := strconv.Itoa(i)
		files[port+"gid_attrs/types/"+n] = "RoCE v2"
		files[port+"gid_attrs/ndevs/"+n] = c.Netdev
	}
	// The kernel lists the whole table; empty rows are the zero GID and have no readable attributes.
	for i := 2; i < 16; i++ {
		files[port+"gids/"+strconv.Itoa(i)] = zero
	}
	for name, text := range files {
		if err := v.write(name, text); err != nil {
			return nil, fmt.Errorf("publish %s: %w", v.root, err)
		}
	}
	if err := os.MkdirAll(filepath.Join(v.root, "device", "net", c.Netdev), 0o755); err != nil {
		return nil, fmt.Errorf("publish %s: %w", v.root, err)
	}
	return v, nil
}

func (v *sysfsView) write(name, text string) error {
	path := filepath.Join(v.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := filepath.Join(v.root, ".new") // not beside the file, where a reader would list it
	if err := os.WriteFile(tmp, []byte(text+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// publish writes the counters that have changed since the last time.
func (v *sysfsView) publish(c *engine.Counters) error {
	var errs []error
	for _, n := range counterNames {
		if n.kind == ownCounter {
			continue
		}
		value := n.value(c)
		if old, seen := v.last[n.name]; seen && old == value {
			continue
		}
		dir := "ports/1/hw_counters/"
		if n.kind == portCounter {
			dir = "ports/1/counters/"
		}
		if err := v.write(dir+n.name, strconv.FormatUint(value, 10)); err != nil {
			errs = append(errs, err)
			continue
		}
		v.last[n.name] = value
	}
	return errors.Join(errs...)
}

// remove takes the device away, as when its driver is unloaded.
func (v *sysfsView) remove() error { return os.RemoveAll(v.root) }
