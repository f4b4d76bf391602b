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

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/nicbackends/cpu"
	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/calls"
)

// deploy compiles the NIC's handlers for this lab, ships and loads them, and reads back that they are the ones, in their order.
func deploy(ctx context.Context, h remote.Host, lab *inventory.Lab, nic *inventory.NIC) error {
	bin, err := h.Binary(ctx)
	if err != nil {
		return err
	}
	folder := path.Join(path.Dir(path.Dir(bin)), "shells")
	if _, err := run(ctx, h, "make the folder of handlers", "mkdir", "-p", folder); err != nil {
		return err
	}
	args := []string{"pcmlab", "nic", "set", "--device", nic.Device}
	var names, hashes []string
	for i := range nic.Handlers {
		r := &nic.Handlers[i]
		setting := HandlerSetting{Shell: inventory.NoHandler, Match: r.Match}
		names, hashes = append(names, r.Handler), append(hashes, "")
		if r.Handler != inventory.NoHandler {
			p, mistakes := packages().Load(fabricOf(lab, nic), i, r)
			if len(mistakes) > 0 {
				return fmt.Errorf("host %s: NIC %s: %w", h.Name(), nic.Device, mistakes[0])
			}
			object, hash, err := compiled(ctx, p)
			if err != nil {
				return err
			}
			setting.Shell = path.Join(folder, hash+".so")
			for _, s := range p.Signals {
				setting.Signals = append(setting.Signals, s.Name)
			}
			if !slices.Contains(hashes, hash) {
				if err := put(ctx, h, object, setting.Shell); err != nil {
					return err
				}
			}
			hashes[i] = hash
		}
		args = append(args, "handler="+setting.String())
	}
	if _, err := run(ctx, h, "load handlers "+strings.Join(names, ", ")+" into NIC "+nic.Device, args...); err != nil {
		return err
	}
	s, err := show(ctx, h, nic)
	if err != nil {
		return err
	}
	for i, hash := range hashes {
		if len(s.Handlers) != len(hashes) || s.Handlers[i].Hash != hash || s.Handlers[i].Match != nic.Handlers[i].Match.String() {
			return fmt.Errorf("host %s: NIC %s: handlers %s were set, but the NIC says that it runs %+v", h.Name(), nic.Device, strings.Join(names, ", "), s.Handlers)
		}
	}
	return nil
}

func put(ctx context.Context, h remote.Host, object, target string) error {
	f, err := os.Open(object)
	if err != nil {
		return err
	}
	defer f.Close()
	return h.Put(ctx, target, 0o644, f)
}

func show(ctx context.Context, h remote.Host, nic *inventory.NIC) (s Status, err error) {
	out, err := run(ctx, h, "ask NIC "+nic.Device, "pcmlab", "nic", "show", "--device", nic.Device, "-o", "json")
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	return s, err
}

// packages are the handlers that the NIC runs.
func packages() nicbackends.Packages {
	pl, err := pcm.PlatformNamed("softnic")
	if err != nil {
		panic(err) // it is in this program
	}
	return nicbackends.Packages{Platform: pl, NIC: "the software NIC"}
}

// Handlers implements nicbackends.Handled.
func (Backend) Handlers(lab *inventory.Lab, nic *inventory.NIC) ([]nicbackends.Handler, []HandlerMistake) {
	return packages().Resolve(fabricOf(lab, nic), nic, func(rule int, p *pcm.Package) []HandlerMistake {
		if path := nic.Handlers[rule].Handler; strings.ContainsAny(path, "/.") {
			return compiles(rule, p, path)
		}
		return nil
	})
}

// CounterNames are what counters of handlers end with: their names, with a number behind the second of a name.
func CounterNames(handlers []HandlerInfo) []string {
	var names []string
	for _, h := range handlers {
		names = append(names, h.Name)
	}
	return nicbackends.CounterNames(names)
}

// HandlerMistake is a mistake of a rule.
type HandlerMistake = nicbackends.HandlerMistake

// LogCalls implements nicbackends.Diagnosed.
func (Backend) LogCalls(ctx context.Context, h remote.Host, nic *inventory.NIC, on bool) error {
	state := "off"
	if on {
		state = "on"
	}
	_, err := run(ctx, h, "log the calls of handlers on NIC "+nic.Device, "pcmlab", "nic", "set", "--device", nic.Device, "diagnostic="+state)
	return err
}

// WriteCalls implements nicbackends.Diagnosed.
func (Backend) WriteCalls(ctx context.Context, h remote.Host, nic *inventory.NIC, file string) (head calls.Header, err error) {
	step := "write the calls of handlers on NIC " + nic.Device
	out, err := run(ctx, h, step, "pcmlab", "nic", "calls", "--device", nic.Device, "-w", file, "-o", "json")
	if err == nil {
		err = json.Unmarshal(out, &head)
	}
	return head, err
}

// compiles finds mistakes in the C of a package that is not of the library, before a lab is raised for it.
func compiles(rule int, p *pcm.Package, path string) []HandlerMistake {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, _, err := compiled(ctx, p)
	if err == nil {
		return nil
	}
	said, _, _ := strings.Cut(err.Error(), "\n") // what the compiler said follows, with places in a copy
	return []HandlerMistake{{Rule: rule, Key: "handler", Message: fmt.Sprintf("handler %q: %s", path, said), Fix: "pcmlab handler check " + path + " has its mistakes with their places"}}
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

// fabricOf derives the deployment constants from the lab. What software adds, a time scale makes small.
func fabricOf(lab *inventory.Lab, nic *inventory.NIC) *pcm.Fabric {
	return nicbackends.Fabric(lab, nic, hostDelay)
}
