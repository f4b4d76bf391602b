package perftest

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"
)

// measurement is one size's run over all queue pairs: when each message was posted and completed.
type measurement struct {
	o    *toolOptions
	size int

	mu        sync.Mutex
	posted    []time.Duration // by iterations alone, in order of posting over all queue pairs
	completed []time.Duration
	scnt      int     // messages posted, as the tool counts them
	ccnt      int     // messages completed
	sampled   float64 // by duration: completions inside the window

	start       time.Time
	from, until time.Duration // window
	end         time.Duration // when posting stops
}

// drainTime bounds the wait for messages in flight when a duration is over. The real tool does not wait at all and
// destroys queue pairs under traffic; what is then lost would show up as retransmissions of a run that had none.
const drainTime = 5 * time.Second

// completionPoll is how long one wait for completions lasts before the clock is looked at again.
const completionPoll = 200 * time.Millisecond

// errRun wraps what a queue pair said with how far the run was.
type errRun struct {
	cause      error
	scnt, ccnt int
}

func (e *errRun) Error() string { return e.cause.Error() }
func (e *errRun) Unwrap() error { return e.cause }

// measure runs one size over the queue pairs and gives the report in the unit of the table.
func measure(ctx context.Context, o *toolOptions, size int, qps []QP) (report, error) {
	m := &measurement{o: o, size: size, start: time.Now()}
	if o.duration > 0 {
		margin, d := time.Duration(o.margin)*time.Second, time.Duration(o.duration)*time.Second
		m.from, m.until, m.end = margin, d-margin, d
	} else {
		m.posted = make([]time.Duration, 0, o.iters*len(qps))
		m.completed = make([]time.Duration, 0, o.iters*len(qps))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, len(qps))
	for _, q := range qps {
		go func() {
			err := m.drive(ctx, q)
			if err != nil {
				cancel()
			}
			errs <- err
		}()
	}
	var first error
	for range qps {
		if err := <-errs; err != nil && (first == nil || errors.Is(first, context.Canceled)) {
			first = err
		}
	}
	if first != nil {
		return report{}, &errRun{first, m.scnt, m.ccnt}
	}
	return m.report(), nil
}

// drive keeps one queue pair's send queue full until its messages or its time are over.
func (m *measurement) drive(ctx context.Context, q QP) error {
	post := q.PostWrites
	if m.o.read {
		post = q.(ReadPoster).PostReads
	}
	var posted, done int
	for {
		now := time.Since(m.start)
		room := m.o.txDepth - (posted - done)
		if m.o.duration > 0 {
			if now >= m.end {
				return m.drain(ctx, q, posted-done)
			}
		} else {
			room = min(room, m.o.iters-posted)
			if done == m.o.iters {
				return nil
			}
		}
		if room > 0 {
			m.post(now, room)
			if err := post(room, m.size); err != nil {
				return err
			}
			posted += room
		}
		wait := completionPoll
		if m.o.duration > 0 {
			wait = min(wait, max(m.end-now, time.Millisecond))
		}
		n, err := q.Completions(ctx, wait)
		m.done(now, time.Since(m.start), n)
		done += n
		if err != nil {
			return err
		}
	}
}

// post records that messages were posted at now.
func (m *measurement) post(now time.Duration, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scnt += n
	if m.o.duration == 0 {
		for range n {
			m.posted = append(m.posted, now)
		}
	}
}

// done records that messages completed between since, when the queue was last seen empty, and now. On a busy machine
// this process may look late: completions of a look that spans an end of the window count with the part of the time
// that lies inside, so that the rate does not depend on when the process was let run.
func (m *measurement) done(since, now time.Duration, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ccnt += n
	if m.o.duration == 0 {
		for range n {
			m.completed = append(m.completed, now)
		}
		return
	}
	if inside := min(now, m.until) - max(since, m.from); inside > 0 && now > since {
		m.sampled += float64(n) * float64(inside) / float64(now-since)
	}
}

func (m *measurement) drain(ctx context.Context, q QP, inFlight int) error {
	deadline := time.Now().Add(drainTime)
	for inFlight > 0 && time.Now().Before(deadline) {
		since := time.Since(m.start)
		n, err := q.Completions(ctx, min(completionPoll, time.Until(deadline)))
		inFlight -= n
		m.done(since, time.Since(m.start), n)
		if err != nil {
			return err
		}
	}
	return nil
}

// unitBytes is how many bytes per second one of the table's unit is.
func (o *toolOptions) unitBytes() float64 {
	if o.gbits {
		return 1e9 / 8
	}
	return 1 << 20
}

func (m *measurement) report() report {
	n, took := int(math.Round(m.sampled)), m.until-m.from
	if m.o.duration == 0 {
		n, took = len(m.completed), m.completed[len(m.completed)-1]-m.posted[0]
	}
	r := report{Size: uint64(m.size), Iterations: uint64(n)}
	if took <= 0 {
		took = time.Nanosecond
	}
	rate := float64(n) / took.Seconds()
	r.Avg = rate * float64(m.size) / m.o.unitBytes()
	r.MsgRate = rate / 1e6
	if !m.o.noPeak {
		r.Peak = peakRate(m.posted, m.completed, m.o.cqMod) * float64(m.size) / m.o.unitBytes()
	}
	return r
}

// peakRate is the tool's peak: the highest message rate over any run of messages i..j, from the posting of i to the
// completion of j, where j ends a moderated completion.
func peakRate(posted, completed []time.Duration, cqMod int) float64 {
	n := min(len(posted), len(completed))
	if n == 0 {
		return 0
	}
	best := float64(completed[n-1]-posted[0]) / float64(n)
	try := func(i, j int) {
		if t := float64(completed[j]-posted[i]) / float64(j-i+1); t > 0 && t < best {
			best = t
		}
	}
	for i := range n {
		first := (i+cqMod)/cqMod*cqMod - 1
		for j := first; j < n; j += cqMod {
			try(i, j)
		}
		if n%cqMod != 0 {
			try(i, n-1)
		}
	}
	if best <= 0 {
		return 0
	}
	return 1e9 / best
}
