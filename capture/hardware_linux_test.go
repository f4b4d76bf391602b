package capture

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The host's own clock is nowhere but at itself, and TAI is ahead by whole seconds.
func TestCompareClock(t *testing.T) {
	same, err := compareClock(unix.CLOCK_REALTIME)
	if err != nil || same.OffsetNS.Abs() > same.ErrorNS || same.ErrorNS > time.Second || time.Since(time.Unix(0, same.AtNS)).Abs() > time.Minute {
		t.Errorf("%+v, %v", same, err)
	}
	tai, err := compareClock(unix.CLOCK_TAI)
	if rest := (tai.OffsetNS + tai.ErrorNS) % time.Second; err != nil || rest > 2*tai.ErrorNS {
		t.Errorf("TAI: %+v, %v", tai, err)
	}
	if _, err := compareClock(unix.FdToClockID(0)); err == nil {
		t.Error("a clock of what is none was read")
	}
}

// A NIC's clock of TAI on a host that is a second ahead: its times come out on the clock of the run.
func TestHardwareClock_Onto(t *testing.T) {
	const s = int64(time.Second)
	c := &HardwareClock{Begin: HardwareCheck{1000 * s, 37 * time.Second, 10}, End: HardwareCheck{1100 * s, 37*time.Second + 100, 20}}
	at := func(sec int64) ClockSample { return ClockSample{sec*s - s, time.Second, time.Millisecond} } // when the host says sec
	m := NewClockMap(c.Onto([]ClockSample{at(1000), at(1050), at(1100)}))
	// The host reads 1050, the NIC 1087 and 50 ns; it is 1049 here.
	if got := m.Map(1087*s + 50); got != 1049*s || m.Error() != time.Millisecond+20 || len(m.Steps()) != 0 {
		t.Errorf("%d, want %d; error %v, steps %v", got, 1049*s, m.Error(), m.Steps())
	}
	if m := NewClockMap(c.Onto(nil)); m.Map(1037*s) != 1000*s {
		t.Errorf("without comparisons of the host: %d", m.Map(1037*s))
	}
}

// An interface without says so before anything is captured, and what is right.
func TestRunTap_hardwareThatIsNotThere(t *testing.T) {
	if !inNetns(t) {
		return
	}
	vethPair(t, "tap0", "peer0")
	_, err := RunTap(t.Context(), TapOptions{Iface: "tap0", File: filepath.Join(t.TempDir(), "x"), Hardware: true})
	if err == nil || !strings.Contains(err.Error(), "capture on tap0: hardware timestamps: ") || !strings.Contains(err.Error(), "ethtool -T tap0") {
		t.Errorf("%v", err)
	}
}
