package capture

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// PTP is what ptp4l of a host says of itself (linuxptp).
type PTP struct {
	Ports    []string `json:"ports"`     // state of each, as IEEE 1588 calls it: SLAVE, MASTER, UNCALIBRATED, ...
	OffsetNS *int64   `json:"offset_ns"` // of its clock from its master's; null: it has none
}

// ptpSettled is how far a clock may be off its master: servos of ptp4l are within a microsecond when they have settled.
const ptpSettled = 10 * time.Microsecond

// ParsePTP reads what facts say in words, "SLAVE MASTER, offset -12 ns". It is nil when they say nothing.
func ParsePTP(said string) *PTP {
	states, rest, _ := strings.Cut(said, ", offset ")
	p := &PTP{Ports: strings.Fields(states)}
	if n, err := strconv.ParseInt(strings.TrimSuffix(rest, " ns"), 10, 64); err == nil {
		p.OffsetNS = &n
	}
	if len(p.Ports) == 0 {
		return nil
	}
	return p
}

// Trouble says why the clock is not kept right; "": it is, or it is what others follow.
func (p *PTP) Trouble() string {
	follows := slices.Contains(p.Ports, "SLAVE")
	leads := slices.Contains(p.Ports, "MASTER") || slices.Contains(p.Ports, "GRAND_MASTER")
	switch {
	case !follows && !leads:
		return fmt.Sprintf("no port of ptp4l follows a master (%s)", strings.Join(p.Ports, " "))
	case follows && p.OffsetNS != nil && time.Duration(*p.OffsetNS).Abs() > ptpSettled:
		return fmt.Sprintf("its clock is %v off its master's, and has not settled", time.Duration(*p.OffsetNS))
	}
	return ""
}

// String is the state in words.
func (p *PTP) String() string {
	s := strings.Join(p.Ports, " ")
	if p.OffsetNS != nil && slices.Contains(p.Ports, "SLAVE") {
		s += fmt.Sprintf(", %v off its master", time.Duration(*p.OffsetNS))
	}
	return s
}
