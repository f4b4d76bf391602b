package perftest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/inventory"
)

// The tools that the driver can run.
const (
	WriteBW = "ib_write_bw"
	SendBW  = "ib_send_bw"
	ReadBW  = "ib_read_bw"
)

// DefaultPort is the TCP port on which the tool exchanges queue pair data when none is given.
const DefaultPort = 18515

// DefaultSize is the message size of the bandwidth tests.
const DefaultSize = 65536

// Params say what one traffic flow does. The zero value is a valid ib_write_bw of the tool's own defaults. JSON names
// are the field names of playbooks and of Problem.Fields.
type Params struct {
	Tool          string        `json:"tool,omitempty"`          // "" means ib_write_bw
	Device        string        `json:"device,omitempty"`        // RDMA device; "" lets the tool take the first, which is seldom the one meant
	IBPort        int           `json:"ib_port,omitempty"`       // port of the device; 0 means 1
	GIDIndex      *int          `json:"gid_index,omitempty"`     // nil: the tool's default, which differs between hosts (see ResolveGID)
	Size          int           `json:"size,omitempty"`          // bytes of a message; 0 means 65536
	AllSizes      bool          `json:"sizes,omitempty"`         // -a: 2 .. 2^23 bytes
	Iterations    int           `json:"iterations,omitempty"`    // messages; 0 means 5000 unless Duration is set
	Duration      time.Duration `json:"duration,omitempty"`      // whole seconds; 0: by Iterations
	Margin        *int          `json:"margin,omitempty"`        // seconds cut off at both ends of Duration; nil: a quarter of Duration
	QPs           int           `json:"qps,omitempty"`           // 0 means 1
	Port          int           `json:"port,omitempty"`          // TCP port; 0 means 18515
	MTU           int           `json:"mtu,omitempty"`           // path MTU in bytes; 0: the port's
	TxDepth       int           `json:"tx_depth,omitempty"`      // 0 means 128
	RxDepth       int           `json:"rx_depth,omitempty"`      // ib_send_bw alone; 0 means 512
	Timeout       int           `json:"timeout,omitempty"`       // QP timeout: 4.096 us * 2^Timeout; 0 means 14
	RetryCount    *int          `json:"retry_count,omitempty"`   // nil means 7
	TrafficClass  *int          `json:"tclass,omitempty"`        // IP traffic class byte, DSCP<<2 | ECN; nil: none asked
	ServiceLevel  *int          `json:"sl,omitempty"`            // -S
	Bidirectional bool          `json:"bidirectional,omitempty"` // -b
	RDMACM        bool          `json:"rdma_cm,omitempty"`       // -R: queue pairs made by the connection manager
	CQModeration  int           `json:"cq_mod,omitempty"`        // -Q
	PostList      int           `json:"post_list,omitempty"`     // -l
	Inline        *int          `json:"inline,omitempty"`        // -I
	NoPeak        bool          `json:"no_peak,omitempty"`       // -N
	Connection    string        `json:"connection,omitempty"`    // RC (default), UC or UD
	Output        string        `json:"output,omitempty"`        // "", "bandwidth" or "message_rate"
	JSONFile      string        `json:"json_file,omitempty"`     // --out_json_file on the host
	RateLimitGbps float64       `json:"rate_limit,omitempty"`    // --rate_limit in Gb/s; 0: none
	RateLimitType string        `json:"rate_limit_type,omitempty"`
	Burst         int           `json:"burst,omitempty"`     // --burst_size under a rate limit; 0 means 1 (the tool's own is TxDepth)
	IPv6          bool          `json:"ipv6,omitempty"`      // --ipv6: GIDs are of IPv6
	IPv6Exchange  bool          `json:"ipv6_addr,omitempty"` // --ipv6-addr: and so are the addresses at which both ends meet; older tools have IPv4 there alone
	MebiBytes     bool          `json:"mebibytes,omitempty"` // report in MiB/sec; the default is Gb/sec (--report_gbits)
}

// Problem is a mistake in Params that can be seen without touching a host. Fields are the JSON names of the fields
// concerned, the one to change first, so that a validator can point at each of their lines.
type Problem struct {
	Fields  []string
	Message string
}

func (p Problem) Error() string {
	return strings.Join(p.Fields, ", ") + ": " + p.Message
}

// ToolName is Tool with its default.
func (p Params) ToolName() string {
	if p.Tool == "" {
		return WriteBW
	}
	return p.Tool
}

// TCPPort is Port with its default.
func (p Params) TCPPort() int {
	if p.Port == 0 {
		return DefaultPort
	}
	return p.Port
}

// MessageSize is Size with its default.
func (p Params) MessageSize() int {
	if p.Size == 0 {
		return DefaultSize
	}
	return p.Size
}

// EffectiveMargin is what the tool uses: an integer quarter of the duration unless one is given. (Its help text says
// 2 s; perftest 4.5 and newer compute duration/4.)
func (p Params) EffectiveMargin() time.Duration {
	if p.Duration == 0 {
		return 0
	}
	if p.Margin != nil {
		return time.Duration(*p.Margin) * time.Second
	}
	return time.Duration(int(p.Duration/time.Second)/4) * time.Second
}

// Window is the part of Duration over which the tool measures: Duration - 2 * margin. 0 without a Duration.
func (p Params) Window() time.Duration {
	return p.Duration - 2*p.EffectiveMargin()
}

