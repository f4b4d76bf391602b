package perftest

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// toolOptions are the flags that Tool takes, with the real tool's defaults.
type toolOptions struct {
	name     string // argv[0]'s base name
	read     bool   // ib_read_bw
	device   string
	gidIndex int // -1: not given
	size     int
	sizeSet  bool
	all      bool
	iters    int
	duration int // seconds; 0: by iterations
	margin   int // seconds; -1: not given
	qps      int
	port     int
	mtu      int
	txDepth  int
	timeout  int
	retry    int
	tclass   int
	cqMod    int
	cqModSet bool
	noPeak   bool
	gbits    bool
	output   string
	server   string // "": this side is the server
}

// usageError is a command line that the tool refuses: lines for stderr.
type usageError struct{ lines []string }

func (e *usageError) Error() string { return strings.Join(e.lines, "; ") }

func refuse(format string, args ...any) error {
	return &usageError{[]string{fmt.Sprintf(format, args...), " Parser function exited with Error"}}
}

// toolFlag is one flag: how it is spelled and what it does. A nil set means that the real tool has the flag and the
// software NIC's has not.
type toolFlag struct {
	long  string
	short byte
	value bool
	help  string
	set   func(o *toolOptions, v string) error
}

func intIn(what string, lo, hi int, dst func(o *toolOptions) *int) func(*toolOptions, string) error {
	return func(o *toolOptions, s string) error {
		v, err := strconv.ParseInt(s, 0, 64)
		switch {
		case err != nil:
			return refuse(" %s argument %s should be int", what, s)
		case v < int64(lo) || v > int64(hi):
			return refuse(" %s should be between %d and %d", what, lo, hi)
		}
		*dst(o) = int(v)
		return nil
	}
}

func on(dst func(o *toolOptions) *bool) func(*toolOptions, string) error {
	return func(o *toolOptions, _ string) error { *dst(o) = true; return nil }
}

