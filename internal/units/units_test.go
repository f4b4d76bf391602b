package units

import (
	"testing"
	"time"
)

func TestParseRate(t *testing.T) {
	for _, c := range []struct {
		text string
		want Rate
		ok   bool
		why  string
	}{
		{"25Gbit/s", 25e9, true, "the form that String prints"},
		{"500 Mb/s", 500e6, true, "a blank and the short form"},
		{"1.5Gbps", 1.5e9, true, "a fraction"},
		{"64kbit/s", 64000, true, "SI prefixes"},
		{"25GB/s", 0, false, "a B is bytes, eight times as much"},
		{"25GBps", 0, false, "likewise"},
		{"25G", 0, false, "bits of what"},
		{"025Gbit/s", 0, false, "octal to some readers"},
		{"-1Gbit/s", 0, false, "no negative rates"},
		{"1e3Gbit/s", 0, false, "plain decimals only"},
		{"", 0, false, "nothing"},
		{"99999999999999Tbit/s", 0, false, "too large"},
	} {
		got, err := ParseRate(c.text)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("ParseRate(%q) = %v, %v; want %v (%s)", c.text, got, err, c.want, c.why)
		}
	}
}

func TestParseSize(t *testing.T) {
	for _, c := range []struct {
		text string
		want Size
		ok   bool
	}{{"64KiB", 65536, true}, {"2MB", 2e6, true}, {"4096", 4096, true}, {"1.5MiB", 3 << 19, true}, {"64kib", 65536, true}, {"64 Kit", 0, false}, {"0x10", 0, false}} {
		got, err := ParseSize(c.text)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", c.text, got, err, c.want)
		}
	}
}

// FuzzText: what is read prints as something that reads as the same.
func FuzzText(f *testing.F) {
	for _, s := range []string{"25Gbit/s", "64KiB", "1.5Gbps", "7", "0.001kbit/s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := ParseRate(text); err == nil {
			if again, err := ParseRate(r.String()); err != nil || again != r {
				t.Errorf("rate %q is %v, which reads as %v, %v", text, r, again, err)
			}
		}
		if s, err := ParseSize(text); err == nil {
			if again, err := ParseSize(s.String()); err != nil || again != s {
				t.Errorf("size %q is %v, which reads as %v, %v", text, s, again, err)
			}
		}
	})
}

func TestScale(t *testing.T) {
	s := Scale(50)
	if got := s.Rate(25 * GbitPerSec); got != 500*MbitPerSec {
		t.Errorf("25 Gbit/s is built as %v", got)
	}
	if got := s.Time(time.Microsecond); got != 50*time.Microsecond {
		t.Errorf("1 us is built as %v", got)
	}
	// The bandwidth-delay product is the same at every scale.
	bdp := func(s Scale) float64 {
		return float64(s.Rate(25*GbitPerSec)) * s.Time(8*time.Microsecond).Seconds() / 8
	}
	if bdp(1) != bdp(50) {
		t.Errorf("bandwidth-delay products %g and %g", bdp(1), bdp(50))
	}
	if Scale(0).Factor() != 1 || s.HardwareRate(500e6) != 25e9 {
		t.Error("the zero scale is 1, and hardware rates are measured rates times S")
	}
	if got := (500 * MbitPerSec).Transmit(4096); got != 65536*time.Nanosecond {
		t.Errorf("4096 bytes at 500 Mbit/s take %v", got)
	}
}
