package fabric_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/inventory/fabric"
)

// Two frames of 1226 bytes, 10 us each on a link of 1 Gbit/s, are sent at the same time: each takes 10 us and a delay
// of 1 us to the switch and as much from there to the other host.
func ExampleSwitch() {
	pool := fabric.NewPool(fabric.DefaultMaxFrame)
	link := fabric.Link{Rate: units.GbitPerSec, Delay: time.Microsecond}
	sw, err := fabric.New(fabric.Options{
		Links:    []fabric.Link{link, link},
		Static:   map[[6]byte]int{{2, 0, 0, 0, 0, 1}: 0, {2, 0, 0, 0, 0, 2}: 1},
		Overhead: fabric.DefaultOverhead,
		Pool:     pool,
		Rand:     rand.New(rand.NewPCG(1, 2)),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	frame := make([]byte, 1226)
	copy(frame, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0})
	for range 2 {
		sw.Receive(0, 0, pool.Copy(frame))
	}
	for {
		at, ok := sw.Deadline() // sleep until then, or until something is received
		if !ok {
			break
		}
		for _, out := range sw.Advance(at, nil) {
			fmt.Printf("%v: %d bytes to port %d\n", out.At, len(out.P.Data), out.To)
			pool.Release(out.P)
		}
	}
	// Output:
	// 22µs: 1226 bytes to port 1
	// 32µs: 1226 bytes to port 1
}
