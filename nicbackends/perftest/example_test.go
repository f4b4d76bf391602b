package perftest_test

import (
	"fmt"
	"time"

	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

func ExampleParse() {
	text := ` #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]
 65536      664644           0.00               10882.11		     0.174114
`
	out, err := perftest.Parse([]byte(text), nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	r := out.Rows[0]
	fmt.Printf("%d messages of %d bytes, %.2f Gb/s, peak measured: %v\n", r.Iterations, r.Bytes, r.AvgBps/1e9, r.PeakBps != nil)
	// Output: 664644 messages of 65536 bytes, 91.29 Gb/s, peak measured: false
}

func ExampleParams_Check() {
	p := perftest.Params{Duration: 10 * time.Second, AllSizes: true}
	for _, problem := range p.Check() {
		fmt.Println(problem.Fields)
	}
	// Output: [duration sizes]
}
