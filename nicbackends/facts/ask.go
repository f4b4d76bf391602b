package facts

import (
	"context"
	"crypto/rand"
	_ "embed" // the script
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"time"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
)

//go:embed script.sh
var script string

// Question is what to read of a host.
type Question struct {
	NICs   []Ask
	Sudo   bool          // sudo -n may be used
	Clock  int           // exchanges for the clock offset; 0: not measured
	Run    string        // own run id: its guards are no leftovers
	Plain  bool          // without a guard, and without pushing anything
	Within time.Duration // 0 means 20 s
}

// Ask names a NIC, or an interface without an RDMA device.
type Ask struct {
	Device string
	Port   int // 0 means 1
	Netdev string
	IP     netip.Addr // data address, for the GID; may be invalid
}

// Of is the question for a host of a lab: its NICs, the interfaces of its taps, and of the ports of a switch that it is.
func Of(lab *inventory.Lab, host string) Question {
	var q Question
	h := lab.Host(host)
	if h == nil {
		return q
	}
	q.Sudo = h.Sudo
	seen := map[string]bool{}
	for _, n := range h.NICs {
		q.NICs = append(q.NICs, Ask{Device: n.Device, Port: n.Port, Netdev: n.Netdev, IP: n.IP.Addr()})
		seen[n.Netdev] = true
	}
	for _, t := range lab.Taps {
		if t.Host == host && !seen[t.Iface] {
			q.NICs = append(q.NICs, Ask{Netdev: t.Iface})
			seen[t.Iface] = true
		}
	}
	return q
}

const defaultWithin = 20 * time.Second

func (q Question) args(nonce, root string) []string {
	flag := func(on bool) string {
		if on {
			return "1"
		}
		return "0"
	}
	args := []string{nonce, root, flag(q.Sudo), flag(q.Clock > 0)}
	or := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	for _, n := range q.NICs {
		args = append(args, or(n.Device), strconv.Itoa(max(n.Port, 1)), or(n.Netdev))
	}
	return args
}

// Read asks a host. What it returns beside an error is what the host had said before it failed.
func Read(ctx context.Context, h remote.Host, q Question) (Facts, error) {
	b := make([]byte, 16)
	rand.Read(b) // never fails
	nonce := hex.EncodeToString(b)
	within := q.Within
	if within == 0 {
		within = defaultWithin
	}
	c := remote.Cmd{
		Args: append([]string{"sh", "-c", script, "facts"}, q.args(nonce, "")...), Step: "read what the host is",
		Deadline: within, MaxOut: 4 << 20, Plain: q.Plain,
	}
	var clock *exchange
	if q.Clock > 0 {
		in, out := io.Pipe()
		clock = newExchange(nonce, out, q.Clock)
		c.Stdin, c.Stdout = in, clock
		defer out.Close()
	}
	res, err := h.Run(ctx, c)
	f := Parse(string(res.Stdout), nonce, q)
	if clock != nil {
		o, at := clock.result()
		f.Offset, f.ClockNS = &o, at
	}
	switch {
	case err != nil && f.Cut == "":
		return f, nil // all of it is there; that the command then ended badly says nothing about it
	case err != nil:
		return f, err
	case res.Dropped > 0:
		return f, &remote.Error{Host: h.Name(), Step: c.Step, Err: errors.New("the answer was longer than 4 MiB")}
	case f.Cut != "":
		return f, &remote.Error{Host: h.Name(), Step: c.Step, Err: fmt.Errorf("%s: exit status %d (%s)", f.Cut, res.Code, lastLine(string(res.Stderr)))}
	}
	return f, nil
}
