package softnic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/engine"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/gate"
	"github.com/pcmlab/pcmlab/pcm/calls"
	"github.com/pcmlab/pcmlab/rdcc/domain"
)

// The NIC's socket is a UNIX socket of type SEQPACKET: each message is one request, reply or event.
//
//	client -> NIC   JSON request (first byte '{'), answered by one JSON reply; create_qp carries a memfd (SCM_RIGHTS)
//	                post, 24 bytes: 'P', op, 0, 0, QPN(4), count(4), size(4), reserved(8); not answered
//	NIC -> client   JSON reply
//	                completions, 28 bytes: 'C', 0, 0, 0, QPN(4), done(4), received(4), failed(4), status(4), syndrome(4)
//
// Numbers in the binary messages are little-endian. A connection is a protection domain: what was made on it is
// destroyed when it closes, however its process ends.
const (
	postTag       = 'P'
	postLen       = 24
	completionTag = 'C'
	completionLen = 28
	maxMessage    = 64 << 10
)

type postMessage struct {
	op               uint8 // qp.Op
	qpn, count, size uint32
}

func (p postMessage) append(b []byte) []byte {
	b = append(b, postTag, p.op, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, p.qpn)
	b = binary.LittleEndian.AppendUint32(b, p.count)
	b = binary.LittleEndian.AppendUint32(b, p.size)
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0)
}

func parsePost(b []byte) (p postMessage, ok bool) {
	if len(b) != postLen || b[0] != postTag {
		return p, false
	}
	le := binary.LittleEndian
	return postMessage{op: b[1], qpn: le.Uint32(b[4:]), count: le.Uint32(b[8:]), size: le.Uint32(b[12:])}, true
}

// completionMessage sums up completions of a queue pair since the last one. status and syndrome are of the first that
// failed.
type completionMessage struct {
	qpn, done, received, failed, status, syndrome uint32
}

