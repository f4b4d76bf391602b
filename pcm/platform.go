package pcm

import (
	"fmt"
	"slices"
)

// Support is what a platform makes of a signal or a control.
type Support uint8

// Native is there; Adapted goes through a documented adapter; Silent is accepted, but never counts (a signal) or is not obeyed yet
// (a control); Refused means that the platform cannot run a handler with it.
const (
	Refused Support = iota
	Silent
	Adapted
	Native
)

// Capability is the support of one signal or control, and how or why.
type Capability struct {
	Support Support
	Why     string
}

// Platform is what a backend gives to handlers: the capability matrix of the reference sheet, section B.0.
type Platform struct {
	Name     string
	Title    string
	Signals  [numSources]Capability
	Controls [numControls]Capability
	Float    bool // C's double
	Libc     bool // the C library, with its mathematics
	// WordBits is the width of signals, controls and variables. FlowBytes is what a flow's state may take in all, 0 when it is not bound.
	WordBits, FlowBytes int
}

// Gap is an object of a package that a platform does not have as it is.
type Gap struct {
	Section string // signals or controls
	Index   int
	Name    string
	Source  string // PCM_SIG_... or PCM_CTRL_...
	Capability
}

// Gaps lists what of p the platform adapts, keeps silent or refuses, in the order of the file.
func (pl *Platform) Gaps(p *Package) []Gap {
	var gaps []Gap
	for i, s := range p.Signals {
		if c := pl.Signals[s.Source]; c.Support != Native {
			gaps = append(gaps, Gap{"signals", i, s.Name, s.Source.String(), c})
		}
	}
	for i, c := range p.Controls {
		if k := pl.Controls[c.Kind]; k.Support != Native {
			gaps = append(gaps, Gap{"controls", i, c.Name, c.Kind.String(), k})
		}
	}
	return gaps
}

// Wakes says that at least one trigger of p can fire on the platform. Its own loopback needs another one to begin with.
func (pl *Platform) Wakes(p *Package) bool {
	return slices.ContainsFunc(p.Signals, func(s Signal) bool {
		c := pl.Signals[s.Source].Support
		return s.Trigger != nil && s.Source != Loopback && (c == Native || c == Adapted)
	})
}

// Platforms lists all of them.
func Platforms() []*Platform { return platforms }

