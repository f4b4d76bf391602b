package dcqcn

import "time"

// NP is one CNP limiter of the notification point: it answers the first CE mark at once and further ones at most once
// per interval. A mark that comes too early is answered by a timer when the interval ends.
//
// Which packets share a limiter is the caller's choice (Scope). The zero value is ready.
type NP struct {
	open    bool          // an interval runs
	until   time.Duration // its end
	pending bool          // CE was seen in it
}

// CE handles a CE-marked packet at now and reports whether a CNP is to be sent.
func (n *NP) CE(now, interval time.Duration) bool {
	if n.open && now < n.until {
		n.pending = true
		return false
	}
	n.open, n.until, n.pending = true, now+interval, false
	return true
}

// Tick ends an interval that is over at now and reports whether a CNP is to be sent for marks seen in it.
func (n *NP) Tick(now, interval time.Duration) bool {
	if !n.open || now < n.until {
		return false
	}
	if !n.pending {
		n.open = false
		return false
	}
	n.until, n.pending = now+interval, false
	return true
}

// Deadline is when Tick sends something; false when nothing is pending. An interval without a mark needs no timer.
func (n *NP) Deadline() (time.Duration, bool) { return n.until, n.open && n.pending }
