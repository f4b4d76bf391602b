//go:build !linux

package check

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"time"
)

// SendOptions are what one host sends.
type SendOptions struct {
	From  netip.Addr
	Iface string
	Nonce string
	TOS   int
	Sizes []int
	Count int
	Wait  time.Duration
	To    []netip.Addr
}

// Listen needs Linux.
func Listen(context.Context, string, netip.Addr, string, io.Writer) error {
	return errors.ErrUnsupported
}

// Send needs Linux.
func Send(context.Context, SendOptions) ([]Sent, error) { return nil, errors.ErrUnsupported }
