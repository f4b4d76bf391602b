package analysis

// Completions are message completion times by operation; null where there were none.
type Completions struct {
	Write  *Messages `json:"write"`
	Send   *Messages `json:"send"`
	Read   *Messages `json:"read"`
	Atomic *Messages `json:"atomic"`
}

// Reaction says what the sender did after CNPs. An episode begins with a CNP while none is going on. Rates are those of
// whole frames, retransmissions included, in windows of WindowNS.
type Reaction struct {
	WindowNS    int64   `json:"window_ns"`
	Episodes    int64   `json:"episodes"`
	Cut         int64   `json:"cut"`         // the rate fell below 95 % of what it had been
	NoCut       int64   `json:"no_cut"`      // it did not, within four windows
	Recovered   int64   `json:"recovered"`   // cut, and back at 95 %
	Interrupted int64   `json:"interrupted"` // cut, and CNPs came again, after four windows without, before it was back
	Unfinished  int64   `json:"unfinished"`  // still going on at the flow's last packet
	BeforeBps   *Rates  `json:"before_bps"`  // of cut episodes: the window before the CNP's
	LowestBps   *Rates  `json:"lowest_bps"`  // of cut episodes: the lowest window
	RecoverNS   Latency `json:"recover_ns"`  // of recovered ones: from the CNP to the end of the first window at 95 %
}

// Rates summarises rates in bit/s.
type Rates struct {
	Min float64 `json:"min"`
	P50 float64 `json:"p50"`
	Max float64 `json:"max"`
}

// Bursts are runs of a flow's data packets with no gap above GapNS between them.
type Bursts struct {
	GapNS int64  `json:"gap_ns"`
	Count int64  `json:"count"`
	P50   *int64 `json:"p50_bytes"` // bytes of whole frames
	P99   *int64 `json:"p99_bytes"`
	Max   *int64 `json:"max_bytes"`
}

// Recovery says how lost packets were sent again.
type Recovery struct {
	Restarts  int64           `json:"restarts"` // go-back-N: the sender stepped back and went on from there
	ByNAK     int64           `json:"by_nak"`
	ByRNR     int64           `json:"by_rnr"`
	ByTimeout int64           `json:"by_timeout"` // no NAK was seen
	Selective int64           `json:"selective"`  // packets sent again alone
	DelayNS   Latency         `json:"delay_ns"`   // from the NAK to the first packet sent again
	RNRWaitNS int64           `json:"rnr_wait_ns"`
	Events    []RecoveryEvent `json:"events"` // the first MaxRecoveryEvents
}

// MaxRecoveryEvents bounds the events kept of a flow.
const MaxRecoveryEvents = 4

// RecoveryEvent is one restart, or one packet resent alone.
type RecoveryEvent struct {
	TimeNS  int64   `json:"time_ns"` // of the first packet sent again
	Trigger string  `json:"trigger"` // nak, rnr or timeout
	NAKPSN  *uint32 `json:"nak_psn"` // null: no NAK was seen
	DelayNS *int64  `json:"delay_ns"`
	FromPSN uint32  `json:"from_psn"` // where the sender went on
	HighPSN uint32  `json:"high_psn"` // the highest it had sent before
	Packets int64   `json:"packets"`  // sent again until it was past that
	Skipped int64   `json:"skipped"`  // numbers between from and high that were not sent again, as far as the tap saw
}

// Congestion is what CNPs and arrivals say about congestion, beyond single flows.
type Congestion struct {
	Scopes       []CNPScope `json:"cnp_scopes"`    // qp, ip_pair, destination, port: finest first
	PacingScope  *string    `json:"pacing_scope"`  // the widest scope whose gaps keep the interval; null: it cannot be told
	PacingNS     *int64     `json:"pacing_ns"`     // the interval kept there
	PacingReason string     `json:"pacing_reason"` // how it was told, or why not
	Pairs        []CNPCount `json:"cnp_pairs"`     // per IP pair
	Ports        []CNPCount `json:"cnp_ports"`     // per notifying port
	Receivers    []QueueAt  `json:"receivers"`     // what arrived for each destination
}

// Scopes by which notifiers pace CNPs, finest first: one QP of one sender; one pair of IP addresses; one destination address
// from a port of the notifier; the port, whoever it tells.
const (
	ScopeQP          = "qp"
	ScopeIPPair      = "ip_pair"
	ScopeDestination = "destination"
	ScopePort        = "port"
)

