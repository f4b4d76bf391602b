// Package onep makes a handler package into C for a NIC that calls congestion control asynchronously, as Microsoft's 1P does. Nothing about
// that NIC's interface is public, so that what stands for it is one header, onep_adapter.h, which says so:
//
//	files, err := onep.Write(p, "swift-onep")
//
//	pcm_onep.c      the callbacks: one notes events where packets are handled, one runs the handler beside it
//	onep_adapter.h  the stand-in: events, controls, clock and context of a flow, all assumed
//	pcm_core.h      the handler and what runs it (package pcm/device)
package onep

import (
	"embed"
	"errors"
	"fmt"
	"slices"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/device"
)

//go:embed template
var files embed.FS

// Write puts the source of p into dir and says which files. Fractions are Q32.32 unless p says another fixed-point format. The error
// lists every object that the platform lacks, with its place and what is missing.
func Write(p *pcm.Package, dir string) ([]string, error) {
	p, err := device.For("onep", p)
	if err != nil {
		return nil, err
	}
	var all []error
	for i, s := range p.Signals {
		if s.Source == pcm.RTT && s.Accum == pcm.Sum {
			at := p.Pos("signals", i, "accumulation")
			all = append(all, fmt.Errorf("%s:%d:%d: platform onep: signal %s (%s): of round trips that come together it keeps the last, the least and the largest, no sum",
				p.File, max(1, at.Line), max(1, at.Col), s.Name, s.Source))
		}
	}
	if len(all) > 0 {
		return nil, errors.Join(all...)
	}
	texts := map[string]string{}
	for _, name := range []string{"pcm_onep.c", "onep_adapter.h"} {
		data, err := files.ReadFile("template/" + name)
		if err != nil {
			return nil, err
		}
		texts[name] = string(data)
	}
	written, err := device.WriteFiles(dir, texts)
	if err != nil {
		return nil, err
	}
	core, err := device.Write(p, dir)
	if err != nil {
		return nil, err
	}
	written = append(written, core...)
	slices.Sort(written)
	return written, nil
}
