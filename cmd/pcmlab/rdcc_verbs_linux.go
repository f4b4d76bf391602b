package main

import (
	"context"
	"net"
	"net/netip"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/rdcc/endpoint"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
	"github.com/pcmlab/pcmlab/rdcc/verbs"
)

// open opens the NIC. What the configuration leaves open of packets it takes from the device.
func (o *rdccVerbsOptions) open(ctx context.Context, f *endpoint.File, to netip.AddrPort) (endpoint.Transport, error) {
	own := f.Listen
	if o.gidIndex < 0 && !own.IsValid() && to.IsValid() {
		own = addressTowards(to)
	}
	if o.gidIndex < 0 && !own.IsValid() {
		return nil, usagef("--transport verbs: which address of this host? Give --listen with that of its RDMA interface, or --gid-index")
	}
	c := verbs.Config{
		Options:    verbs.Options{Device: o.device, GIDIndex: o.gidIndex, Address: own, Spin: o.spin},
		CreditUnit: int64(f.CreditUnit), Segment: uint64(f.Message(receiver.Fabric{}, to, 1).Segment),
		Unscheduled: f.DSCP.Unscheduled, Class: f.DSCP.Classes(),
	}
	if !to.IsValid() {
		c.Listen = netip.AddrPortFrom(anyAddress(f.Listen), f.Port)
	}
	t, err := verbs.New(ctx, c)
	if err != nil {
		return nil, &codedError{exitInfra, err}
	}
	if f.Payload == 0 {
		f.Payload = units.Size(t.Device().MTU)
	}
	if f.Wire == 0 {
		f.Wire = f.Payload + rdccVerbsOverhead
	}
	if err := f.Validate(); err != nil {
		t.Close()
		return nil, &codedError{exitUsage, err}
	}
	return t, nil
}

// rdccVerbsOverhead is what a RoCEv2 packet has around its payload, preamble and gap included.
const rdccVerbsOverhead = 82

func anyAddress(a netip.Addr) netip.Addr {
	if a.IsValid() {
		return a
	}
	return netip.IPv6Unspecified()
}

// addressTowards is the address of this host from which it reaches another; nothing is sent.
func addressTowards(to netip.AddrPort) netip.Addr {
	c, err := net.Dial("udp", to.String())
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}
