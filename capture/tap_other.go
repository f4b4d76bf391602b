//go:build !linux

package capture

import (
	"context"
	"errors"
	"fmt"
)

// RunTap needs Linux packet sockets; elsewhere it returns an error that matches errors.ErrUnsupported.
func RunTap(_ context.Context, o TapOptions) (TapStats, error) {
	return TapStats{}, fmt.Errorf("capture on %s: taps need Linux: %w", o.Iface, errors.ErrUnsupported)
}
