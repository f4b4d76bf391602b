//go:build !linux

package vlab

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/pcmlab/pcmlab/inventory"
)

var errLinux = fmt.Errorf("the virtual lab needs Linux (network namespaces): %w", errors.ErrUnsupported)

type lifeline struct{ events chan string }

// Up needs Linux.
func Up(context.Context, *inventory.Lab, Options) (*Instance, error) { return nil, errLinux }

// Down needs Linux.
func Down(context.Context, string, Options) (Report, error) { return Report{}, errLinux }

// Down needs Linux.
func (i *Instance) Down(context.Context) (Report, error) { return Report{}, errLinux }

// List needs Linux.
func List(Options) ([]Info, error) { return nil, errLinux }

// Open needs Linux.
func Open(string, Options) (*Instance, error) { return nil, errLinux }

// HostMain needs Linux.
func HostMain(_ context.Context, _ []string, stderr io.Writer) int {
	fmt.Fprintln(stderr, "pcmlab: lab-host:", errLinux)
	return 3
}
