package counters

import (
	"testing"
	"time"
)

// S09: drops of others do not make a run fail, and drops of the run are not hidden by a few of others.
func TestOwn(t *testing.T) {
	for _, tt := range []struct {
		name, why   string
		idle        int64
		idleFor     time.Duration
		growth      int64
		runFor      time.Duration
		least, most int64
	}{
		{"noise", "5 while idle, 7 in a run as long: none of them need be the run's", 5, 10 * time.Second, 7, 10 * time.Second, 0, 7},
		{"quiet", "nothing while idle: all is the run's", 0, 10 * time.Second, 7, 10 * time.Second, 7, 7},
		{"far_more", "a thousand beside five", 5, 10 * time.Second, 1000, 10 * time.Second, 985, 1000},
		{"longer_run", "ten times as long: fifty of others, give or take", 5, 10 * time.Second, 50, 100 * time.Second, 0, 50},
		{"steady", "of ten thousand some are certainly others'", 10000, 10 * time.Second, 10300, 10 * time.Second, 0, 725},
		{"never_idle", "no idle window: nothing is known of others", 0, 0, 7, 10 * time.Second, 0, 7},
	} {
		if least, most := Own(tt.idle, tt.idleFor, tt.growth, tt.runFor); least != tt.least || most != tt.most {
			t.Errorf("%s: %d to %d, want %d to %d", tt.name, least, most, tt.least, tt.most)
		}
	}
}
