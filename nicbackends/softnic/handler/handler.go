// Package handler lets PCM handlers decide for the queue pairs of a software NIC, in place of its own DCQCN.
//
// What the NIC knows becomes the signals of the shell: acknowledged packets and bytes, round trips of packets that asked for an
// acknowledgement, NAKs (a packet each), timeouts, CNPs, bytes in flight and waiting. RoCE echoes no marks to the sender, so ECN
// counts CNPs, as it does on ConnectX. A window bounds the bytes in flight, a rate (bits per 100 ns) paces.
//
// It imports the loader of shared objects, so only the program that runs NICs with handlers may import it.
package handler

import (
	"fmt"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/nicbackends/softnic"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/engine"
	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/shell"
)

// Program is a loaded shell for the queue pairs of a NIC.
type Program struct {
	Shell *shell.Shell
	poll  time.Duration
}

var _ engine.Program = (*Program)(nil)

// pollEvery is how often a handler that looks at the clock, or asks to be called again, is called when nothing happens.
const pollEvery = 5 * time.Microsecond

// controls that a software NIC has.
const controls = 1<<pcm.CWND | 1<<pcm.Rate | 1<<pcm.RTTProbe

var _ softnic.Loader = Load

// Load is a softnic.Loader. It loads the shared object of a CPU shell. A handler that decides something else than windows and rates is refused.
func Load(path string) (engine.Program, softnic.HandlerInfo, error) {
	s, err := shell.Open(path)
	if err != nil {
		return nil, softnic.HandlerInfo{}, err
	}
	if other := s.Controls &^ controls; other != 0 || s.Controls == 0 {
		return nil, softnic.HandlerInfo{}, fmt.Errorf("handler %s: the software NIC sets windows, rates and probes, and no path or credit", s.Name)
	}
	p := &Program{Shell: s}
	if s.Sources&(1<<pcm.ElapsedTime|1<<pcm.Loopback) != 0 {
		p.poll = pollEvery
	}
	return p, softnic.HandlerInfo{Name: s.Name, Hash: s.Hash}, nil
}

// Controls implements engine.Program.
func (p *Program) Controls() uint64 { return p.Shell.Controls }

// Poll implements engine.Program.
func (p *Program) Poll() time.Duration { return p.poll }

// New implements engine.Program.
func (p *Program) New(now time.Duration, seed uint64) (engine.Policy, error) {
	f, err := p.Shell.NewFlow(uint64(now), seed)
	if err != nil {
		return nil, err
	}
	return &policy{flow: f, probes: p.Shell.Controls&(1<<pcm.RTTProbe) != 0}, nil
}

type policy struct {
	flow   *shell.Flow
	probes bool // round trips are those of the probes that the handler asks for, as on a NIC that measures no others
	in     shell.Input
	out    shell.Output
}

func (p *policy) Close() { p.flow.Close() }

// Flush implements engine.Policy.
func (p *policy) Flush(s *engine.Signals) engine.Decision {
	in := &p.in
	*in = shell.Input{Now: uint64(s.Now), ACK: uint64(s.Feedback.Packets), DataTX: uint64(s.Feedback.Bytes), NACK: uint64(s.Feedback.Naks),
		DataNACKed: uint64(s.Feedback.Naks * s.MTU), RTO: uint64(s.Feedback.Timeouts), ECN: uint64(s.CNPs), CNP: uint64(s.CNPs), RTT: uint64(s.Feedback.RTT),
		InFlight: uint64(s.InFlight), TXBytes: uint64(s.Sent), TXBacklogBytes: uint64(s.Waiting)}
	if p.probes {
		in.RTT = uint64(s.Feedback.Probe)
	}
	give := func(source pcm.Source, v uint64) {
		if v != 0 {
			in.Mask |= 1 << source
		}
	}
	give(pcm.ACK, in.ACK)
	give(pcm.DataTX, in.DataTX)
	give(pcm.NACK, in.NACK)
	give(pcm.DataNACKed, in.DataNACKed)
	give(pcm.RTO, in.RTO)
	give(pcm.ECN, in.ECN)
	give(pcm.CNP, in.CNP)
	give(pcm.RTT, in.RTT)
	give(pcm.TXBytes, in.TXBytes)
	in.Mask |= 1<<pcm.InFlight | 1<<pcm.TXBacklogBytes
	p.flow.Flush(in, &p.out)
	d := engine.Decision{Fired: p.out.Fired, Failed: p.out.Failed != 0}
	const none = 1<<64 - 1
	if p.out.CWND != none {
		d.Window = int64(min(p.out.CWND, 1<<40))
	}
	if p.out.Rate != none {
		d.Rate = units.Rate(min(p.out.Rate, 1<<30)) * ticksPerSecond
	}
	d.Probe = p.probes && d.Fired != 0 && p.out.RTTProbe != none && p.out.RTTProbe != 0
	return d
}

// ticksPerSecond: a rate is in bits per tick of 100 ns.
const ticksPerSecond = 10_000_000
