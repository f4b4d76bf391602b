package perftest

import (
	"fmt"
	"strings"
	"time"
)

// Role says which side of a flow a process is.
type Role string

// The server waits and is the target of WRITEs; the client connects, sends and measures.
const (
	Client Role = "client"
	Server Role = "server"
)

// Side is what one process of a flow was and left.
type Side struct {
	Role      Role      `json:"role"`
	Host      string    `json:"host,omitempty"`
	Argv      []string  `json:"argv"`
	Code      int       `json:"code"`                // exit status; -1 when a signal ended it
	Signal    string    `json:"signal,omitempty"`    // name of that signal
	TimedOut  bool      `json:"timed_out,omitempty"` // our own deadline ended it
	Stopped   bool      `json:"stopped,omitempty"`   // we stopped it, since the other side had failed or the run ended
	Listened  bool      `json:"listened,omitempty"`  // a server that was seen listening on its port
	Stdout    []byte    `json:"-"`
	Stderr    []byte    `json:"-"`
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended"`
	BootID    string    `json:"boot_id,omitempty"` // of the host on which it really ran
	Transport error     `json:"-"`                 // the process could not be run or was lost
}

// Class names a kind of failure. Users and scripts see it; do not rename.
type Class string

// The classes.
const (
	StartRace   Class = "START_RACE"   // nothing accepted the client's TCP connection
	Unreachable Class = "UNREACHABLE"  // the server listened, but the client did not reach it
	PortInUse   Class = "PORT_IN_USE"  // the server's TCP port is taken
	Unresolved  Class = "UNRESOLVED"   // the server's name has no address
	DeviceClass Class = "DEVICE"       // no such RDMA device, or its port is not active
	GIDClass    Class = "GID"          // GIDs of the two sides do not fit together
	Completion  Class = "COMPLETION"   // a work request failed
	MemLock     Class = "MEMLOCK"      // memory could not be registered
	BadOption   Class = "BAD_OPTION"   // the tool refused its command line
	Mismatch    Class = "MISMATCH"     // the two sides were started differently
	ConnManager Class = "RDMA_CM"      // the connection manager could not connect
	VersionMix  Class = "VERSION"      // the two versions do not speak with each other
	ToolMissing Class = "TOOL_MISSING" // the tool is not installed, or may not be run
	PeerLost    Class = "PEER_LOST"    // one side went away in mid-run
	Timeout     Class = "TIMEOUT"      // a side did not end by itself
	LimitClass  Class = "LIMIT"        // the tool's own bandwidth limit was not met
	NoReport    Class = "NO_REPORT"    // the tool could not turn cycles into seconds
	NoFlow      Class = "NO_FLOW"      // all ended well and nothing moved
	NoResult    Class = "NO_RESULT"    // all ended well and the output cannot be read
	Lost        Class = "LOST"         // the process could not be run, or the host was lost
	ExitStatus  Class = "EXIT"         // a non-zero exit with words that are not known
)

// Failure says why a flow has no result.
type Failure struct {
	Class      Class    `json:"class"`
	Side       Role     `json:"side"`             // which failed first
	Host       string   `json:"host,omitempty"`   // on which host
	Cause      string   `json:"cause"`            // what told: a line of output, an exit status
	Fix        string   `json:"fix"`              // what to do, in words
	Causes     []string `json:"causes,omitempty"` // what may be behind a failed completion
	WC         WCStatus `json:"wc_status,omitempty"`
	ClientTail []string `json:"client_tail,omitempty"` // last lines of each side, stderr before stdout
	ServerTail []string `json:"server_tail,omitempty"`
}

func (f *Failure) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on the %s", f.Class, f.Side)
	if f.Host != "" {
		fmt.Fprintf(&b, " (host %s)", f.Host)
	}
	fmt.Fprintf(&b, ": %s", f.Cause)
	if len(f.Causes) > 0 {
		fmt.Fprintf(&b, " (possible: %s)", strings.Join(f.Causes, "; "))
	}
	if f.Fix != "" {
		fmt.Fprintf(&b, "; %s", f.Fix)
	}
	for _, t := range []struct {
		name  string
		lines []string
	}{{"client", f.ClientTail}, {"server", f.ServerTail}} {
		if len(t.lines) > 0 {
			fmt.Fprintf(&b, " [%s said: %s]", t.name, strings.Join(t.lines, " / "))
		}
	}
	return b.String()
}

// tailLines is how many last lines of a side a failure keeps.
const tailLines = 5

// tail gives the last lines of a side that say something: stderr where there is any, else stdout.
func tail(s *Side) []string {
	if s == nil {
		return nil
	}
	text := s.Stderr
	if strings.TrimSpace(string(text)) == "" {
		text = s.Stdout
	}
	var lines []string
	for _, l := range strings.Split(string(text), "\n") {
		if l = strings.TrimSpace(l); l != "" && !isRule(l) && strings.Trim(l, "*") != "" {
			lines = append(lines, l)
		}
	}
	return lines[max(0, len(lines)-tailLines):]
}

// wcCauses are what may be behind a failed completion on a RoCE network, the likeliest first. The statuses are those
// of enum ibv_wc_status; the reasons are IBTA's (volume 1, 10.10.3 and 9.9).
var wcCauses = map[WCStatus][]string{
	WCRetryExcErr: {
		"no path for UDP 4791 between the data addresses (link down, route, VLAN, firewall)",
		"packets of the path MTU do not fit an interface or switch port on the way",
		"drops without PFC or ECN were worse than the retries allow (timeout -u, retry_count)",
		"the peer's queue pair is gone or was connected with another GID index",
	},
	WCRNRRetryExcErr: {"the receiver had no receive buffer posted in time", "the receiver's process is stalled or was given too few buffers (-r)"},
	WCRemAccessErr:   {"the remote key or address is not that of the peer's buffer", "the peer freed its memory region, or the message is larger than it"},
	WCRemInvReqErr:   {"the responder refused the request: message size or operation not allowed there"},
	WCRemOpErr:       {"the responder could not carry out the request: a fault on its side"},
	WCWRFlushErr:     {"the queue pair had failed before; look for the first failed completion"},
	WCLocProtErr:     {"the local buffer is not covered by the memory region"},
	WCLocLenErr:      {"the message does not fit the receive buffer: -s differs between the two sides"},
	WCLocQPOpErr:     {"the local queue pair is not in a state that allows the operation"},
	WCGeneralErr:     {"the driver reported an error of its own; look at dmesg"},
}
