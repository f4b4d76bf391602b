package perftest

import (
	"errors"
	"math"
)

// Unit is how a bandwidth number is meant. The labels of old versions lie: "MB/sec" was always 2^20 bytes per second
// and became "MiB/sec" in 2024 with the same value (perftest pull request 257).
type Unit string

// The units as tables name them.
const (
	GbPerSec  Unit = "Gb/sec"
	MBPerSec  Unit = "MB/sec"  // label of versions until 2024; the value is MiB/s
	MiBPerSec Unit = "MiB/sec" // label since
)

// ErrUnknownUnit says that a number came without a unit and nothing told which it is.
var ErrUnknownUnit = errors.New("unknown unit")

// ErrNoResult says that an output holds no result.
var ErrNoResult = errors.New("no result in the output")

// bps is how many bit/s one of the unit is; 0 for an unknown label.
func (u Unit) bps() float64 {
	switch u {
	case GbPerSec:
		return 1e9
	case MBPerSec, MiBPerSec:
		return 8 * (1 << 20)
	}
	return 0
}

// Row is one line of a result table.
type Row struct {
	Bytes      int64    `json:"bytes"`
	Iterations int64    `json:"iterations"`
	PeakBps    *float64 `json:"peak_bps"`     // nil: not measured (the tool prints 0.00)
	AvgBps     float64  `json:"avg_bps"`      // as printed
	RoundBps   float64  `json:"round_bps"`    // half of the last printed digit of AvgBps
	MsgRatePPS *float64 `json:"msg_rate_pps"` // messages per second; nil: not printed
	CPUPercent *float64 `json:"cpu_percent,omitempty"`
	SL         *int     `json:"sl,omitempty"` // column of QoS runs
}

// BestBps is the average rate at the best precision that the row has: two decimals of a Gb/s are ±2.6 % at 0.19, where
// six decimals of a message rate are ±0.14 %.
func (r Row) BestBps() float64 {
	if r.MsgRatePPS == nil || *r.MsgRatePPS <= 0 || r.Bytes <= 0 {
		return r.AvgBps
	}
	byRate := *r.MsgRatePPS * float64(r.Bytes) * 8
	rateRound := 0.5 * float64(r.Bytes) * 8 // the rate is printed in millions with six decimals
	if rateRound < r.RoundBps && math.Abs(byRate-r.AvgBps) <= rateRound+r.RoundBps {
		return byRate
	}
	return r.AvgBps
}

// LatencyRow is one line of a latency table, in microseconds. Fields that the table lacks are nil.
type LatencyRow struct {
	Bytes      int64    `json:"bytes"`
	Iterations int64    `json:"iterations"`
	MinUS      *float64 `json:"min_us"`
	MaxUS      *float64 `json:"max_us"`
	TypicalUS  *float64 `json:"typical_us"`
	AvgUS      *float64 `json:"avg_us"`
	StdevUS    *float64 `json:"stdev_us"`
	P99US      *float64 `json:"p99_us"`
	P999US     *float64 `json:"p999_us"`
}

// QPAddress is one "local address" or "remote address" line with its GID line.
type QPAddress struct {
	LID  uint16  `json:"lid"`
	QPN  uint32  `json:"qpn"`
	PSN  uint32  `json:"psn"`
	RKey *uint32 `json:"rkey,omitempty"` // RDMA tests alone
	VA   *uint64 `json:"va,omitempty"`
	GID  string  `json:"gid,omitempty"` // in IPv6 notation; "" when not printed
}

// Output is what one side of a run printed.
type Output struct {
	Version       string            `json:"version,omitempty"` // of --version, when known
	Test          string            `json:"test,omitempty"`    // "RDMA_Write BW Test"
	Bidirectional bool              `json:"bidirectional,omitempty"`
	Server        bool              `json:"server,omitempty"` // the text is that of the side that waits
	Banner        map[string]string `json:"banner,omitempty"` // "TX depth": "128", "Mtu": "1024[B]", ...
	Unit          Unit              `json:"unit,omitempty"`
	Rows          []Row             `json:"rows"`
	LocalRows     []Row             `json:"local_rows,omitempty"`  // "Local results" of a bidirectional run with --report-both
	RemoteRows    []Row             `json:"remote_rows,omitempty"` // "Remote results": the other half, never a total
	Latency       []LatencyRow      `json:"latency,omitempty"`
	MsgRatePPS    *float64          `json:"msg_rate_pps,omitempty"` // of --output=message_rate
	Local         []QPAddress       `json:"local,omitempty"`
	Remote        []QPAddress       `json:"remote,omitempty"`
	Notes         []string          `json:"notes,omitempty"`
	Source        string            `json:"source,omitempty"` // "text", "number" or "json"
	Cut           bool              `json:"cut,omitempty"`    // the text ends in the middle of a line
}

// Flowed says whether the result shows that data moved.
func (o *Output) Flowed() bool {
	if o == nil {
		return false
	}
	for _, r := range o.Rows {
		if r.Iterations > 0 && (r.AvgBps > 0 || r.MsgRatePPS != nil && *r.MsgRatePPS > 0) {
			return true
		}
		if r.Iterations == 0 && r.Bytes == 0 && r.AvgBps > 0 { // a bare number
			return true
		}
	}
	for _, l := range o.Latency {
		if l.Iterations > 0 && (l.AvgUS != nil && *l.AvgUS > 0 || l.TypicalUS != nil && *l.TypicalUS > 0) {
			return true
		}
	}
	return o.MsgRatePPS != nil && *o.MsgRatePPS > 0
}
