//go:build !linux

package fabric

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
)

// ErrPortsGone ends a fabric whose ports' descriptors have all become useless.
var ErrPortsGone = errors.New("fabric: the interfaces of all ports are gone")

// Main is the fabric's process, which needs Linux.
func Main(ctx context.Context, cfg Config) error { return Run(ctx, cfg, nil, nil) }

// Run is Main for a caller that handles signals itself.
func Run(context.Context, Config, io.Writer, *slog.Logger) error {
	return fmt.Errorf("fabric: needs Linux (TAP devices, packet sockets), this is %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