// On fills in what p leaves open and a NIC decides: device, port of the device, GID index where the inventory gives one,
// traffic class.
func (p Params) On(nic *inventory.NIC) Params {
	if p.Device == "" {
		p.Device = nic.Device
	}
	if p.IBPort == 0 && nic.Port > 1 {
		p.IBPort = nic.Port
	}
	if p.GIDIndex == nil {
		p.GIDIndex = nic.GIDIndex
	}
	if tc := TrafficClass(nic); p.TrafficClass == nil && tc != 0 {
		p.TrafficClass = &tc
	}
	if nic.Backend != SoftBackend { // whose tool takes addresses of either kind as they come, and knows no limit
		p.IPv6 = p.IPv6 || nic.IP.IsValid() && nic.IP.Addr().Is6()
		if p.RateLimitGbps > 0 && p.RateLimitType == "" {
			// The tool's default is a static rate of the queue pair: it takes the rates of a table alone, not 65 Gb/s, and
			// then finds that only InfiniBand has them (perftest issue 291).
			p.RateLimitType = "SW"
		}
	}
	return p
}

// TrafficClass is the IP traffic class byte of a NIC's data packets: DSCP in the upper six bits, ECT(0) below.
func TrafficClass(nic *inventory.NIC) int {
	tc := nic.DSCP << 2
	if nic.ECN {
		tc |= 2
	}
	return tc
}

// ServerArgs is the argv of the receiving side.
func (p Params) ServerArgs() []string { return append([]string{p.ToolName()}, p.flags()...) }

// ClientArgs is the argv of the side that starts the test towards server, an address of the data network.
func (p Params) ClientArgs(server string) []string {
	return append(append([]string{p.ToolName()}, p.flags()...), server)
}

// flags are the same on both sides: the tool has no negotiation to speak of, and a flag given to one side alone makes
// results that mean something else (units, -b) or hangs (-q).
func (p Params) flags() []string {
	var args []string
	str := func(flag, v string) {
		if v != "" {
			args = append(args, flag, v)
		}
	}
	num := func(flag string, v int) {
		if v != 0 {
			args = append(args, flag, strconv.Itoa(v))
		}
	}
	opt := func(flag string, v *int) {
		if v != nil {
			args = append(args, flag, strconv.Itoa(*v))
		}
	}
	on := func(flag string, v bool) {
		if v {
			args = append(args, flag)
		}
	}
	str("-d", p.Device)
	num("-i", p.IBPort)
	opt("-x", p.GIDIndex)
	num("-p", p.Port)
	str("-c", p.Connection)
	num("-q", p.QPs)
	on("-a", p.AllSizes)
	num("-s", p.Size)
	num("-n", p.Iterations)
	num("-D", int(p.Duration/time.Second))
	opt("-f", p.Margin)
	num("-m", p.MTU)
	num("-t", p.TxDepth)
	num("-r", p.RxDepth)
	num("-u", p.Timeout)
	if p.RetryCount != nil {
		args = append(args, "--retry_count="+strconv.Itoa(*p.RetryCount))
	}
	opt("-S", p.ServiceLevel)
	num("-Q", p.CQModeration)
	num("-l", p.PostList)
	opt("-I", p.Inline)
	on("-N", p.NoPeak)
	on("-b", p.Bidirectional)
	on("-R", p.RDMACM)
	if p.TrafficClass != nil {
		// Queue pairs of the connection manager take their type of service from -T; the others from --tclass.
		if p.RDMACM {
			args = append(args, "-T", strconv.Itoa(*p.TrafficClass))
		} else {
			args = append(args, "--tclass="+strconv.Itoa(*p.TrafficClass))
		}
	}
	on("--ipv6", p.IPv6)
	on("--ipv6-addr", p.IPv6Exchange)
	if p.RateLimitGbps > 0 {
		args = append(args, "--rate_limit="+strconv.FormatFloat(p.RateLimitGbps, 'f', -1, 64), "--rate_units=g",
			"--burst_size="+strconv.Itoa(max(p.Burst, 1)))
		if p.RateLimitType != "" {
			args = append(args, "--rate_limit_type="+p.RateLimitType)
		}
	}
	if p.Output != "" {
		args = append(args, "--output="+p.Output)
	}
	if p.JSONFile != "" {
		args = append(args, "--out_json", "--out_json_file="+p.JSONFile)
	}
	on("--report_gbits", !p.MebiBytes)
	// Without -F the tool warns about CPU frequencies, or old versions refuse to run (perftest issue 372).
	return append(args, "-F")
}

// Unit is what the numbers of a run with these parameters mean, in outputs that do not say so themselves.
func (p Params) Unit() Unit {
	if p.MebiBytes {
		return MiBPerSec
	}
	return GbPerSec
}

// UnitOf tells the unit from a command line that was started. An empty argv, or one of a tool that is not a bandwidth
// test, says nothing.
func UnitOf(argv []string) (Unit, error) {
	known := false
	for _, a := range argv {
		if strings.HasSuffix(a, "_bw") {
			known = true
		}
		if known && (a == "--report_gbits" || a == "-report_gbits") {
			return GbPerSec, nil
		}
	}
	if !known {
		return "", fmt.Errorf("%w: the command line that was started is not known", ErrUnknownUnit)
	}
	return MiBPerSec, nil
}
