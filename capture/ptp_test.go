package capture

import "testing"

// Port states are those of IEEE 1588 as linuxptp prints them (fsm.h).
func TestPTP(t *testing.T) {
	for said, want := range map[string]struct{ words, trouble string }{
		"SLAVE, offset -12 ns":               {"SLAVE, -12ns off its master", ""},
		"MASTER SLAVE, offset 4 ns":          {"MASTER SLAVE, 4ns off its master", ""}, // a boundary clock
		"MASTER, offset 0 ns":                {"MASTER", ""},
		"GRAND_MASTER":                       {"GRAND_MASTER", ""},
		"SLAVE, offset 36999999998 ns":       {"SLAVE, 36.999999998s off its master", "its clock is 36.999999998s off its master's, and has not settled"},
		"UNCALIBRATED, offset 400 ns":        {"UNCALIBRATED", "no port of ptp4l follows a master (UNCALIBRATED)"},
		"LISTENING FAULTY":                   {"LISTENING FAULTY", "no port of ptp4l follows a master (LISTENING FAULTY)"},
		"SLAVE, offset more than anybody ns": {"SLAVE", ""},
	} {
		p := ParsePTP(said)
		if p == nil || p.String() != want.words || p.Trouble() != want.trouble {
			t.Errorf("%q: %+v, %q", said, p, p.Trouble())
		}
	}
	for _, nothing := range []string{"", ", offset 3 ns"} {
		if p := ParsePTP(nothing); p != nil {
			t.Errorf("%q: %+v", nothing, p)
		}
	}
}
