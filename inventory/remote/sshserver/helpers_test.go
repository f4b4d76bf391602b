package sshserver

import (
	"encoding/pem"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func pemBytes(b *pem.Block) []byte { return pem.EncodeToMemory(b) }

// exists reports whether a process has the number; a zombie counts as gone once it is reaped.
func exists(pid int) bool { return unix.Kill(pid, 0) == nil }

func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			t.Fatalf("waited 10 s for %s", what)
		case <-tick.C:
		}
	}
}
