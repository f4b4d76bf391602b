package dcqcn_test

import (
	"fmt"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/dcqcn"
)

// A CNP halves the rate of a flow that starts; the rate timer brings it half-way back each time.
func ExampleRP() {
	rp := dcqcn.NewRP(dcqcn.Defaults(), 40*units.GbitPerSec)
	rp.CNP(0)
	fmt.Println(rp.Rate(), rp.Phase())
	for range 2 {
		at, _ := rp.Deadline()
		rp.Tick(at)
		fmt.Println(at, rp.Rate(), rp.Phase())
	}
	// Output:
	// 20Gbit/s cut
	// 55µs 30Gbit/s fast_recovery
	// 110µs 35Gbit/s fast_recovery
}

// The interval between CNPs is kept by a timer, so that marks near its end are not forgotten.
func ExampleNP() {
	var np dcqcn.NP
	const interval = 50 * time.Microsecond
	fmt.Println(np.CE(0, interval), np.CE(time.Microsecond, interval))
	fmt.Println(np.Deadline())
	fmt.Println(np.Tick(interval, interval))
	// Output:
	// true false
	// 50µs true
	// true
}