func (c completionMessage) append(b []byte) []byte {
	b = append(b, completionTag, 0, 0, 0)
	for _, v := range [...]uint32{c.qpn, c.done, c.received, c.failed, c.status, c.syndrome} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func parseCompletion(b []byte) (c completionMessage, ok bool) {
	if len(b) != completionLen || b[0] != completionTag {
		return c, false
	}
	for i, v := range [...]*uint32{&c.qpn, &c.done, &c.received, &c.failed, &c.status, &c.syndrome} {
		*v = binary.LittleEndian.Uint32(b[4+4*i:])
	}
	return c, true
}

// request is a JSON request. Each op uses the part named like it.
type request struct {
	Op       string          `json:"op"` // info, create_qp, connect, destroy_qp, show, counters, lateness, set, calls
	CreateQP *createRequest  `json:"create_qp,omitempty"`
	Connect  *connectRequest `json:"connect,omitempty"`
	QPN      uint32          `json:"qpn,omitempty"` // connect, destroy_qp
	Set      *Settings       `json:"set,omitempty"`
	Calls    string          `json:"calls,omitempty"` // file that the log of handlers' invocations is written to
}

type createRequest struct {
	VA           uint64 `json:"va"` // where the client has mapped the memory
	Size         int    `json:"size"`
	MTU          int    `json:"mtu"`
	GIDIndex     int    `json:"gid_index"`
	TrafficClass int    `json:"traffic_class"`
	Timeout      int    `json:"timeout"`
	RetryCount   int    `json:"retry_count"`
	SendDepth    int    `json:"send_depth"`
	RecvDepth    int    `json:"recv_depth"`
}

type connectRequest struct {
	GID  netip.Addr `json:"gid"`
	QPN  uint32     `json:"qpn"`
	PSN  uint32     `json:"psn"`
	RKey uint32     `json:"rkey"`
	VA   uint64     `json:"va"`
}

// reply is a JSON reply.
type reply struct {
	Error    string            `json:"error,omitempty"`
	Info     *Info             `json:"info,omitempty"`
	Created  *createReply      `json:"created,omitempty"`
	Show     *Status           `json:"show,omitempty"`
	Counters map[string]uint64 `json:"counters,omitempty"`
	Lateness *Lateness         `json:"lateness,omitempty"`
	Calls    *calls.Header     `json:"calls,omitempty"`
}

type createReply struct {
	QPN  uint32 `json:"qpn"`
	PSN  uint32 `json:"psn"`
	RKey uint32 `json:"rkey"`
}

// Settings are what `pcmlab nic set` changes while the NIC runs; nil leaves a setting as it is.
type Settings struct {
	DCQCN   *bool  `json:"dcqcn,omitempty"`
	RateBps *int64 `json:"rate_bps,omitempty"` // line rate as built
	// Handlers decide for the queue pairs that they match in place of DCQCN (inventory.ChooseHandlers); an empty list takes them away. It
	// ends the diagnostic mode.
	Handlers *[]HandlerSetting `json:"handlers,omitempty"`
	// Diagnostic keeps a log of all invocations of handlers from now on, or throws it away.
	Diagnostic *bool `json:"diagnostic,omitempty"`
	// RDCC puts a gate in front of all queue pairs, so that they obey credit control, or another in its place; with Off it is
	// taken away. Amounts and times are those of hardware; line rate, packet sizes and time scale are the NIC's own where they
	// are left out, and base_rtt has to be said.
	RDCC *domain.Config `json:"rdcc,omitempty"`
	// ResetLateness starts the lateness histogram anew, so that a run is judged by its own samples.
	ResetLateness bool `json:"reset_lateness,omitempty"`
}

// HandlerSetting gives a compiled shell to queue pairs.
type HandlerSetting struct {
	Shell string                 `json:"shell"` // path on this host; inventory.NoHandler: DCQCN decides, and no setting behind it is looked at
	Match inventory.HandlerMatch `json:"match"`
	// Signals are the names of the shell's signals in their order, for the log of invocations; it names them by number without.
	Signals []string `json:"signals,omitempty"`
}

// String is the setting as `pcmlab nic set handler=...` takes it.
func (h HandlerSetting) String() string {
	parts := []string{h.Shell}
	for _, p := range h.Match.To {
		parts = append(parts, "to="+p.String())
	}
	if h.Match.DSCP != nil {
		parts = append(parts, fmt.Sprintf("dscp=%d", *h.Match.DSCP))
	}
	if h.Match.QP != (inventory.QPRange{}) {
		parts = append(parts, "qp="+h.Match.QP.String())
	}
	if len(h.Signals) > 0 {
		parts = append(parts, "signals="+strings.Join(h.Signals, "+"))
	}
	return strings.Join(parts, ",")
}

// ParseHandlerSetting reads what String writes: SHELL.so[,to=NETWORK]...[,dscp=N][,qp=N-M][,signals=A+B].
func ParseHandlerSetting(text string) (h HandlerSetting, err error) {
	parts := strings.Split(text, ",")
	if h.Shell = parts[0]; h.Shell == "" {
		err = errors.New("no shell is named")
	}
	for _, part := range parts[1:] {
		key, value, _ := strings.Cut(part, "=")
		var e error
		switch key {
		case "to":
			var p netip.Prefix
			if p, e = netip.ParsePrefix(value); e == nil {
				h.Match.To = append(h.Match.To, p)
			}
		case "dscp":
			var n int
			if n, e = strconv.Atoi(value); e == nil && (n < 0 || n > 63) {
				e = errors.New("want 0 to 63")
			}
			h.Match.DSCP = &n
		case "qp":
			h.Match.QP, e = inventory.ParseQPRange(value)
		case "signals":
			h.Signals = strings.Split(value, "+")
		default:
			e = errors.New("known keys are to, dscp, qp and signals")
		}
		if e != nil {
			err = errors.Join(err, fmt.Errorf("%q: %w", part, e))
		}
	}
	return h, err
}

// Info describes the device.
type Info struct {
	Device    string      `json:"device"`
	Netdev    string      `json:"netdev"`
	IP        netip.Addr  `json:"ip"`
	MTU       int         `json:"mtu"`      // of the netdev
	PathMTU   int         `json:"path_mtu"` // largest RoCE MTU
	RateBps   int64       `json:"rate_bps"`
	TimeScale units.Scale `json:"time_scale"`
	GIDs      []GID       `json:"gids"`
}

// GID is a row of the GID table.
type GID struct {
	Index int        `json:"index"`
	GID   netip.Addr `json:"gid"`
	Type  string     `json:"type"`
}

// Status is the document of `pcmlab nic show -o json`.
type Status struct {
	Schema string `json:"schema"` // pcmlab/nic/v1
	Info
	DCQCN      bool            `json:"dcqcn"`
	Handler    *HandlerInfo    `json:"handler"`  // the first of Handlers; null: none
	Handlers   []HandlerStatus `json:"handlers"` // in the order in which they are looked at
	Diagnostic bool            `json:"diagnostic"`
	RDCC       *RDCCStatus     `json:"rdcc"`     // null: off
	Receiver   string          `json:"receiver"` // udp, packet
	QPs        []QPStatus      `json:"qps"`      // at most maxShown
	QPCount    int             `json:"qp_count"` // all
	LatenessNS Lateness        `json:"lateness_ns"`
	IO         IOStats         `json:"io"`
}

const maxShown = 128

// RDCCStatus is the gate of credit control.
type RDCCStatus struct {
	Config domain.Config `json:"config"`
	gate.Status
}

// QPStatus is one queue pair.
type QPStatus struct {
	QPN        uint32     `json:"qpn"`
	State      string     `json:"state"`
	RemoteIP   netip.Addr `json:"remote_ip"`
	RemoteQPN  uint32     `json:"remote_qpn"`
	SrcPort    uint16     `json:"src_port"`
	Queued     int        `json:"queued"`
	RateBps    int64      `json:"rate_bps"`
	TargetBps  int64      `json:"target_rate_bps"`
	Alpha      float64    `json:"alpha"`
	DCQCNPhase string     `json:"dcqcn_phase"`

	Handlers      []string `json:"handlers"` // that decide for it, as the counters call them
	HandlerRuns   uint64   `json:"handler_runs"`
	HandlerFailed bool     `json:"handler_failed"`
	WindowBytes   int64    `json:"window_bytes"` // that the handler wants; 0: none
	PacedBps      int64    `json:"paced_bps"`    // sending rate at present, as built
}

// Loader loads the shared object of a handler's shell, and says what it is.
type Loader func(path string) (engine.Program, HandlerInfo, error)

// HandlerInfo says what handler a NIC runs.
type HandlerInfo struct {
	Name string `json:"name"`
	Hash string `json:"hash"` // of its sources and constants
}

// HandlerStatus is one handler of a NIC.
type HandlerStatus struct {
	HandlerInfo
	signals []string
	Match   string `json:"match"`   // in words; "": all flows
	Counter string `json:"counter"` // what its counters end with: handler_runs_COUNTER
	Flows   uint64 `json:"flows"`   // queue pairs that it was given to since it was set
	Runs    uint64 `json:"runs"`
}
