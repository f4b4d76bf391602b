package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

const maxAttempts = 6

// backoff is the pause before attempt n (1 is the first repetition): doubling from 200 ms to 3 s, jittered by u in
// [0,1) to between half and the whole of that, so that hosts refused together do not come back together.
func backoff(n int, u float64) time.Duration {
	d := min(200*time.Millisecond<<min(n-1, 10), 3*time.Second)
	return d/2 + time.Duration(u*float64(d/2))
}

// pause waits for d or for ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// dialer is how to open a TCP connection: from here, or through a jump host.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// handshake connects and logs in, repeating what a busy sshd refused. limits are held during each attempt.
func handshake(ctx context.Context, s Settings, dial dialer, limits []semaphore) (*connection, error) {
	known, err := readKnownHosts(s.KnownHosts)
	if err != nil {
		return nil, err
	}
	creds, err := loadCredentials(s)
	if err != nil {
		return nil, err
	}
	defer creds.close()
	for n := 1; ; n++ {
		client, retry, err := handshakeOnce(ctx, s, dial, limits, known, creds)
		if err == nil {
			return client, nil
		}
		if !retry || n == maxAttempts {
			return nil, err
		}
		if pause(ctx, backoff(n, rand.Float64())) != nil {
			return nil, err
		}
	}
}

func handshakeOnce(ctx context.Context, s Settings, dial dialer, limits []semaphore, known *knownHosts, creds *credentials) (_ *connection, retry bool, _ error) {
	for _, l := range limits {
		if err := l.acquire(ctx); err != nil {
			return nil, false, fault(Infrastructure, "", "%s: waiting for other handshakes: %w", s.Addr(), err)
		}
		defer l.release()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.ConnectTimeout, fmt.Errorf("no answer within %v", s.ConnectTimeout))
	defer cancel()
	raw, err := dial(ctx, "tcp", s.Addr())
	if err != nil {
		return nil, false, dialError(ctx, s, err)
	}
	conn := &greetedConn{Conn: raw}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	var keyErr error
	cfg := &ssh.ClientConfig{
		User:              s.User,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(creds.signers...)},
		HostKeyAlgorithms: known.algorithms(s),
		HostKeyCallback: func(_ string, addr net.Addr, key ssh.PublicKey) error {
			keyErr = known.check(s, addr, key)
			return keyErr
		},
	}
	c, chans, reqs, err := ssh.NewClientConn(conn, s.Addr(), cfg)
	if !stop() {
		err = errors.Join(err, context.Cause(ctx))
	}
	if err != nil {
		if c != nil {
			c.Close()
		}
		conn.Close()
		if keyErr != nil {
			return nil, false, keyErr
		}
		retry, err = handshakeError(ctx, s, err, conn, creds)
		return nil, retry, err
	}
	return &connection{ssh.NewClient(c, chans, reqs), conn}, false, nil
}

func dialError(ctx context.Context, s Settings, err error) error {
	var dns *net.DNSError
	var refused *ssh.OpenChannelError // by a jump host
	switch {
	case errors.As(err, &refused) && refused.Reason == ssh.Prohibited:
		return fault(Infrastructure, "AllowTcpForwarding yes in sshd_config of the jump host", "connect to %s through the jump host: %w", s.Addr(), err)
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.Canceled):
		return fault(Infrastructure, "is the host up, and the port right?", "connect to %s: %w", s.Addr(), context.Cause(ctx))
	case errors.Is(err, syscall.ECONNREFUSED):
		return fault(Infrastructure, "is sshd running there, and the port right?", "connect to %s: connection refused", s.Addr())
	case errors.As(err, &dns):
		return fault(Infrastructure, "give address: in the lab file or HostName in ssh_config", "%w", err)
	}
	return fault(Infrastructure, "", "connect to %s: %w", s.Addr(), err)
}

const maxStartupsFix = "raise MaxStartups in sshd_config there, or connect to fewer hosts at a time"

func handshakeError(ctx context.Context, s Settings, err error, conn *greetedConn, creds *credentials) (retry bool, _ error) {
	greeting := conn.greeting()
	refused := strings.Contains(greeting, "MaxStartups") || strings.Contains(greeting, "Not allowed at this time")
	early := greeting == "" && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE))
	switch {
	case refused:
		return true, fault(Infrastructure, maxStartupsFix, "%s refuses logins: %s (MaxStartups)", s.Addr(), strings.TrimSpace(greeting))
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.Canceled):
		return false, fault(Infrastructure, "is it an SSH server?", "handshake with %s: %w", s.Addr(), context.Cause(ctx))
	case early:
		// sshd drops connections beyond MaxStartups without a word in older versions.
		return true, fault(Infrastructure, maxStartupsFix, "%s closed the connection before a word; sshd does so beyond MaxStartups: %w", s.Addr(), err)
	case strings.Contains(err.Error(), "unable to authenticate"):
		msg := fmt.Sprintf("user %s: no key accepted (offered %s", s.User, strings.Join(creds.names, ", "))
		if len(creds.notes) > 0 {
			msg += "; not offered: " + strings.Join(creds.notes, "; ")
		}
		return false, fault(Permission, fmt.Sprintf("ssh-copy-id -p %d %s@%s", s.Port, s.User, s.HostName), "%s): %w", msg, err)
	}
	return false, fault(Infrastructure, "", "handshake with %s: %w", s.Addr(), err)
}

// connection is a client that is logged in, and what its bytes go through.
type connection struct {
	*ssh.Client
	conn *greetedConn
}

// greetedConn remembers how the server's first words began, since a server that refuses says so before its version
// line and the ssh package does not tell.
type greetedConn struct {
	net.Conn
	mu    sync.Mutex
	first []byte
	done  bool
	heard atomic.Int64 // bytes read
}

func (c *greetedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.heard.Add(int64(n))
	c.mu.Lock()
	if !c.done {
		c.first = append(c.first, b[:min(n, 512)]...)
		c.done = len(c.first) >= 512 || bytes.HasPrefix(c.first, []byte("SSH-"))
	}
	c.mu.Unlock()
	return n, err
}

// greeting is what the server said before its version line.
func (c *greetedConn) greeting() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := string(c.first)
	if i := strings.Index(s, "SSH-2.0-"); i > 0 {
		return s[:i]
	}
	return s
}

// semaphore bounds how much goes on at a time.
type semaphore chan struct{}

func (s semaphore) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s semaphore) release() { <-s }
