package softnic

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/pcm/calls"
)

// Control asks a running NIC: what `pcmlab nic show`, `counters` and `set` do.
type Control struct{ conn *conn }

// DialControl connects to the NIC at a socket (see SocketPath).
func DialControl(socket string) (*Control, error) {
	c, err := dial(socket)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, fmt.Errorf("NIC socket %s: no NIC listens there (start one with `pcmlab nic serve --config FILE`): %w", socket, err)
	}
	if err != nil {
		return nil, fmt.Errorf("NIC socket %s: %w", socket, err)
	}
	return &Control{c}, nil
}

// Close ends the connection.
func (c *Control) Close() error { c.conn.close(); return nil }

// Show describes the NIC and its queue pairs.
func (c *Control) Show() (Status, error) {
	r, err := c.conn.call(request{Op: "show"})
	if err != nil {
		return Status{}, err
	}
	if r.Show == nil {
		return Status{}, errors.New("show: empty reply")
	}
	return *r.Show, nil
}

// Counters reads all counters at one instant; the NIC has brought its files up to them before it answers.
func (c *Control) Counters() (map[string]uint64, error) {
	r, err := c.conn.call(request{Op: "counters"})
	return r.Counters, err
}

// Lateness reads how late the NIC's thread woke so far.
func (c *Control) Lateness() (Lateness, error) {
	r, err := c.conn.call(request{Op: "lateness"})
	if err != nil {
		return Lateness{}, err
	}
	if r.Lateness == nil {
		return Lateness{}, errors.New("lateness: empty reply")
	}
	return *r.Lateness, nil
}

// WriteCalls has the NIC write its log of handlers' invocations to a file of this host.
func (c *Control) WriteCalls(path string) (calls.Header, error) {
	r, err := c.conn.call(request{Op: "calls", Calls: path})
	if err != nil {
		return calls.Header{}, err
	}
	if r.Calls == nil {
		return calls.Header{}, errors.New("calls: empty reply")
	}
	return *r.Calls, nil
}

// Set changes settings of the running NIC.
func (c *Control) Set(s Settings) error {
	_, err := c.conn.call(request{Op: "set", Set: &s})
	return err
}
