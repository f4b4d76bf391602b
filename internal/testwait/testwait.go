// Package testwait waits in tests: for a condition, with a limit, never for a time that is hoped to be enough.
package testwait

import (
	"testing"
	"time"
)

// For waits until cond holds, and fails the test when it does not within limit. It calls cond from the test's own goroutine.
func For(t testing.TB, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			t.Fatalf("waited %v for: %s", limit, what)
		case <-tick.C:
		}
	}
}
