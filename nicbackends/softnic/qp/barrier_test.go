package qp

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/internal/units"
)

// TestBarrier: packets stop where they have to, ask for an acknowledgement there when none is on its way, and what was sent may be
// sent again.
func TestBarrier(t *testing.T) {
	r := newRig(t)
	if err := r.Connect(7, 500); err != nil {
		t.Fatal(err)
	}
	post := func(n uint32) {
		if err := r.Post(r.now, WorkRequest{Length: n, RKey: 1}); err != nil {
			t.Fatal(err)
		}
	}
	step := func(why string, want ...string) {
		t.Helper()
		r.now += time.Microsecond * 100
		if d := cmp.Diff(append([]string{}, want...), r.drain()); d != "" {
			t.Errorf("%s: %s", why, d)
		}
	}
	post(256)
	post(600) // three packets
	post(256)
	r.Barrier(r.now, 1, 0)
	step("before the barrier all goes", "RC_WRITE_ONLY 100 A")
	if at, ok := r.Deadline(); ok && at < r.now+r.c.Timeout/2 {
		t.Errorf("a queue pair that is held back is due at %v, now %v", at, r.now)
	}
	r.Barrier(r.now, 1, 511)
	step("a packet goes when all of it may", "RC_WRITE_FIRST 101")
	if r.Fresh() != true || r.DataReady(r.now) {
		t.Error("what waits at the barrier is not fresh, or is ready")
	}
	r.answer(100, roce.NakSyndrome(roce.NakSequence)) // 101 again is no question of the barrier
	r.Barrier(r.now, 1, 0)
	step("what was sent goes again", "RC_WRITE_ONLY 100 A again", "RC_WRITE_FIRST 101 again")
	r.answer(101, roce.AckSyndrome(roce.CreditsUnlimited))
	step("acknowledged", "WRITE done status 0")
	if r.Acknowledged() != 1 || r.Posted() != 3 {
		t.Errorf("%d acknowledged of %d", r.Acknowledged(), r.Posted())
	}
	r.Barrier(r.now, 1, 512)
	step("with no answer on its way it asks for one", "RC_WRITE_MIDDLE 102 A")
	r.Barrier(r.now, 1, 600)
	step("to its end, not further", "RC_WRITE_LAST 103 A")
	r.Barrier(r.now, NoBarrier, 0)
	step("everything", "RC_WRITE_ONLY 104 A")
	r.Abort(RemoteOperation)
	step("aborted", "WRITE done status 11", "WRITE done status 5")
}

// TestSetCap: the smaller of the two rates holds, and either may change.
func TestSetCap(t *testing.T) {
	r := newRig(t)
	for _, x := range []struct{ own, cap, want int64 }{{8000, 0, 8000}, {8000, 500, 500}, {300, 500, 300}, {9000, 500, 500}, {9000, 0, 9000}} {
		r.SetRate(0, 1)
		r.SetCap(0, 0)
		r.SetRate(0, units.Rate(x.own))
		r.SetCap(0, units.Rate(x.cap))
		if got := int64(r.Rate()); got != x.want {
			t.Errorf("own %d, cap %d: %d, want %d", x.own, x.cap, got, x.want)
		}
	}
}
