package softnic

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/nicbackends/cpu"
	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/handlers"
)

// deploy compiles the NIC's handler for this lab, ships it, loads it, and reads back that it is the one. It returns what to set.
func deploy(ctx context.Context, h remote.Host, lab *inventory.Lab, nic *inventory.NIC) error {
	p, err := HandlerPackage(lab, nic)
	if err != nil {
		return err
	}
	object, hash, err := compiled(ctx, p)
	if err != nil {
		return err
	}
	bin, err := h.Binary(ctx)
	if err != nil {
		return err
	}
	target := path.Join(path.Dir(path.Dir(bin)), "shells", hash+".so")
	if _, err := run(ctx, h, "make the folder of handlers", "mkdir", "-p", path.Dir(target)); err != nil {
		return err
	}
	f, err := os.Open(object)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := h.Put(ctx, target, 0o644, f); err != nil {
		return err
	}
	if _, err := run(ctx, h, "load handler "+p.Name+" into NIC "+nic.Device, "pcmlab", "nic", "set", "--device", nic.Device, "handler="+target); err != nil {
		return err
	}
	s, err := show(ctx, h, nic)
	if err != nil {
		return err
	}
	if s.Handler == nil || s.Handler.Hash != hash {
		return fmt.Errorf("host %s: NIC %s: handler %s was set, but the NIC says that it runs %v", h.Name(), nic.Device, p.Name, s.Handler)
	}
	return nil
}

func show(ctx context.Context, h remote.Host, nic *inventory.NIC) (s Status, err error) {
	out, err := run(ctx, h, "ask NIC "+nic.Device, "pcmlab", "nic", "show", "--device", nic.Device, "-o", "json")
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	return s, err
}

// HandlerPackage is the NIC's handler with its constants for the lab.
func HandlerPackage(lab *inventory.Lab, nic *inventory.NIC) (*pcm.Package, error) {
	d := pcm.Deployment{Fabric: fabricOf(lab, nic)}
	if strings.ContainsAny(nic.Handler, "/.") {
		return pcm.Load(nic.Handler, d)
	}
	if names := handlers.Names(); !slices.Contains(names, nic.Handler) {
		return nil, fmt.Errorf("handler %q: not in the library (there are: %s); a package of your own is given by its path", nic.Handler, strings.Join(names, ", "))
	}
	return handlers.Load(nic.Handler, d)
}

// Handler implements nicbackends.Handled.
func (Backend) Handler(lab *inventory.Lab, nic *inventory.NIC) (h nicbackends.Handler, err error) {
	p, err := HandlerPackage(lab, nic)
	if err != nil {
		return h, err
	}
	h = nicbackends.Handler{Name: p.Name, Constants: map[string]string{}}
	for _, c := range p.Constants {
		h.Constants[c.Name] = c.Value.String()
	}
	h.Hash, err = p.Hash()
	return h, err
}

// compiled builds the shell, or finds it in the user's cache.
func compiled(ctx context.Context, p *pcm.Package) (object, hash string, err error) {
	if hash, err = p.Hash(); err != nil {
		return "", "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", err
	}
	object = filepath.Join(cache, "pcmlab", "shells", hash+".so")
	if _, err := os.Stat(object); err == nil {
		return object, hash, nil
	}
	if err := os.MkdirAll(filepath.Dir(object), 0o755); err != nil {
		return "", "", err
	}
	return object, hash, cpu.Build(ctx, p, object, cpu.Options{})
}

// hostDelay is what software NICs and switches may add to a round trip besides their links, as built: it covers the lateness of their
// timers up to about the 99th percentile of a quiet machine. With less, a handler that aims at a delay takes the machine's pauses
// for congestion and leaves the link idle.
const hostDelay = 2 * time.Millisecond

// fabricOf derives the deployment constants from the lab, in hardware terms: rate and path MTU of the NIC, the longest way that two links
// make, and what software adds, which a time scale makes small.
func fabricOf(lab *inventory.Lab, nic *inventory.NIC) *pcm.Fabric {
	const hops, headers = 2, 54
	mss := 1024
	for _, m := range []int{2048, 4096} {
		if nic.MTU >= m+headers+10 {
			mss = m
		}
	}
	rate := nic.Rate
	var delay time.Duration
	for _, l := range lab.Links {
		delay = max(delay, l.Delay)
		if rate == 0 || l.Rate > 0 && l.Rate < rate {
			rate = l.Rate
		}
	}
	rtt := 2*hops*delay + hops*rate.Transmit(mss+headers) + time.Duration(float64(hostDelay)/lab.Scale().Factor())
	bdp := int64(float64(rate) / 8 * rtt.Seconds())
	f := &pcm.Fabric{File: lab.File, Values: map[string]pcm.Number{}, TimeUnitPS: 1000}
	set := func(name string, v int64) {
		f.Names = append(f.Names, name)
		f.Values[name] = pcm.IntNumber(v)
	}
	set("FABRIC_HOP_COUNT", hops)
	set("FABRIC_LINK_MSS", int64(mss))
	set("FABRIC_LINK_MTU", int64(mss+headers))
	set("FABRIC_BDP", bdp)
	set("FABRIC_MIN_CWND", int64(mss+headers))
	set("FABRIC_MAX_CWND", max(bdp*3/2, int64(4*mss)))
	set("FABRIC_BRTT", rtt.Nanoseconds())
	set("FABRIC_TRTT", rtt.Nanoseconds()*7/4)
	f.Names = append(f.Names, "FABRIC_LINK_RATE_GBPS")
	f.Values["FABRIC_LINK_RATE_GBPS"] = pcm.Number{Float: float64(rate) / float64(8*units.GbitPerSec)}
	return f
}
