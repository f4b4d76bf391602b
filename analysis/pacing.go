package analysis

import (
	"fmt"
	"strings"
)

// What tells pacing from chance. A notifier that paces leaves gaps that begin sharply at its interval; CNPs of groups that
// are paced apart fall between each other anyhow, so that their gaps begin near zero and rise evenly.
const (
	pacingGaps   = 8     // fewer say nothing
	pacingNear   = 6     // that many gaps must lie within twice the interval
	pacingKept   = 0.8   // of an interval: as exact as timers and taps are
	pacingStray  = 0.05  // share of gaps that may be shorter
	pacingLeast  = 1_000 // ns on hardware: shorter gaps are those between packets
	markedLeast  = 16    // marked packets that say whether each was answered
	markedShare  = 0.9   // of them answered: not paced
	pacingNearby = 0.10  // share of gaps that must lie within twice the least
)

func (h *histogram) floor() int64 { return h.quantile(0.01) }

// hasFloor reports that gaps begin sharply: the least are within a factor of two. Without pacing the tenth percentile is
// ten times the first.
func (h *histogram) hasFloor() bool {
	return h.n >= pacingGaps && h.quantile(max(pacingNearby, pacingNear/float64(h.n))) < 2*h.floor()
}

// ticks reports that nearly all gaps are about the same: always congested and paced here.
func (h *histogram) ticks() bool { return 2*h.quantile(0.9) <= 3*h.floor() }

// pacing infers the scope by which the notifiers pace, the interval that they keep there, or why that cannot be told.
//
// It goes from the finest scope to the widest. A wider scope is told by the gaps between CNPs of different groups within it:
// where those keep the interval, too, the notifier counts the groups together. Gaps within one group say nothing about it:
// they are kept either way.
func (s *cnpScopes) pacing(scale float64, ceData int64) (scope *string, interval *int64, reason string) {
	null := func(format string, args ...any) (*string, *int64, string) {
		return nil, nil, fmt.Sprintf(format, args...)
	}
	switch {
	case s.n == 0:
		return null("no CNP was captured")
	case ceData >= markedLeast && float64(s.n) >= markedShare*float64(ceData):
		return null("not paced, or never needed to: %d CNPs for %d marked packets", s.n, ceData)
	}
	at, kept := scopeQP, int64(0)
	if s.gaps[scopeQP].hasFloor() {
		kept = s.gaps[scopeQP].floor()
	}
	var open []string // wider scopes that nothing speaks for or against
wider:
	for x := scopePair; x < scopeCount; x++ {
		m, all := &s.mixed[x], &s.gaps[x]
		sharp := m.hasFloor() && all.hasFloor()
		switch {
		case m.n < pacingGaps || (kept > 0 && m.quantile(pacingNear/float64(m.n)) >= 2*kept):
			open = append(open, scopeNames[x])
			continue
		case kept > 0 && float64(m.quantile(pacingStray)) >= pacingKept*float64(kept):
			kept = min(kept, all.floor())
		case kept == 0 && !sharp: // perhaps these take turns, too
			continue
		case !sharp:
			break wider
		case kept > 0 && s.gaps[at].ticks(): // by timers: the groups' phases stay, and make a regular pattern of their own
			if all.ticks() {
				return null("ambiguous: gaps are regular at scope %s (%d ns) and at scope %s (%d ns)", scopeNames[at], kept, scopeNames[x], all.floor())
			}
			break wider
		default: // the finer groups take turns; what looked like their interval is a multiple
			kept = all.floor()
		}
		at, open = x, nil
	}
	g := &s.gaps[at]
	switch {
	case kept == 0 && g.n < pacingGaps:
		return null("only %d gaps between CNPs of one QP: at least %d are needed", g.n, pacingGaps)
	case kept == 0:
		return null("no interval: the gaps between CNPs begin near zero at every scope")
	case float64(kept) < pacingLeast*scale:
		return null("gaps of %d ns are too short for pacing (less than 1 us of hardware time)", kept)
	}
	reason = fmt.Sprintf("gaps at scope %s begin sharply at %d ns (1st percentile of %d)", scopeNames[at], kept, g.n)
	if at+len(open) < scopePort {
		reason += ", those at a wider one do not"
	}
	if len(open) > 0 {
		reason += fmt.Sprintf("; it cannot be told apart from %s here: hardly any CNPs of different groups come within two intervals", strings.Join(open, ", "))
	}
	return ptr(scopeNames[at]), &kept, reason
}
