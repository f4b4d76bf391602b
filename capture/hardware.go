package capture

import (
	"fmt"
	"time"
)

// HardwareClock is the clock of a NIC that stamps packets, against that of its host, at the begin and the end of a tap.
type HardwareClock struct {
	PHC     int           `json:"phc"` // /dev/ptpN
	Begin   HardwareCheck `json:"begin"`
	End     HardwareCheck `json:"end"`
	Stamped uint64        `json:"stamped"` // packets with a time of the NIC
	Others  uint64        `json:"others"`  // packets that the NIC did not stamp: theirs is the host's
}

// HardwareCheck is one comparison.
type HardwareCheck struct {
	AtNS     int64         `json:"at_ns"`     // by the host
	OffsetNS time.Duration `json:"offset_ns"` // how far the NIC's clock is ahead of the host's: also by the seconds between TAI and UTC
	ErrorNS  time.Duration `json:"error_ns"`
}

func (c *HardwareClock) String() string {
	others := ""
	if c.Others > 0 {
		others = fmt.Sprintf("; %d packets have times of the host, since the NIC did not stamp them", c.Others)
	}
	return fmt.Sprintf("ptp%d, ahead of the host by %v at first and %v at last, within %v%s", c.PHC, c.Begin.OffsetNS, c.End.OffsetNS, max(c.Begin.ErrorNS, c.End.ErrorNS), others)
}

// Onto turns comparisons of the host's clock into those of the NIC's: its offset from the host added, and its error.
func (c *HardwareClock) Onto(host []ClockSample) []ClockSample {
	if len(host) == 0 { // the host's clock is all that is known
		host = []ClockSample{{AtNS: c.Begin.AtNS}, {AtNS: c.End.AtNS}}
	}
	var out []ClockSample
	for _, s := range host {
		at := s.AtNS + int64(s.OffsetNS)
		offset := c.Begin.OffsetNS
		if span := c.End.AtNS - c.Begin.AtNS; span > 0 {
			share := min(max(float64(at-c.Begin.AtNS)/float64(span), 0), 1)
			offset += time.Duration(share * float64(c.End.OffsetNS-c.Begin.OffsetNS))
		}
		out = append(out, ClockSample{s.AtNS, s.OffsetNS + offset, s.ErrorNS + max(c.Begin.ErrorNS, c.End.ErrorNS)})
	}
	return out
}