// CNPScope holds the gaps between CNPs that a notifier would count together if it paced by this scope.
type CNPScope struct {
	Scope  string  `json:"scope"`
	Groups int     `json:"groups"`
	GapNS  Latency `json:"gap_ns"`
}

// CNPCount counts the CNPs from one notifier, to one address or to all.
type CNPCount struct {
	Src    string   `json:"src"` // address of the notifier, or its MAC address for a port
	Dst    string   `json:"dst,omitempty"`
	CNPs   int64    `json:"cnps"`
	RateHz *float64 `json:"rate_hz"` // null: fewer than two
	GapNS  Latency  `json:"gap_ns"`
}

// QueueAt says how data arrived for one destination: busy periods without a gap above GapNS, and the queue that a port of
// the link's rate would have built.
type QueueAt struct {
	Dst        string   `json:"dst"`
	GapNS      int64    `json:"gap_ns"`
	BusyShare  *float64 `json:"busy_share"` // of the time from its first to its last data packet
	BusyNS     Latency  `json:"busy_ns"`
	BusyBytes  Bursts   `json:"busy_bytes"`
	QueueBytes *Queue   `json:"queue_bytes"` // null: the link's rate is not known
}

// Queue is an estimate: arrivals at the tap into a queue drained at the link's rate. Behind a port of that rate it is
// about one packet; upstream of it, it is what the port had to hold.
type Queue struct {
	P50 int64 `json:"p50"` // over arrivals
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

// PausedPort is one sender of PFC or PAUSE frames and one priority.
type PausedPort struct {
	Src          string `json:"src"`      // MAC address that asked for the pause
	Priority     *int   `json:"priority"` // null: PAUSE, all priorities
	PauseFrames  int64  `json:"pause_frames"`
	ResumeFrames int64  `json:"resume_frames"` // zero quanta
	Pauses       int64  `json:"pauses"`        // times it stopped
	PausedNS     *int64 `json:"paused_ns"`     // null: without the link's rate a pause that no frame ends has no length
	LongestNS    *int64 `json:"longest_ns"`
	FirstNS      int64  `json:"first_ns"`
	LastNS       int64  `json:"last_ns"`
}

// Connection is one handshake of RDMA-CM.
type Connection struct {
	Src          string  `json:"src"` // who asked
	Dst          string  `json:"dst"`
	SrcQP        *uint32 `json:"src_qp"`
	DstQP        *uint32 `json:"dst_qp"`
	SrcPSN       *uint32 `json:"src_psn"` // where the requests of src start
	DstPSN       *uint32 `json:"dst_psn"`
	State        string  `json:"state"` // requested, replied, established, rejected, disconnected
	RejectReason *uint16 `json:"reject_reason"`
	RequestNS    *int64  `json:"request_ns"`
	SetupNS      *int64  `json:"setup_ns"` // from REQ to RTU
	DisconnectNS *int64  `json:"disconnect_ns"`
}

// Distributions are over all flows together: samples by value, values ascending, as exact as the histograms (2.7 %).
type Distributions struct {
	RTTNS     []Sample `json:"rtt_ns"`
	MessageNS []Sample `json:"message_ns"`
	CNPGapNS  []Sample `json:"cnp_gap_ns"`
}

// Sample is a value and how often it was seen.
type Sample struct {
	Value int64 `json:"v"`
	Count int64 `json:"n"`
}

// Common is the interval in which all flows with a rate are active.
type Common struct {
	StartNS int64    `json:"start_ns"`
	EndNS   int64    `json:"end_ns"`
	Flows   int      `json:"flows"`
	Jain    *float64 `json:"jain"` // over the goodputs in the bins that lie wholly within
	MinMax  *float64 `json:"min_max"`
}

// Convergence is how long the flows took to share fairly after one came or went.
type Convergence struct {
	AtNS       int64    `json:"at_ns"`
	Event      string   `json:"event"` // join or leave
	Flow       string   `json:"flow"`
	Active     int      `json:"active"`      // flows after the event
	TimeNS     *int64   `json:"time_ns"`     // to the first of ConvergedBins bins in a row with Jain's index of ConvergedJain; null: not reached
	LowestJain *float64 `json:"lowest_jain"` // until then, or until the next event
	Reason     string   `json:"reason"`      // why TimeNS is null
}

// What counts as converged.
const (
	ConvergedJain = 0.95
	ConvergedBins = 5
)
