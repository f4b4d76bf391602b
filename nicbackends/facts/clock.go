package facts

import (
	"bytes"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
)

// exchange compares the host's clock with this machine's over the script's own channel. When the script has said all,
// it answers each line with its time; the answer with the smallest round trip is the one that knows best, and half of
// that trip bounds its error (Cristian's algorithm).
type exchange struct {
	end  string
	in   io.WriteCloser
	asks chan struct{}
	now  func() time.Time

	mu   sync.Mutex
	rest []byte // of a line
	said bool   // all but the clock
	over bool   // asks is closed
	want int
	sent time.Time
	best time.Duration
	last string // answer
	got  Offset
}

func newExchange(nonce string, in io.WriteCloser, n int) *exchange {
	e := &exchange{end: nonce + " end", in: in, asks: make(chan struct{}, 1), now: time.Now, want: n, best: math.MaxInt64}
	e.got.Why = "the host did not come to it"
	go e.ask()
	return e
}

// ask writes a line for each answer that is wanted, and ends the script's input after the last, or when Read is done.
func (e *exchange) ask() {
	defer e.in.Close()
	for range e.asks {
		e.mu.Lock()
		e.sent = e.now()
		e.mu.Unlock()
		if _, err := e.in.Write([]byte("now\n")); err != nil {
			return
		}
	}
}

// Write takes the script's output as it arrives.
func (e *exchange) Write(b []byte) (int, error) {
	at := e.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rest = append(e.rest, b...)
	for !e.over {
		i := bytes.IndexByte(e.rest, '\n')
		if i < 0 {
			return len(b), nil
		}
		e.lineLocked(strings.TrimSpace(string(e.rest[:i])), at)
		e.rest = e.rest[i+1:]
	}
	e.rest = nil
	return len(b), nil
}

func (e *exchange) lineLocked(line string, at time.Time) {
	if !e.said {
		if e.said = line == e.end; e.said {
			e.nextLocked()
		}
		return
	}
	ns, err := strconv.ParseInt(line, 10, 64)
	if err != nil || len(line) < 19 {
		e.got.Why = "date there knows no nanoseconds (" + strconv.Quote(clean(line)) + ")"
		e.endLocked()
		return
	}
	trip := at.Sub(e.sent)
	e.got.N++
	e.last = line
	e.got.Why = ""
	if trip < e.best {
		e.best = trip
		middle := e.sent.Add(trip / 2)
		e.got.Offset, e.got.Error = time.Duration(ns-middle.UnixNano()), trip/2
	}
	if e.want--; e.want > 0 {
		e.nextLocked()
		return
	}
	e.endLocked()
}

// nextLocked asks for one more. A host that says more than it was asked for must not make it wait.
func (e *exchange) nextLocked() {
	select {
	case e.asks <- struct{}{}:
	default:
	}
}

func (e *exchange) endLocked() {
	if !e.over {
		e.over = true
		close(e.asks)
	}
}

// result is what came out; the exchange is over.
func (e *exchange) result() (Offset, Value) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.endLocked()
	return e.got, known(e.last, first(e.got.Why, "no answer"))
}
