package check

import (
	"strings"
	"testing"
	"time"
)

// TestPath_bars is USERS S01: of two paths the one beyond the bar fails, and is named.
func TestPath_bars(t *testing.T) {
	t.Parallel()
	lab, answers := testbed(t)
	ends := ports(lab, answers)
	path := func(rtt time.Duration, arrived int) *Path {
		full, dscp, ecn, ns := 3, 26, 2, rtt.Nanoseconds()
		p := &Path{From: "h1", To: "h2", Probe: "packet", Sent: 3, Arrived: &arrived, Full: 3, FullIn: &full, DSCP: &dscp, ECN: &ecn, toHost: "h2"}
		if rtt > 0 {
			p.RTT = &ns
		}
		return p
	}
	none, zero, one := MeshOptions{}, 0, 1
	for _, tc := range []struct {
		name    string
		o       MeshOptions
		p       *Path
		verdict Verdict
		words   string
	}{
		{"no_bars", none, path(time.Second, 3), Pass, ""},
		{"under_the_bar", MeshOptions{MaxRTT: time.Millisecond, MaxLost: &zero}, path(900*time.Microsecond, 3), Pass, ""},
		{"over_the_bar", MeshOptions{MaxRTT: time.Millisecond}, path(1100*time.Microsecond, 3), Fail, "took 1.1ms, at most 1ms"},
		{"no_answer", MeshOptions{MaxRTT: time.Millisecond}, path(0, 3), Skip, "no answer came back"},
		{"lost_one", none, path(time.Millisecond, 2), Warn, "1 of 6 datagrams were lost"},
		{"lost_one_too_many", MeshOptions{MaxLost: &zero}, path(time.Millisecond, 2), Fail, "1 of 6 datagrams were lost, at most 0"},
		{"may_lose_one", MeshOptions{MaxLost: &one}, path(time.Millisecond, 2), Warn, "1 of 6"},
	} {
		tc.p.judge(ends[0], ends[1], "", tc.o)
		if tc.p.Verdict != tc.verdict || !strings.Contains(tc.p.Why, tc.words) || tc.verdict == Fail && tc.p.Fix == "" {
			t.Errorf("%s: %s %q → %q, want %s %q", tc.name, tc.p.Verdict, tc.p.Why, tc.p.Fix, tc.verdict, tc.words)
		}
	}
}