// toolFlags is the whole list: first what the software NIC's tool does, then what it refuses by name.
var toolFlags = []toolFlag{
	{"all", 'a', false, "run sizes 2 .. 2^23", on(func(o *toolOptions) *bool { return &o.all })},
	{"ib-dev", 'd', true, "RDMA device (default: the first)", func(o *toolOptions, v string) error { o.device = v; return nil }},
	{"duration", 'D', true, "run for this many seconds", func(o *toolOptions, v string) error {
		n, err := strconv.ParseInt(v, 0, 32)
		if err != nil {
			return refuse(" Duration period argument %s should be int", v)
		}
		if n <= 0 {
			return refuse(" Duration period must be positive")
		}
		o.duration = int(n)
		return nil
	}},
	{"margin", 'f', true, "seconds at both ends that are not measured (default: a quarter of the duration)", func(o *toolOptions, v string) error {
		n, err := strconv.ParseInt(v, 0, 32)
		if err != nil {
			return refuse(" Margin argument %s should be int", v)
		}
		if n < 0 {
			return refuse(" Margin must be non-negative")
		}
		o.margin = int(n)
		return nil
	}},
	{"CPU-freq", 'F', false, "accepted; there is no such warning here", func(*toolOptions, string) error { return nil }},
	{"ib-port", 'i', true, "port of the device: 1", intIn("IB Port", 1, 1, func(*toolOptions) *int { return new(int) })},
	{"connection", 'c', true, "RC", func(_ *toolOptions, v string) error {
		if v != "RC" {
			return refuse(" connection type %s: not supported by the software NIC's tool (RC alone)", v)
		}
		return nil
	}},
	{"mtu", 'm', true, "path MTU 256 .. 4096 (default: the port's)", intIn("MTU", 0, 1<<20, func(o *toolOptions) *int { return &o.mtu })},
	{"iters", 'n', true, "number of messages (default 5000)", intIn("Iteration num", minIterations, maxIterations, func(o *toolOptions) *int { return &o.iters })},
	{"noPeak", 'N', false, "no peak", on(func(o *toolOptions) *bool { return &o.noPeak })},
	{"port", 'p', true, "TCP port (default 18515)", intIn("Port", 0, 65535, func(o *toolOptions) *int { return &o.port })},
	{"qp", 'q', true, "queue pairs (default 1)", intIn("num of Qps", 1, maxQPs, func(o *toolOptions) *int { return &o.qps })},
	{"cq-mod", 'Q', true, "messages per completion; shown in the banner alone", func(o *toolOptions, v string) error {
		o.cqModSet = true
		return intIn("CQ moderation", 1, 1024, func(o *toolOptions) *int { return &o.cqMod })(o, v)
	}},
	{"size", 's', true, "bytes of a message, K and M allowed (default 65536)", func(o *toolOptions, v string) error {
		factor, digits := int64(1), v
		if d, ok := strings.CutSuffix(v, "K"); ok {
			factor, digits = 1<<10, d
		} else if d, ok := strings.CutSuffix(v, "M"); ok {
			factor, digits = 1<<20, d
		}
		n, err := strconv.ParseInt(digits, 0, 64)
		if err != nil || n < 1 || n > maxSize/factor {
			return refuse(" Message Size should be between 1 and %d", maxSize)
		}
		o.size, o.sizeSet = int(n*factor), true
		return nil
	}},
	{"tx-depth", 't', true, "messages in flight (default 128)", intIn("Tx depth", 1, maxTxDepth, func(o *toolOptions) *int { return &o.txDepth })},
	{"qp-timeout", 'u', true, "QP timeout, 4.096 us * 2^N (default 14)", intIn("QP Timeout", 0, 31, func(o *toolOptions) *int { return &o.timeout })},
	{"gid-index", 'x', true, "index into the GID table", intIn("Gid index", 0, 255, func(o *toolOptions) *int { return &o.gidIndex })},
	{"retry_count", 0, true, "transport retries 0 .. 7 (default 7)", intIn("Retry Count", 0, 7, func(o *toolOptions) *int { return &o.retry })},
	{"tclass", 0, true, "traffic class byte: DSCP * 4 + ECN", intIn("traffic class", 0, 255, func(o *toolOptions) *int { return &o.tclass })},
	{"report_gbits", 0, false, "report Gb/sec instead of MB/sec", on(func(o *toolOptions) *bool { return &o.gbits })},
	{"output", 0, true, "bandwidth or message_rate: print that number alone", func(o *toolOptions, v string) error {
		if v != "bandwidth" && v != "message_rate" {
			return &usageError{[]string{" Output verbosity level for BW can be: bandwidth, message_rate"}}
		}
		o.output = v
		return nil
	}},
	{"help", 'h', false, "this list", func(*toolOptions, string) error { return errHelp }},
	{"version", 'V', false, "the protocol version", func(*toolOptions, string) error { return errVersion }},

	{long: "bidirectional", short: 'b'}, {long: "rdma_cm", short: 'R'}, {long: "comm_rdma_cm", short: 'z'},
	{long: "inline_size", short: 'I', value: true}, {long: "post_list", short: 'l', value: true}, {long: "hop_limit", short: 'L', value: true},
	{long: "dualport", short: 'O'}, {long: "sl", short: 'S', value: true}, {long: "tos", short: 'T', value: true},
	{long: "limit_bw", short: 'w', value: true}, {long: "limit_msgrate", short: 'y', value: true}, {long: "report-counters", short: 'W', value: true},
	{long: "events", short: 'e'}, {long: "rx-depth", short: 'r', value: true}, {long: "outs", short: 'o', value: true},
	{long: "cpu_util"}, {long: "out_json"}, {long: "out_json_file", value: true}, {long: "rate_limit", value: true}, {long: "rate_units", value: true},
	{long: "rate_limit_type", value: true}, {long: "burst_size", value: true}, {long: "typical_pkt_size", value: true}, {long: "report-both"},
	{long: "report-per-port"}, {long: "run_infinitely"}, {long: "perform_warm_up"}, {long: "use_old_post_send"}, {long: "disable_pcie_relaxed"},
	{long: "bind_source_ip", value: true}, {long: "ipv6"}, {long: "ipv6-addr"}, {long: "mmap", value: true}, {long: "mmap-offset", value: true},
	{long: "use_hugepages"}, {long: "use_cuda", value: true}, {long: "use_cuda_dmabuf"}, {long: "use_rocm", value: true}, {long: "flow_label", value: true},
	{long: "pkey_index", value: true}, {long: "force-link", value: true}, {long: "remote_port", value: true}, {long: "local_port", value: true},
	{long: "dont_xchg_versions"}, {long: "inline_recv", value: true}, {long: "wait_destroy", value: true}, {long: "cqe_poll", value: true},
	{long: "use-srq"}, {long: "use_xrc"}, {long: "use_exp"}, {long: "gpu", value: true},
}

var (
	errHelp    = fmt.Errorf("help")
	errVersion = fmt.Errorf("version")
)

