package sshserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

// Serve answers connections on ln until ctx ends or accepting fails for good. It closes ln, ends all connections, and
// returns when everything it started has ended: commands get HUP and, after Options.KillGrace, KILL. It returns nil
// when ctx ended it.
func Serve(ctx context.Context, ln net.Listener, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		ln.Close()
		return err
	}
	s := &server{o: o, config: &ssh.ServerConfig{MaxAuthTries: 6, PublicKeyCallback: authorize(o.AuthorizedKeys)}}
	for _, k := range o.HostKeys {
		s.config.AddHostKey(k)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer s.wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	for {
		conn, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			var ne net.Error
			if errors.As(err, &ne) && ne.Timeout() {
				continue
			}
			ln.Close()
			return fmt.Errorf("ssh server: accept on %s: %w", ln.Addr(), err)
		}
		if s.startups.Add(1) > int64(o.MaxStartups) {
			s.startups.Add(-1)
			// The words of sshd, sent before the version line as it does.
			conn.SetDeadline(time.Now().Add(time.Second))
			conn.Write([]byte("Exceeded MaxStartups\r\n"))
			conn.Close()
			o.Log.Warn("connection refused", "reason", "MaxStartups", "peer", conn.RemoteAddr().String())
			continue
		}
		s.wg.Go(func() { s.handle(ctx, conn) })
	}
}

// server is what the connections of one Serve share.
type server struct {
	o        Options
	config   *ssh.ServerConfig
	startups atomic.Int64 // connections that have not logged in yet
	wg       sync.WaitGroup
}

func authorize(keys []ssh.PublicKey) func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
	allowed := make([][]byte, len(keys))
	for i, k := range keys {
		allowed[i] = k.Marshal()
	}
	return func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		blob := key.Marshal()
		for _, a := range allowed {
			if bytes.Equal(a, blob) {
				return nil, nil
			}
		}
		return nil, fmt.Errorf("key %s is not authorized", ssh.FingerprintSHA256(key))
	}
}

// handle owns one connection from its handshake to its end.
func (s *server) handle(ctx context.Context, nc net.Conn) {
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	defer stop()
	log := s.o.Log.With("peer", nc.RemoteAddr().String())

	nc.SetDeadline(time.Now().Add(s.o.LoginGrace))
	conn, chans, reqs, err := ssh.NewServerConn(nc, s.config)
	s.startups.Add(-1)
	if err != nil {
		log.Debug("handshake", "err", err)
		return
	}
	nc.SetDeadline(time.Time{})
	log.Debug("login", "user", conn.User())

	c := &connection{server: s, conn: conn, ctx: ctx}
	c.wg.Go(func() { ssh.DiscardRequests(reqs) }) // answers keepalives; remote forwarding is refused with the same no
	for ch := range chans {
		switch ch.ChannelType() {
		case "session":
			c.session(ch)
		case "direct-tcpip":
			c.wg.Go(func() { c.forward(ch) })
		default:
			ch.Reject(ssh.UnknownChannelType, "unsupported channel type")
		}
	}
	conn.Close()
	c.wg.Wait()
	log.Debug("connection ended")
}

// connection is one logged-in client.
type connection struct {
	*server
	conn     *ssh.ServerConn
	ctx      context.Context // ends with Serve
	sessions atomic.Int64
	wg       sync.WaitGroup
}

func (c *connection) session(nch ssh.NewChannel) {
	if c.sessions.Add(1) > int64(c.o.MaxSessions) {
		c.sessions.Add(-1)
		c.o.Log.Warn("session refused: no more sessions", "reason", "MaxSessions", "peer", c.conn.RemoteAddr().String())
		nch.Reject(ssh.ConnectionFailed, "open failed") // what sshd sends; "no more sessions" is in its log only
		return
	}
	ch, reqs, err := nch.Accept()
	if err != nil {
		c.sessions.Add(-1)
		return
	}
	c.wg.Go(func() {
		defer c.sessions.Add(-1)
		newSession(c, ch).run(reqs)
	})
}
