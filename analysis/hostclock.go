package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/pcmlab/pcmlab/capture"
)

// Stamped says which clock gave the packets of a capture their times, and what is known of it.
type Stamped struct {
	Host   string
	By     string            // "software": the host's clock, as the kernel reads it; "hardware": the NIC's own; "": not known
	Sync   string            // what keeps that clock right and how well, in words; "": not known
	PTP    *capture.PTP      // of the host; nil: it has none, or does not tell
	Clocks *capture.ClockMap // puts the times on the clock of the run; nil: they are taken as they are
}

// FileClock is the clock of a capture's times. Offsets are how far it was ahead of the clock of the run.
type FileClock struct {
	Host          string       `json:"host,omitempty"`
	Timestamps    string       `json:"timestamps,omitempty"` // software or hardware
	Sync          string       `json:"sync,omitempty"`
	PTP           *capture.PTP `json:"ptp,omitempty"`
	Samples       int          `json:"samples"`
	FirstOffsetNS *int64       `json:"first_offset_ns"` // null: never compared
	LastOffsetNS  *int64       `json:"last_offset_ns"`
	ErrorNS       *int64       `json:"error_ns"` // of each
	Applied       bool         `json:"applied"`  // times were put on the clock of the run; false: zero is within the error of all comparisons
	Steps         []string     `json:"steps,omitempty"`
}

// fileClock is nil when nothing is known.
func fileClock(s Stamped) *FileClock {
	m := s.Clocks
	if m == nil && s.By == "" && s.Sync == "" && s.PTP == nil {
		return nil
	}
	c := &FileClock{Host: s.Host, Timestamps: s.By, Sync: s.Sync, PTP: s.PTP, Samples: m.Samples(), Applied: m.Applied()}
	if m != nil {
		first, last := m.Offsets()
		a, b, e := int64(first), int64(last), int64(m.Error())
		c.FirstOffsetNS, c.LastOffsetNS, c.ErrorNS = &a, &b, &e
	}
	for _, step := range m.Steps() {
		c.Steps = append(c.Steps, step.String())
	}
	return c
}

// clocks says in the quality what clocks do to the times of captures.
func (r *run) clocks(doc *Document, incomplete, note func(format string, args ...any)) {
	var merged []*FileClock // of judged captures, a host each
	for i, s := range r.sources {
		c := doc.Files[i].Clock
		if c == nil {
			continue
		}
		name := cmp.Or(s.in.Tap, s.in.Path)
		for _, step := range c.Steps {
			incomplete("%s: the clock of %s was set %s: its times before and after do not belong together", name, c.Host, step)
		}
		if c.Timestamps == "hardware" {
			note("%s: packets have times of the NIC's own clock: %s", name, cmp.Or(c.Sync, "what keeps it right is not known"))
		}
		if c.PTP != nil {
			switch why := c.PTP.Trouble(); {
			case why != "":
				note("%s: PTP on %s: %s: its times are no better than the comparisons with this machine", name, c.Host, why)
			default:
				note("%s: the clock of %s is kept by PTP (%s)", name, c.Host, c.PTP)
			}
		}
		if c.Applied && c.ErrorNS != nil {
			note("%s: the clock of %s was ahead by %v at first and %v at last; times were put right, within %v", name, c.Host,
				time.Duration(*c.FirstOffsetNS), time.Duration(*c.LastOffsetNS), time.Duration(*c.ErrorNS))
		}
		if c.ErrorNS != nil && *c.ErrorNS > int64(r.o.Bin) && s.in.Role == Judged {
			note("%s: times are known within %v, which is more than a bin of %v: what it says of one moment may belong to the next", name, time.Duration(*c.ErrorNS), r.o.Bin)
		}
		if s.in.Role == Judged && c.Host != "" && !slices.ContainsFunc(merged, func(o *FileClock) bool { return o.Host == c.Host }) {
			merged = append(merged, c)
		}
	}
	if len(merged) < 2 {
		return
	}
	bar := int64(0) // two clocks are off each other by up to the errors of both
	worst := [2]int64{}
	for _, c := range merged {
		if c.ErrorNS == nil {
			note("captures of several hosts are merged, and the clock of %s was never compared: the order of their packets is not known", c.Host)
			return
		}
		if e := *c.ErrorNS; e > worst[0] {
			worst[0], worst[1] = e, worst[0]
		} else {
			worst[1] = max(worst[1], e)
		}
		bar = worst[0] + worst[1]
	}
	doc.Quality.MergeErrorNS = &bar
	note("captures of %d hosts were merged by time within %v: packets of two hosts that are closer than that may be in the wrong order", len(merged), time.Duration(bar))
}

// put puts the times of a batch on the clock of the run.
func (s *source) put(b *capture.Batch) {
	m := s.in.Stamped.Clocks
	if !m.Applied() {
		return
	}
	for i := range b.Packets {
		if p := &b.Packets[i]; !p.NoTime {
			p.TimeNS = m.Map(p.TimeNS)
		}
	}
}

// unread says what the capturing program had not taken from the kernel when it ended.
func unread(said capture.ToolCounts) string {
	if n := said.Unread(); n != nil && *n > 0 {
		return fmt.Sprintf("%d packets were still in the kernel's buffer when its capturing program ended", *n)
	}
	return ""
}
