package analysis

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/capture"
)

// Role says what a capture is used for.
type Role string

// The roles of a capture. The zero value is Judged.
const (
	Judged   Role = ""         // metrics come from it, e.g. the switch's egress to the receiver
	Upstream Role = "upstream" // before the queue; used only for loss between taps
)

// Input is what one tap captured.
type Input struct {
	Path string   // pcap or pcapng, also inside gzip or zstd; capture.Stdin reads standard input
	More []string // further files of the same tap that follow each other in time (a ring buffer), in any order
	Tap  string   // name of the tap, for messages and the document; may be empty
	Role Role

	Said    capture.ToolCounts // what the capturing program said at its end; the zero value: unknown
	Stamped Stamped            // whose times they are; the zero value: unknown
}

// Phase is a window of time that gets numbers of its own.
type Phase struct {
	Name    string
	StartNS int64 // since the epoch, on the capture's clock
	EndNS   int64

	// TrimStart and TrimEnd are cut off before rates, shares and Jain's index are taken. Both zero means the
	// default: one second at each end, or 10 % of the phase where that is shorter or time is scaled. Negative
	// means no trim at that end. "Over its last 60 %" is TrimStart = 40 % of the phase, TrimEnd = -1.
	TrimStart, TrimEnd time.Duration

	// Flows are the sources that are expected to send, by data address or by a name of Options.Names. Empty
	// means whoever sends.
	Flows []string
}

// CounterDelta is what NIC or switch counters say moved while the capture ran; it tells a quiet link from a blind tap.
type CounterDelta struct {
	Packets int64  // RoCE packets by the counters
	Source  string // whose counters, for the message
}

// Options steer Run. The zero value analyses port 4791 in 10 ms bins without phases.
type Options struct {
	Bin       time.Duration // width of a bin of the series; 0 means DefaultBin. It doubles when MaxCells would be passed.
	UDPPort   uint16        // 0 means 4791
	RDCCPort  uint16        // UDP port of RDCC, which has no default; 0 means that it is not looked for
	Phases    []Phase
	TimeScale float64 // S of a virtual lab; 0 means 1

	LinkRateBps float64 // rate of the judged link as built; 0 means unknown: utilisation is null
	Names       map[netip.Addr]string
	Counters    *CounterDelta // nil means not read: "blind" cannot be told from quiet
	Calls       []string      // files of NICs' logs of their handlers' invocations (package calls)
	CheckICRC   bool          // verify the ICRC of packets that were captured whole

	ReorderWindow time.Duration // records that are late by less are sorted; 0 means DefaultReorderWindow, negative: file order
	Expect        Expect        // what the checks hold the captures to
	Workers       int           // goroutines that analyse; 0 means one a processor. The document is the same.

	DedupWindow time.Duration // copies made by mirrors are removed within it; 0 means DefaultDedupWindow, negative: keep them
	MaxCells    int           // bound on bins x flows held in memory; 0 means DefaultMaxCells
}

// Expect says what was asked for. What is left out is not checked.
type Expect struct {
	DSCP *int   // of data packets, 0 to 63
	ECN  string // of data packets: "ect" (ECT(0), ECT(1) or CE) or "not_ect"; "" means whatever
	// CNPScope is how the notifier paces: "qp", "ip_pair", "destination" or "port"; CNPInterval the least time between
	// two CNPs of one such group.
	CNPScope    string
	CNPInterval time.Duration
}

// Defaults of Options.
const (
	DefaultBin           = 10 * time.Millisecond
	DefaultReorderWindow = time.Millisecond
	DefaultDedupWindow   = time.Millisecond
	DefaultMaxCells      = 1 << 18
	DefaultTrim          = time.Second
	defaultTrimShare     = 0.1
)

// Check returns every mistake in o, as Run would; nil when there is none.
func (o Options) Check() error {
	_, err := o.resolved()
	return err
}

// resolved returns o with its defaults filled in, or every mistake in it.
func (o Options) resolved() (Options, error) {
	if o.Bin == 0 {
		o.Bin = DefaultBin
	}
	if o.UDPPort == 0 {
		o.UDPPort = 4791
	}
	if o.TimeScale == 0 {
		o.TimeScale = 1
	}
	if o.DedupWindow == 0 {
		o.DedupWindow = DefaultDedupWindow
	}
	if o.ReorderWindow == 0 {
		o.ReorderWindow = DefaultReorderWindow
	}
	if o.MaxCells == 0 {
		o.MaxCells = DefaultMaxCells
	}
	var errs []error
	if o.RDCCPort == o.UDPPort {
		errs = append(errs, fmt.Errorf("RDCC port %d: is RoCE's, and they cannot share it", o.RDCCPort))
	}
	if o.Bin < 0 {
		errs = append(errs, fmt.Errorf("bin %v: must be positive", o.Bin))
	}
	if o.TimeScale < 0 {
		errs = append(errs, fmt.Errorf("time scale %g: must be positive", o.TimeScale))
	}
	if o.LinkRateBps < 0 {
		errs = append(errs, fmt.Errorf("link rate %g bit/s: must be positive", o.LinkRateBps))
	}
	errs = append(errs, o.Expect.mistakes()...)
	if o.Workers < 0 {
		errs = append(errs, fmt.Errorf("workers %d: must be positive", o.Workers))
	}
	for _, p := range o.Phases {
		if p.EndNS <= p.StartNS {
			errs = append(errs, fmt.Errorf("phase %q: ends at %d ns, which is not after its start at %d ns", p.Name, p.EndNS, p.StartNS))
			continue
		}
		if from, to := p.window(o.TimeScale); to <= from {
			errs = append(errs, fmt.Errorf("phase %q: nothing is left of its %v after trimming %v and %v", p.Name,
				time.Duration(p.EndNS-p.StartNS), p.TrimStart, p.TrimEnd))
		}
	}
	return o, errors.Join(errs...)
}

// window gives the trimmed window [from, to) of p.
func (p Phase) window(timeScale float64) (from, to int64) {
	length := time.Duration(p.EndNS - p.StartNS)
	start, end := p.TrimStart, p.TrimEnd
	if start == 0 && end == 0 {
		share := time.Duration(float64(length) * defaultTrimShare)
		start = DefaultTrim
		if share < start || timeScale > 1 {
			start = share
		}
		end = start
	}
	return p.StartNS + int64(max(start, 0)), p.EndNS - int64(max(end, 0))
}

func (x Expect) mistakes() (errs []error) {
	if d := x.DSCP; d != nil && (*d < 0 || *d > 63) {
		errs = append(errs, fmt.Errorf("expected DSCP %d: must be 0 to 63 (the traffic class is DSCP*4 + ECN)", *d))
	}
	switch x.ECN {
	case "", "ect", "not_ect":
	default:
		errs = append(errs, fmt.Errorf("expected ECN %q: must be ect or not_ect", x.ECN))
	}
	switch x.CNPScope {
	case "", ScopeQP, ScopeIPPair, ScopeDestination, ScopePort:
	default:
		errs = append(errs, fmt.Errorf("CNP scope %q: must be qp, ip_pair, destination or port", x.CNPScope))
	}
	if x.CNPInterval < 0 || (x.CNPScope != "") != (x.CNPInterval > 0) {
		errs = append(errs, fmt.Errorf("CNP interval %v with scope %q: a pacing is a scope and a positive interval", x.CNPInterval, x.CNPScope))
	}
	return errs
}