// PlatformNamed finds one, and otherwise says which there are.
func PlatformNamed(name string) (*Platform, error) {
	var names []string
	for _, p := range platforms {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return nil, fmt.Errorf("no platform %q (there are %v)", name, names)
}

func native[T ~uint8](to []Capability, which ...T) {
	for _, w := range which {
		to[w] = Capability{Support: Native}
	}
}

func as[T ~uint8](to []Capability, s Support, why string, which ...T) {
	for _, w := range which {
		to[w] = Capability{s, why}
	}
}

var platforms = []*Platform{cpuPlatform(), softnicPlatform(), ucclPlatform(), htsimPlatform(), docapccPlatform(), onepPlatform()}

func cpuPlatform() *Platform {
	p := &Platform{Name: "cpu", Title: "shared object for traces and for programs that load it", Float: true, Libc: true, WordBits: 64}
	native(p.Signals[:], Sources()...)
	native(p.Controls[:], Controls()...)
	return p
}

// softnicPlatform is what the software NIC gives to the shared object of the CPU.
func softnicPlatform() *Platform {
	const onePath = "it has no entropy: the software NIC does not choose paths"
	const noCredit = "it has no credit: receivers of the software NIC grant none"
	p := &Platform{Name: "softnic", Title: "the software NIC of virtual labs, which loads the shared object of the CPU", Float: true, Libc: true, WordBits: 64}
	native(p.Signals[:], ACK, RTO, NACK, RTT, DataTX, InFlight, ElapsedTime, CNP, TXBytes, TXBacklogBytes, Loopback)
	as(p.Signals[:], Adapted, "an out-of-sequence NAK counts as one packet's bytes, however many are sent again", DataNACKed)
	as(p.Signals[:], Adapted, "RoCE echoes no marks, so CNPs are counted: a queue pair has at most one in 50 us, however many of its packets were marked", ECN)
	as(p.Signals[:], Silent, "packets wait in the host's memory and not in a queue of the NIC", Queue)
	as(p.Signals[:], Refused, onePath, ACKEV, ECNEV, NACKEV, TXReadyPackets)
	as(p.Signals[:], Refused, noCredit, PullTarget)
	native(p.Controls[:], CWND, Rate)
	as(p.Controls[:], Refused, onePath, EV)
	as(p.Controls[:], Refused, noCredit, PullNo)
	as(p.Controls[:], Adapted, "a probe is the next data packet, which asks for an acknowledgement: while no data goes no probe does", RTTProbe)
	return p
}

func ucclPlatform() *Platform {
	p := &Platform{Name: "uccl", Title: "UCCL's software transport, chunks of 64 KiB", Float: true, Libc: true, WordBits: 64}
	native(p.Signals[:], ACK, RTO, NACK, RTT, DataTX, DataNACKed, InFlight, ElapsedTime, ACKEV, NACKEV, TXReadyPackets, TXBacklogBytes, TXBytes, PullTarget, Loopback)
	as(p.Signals[:], Silent, "its fabric carries no ECN", ECN, ECNEV, CNP)
	as(p.Signals[:], Silent, "it does not see the queue of the NIC", Queue)
	native(p.Controls[:], CWND, Rate, EV, PullNo)
	as(p.Controls[:], Refused, "it measures the round trip of every chunk and has no probes", RTTProbe)
	return p
}

func htsimPlatform() *Platform {
	p := &Platform{Name: "htsim", Title: "the uet-htsim packet simulator", Float: true, Libc: true, WordBits: 64}
	native(p.Signals[:], Sources()...)
	as(p.Signals[:], Silent, "its hook points do not report the queue of the sender", Queue)
	as(p.Signals[:], Adapted, "the transport has no CNPs: the first marked acknowledgement in 50 us is taken for one", CNP)
	native(p.Controls[:], CWND, Rate, EV, PullNo)
	as(p.Controls[:], Refused, "round trips come with every acknowledgement, and probes are the simulator's own", RTTProbe)
	return p
}

func docapccPlatform() *Platform {
	p := &Platform{Name: "docapcc", Title: "NVIDIA DOCA PCC (ConnectX-8 data-path accelerator)", WordBits: 64}
	native(p.Signals[:], ACK, NACK, ElapsedTime, CNP, TXBytes, Loopback)
	as(p.Signals[:], Adapted, "round trips are measured by probes", RTT)
	as(p.Signals[:], Adapted, "bytes are counted as acknowledged packets times the MTU", DataTX)
	as(p.Signals[:], Adapted, "bytes are counted as refused packets times the MTU", DataNACKed)
	as(p.Signals[:], Adapted, "marks are counted as CNPs", ECN)
	as(p.Signals[:], Adapted, "an estimate: bytes sent less bytes acknowledged", InFlight)
	as(p.Signals[:], Silent, "the device does not report timeouts", RTO)
	as(p.Signals[:], Silent, "the device does not report its queues", Queue, TXBacklogBytes)
	as(p.Signals[:], Refused, "the device has no entropy: it does not choose paths", ACKEV, ECNEV, NACKEV, TXReadyPackets)
	as(p.Signals[:], Refused, "the device has no pull: receivers give no credit", PullTarget)
	native(p.Controls[:], Rate, RTTProbe)
	as(p.Controls[:], Adapted, "a window goes through the rate adapter: rate = CWND / EWMA(RTT)", CWND)
	as(p.Controls[:], Refused, "the device has no entropy: it does not choose paths", EV)
	as(p.Controls[:], Refused, "the device has no pull: receivers give no credit", PullNo)
	return p
}

func onepPlatform() *Platform {
	const unknown = "nothing public says that the transport reports it"
	p := &Platform{Name: "onep", Title: "asynchronous C callbacks, a stand-in for a NIC whose interface is not public", WordBits: 64}
	native(p.Signals[:], ACK, RTT, DataTX, ElapsedTime, Loopback)
	as(p.Signals[:], Silent, unknown, RTO, NACK, ECN, DataNACKed, InFlight, CNP, TXBytes, Queue, TXBacklogBytes)
	as(p.Signals[:], Refused, "no entropy: the transport does not choose paths", ACKEV, ECNEV, NACKEV, TXReadyPackets)
	as(p.Signals[:], Refused, "no pull: receivers give no credit", PullTarget)
	as(p.Controls[:], Adapted, "taken for native: nothing public says how the transport takes a window", CWND)
	as(p.Controls[:], Adapted, "taken for native: nothing public says how the transport takes a rate", Rate)
	as(p.Controls[:], Refused, "no entropy: the transport does not choose paths", EV)
	as(p.Controls[:], Refused, "no pull: receivers give no credit", PullNo)
	as(p.Controls[:], Refused, "nothing public says that the transport has probes", RTTProbe)
	return p
}
