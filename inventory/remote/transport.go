package remote

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// transport is one logged-in connection with its keepalives.
type transport struct {
	client *connection
	addr   string
	down   chan struct{} // closed when the connection has ended
	err    error         // why; set before down is closed

	// Guarded by the host's mu; unused for jump hosts.
	inUse, limit int
}

func newTransport(p *Pool, client *connection, addr string) *transport {
	t := &transport{client: client, addr: addr, down: make(chan struct{}), limit: p.o.Channels}
	p.wg.Go(func() {
		t.err = client.Wait()
		close(t.down)
	})
	p.wg.Go(func() { t.keepalive(p) })
	return t
}

// keepalive asks the server regularly and closes a connection from which nothing more comes, so that whoever waits on it
// learns of a cut path. An answer may stand behind megabytes of a file on a slow path; any byte is a sign of life.
func (t *transport) keepalive(p *Pool) {
	tick := time.NewTicker(p.o.KeepAlive)
	defer tick.Stop()
	for {
		select {
		case <-t.down:
			return
		case <-tick.C:
		}
		answer := make(chan struct{})
		p.wg.Go(func() {
			t.client.SendRequest("keepalive@openssh.com", true, nil)
			close(answer)
		})
		if !t.awaitLife(p.o.KeepAliveLost, answer) {
			p.o.Log.Warn("connection lost: no answer to keepalives", "addr", t.addr, "after", p.o.KeepAliveLost)
			t.client.Close()
		}
	}
}

// awaitLife waits for the answer as long as anything comes; false: nothing came for the time given.
func (t *transport) awaitLife(silence time.Duration, answer <-chan struct{}) bool {
	lost := time.NewTimer(silence)
	defer lost.Stop()
	heard := t.client.conn.heard.Load()
	for {
		select {
		case <-answer:
			return true
		case <-t.down:
			return true
		case <-lost.C:
		}
		now := t.client.conn.heard.Load()
		if now == heard {
			return false
		}
		heard = now
		lost.Reset(silence)
	}
}

func (t *transport) alive() bool {
	select {
	case <-t.down:
		return false
	default:
		return true
	}
}

func (t *transport) close() { t.client.Close() }

// dial opens a TCP connection from the host (direct-tcpip).
func (t *transport) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return t.client.DialContext(ctx, network, addr)
}

// session is a session channel of a host. Close gives it back.
type session struct {
	*ssh.Session
	t    *transport
	once sync.Once
	free func()
}

func (s *session) Close() error {
	err := s.Session.Close()
	s.once.Do(s.free)
	return err
}

// crowded is how long a caller waits for a free channel before a further connection is opened.
const crowded = 300 * time.Millisecond

// sessionWait bounds the wait for a session that sshd refuses while others of ours are in use.
const sessionWait = 2 * time.Minute

// openTimeout bounds the opening of a channel on a connection that is up.
const openTimeout = 15 * time.Second

// session opens a channel, on a connection with one to spare, on a further connection when all stay in use, and
// waiting until one is free when there may be no more connections.
func (h *sshHost) session(ctx context.Context) (*session, error) {
	lonely, began := 0, time.Now()
	for {
		t, n, err := h.reserve()
		if err != nil {
			return nil, err
		}
		if t != nil {
			s, err := h.open(ctx, t)
			var refused *ssh.OpenChannelError
			if !errors.As(err, &refused) || refused.Reason != ssh.ConnectionFailed && refused.Reason != ssh.ResourceShortage {
				return s, err
			}
			// sshd allows fewer sessions than we thought: remember, and wait for one of ours to end, however long that
			// takes. Without one of ours there is nothing to wait for, but one that has just ended may still count there.
			lonely++
			if none := h.refused(t); !none {
				lonely = 0
			}
			if lonely > 2*maxAttempts || time.Since(began) > sessionWait || pause(ctx, backoff(1, rand.Float64())) != nil {
				return nil, fault(Infrastructure, "raise MaxSessions in sshd_config there", "%s refuses a further session (MaxSessions): %w", t.addr, err)
			}
			continue
		}
		if n == 0 {
			if err := h.grow(ctx, 0); err != nil {
				return nil, err
			}
			continue
		}
		wait := time.NewTimer(crowded)
		select {
		case <-h.freed:
			wait.Stop()
		case <-wait.C:
			if n < h.pool.o.Connections {
				h.pool.o.Log.Debug("all channels in use: one more connection", "host", h.name, "connections", n)
				if err := h.grow(ctx, n); err != nil {
					return nil, err
				}
			}
		case <-ctx.Done():
			wait.Stop()
			return nil, fault(Infrastructure, "", "waiting for one of %d connections to have a free channel: %w", n, context.Cause(ctx))
		}
	}
}

// reserve takes a channel on a living connection, or tells how many there are.
func (h *sshHost) reserve() (*transport, int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, 0, ErrClosed
	}
	living := h.conns[:0]
	for _, t := range h.conns {
		if t.alive() {
			living = append(living, t)
		}
	}
	h.conns = living
	for _, t := range living {
		if t.inUse < t.limit {
			t.inUse++
			return t, len(living), nil
		}
	}
	return nil, len(living), nil
}

func (h *sshHost) unreserve(t *transport) {
	h.mu.Lock()
	t.inUse--
	h.mu.Unlock()
	select {
	case h.freed <- struct{}{}:
	default:
	}
}

// refused lowers the connection's limit after sshd refused a channel; it reports true when no other is open that
// could be waited for.
func (h *sshHost) refused(t *transport) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.limit = max(1, min(t.limit, t.inUse))
	return t.inUse == 0
}

func (h *sshHost) open(ctx context.Context, t *transport) (*session, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, errors.New("no answer to the request for a channel"))
	defer cancel()
	type result struct {
		s   *ssh.Session
		err error
	}
	got := make(chan result, 1)
	h.pool.wg.Go(func() {
		s, err := t.client.NewSession()
		got <- result{s, err}
	})
	select {
	case r := <-got:
		if r.err != nil {
			h.unreserve(t)
			return nil, r.err
		}
		return &session{Session: r.s, t: t, free: func() { h.unreserve(t) }}, nil
	case <-ctx.Done():
		h.pool.wg.Go(func() {
			if r := <-got; r.s != nil {
				r.s.Close()
			}
			h.unreserve(t)
		})
		return nil, fault(Infrastructure, "", "open a channel to %s: %w", t.addr, context.Cause(ctx))
	}
}

// grow opens a connection unless there are more than have by now.
func (h *sshHost) grow(ctx context.Context, have int) error {
	if err := h.growing.acquire(ctx); err != nil {
		return fault(Infrastructure, "", "waiting for a connection: %w", err)
	}
	defer h.growing.release()
	h.mu.Lock()
	n := 0
	for _, t := range h.conns {
		if t.alive() {
			n++
		}
	}
	h.mu.Unlock()
	if n > have {
		return nil
	}
	d, limits, err := h.pool.route(ctx, h.settings, 0)
	if err != nil {
		return err
	}
	client, err := handshake(ctx, h.settings, d, limits)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		client.Close()
		return ErrClosed
	}
	h.conns = append(h.conns, newTransport(h.pool, client, h.settings.Addr()))
	return nil
}
