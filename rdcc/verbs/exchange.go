package verbs

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

// Both halves of a queue pair meet over TCP, on the port that RDCC has in UDP: the sender says its half, the receiver makes its
// own, joins it and answers; then the connection stays, and its end is the queue pair's. Each says one line of JSON.

const (
	exchangeLine    = 4096
	exchangeTimeout = 5 * time.Second
)

// Half is one end of a queue pair, as its peer must know it.
type Half struct {
	QP      uint32     `json:"qp"`
	PSN     uint32     `json:"psn"`
	GID     netip.Addr `json:"gid"`
	Address uint64     `json:"address"` // of the memory
	Region  uint64     `json:"region_bytes"`
	RKey    uint32     `json:"rkey"`
	MTU     int        `json:"mtu_bytes"`
}

// greeting is what the sender of data says.
type greeting struct {
	Schema string `json:"schema"` // pcmlab/rdcc-verbs/v1
	Class  uint8  `json:"class"`
	Half   Half   `json:"half"`
}

// welcome is what the receiver answers.
type welcome struct {
	Error string `json:"error,omitempty"`
	Half  *Half  `json:"half,omitempty"`
}

const exchangeSchema = "pcmlab/rdcc-verbs/v1"

// say writes a line.
func say(c net.Conn, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = c.Write(append(b, '\n'))
	return err
}

// hear reads a line, and no more of it than is allowed.
func hear(c net.Conn, v any) error {
	line, err := bufio.NewReader(io.LimitReader(c, exchangeLine)).ReadBytes('\n')
	if err != nil {
		if errors.Is(err, io.EOF) && len(line) > 0 {
			return fmt.Errorf("a line of more than %d octets, or cut short", exchangeLine)
		}
		return err
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("not the peer's half of a queue pair: %w", err)
	}
	return nil
}

// check is whether a half can be one.
func (h Half) check() error {
	switch {
	case h.QP == 0 || h.QP > 0xffffff:
		return fmt.Errorf("queue pair %#x: not of 24 bits", h.QP)
	case h.PSN > 0xffffff:
		return fmt.Errorf("PSN %#x: more than 24 bits", h.PSN)
	case !h.GID.IsValid():
		return errors.New("no GID")
	case h.Region == 0 || h.Address+h.Region < h.Address:
		return fmt.Errorf("a region of %d octets at %#x", h.Region, h.Address)
	}
	switch h.MTU {
	case 256, 512, 1024, 2048, 4096:
		return nil
	}
	return fmt.Errorf("an MTU of %d", h.MTU)
}

// untilClosed waits until the peer ends the connection; what it says meanwhile is not for us.
func untilClosed(c net.Conn) {
	c.SetDeadline(time.Time{})
	io.Copy(io.Discard, c)
}
