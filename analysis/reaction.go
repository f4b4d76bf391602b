package analysis

// Rates before and after a CNP are taken in windows of reactionWindow * S of the capture's clock. A flow's sender is said to
// have cut when a window falls below reactionShare % of the one before the CNP, within reactionWait windows.
const (
	reactionWindow = 100_000 // ns on hardware
	reactionShare  = 95
	reactionWait   = 4
)

// rateWindow counts the bytes that a flow sent in its current window and in the one before. The zero value is ready. Every
// flow has one, so it is small; counts stay at their limit where 4 GiB in one window would pass it.
type rateWindow struct {
	window    int64
	cur, prev uint32
	largest   uint32 // packet so far
}

// add counts a data packet of wire bytes, in the current window.
func (w *rateWindow) add(wire uint32) {
	w.largest = max(w.largest, wire)
	if w.cur += wire; w.cur < wire {
		w.cur = ^uint32(0)
	}
}

// advance completes all windows before the given one; an older one changes nothing. r is the flow's reaction, nil before
// its first CNP.
func (w *rateWindow) advance(r *reaction, window int64) {
	if window <= w.window {
		return
	}
	empty := window > w.window+1
	if r != nil && r.active {
		r.completed(w.window, w.cur)
		// A run of empty windows decides within reactionWait of them: none of them brings a rate back.
		for i := w.window + 1; r.active && i < min(window, w.window+1+reactionWait); i++ {
			r.completed(i, 0)
		}
	}
	w.prev, w.cur, w.window = w.cur, 0, window
	if empty {
		w.prev = 0
	}
}

// reaction follows what a flow's sender does after CNPs. It exists from the flow's first CNP on.
//
// An episode begins with a CNP. It ends when the sender did not cut in time, when it is back at its rate, or when it had cut
// and a CNP comes after a quiet time: then congestion came again before it was back.
type reaction struct {
	origin, width int64

	active, isCut bool
	before        uint32 // bytes in the window before the CNP
	lowest        uint32
	slack         uint32 // a packet: what counting whole packets in a window may be off by
	at            int64  // the CNP
	window        int64  // of the CNP
	lastCNP       int64  // window of the last CNP

	episodes, cut, noCut, recovered, interrupted int64

	beforeBps, lowestBps, recoverNS *histogram
}

// newReaction follows a flow in windows of width ns, the first of which begins at origin.
func newReaction(origin, width int64) *reaction { return &reaction{origin: origin, width: width} }

// cnp takes a CNP for the flow at ts, in a window counted as rateWindow counts them.
func (r *reaction) cnp(w *rateWindow, ts, window int64) {
	w.advance(r, window)
	quiet := w.window-r.lastCNP > reactionWait
	r.lastCNP = w.window
	if r.active && r.isCut && quiet {
		r.interrupted++
		r.end()
	}
	if r.active || w.prev == 0 {
		return
	}
	r.active, r.isCut = true, false
	r.at, r.window = ts, w.window
	r.before, r.slack = w.prev, w.largest
	r.episodes++
}

// completed takes the bytes of a window that is over.
func (r *reaction) completed(window int64, bytes uint32) {
	if window <= r.window {
		return
	}
	below := uint64(bytes)*100 < uint64(r.before)*reactionShare && r.before-bytes > r.slack
	switch {
	case r.isCut && below:
		r.lowest = min(r.lowest, bytes)
	case r.isCut:
		r.recovered++
		add(&r.recoverNS, r.origin+(window+1)*r.width-r.at)
		r.end()
	case below:
		r.isCut, r.lowest = true, bytes
		r.cut++
	case window >= r.window+reactionWait:
		r.noCut++
		r.end()
	}
}

// end ends the episode that is going on.
func (r *reaction) end() {
	if r.isCut {
		add(&r.beforeBps, r.bps(r.before))
		add(&r.lowestBps, r.bps(r.lowest))
	}
	r.active = false
}

// bps is the rate of so many bytes in a window.
func (r *reaction) bps(bytes uint32) int64 { return int64(float64(bytes)*8e9/float64(r.width) + 0.5) }

// finish gives what was found; r takes no CNP afterwards. It is null for a flow without a CNP.
func (r *reaction) finish() *Reaction {
	if r == nil {
		return nil
	}
	out := &Reaction{WindowNS: r.width, Episodes: r.episodes, Cut: r.cut, NoCut: r.noCut, Recovered: r.recovered, Interrupted: r.interrupted}
	if r.active {
		out.Unfinished = 1
		r.end()
	}
	out.BeforeBps, out.LowestBps = r.beforeBps.rates(), r.lowestBps.rates()
	out.RecoverNS = r.recoverNS.latency(1)
	return out
}

// rates reads a histogram of bit/s.
func (h *histogram) rates() *Rates {
	if h == nil || h.n == 0 {
		return nil
	}
	return &Rates{Min: float64(h.min), P50: float64(h.quantile(0.5)), Max: float64(h.max)}
}
