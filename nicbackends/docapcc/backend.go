package docapcc

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/locks"
	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/device"
)

// Backend is a ConnectX or BlueField as experiments see it: a kernel RDMA device whose PCM handlers are programs of DOCA PCC.
type Backend struct {
	nicbackends.Backend // what the kernel's driver gives of any such NIC: port, counters

	// For tests: the environment of commands on hosts, what stands for / of sysfs and procfs there, and that no root is needed.
	Env     []string
	Root    string
	AnyUser bool
	Every   time.Duration // between two looks of the keeper; 0: its own
	Within  time.Duration // until a handler runs; 0: the keeper's own
	End     time.Duration // for the loader to take it out; 0: the keeper's own
	Tool    time.Duration // for one command of the vendor's tools; 0: the keeper's own
	Build   time.Duration // for the compilers; 0: buildWait
}

var (
	_ nicbackends.Backend  = Backend{}
	_ nicbackends.Handled  = Backend{}
	_ nicbackends.Deployer = Backend{}
)

// Name is "docapcc".
func (Backend) Name() string { return inventory.DOCAPCC }

// Caps are what such a NIC can do.
func (Backend) Caps() []nicbackends.Cap {
	return []nicbackends.Cap{nicbackends.ECN, nicbackends.CNP, nicbackends.CC, nicbackends.PFC}
}

func packages() nicbackends.Packages {
	pl, err := pcm.PlatformNamed("docapcc")
	if err != nil {
		panic(err) // it is in this program
	}
	return nicbackends.Packages{Platform: pl, NIC: "a ConnectX"}
}

// program is the package of a rule as the device runs it: with the fixed-point format that it is built with.
func program(p *pcm.Package) (*pcm.Package, error) {
	q, err := device.For("docapcc", p)
	if err != nil {
		return nil, err
	}
	_, err = deploymentOf(q)
	return q, err
}

// probes says that a handler lives on round trips, which the device measures with probes.
func probes(p *pcm.Package) bool {
	return slices.ContainsFunc(p.Signals, func(s pcm.Signal) bool { return s.Source == pcm.RTT }) ||
		slices.ContainsFunc(p.Controls, func(c pcm.Control) bool { return c.Kind == pcm.CWND || c.Kind == pcm.RTTProbe })
}

// Handlers implements nicbackends.Handled. A NIC has one program for all its flows: which queue pair an event belongs to the library tells
// by a number alone, and the register PPCC enables algorithms for a port.
func (Backend) Handlers(lab *inventory.Lab, nic *inventory.NIC) ([]nicbackends.Handler, []nicbackends.HandlerMistake) {
	type built struct {
		hash   string
		probes bool
	}
	programs := map[int]built{}
	list, mistakes := packages().Resolve(nicbackends.Fabric(lab, nic, 0), nic, func(rule int, p *pcm.Package) []nicbackends.HandlerMistake {
		q, err := program(p)
		var hash string
		if err == nil {
			hash, err = q.Hash()
		}
		if err != nil {
			return []nicbackends.HandlerMistake{{Rule: rule, Key: "handler", Message: fmt.Sprintf("handler %q: %v", nic.Handlers[rule].Handler, err)}}
		}
		programs[rule] = built{hash, probes(q)}
		return nil
	})
	first := -1
	for i := range nic.Handlers {
		r := &nic.Handlers[i]
		list[i].Hash, list[i].Probes = programs[i].hash, programs[i].probes
		switch {
		case r.Match.String() != "":
			mistakes = append(mistakes, nicbackends.HandlerMistake{Rule: i, Key: "match", Message: fmt.Sprintf("handler %q is for some flows (%s), and a ConnectX gives all its flows to one program", r.Handler, r.Match.String()),
				Fix: "write handler: NAME for the NIC or the playbook"})
		case r.Handler == inventory.NoHandler:
		case first >= 0:
			mistakes = append(mistakes, nicbackends.HandlerMistake{Rule: i, Key: "handler", Message: fmt.Sprintf("handler %q: a ConnectX has one program, and that is %q", r.Handler, nic.Handlers[first].Handler), Fix: "leave one out", Other: first + 1})
		default:
			first = i
		}
	}
	return list, mistakes
}

// Claims implements nicbackends.Deployer: the reaction point is that of the whole NIC, which its ports know by one system image GUID, and the
// notification point that of the e-switch's owner, which is the physical function.
func (b Backend) Claims(ctx context.Context, h remote.Host, nic *inventory.NIC, sends bool) ([]locks.Resource, error) {
	const script = `d=$1/sys/class/infiniband/$2
cat "$d/sys_image_guid" || exit 1
p=$d/device; [ ! -e "$p/physfn" ] || p=$p/physfn
cd -P "$p" && echo "${PWD##*/}"`
	step := "see which NIC " + nic.Device + " belongs to"
	res, err := h.Run(ctx, remote.Cmd{Args: []string{"sh", "-c", script, "claims", b.Root, nic.Device}, Step: step})
	if err != nil {
		return nil, err
	}
	f := strings.Fields(string(res.Stdout))
	if res.Code != 0 || len(f) != 2 {
		return nil, &remote.Error{Host: h.Name(), Step: step, Err: fmt.Errorf("%s/sys/class/infiniband/%s tells neither GUID nor PCI address (exit status %d, %s)", b.Root, nic.Device, res.Code, oneLine(res.Stderr))}
	}
	if sends {
		return []locks.Resource{{Kind: locks.PCCRP, Name: f[0]}}, nil
	}
	return []locks.Resource{{Kind: locks.PCCNP, Name: f[1]}}, nil
}

func oneLine(b []byte) string {
	s := strings.Join(strings.Fields(strings.ToValidUTF8(string(b), "?")), " ")
	const most = 400
	if len(s) > most {
		s = "..." + strings.ToValidUTF8(s[len(s)-most:], "")
	}
	return cmp.Or(s, "it said nothing")
}

// cache is the folder of a host in which pcmlab keeps what it made.
func cache(ctx context.Context, h remote.Host) (string, error) {
	bin, err := h.Binary(ctx)
	return path.Join(path.Dir(path.Dir(bin)), "docapcc"), err
}
