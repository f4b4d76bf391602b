//go:build !linux

package main

import (
	"context"
	"net/netip"

	"github.com/pcmlab/pcmlab/rdcc/endpoint"
)

func (o *rdccVerbsOptions) open(context.Context, *endpoint.File, netip.AddrPort) (endpoint.Transport, error) {
	return nil, usagef("--transport verbs needs Linux: libibverbs is there")
}
