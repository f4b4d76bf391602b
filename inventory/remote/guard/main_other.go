//go:build !linux

package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Main refuses: guards work on Linux, where lab hosts are.
func Main(_ context.Context, _ []string, _ io.Reader, _, stderr io.Writer) int {
	fmt.Fprintln(stderr, "guard: works on Linux only")
	return 125
}

// Cleanup finds nothing on a system without guards.
func Cleanup(context.Context, string) ([]State, error) {
	return nil, fmt.Errorf("guards: %w", errors.ErrUnsupported)
}

func guardAlive(Record) bool { return false }
