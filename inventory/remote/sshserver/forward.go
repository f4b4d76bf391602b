package sshserver

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// forward joins a direct-tcpip channel (RFC 4254 section 7.2) to a TCP connection.
func (c *connection) forward(nch ssh.NewChannel) {
	if !c.o.TCPForward {
		nch.Reject(ssh.Prohibited, "port forwarding is disabled")
		return
	}
	var target struct {
		Host       string
		Port       uint32
		OriginHost string
		OriginPort uint32
	}
	if err := ssh.Unmarshal(nch.ExtraData(), &target); err != nil {
		nch.Reject(ssh.ConnectionFailed, "malformed direct-tcpip request")
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, 30*time.Second)
	defer cancel()
	conn, err := c.o.Dial(ctx, "tcp", net.JoinHostPort(target.Host, strconv.Itoa(int(target.Port))))
	if err != nil {
		nch.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	defer conn.Close()
	ch, reqs, err := nch.Accept()
	if err != nil {
		return
	}
	defer ch.Close()

	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		ssh.DiscardRequests(reqs) // ends when the channel does
		conn.Close()
	})
	wg.Go(func() {
		io.Copy(conn, ch)
		if hc, ok := conn.(interface{ CloseWrite() error }); ok {
			hc.CloseWrite()
		} else {
			conn.Close()
		}
	})
	io.Copy(ch, conn)
	ch.CloseWrite()
	ch.Close()
}
