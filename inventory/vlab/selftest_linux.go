package vlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"
)

// echoPort is where the hosts answer the self-test (RFC 862), only while the lab is being built.
const echoPort = 7

// echoServer sends each datagram back to where it came from.
type echoServer struct{ conns []*net.UDPConn }

func startEcho(nics []nicPlan) (*echoServer, error) {
	e := &echoServer{}
	for _, n := range nics {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.IP.Addr(), echoPort)))
		if err != nil {
			e.close()
			return nil, fmt.Errorf("self-test on %s: %w", n.Netdev, err)
		}
		e.conns = append(e.conns, c)
		go func() { // ends when c is closed
			buf := make([]byte, 65536)
			for {
				n, from, err := c.ReadFromUDPAddrPort(buf)
				if err != nil {
					return
				}
				c.WriteToUDPAddrPort(buf[:n], from)
			}
		}()
	}
	return e, nil
}

func (e *echoServer) close() {
	for _, c := range e.conns {
		c.Close()
	}
	e.conns = nil
}

// probe exchanges datagrams with the echo server at address to: a small one and one that fills the MTU. The kernels on
// both sides compute and check the UDP checksum, so offloads left on, a fabric that alters packets, and an MTU that
// does not fit all show, where ping would pass.
func probe(ctx context.Context, from, to string, mtu int, timeout time.Duration) error {
	local, err := netip.ParseAddr(from)
	if err != nil {
		return err
	}
	remote, err := netip.ParseAddr(to)
	if err != nil {
		return err
	}
	c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(remote, echoPort)))
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	header := 28 // IPv4 20, UDP 8
	if remote.Is6() {
		header = 48
	}
	deadline := time.Now().Add(timeout)
	for _, size := range []int{18, mtu - header} {
		if err := exchange(c, size, deadline); err != nil {
			return fmt.Errorf("%d bytes of UDP payload: %w", size, err)
		}
	}
	return nil
}

// exchange sends one random payload again and again until it comes back or the deadline passes.
func exchange(c *net.UDPConn, size int, deadline time.Time) error {
	sent := make([]byte, size)
	for i := range sent {
		sent[i] = byte(rand.Uint32())
	}
	buf := make([]byte, size+1)
	sends := 0
	for time.Now().Before(deadline) {
		if _, err := c.Write(sent); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		sends++
		c.SetReadDeadline(time.Now().Add(min(probeInterval, time.Until(deadline))))
		for {
			n, err := c.Read(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return err
			}
			if bytes.Equal(buf[:n], sent) {
				return nil
			}
		}
	}
	return errors.New("no answer to " + strconv.Itoa(sends) + " datagrams (wrong checksums are dropped by the receiving kernel)")
}

// probeInterval is the time between the datagrams of one self-test exchange.
const probeInterval = 200 * time.Millisecond
