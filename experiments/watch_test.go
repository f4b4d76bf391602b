package experiments

import (
	"testing"
	"time"
)

// TestPauseAfter: samples come as often as was asked where that is cheap, and never take more than a twentieth of the time.
func TestPauseAfter(t *testing.T) {
	for _, tc := range []struct{ took, every, want time.Duration }{
		{2 * time.Millisecond, time.Second, 998 * time.Millisecond},
		{50 * time.Millisecond, time.Second, 950 * time.Millisecond},
		{400 * time.Millisecond, time.Second, 7600 * time.Millisecond},
		{3 * time.Second, time.Second, 57 * time.Second},
	} {
		pause := pauseAfter(tc.took, tc.every)
		if pause != tc.want {
			t.Errorf("a sample of %v each %v: the next after %v, want %v", tc.took, tc.every, pause, tc.want)
		}
		if share := float64(tc.took) / float64(tc.took+pause); share > 1.0/20+1e-9 {
			t.Errorf("a sample of %v each %v takes %.3f of the time", tc.took, tc.every, share)
		}
	}
}