// parseTool reads a command line as getopt_long does: flags and operands in any order, "--" ends the flags.
func parseTool(name string, args []string) (toolOptions, error) {
	o := toolOptions{
		name: name, read: name == ReadBW, gidIndex: -1, size: DefaultSize, margin: -1, qps: 1, port: DefaultPort,
		txDepth: 128, timeout: 14, retry: 7, cqMod: 100,
	}
	var operands []string
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--":
			operands = append(operands, args[i+1:]...)
			i = len(args)
		case strings.HasPrefix(a, "--"):
			long, v, inline := strings.Cut(a[2:], "=")
			f := flagNamed(long, 0)
			if f == nil {
				return o, &usageError{unrecognised(fmt.Sprintf("%s: unrecognized option '--%s'", name, long))}
			}
			if f.set == nil {
				return o, refuse("--%s: not supported by the software NIC's %s", long, name)
			}
			if f.value && !inline {
				if i++; i >= len(args) {
					return o, &usageError{unrecognised(fmt.Sprintf("%s: option '--%s' requires an argument", name, long))}
				}
				v = args[i]
			}
			if err := f.set(&o, v); err != nil {
				return o, err
			}
		case len(a) > 1 && a[0] == '-':
			n, err := o.shorts(a[1:], args[i+1:])
			if err != nil {
				return o, err
			}
			i += n
		default:
			operands = append(operands, a)
		}
	}
	if len(operands) > 1 {
		return o, &usageError{unrecognised(fmt.Sprintf(" Invalid Command line: one server address is expected, not %q", operands))}
	}
	if len(operands) == 1 {
		o.server = operands[0]
	}
	return o, o.settle()
}

// shorts reads a group of one-letter flags and says how many further arguments it took.
func (o *toolOptions) shorts(group string, rest []string) (int, error) {
	for i := 0; i < len(group); i++ {
		c := group[i]
		f := flagNamed("", c)
		if f == nil {
			return 0, &usageError{unrecognised(fmt.Sprintf("%s: invalid option -- '%c'", o.name, c))}
		}
		if f.set == nil {
			return 0, refuse("-%c (--%s): not supported by the software NIC's %s", c, f.long, o.name)
		}
		if !f.value {
			if err := f.set(o, ""); err != nil {
				return 0, err
			}
			continue
		}
		if v := group[i+1:]; v != "" {
			return 0, f.set(o, v)
		}
		if len(rest) == 0 {
			return 0, &usageError{unrecognised(fmt.Sprintf("%s: option requires an argument -- '%c'", o.name, c))}
		}
		return 1, f.set(o, rest[0])
	}
	return 0, nil
}

func flagNamed(long string, short byte) *toolFlag {
	for i := range toolFlags {
		if f := &toolFlags[i]; long != "" && f.long == long || short != 0 && f.short == short {
			return f
		}
	}
	return nil
}

func unrecognised(first string) []string {
	return []string{first, " Invalid Command or flag.", " Please check command line and run again.", "", " Parser function exited with Error"}
}

// settle fills in what depends on several flags, and refuses what does not fit together, as the real tool does.
func (o *toolOptions) settle() error {
	if o.all {
		if o.duration > 0 {
			return &usageError{[]string{"Duration mode currently doesn't support running on all sizes."}}
		}
		o.size = allSizesMax
	}
	if o.duration > 0 {
		if o.margin < 0 {
			o.margin = o.duration / 4
		}
		if o.duration <= 2*o.margin {
			return &usageError{[]string{"please check that DURATION > 2*MARGIN"}}
		}
		o.noPeak = true
	} else {
		if o.iters == 0 {
			o.iters = 5000
			if o.read {
				o.iters = 1000
			}
		}
		o.txDepth = min(o.txDepth, o.iters)
		o.noPeak = o.noPeak || o.iters > noPeakIterations
	}
	if !o.cqModSet && o.size > 8192 && !o.all {
		o.cqMod = 1
	}
	o.cqMod = min(o.cqMod, o.txDepth)
	return nil
}

func (o *toolOptions) usage(w io.Writer) {
	fmt.Fprintf(w, "Usage:\n  %s            start a server and wait for connection\n  %s <host>     connect to server at <host>\n\nOptions:\n", o.name, o.name)
	for _, f := range toolFlags {
		if f.set == nil {
			continue
		}
		short, value := "    ", ""
		if f.short != 0 {
			short = fmt.Sprintf("-%c, ", f.short)
		}
		if f.value {
			value = "=<value>"
		}
		fmt.Fprintf(w, "  %s--%s%s  %s\n", short, f.long, value, f.help)
	}
}
