// Package docapcc makes a handler package into a folder of source for NVIDIA DOCA PCC: C11 for the data-path accelerator, a loader for
// the host, and scripts that build and deploy them.
//
//	files, err := docapcc.Write(p, "swift-docapcc")
//
//	device/pcm_dev.c     the callbacks that the library calls, the flow's 48 bytes, the pool, probes and the rate
//	device/pcm_core.h    the handler and what runs it (package pcm/device)
//	device/pcm_config.h  the deployment: MTU, line rate, size of the pool
//	host/pcm_load.c      loads the program into a NIC and keeps it there
//	build.sh, deploy.sh  DPACC's command line; settings checked, program started, proven to run
//
// Nothing of NVIDIA's is part of it: the folder is built on a machine that has DOCA. The package refuses what the device cannot do.
package docapcc

import (
	"embed"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/device"
)

//go:embed template
var files embed.FS

var templates = template.Must(template.ParseFS(files, "template/*.tmpl"))

// deployment is what the templates are filled with.
type deployment struct {
	Name, File, Hash   string
	MTU, Line, BaseRTT uint64 // bytes, bits per 100 ns, ps
	Window             bool   // the handler sets one
}

func deploymentOf(p *pcm.Package) (d deployment, err error) {
	d = deployment{Name: p.Name, File: filepath.Base(p.File)}
	if d.Hash, err = p.Hash(); err != nil {
		return d, err
	}
	d.Window = slices.ContainsFunc(p.Controls, func(c pcm.Control) bool { return c.Kind == pcm.CWND })
	constant := func(name string, scale, most float64) uint64 {
		if err != nil {
			return 0
		}
		var v float64
		if v, err = device.Constant(p, name); err != nil {
			return 0
		}
		if v = math.Round(v * scale); !(v >= 1 && v <= most) {
			err = fmt.Errorf("handler %s: %s is %g: %s has no use for it", p.Name, name, v/scale, "DOCA PCC")
		}
		return uint64(v)
	}
	d.MTU = constant("FABRIC_LINK_MSS", 1, 16384)
	d.Line = constant("FABRIC_LINK_RATE_GBPS", 800, 1<<20) // GByte/s
	if d.Window {
		d.BaseRTT = constant("FABRIC_BRTT", float64(p.Fabric.TimeUnitPS), 1<<32-1)
	}
	return d, err
}

// Write puts the folder of p into dir and says which files. Fractions are Q32.32 unless p says another fixed-point format. The error
// lists every object that the device lacks, with its place and what is missing.
func Write(p *pcm.Package, dir string) ([]string, error) {
	p, err := device.For("docapcc", p)
	if err != nil {
		return nil, err
	}
	d, err := deploymentOf(p)
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for name, from := range map[string]string{"device/pcm_dev.c": "pcm_dev.c", "device/pcm_config.h": "pcm_config.h.tmpl", "device/dpa_attributes.yaml": "dpa_attributes.yaml",
		"host/pcm_load.c": "pcm_load.c", "host/pcm_about.h": "pcm_about.h.tmpl", "build.sh": "build.sh", "deploy.sh": "deploy.sh"} {
		if !strings.HasSuffix(from, ".tmpl") {
			data, err := files.ReadFile("template/" + from)
			if err != nil {
				return nil, err
			}
			texts[name] = string(data)
			continue
		}
		var b strings.Builder
		if err := templates.ExecuteTemplate(&b, from, d); err != nil {
			return nil, fmt.Errorf("handler %s: %w", p.Name, err)
		}
		texts[name] = b.String()
	}
	written, err := device.WriteFiles(dir, texts)
	if err != nil {
		return nil, err
	}
	core, err := device.Write(p, filepath.Join(dir, "device"))
	if err != nil {
		return nil, err
	}
	written = append(written, core...)
	slices.Sort(written)
	return written, nil
}
