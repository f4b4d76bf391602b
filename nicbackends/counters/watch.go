package counters

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed" // the script
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pcmlab/pcmlab/inventory/remote"
)

//go:embed script.sh
var script string

// Clock is one comparison of a host's clock with this machine's (Cristian's algorithm): half of the round trip bounds the error.
type Clock struct {
	At       time.Time     `json:"at"`        // by this machine, in the middle of the round trip
	HostNS   int64         `json:"host_ns"`   // what the host said, nanoseconds since 1970
	OffsetNS time.Duration `json:"offset_ns"` // how far the host's clock is ahead
	ErrorNS  time.Duration `json:"error_ns"`  // the true offset is within this
}

// Question is what a Watch reads.
type Question struct {
	Netdevs  []string      // interfaces whose counters are read; those of RDMA devices are read all
	Tools    bool          // also by ethtool -S and tc -s, which cost a process each
	Deadline time.Duration // of the whole watch; 0 means one hour
	Root     string        // of /sys and /proc; "" but in tests
}

// Watch is a process on a host that answers whenever it is asked. It reads, and changes nothing; it ends with Close, with its
// deadline, or when this program does.
type Watch struct {
	h       remote.Host
	p       remote.Process
	in      *io.PipeWriter
	nonce   string
	asking  sync.Mutex // one question at a time
	mu      sync.Mutex
	rest    []byte
	parse   parser
	sent    time.Time
	ns      string    // the answer's time
	heard   time.Time // when it came
	counted bool      // counters were asked for
	number  int       // of the question; the answer to one that nobody waited for any more is not taken for that to the next
	mine    bool      // what comes answers it
	answer  chan struct{}
}

// Start starts a watch on a host.
func Start(ctx context.Context, h remote.Host, q Question) (*Watch, error) {
	b := make([]byte, 16)
	rand.Read(b) // never fails
	r, in := io.Pipe()
	w := &Watch{h: h, in: in, nonce: hex.EncodeToString(b)}
	tools := "0"
	if q.Tools {
		tools = "1"
	}
	if q.Deadline == 0 {
		q.Deadline = time.Hour
	}
	p, err := h.Start(ctx, remote.Cmd{Args: append([]string{"sh", "-c", script, "watch", w.nonce, q.Root, tools}, q.Netdevs...), Stdin: r, Stdout: w,
		Step: "watch clock and counters", Deadline: q.Deadline, MaxOut: 64 << 10})
	if err != nil {
		in.Close()
		return nil, err
	}
	w.p = p
	return w, nil
}

// Close ends the watch and waits for its end.
func (w *Watch) Close(ctx context.Context) error {
	w.in.Close()
	_, err := w.p.Wait(ctx)
	return err
}

// Clock compares the clocks once.
func (w *Watch) Clock(ctx context.Context) (Clock, error) {
	c, _, err := w.ask(ctx, false)
	return c, err
}

// Clocks compares them n times and returns the comparison that knows best.
func (w *Watch) Clocks(ctx context.Context, n int) (best Clock, err error) {
	for i := range n {
		c, err := w.Clock(ctx)
		if err != nil {
			return best, err
		}
		if i == 0 || c.ErrorNS < best.ErrorNS {
			best = c
		}
	}
	return best, nil
}

// Read reads all counters, and compares the clocks on the way.
func (w *Watch) Read(ctx context.Context) (*Reading, Clock, error) {
	c, r, err := w.ask(ctx, true)
	return r, c, err
}

var errWatchEnded = errors.New("the watch has ended")

func (w *Watch) ask(ctx context.Context, all bool) (Clock, *Reading, error) {
	w.asking.Lock()
	defer w.asking.Unlock()
	fail := func(err error) (Clock, *Reading, error) {
		return Clock{}, nil, &remote.Error{Host: w.h.Name(), Step: "read clock and counters", Err: err}
	}
	answer := make(chan struct{})
	w.mu.Lock()
	w.answer, w.counted, w.ns, w.mine = answer, all, "", false
	w.number++
	line := fmt.Sprintf("t %d\n", w.number)
	if all {
		line = "c" + line[1:]
	}
	w.parse = parser{nonce: w.nonce}
	w.sent = time.Now()
	w.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { w.in.CloseWithError(ctx.Err()) }) // a question that nobody reads must not block for ever
	_, err := w.in.Write([]byte(line))
	stop()
	if err != nil {
		return fail(err)
	}
	select {
	case <-answer:
	case <-ctx.Done():
		return fail(context.Cause(ctx))
	case <-w.p.Done():
		res, err := w.p.Wait(ctx)
		if err == nil {
			err = fmt.Errorf("%w: exit status %d (%s)", errWatchEnded, res.Code, bytes.TrimSpace(res.Stderr))
		}
		return fail(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	ns, err := strconv.ParseInt(w.ns, 10, 64)
	if err != nil || len(w.ns) < 19 {
		return fail(fmt.Errorf("date there knows no nanoseconds (%q)", w.ns))
	}
	trip := w.heard.Sub(w.sent)
	middle := w.sent.Add(trip / 2)
	c := Clock{At: middle.UTC(), HostNS: ns, OffsetNS: time.Duration(ns - middle.UnixNano()), ErrorNS: trip / 2}
	r := w.parse.reading
	r.At = c.At
	return c, &r, nil
}

// Write takes what the host says as it arrives.
func (w *Watch) Write(b []byte) (int, error) {
	at := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = append(w.rest, b...)
	for {
		i := bytes.IndexByte(w.rest, '\n')
		if i < 0 {
			return len(b), nil
		}
		line := string(w.rest[:i])
		w.rest = w.rest[i+1:]
		if w.answer == nil { // a login shell's greeting, or nobody waits any more
			continue
		}
		done := false
		if rest, ok := strings.CutPrefix(line, w.nonce+" t "); ok {
			number, ns, _ := strings.Cut(rest, " ")
			if w.mine = number == strconv.Itoa(w.number); w.mine {
				w.ns, w.heard = ns, at
				done = !w.counted
			}
		} else if w.mine {
			done = w.parse.line(line)
		}
		if done {
			close(w.answer)
			w.answer = nil
		}
	}
}
