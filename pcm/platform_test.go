package pcm

import "testing"

// TestPlatforms_haveAReasonForEveryGap: each signal and control of each platform is decided, and what is not native says why.
func TestPlatforms_haveAReasonForEveryGap(t *testing.T) {
	for _, pl := range Platforms() {
		check := func(what string, c Capability) {
			if (c.Support == Native) != (c.Why == "") {
				t.Errorf("%s: %s: support %d, reason %q", pl.Name, what, c.Support, c.Why)
			}
		}
		for _, s := range Sources() {
			check(s.String(), pl.Signals[s])
		}
		for _, k := range Controls() {
			check(k.String(), pl.Controls[k])
		}
	}
}

// TestPlatforms_matrix holds the rows of the reference sheet's matrix, section B.0.
func TestPlatforms_matrix(t *testing.T) {
	type row struct {
		what                                string
		of                                  func(*Platform) Support
		htsim, uccl, docapcc, onep, softnic Support
	}
	control := func(k ControlKind) func(*Platform) Support {
		return func(p *Platform) Support { return p.Controls[k].Support }
	}
	signal := func(s Source) func(*Platform) Support {
		return func(p *Platform) Support { return p.Signals[s].Support }
	}
	for _, r := range []row{
		{"window", control(CWND), Native, Native, Adapted, Adapted, Native},
		{"rate", control(Rate), Native, Native, Native, Adapted, Native},
		{"entropy", control(EV), Native, Native, Refused, Refused, Refused},
		{"pull", control(PullNo), Native, Native, Refused, Refused, Refused},
		{"ack", signal(ACK), Native, Native, Native, Native, Native},
		{"rtt", signal(RTT), Native, Native, Adapted, Native, Native},
		{"rto", signal(RTO), Native, Native, Silent, Silent, Native},
		{"ecn", signal(ECN), Native, Silent, Adapted, Silent, Adapted},
		{"cnp", signal(CNP), Adapted, Silent, Native, Silent, Native}, // the sheet says yes of htsim: of its marks, as its UEC transport has no CNPs
		{"in flight", signal(InFlight), Native, Native, Adapted, Silent, Native},
		{"pull target", signal(PullTarget), Native, Native, Refused, Refused, Refused},
	} {
		for name, want := range map[string]Support{"cpu": Native, "htsim": r.htsim, "uccl": r.uccl, "docapcc": r.docapcc, "onep": r.onep, "softnic": r.softnic} {
			pl, err := PlatformNamed(name)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.of(pl); got != want {
				t.Errorf("%s on %s: %d, want %d", r.what, name, got, want)
			}
		}
	}
}
