//go:build !linux

package softnic

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

var errPlatform = fmt.Errorf("the software NIC runs on Linux, not on %s: %w", runtime.GOOS, errors.ErrUnsupported)

// IOStats counts what the NIC's loop asked of the kernel.
type IOStats struct {
	Syscalls uint64 `json:"syscalls"`
	Wakeups  uint64 `json:"wakeups"`
	WallNS   int64  `json:"wall_ns"`
}

// Serve needs Linux.
func Serve(context.Context, Config, Loader) error { return errPlatform }

// Verbs finds no devices here.
type Verbs struct{ Dir string }

// Devices lists none.
func (Verbs) Devices() ([]string, error) { return nil, nil }

// Open finds no device.
func (Verbs) Open(name string) (perftest.Device, error) {
	return nil, &perftest.NoDeviceError{Device: name}
}

// Control needs Linux.
type Control struct{}

// DialControl needs Linux.
func DialControl(string) (*Control, error) { return nil, errPlatform }

// The methods exist so that callers build everywhere; there is never a Control to call them on.

func (*Control) Close() error                         { return nil }
func (*Control) Show() (Status, error)                { return Status{}, errPlatform }
func (*Control) Counters() (map[string]uint64, error) { return nil, errPlatform }
func (*Control) Lateness() (Lateness, error)          { return Lateness{}, errPlatform }
func (*Control) Set(Settings) error                   { return errPlatform }
