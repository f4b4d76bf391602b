package experiments

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// A step that takes its whole time, or fails, takes nothing from those behind it.
func TestCollect_eachHasItsOwnTime(t *testing.T) {
	broken := errors.New("broken")
	var left time.Duration
	ran := 0
	err := collect(t.Context(),
		step{"stop the traffic", 20 * time.Millisecond, func(ctx context.Context) error { ran++; <-ctx.Done(); return ctx.Err() }},
		step{"read counters", time.Minute, func(context.Context) error { ran++; return broken }},
		step{"fetch captures", time.Hour, func(ctx context.Context) error {
			ran++
			at, _ := ctx.Deadline()
			left = time.Until(at)
			return nil
		}})
	if ran != 3 || left < 59*time.Minute {
		t.Errorf("%d steps ran, the last had %v", ran, left)
	}
	if !errors.Is(err, broken) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "stop the traffic: not done within 20ms") || strings.Contains(err.Error(), "fetch") {
		t.Errorf("%v", err)
	}
}

// An end of everything reaches every step, and is not called a deadline.
func TestCollect_cancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := collect(ctx, step{"read counters", time.Minute, func(ctx context.Context) error { return ctx.Err() }})
	if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "not done within") {
		t.Errorf("%v", err)
	}
}
