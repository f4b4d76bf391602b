package analysis

// Schema names the version of Document.
const Schema = "pcmlab/analysis/v1"

// Document is all that an analysis says. It marshals to the JSON of docs/analysis.md; pointers are null where
// something was not measured. Two runs over the same captures give the same bytes.
type Document struct {
	Schema     string      `json:"schema"`
	Files      []File      `json:"files"`
	Quality    Quality     `json:"quality"`
	Totals     Totals      `json:"totals"`
	TimeScale  float64     `json:"time_scale"`
	Flows      []Flow      `json:"flows"`
	Aggregate  Aggregate   `json:"aggregate"`
	Path       *Path       `json:"path"` // null without upstream taps
	Directions []Direction `json:"directions"`

	Congestion    Congestion    `json:"congestion"`
	PFC           []PausedPort  `json:"pfc"`         // PFC and PAUSE by who asked and for which priority
	Connections   []Connection  `json:"connections"` // by RDMA-CM
	Distributions Distributions `json:"distributions"`
	RDCC          *RDCC         `json:"rdcc,omitempty"` // not there when no RDCC port was given

	HandlerLogs []HandlerLog `json:"handler_logs"` // what NICs logged of their handlers

	Series Series  `json:"series"`
	Checks []Check `json:"checks"`
}

// File is one capture that was read.
type File struct {
	Path           string      `json:"path"`
	More           []string    `json:"more,omitempty"` // further files of the same tap that were read in sequence with it
	Tap            string      `json:"tap,omitempty"`
	Role           string      `json:"role"` // judged or upstream
	LinkType       string      `json:"link_type"`
	Packets        int64       `json:"packets"`
	RoCEPackets    int64       `json:"roce_packets"`
	Bytes          int64       `json:"bytes"` // frames as they were on the wire, without FCS
	FirstNS        *int64      `json:"first_ns"`
	LastNS         *int64      `json:"last_ns"`
	SnaplenLimited bool        `json:"snaplen_limited"`
	TruncatedAt    *int64      `json:"truncated_at"`    // offset of the cut; null: read to its end
	OutOfOrder     int64       `json:"out_of_order"`    // records that are older than the one before
	Drops          *int64      `json:"drops"`           // by the file's own statistics
	Clock          *FileClock  `json:"clock,omitempty"` // whose times they are; not there when nothing is known
	Interfaces     []Interface `json:"interfaces"`
}

// Interface is one interface of a capture file.
type Interface struct {
	Name     string `json:"name"`
	LinkType string `json:"link_type"`
	Snaplen  int    `json:"snaplen"`
	Packets  int64  `json:"packets"`
	Drops    *int64 `json:"drops"`
}

// Verdicts on the quality of captures.
const (
	Complete   = "complete"
	Incomplete = "incomplete"
	Blind      = "blind"
)

// Quality says how far the judged captures can be trusted.
type Quality struct {
	Verdict           string   `json:"verdict"`
	DuplicatesRemoved int64    `json:"duplicates_removed"`
	OutOfOrder        int64    `json:"out_of_order"`
	Drops             *int64   `json:"drops"`                    // null: no file says
	OffloadMerged     int64    `json:"offload_merged"`           // packets longer than any RoCE path MTU allows
	MergeErrorNS      *int64   `json:"merge_error_ns,omitempty"` // captures of several hosts were merged by time within this
	Notes             []string `json:"notes"`
}

// Totals counts over the judged captures, after copies made by mirrors were removed.
type Totals struct {
	Packets              int64            `json:"packets"`
	RoCEPackets          int64            `json:"roce_packets"`
	PayloadBytes         int64            `json:"payload_bytes"`
	UniqueBytes          int64            `json:"unique_bytes"`
	CEPackets            int64            `json:"ce_packets"` // ce_data_packets + ce_ack_packets
	CEDataPackets        int64            `json:"ce_data_packets"`
	CEAckPackets         int64            `json:"ce_ack_packets"`
	CNPPackets           int64            `json:"cnp_packets"`
	AckPackets           int64            `json:"ack_packets"` // positive acknowledgements
	NAKPackets           int64            `json:"nak_packets"` // without RNR
	RNRNAKPackets        int64            `json:"rnr_nak_packets"`
	RetransmittedPackets int64            `json:"retransmitted_packets"`
	DuplicatePackets     int64            `json:"duplicate_packets"` // data packets whose PSN this tap had seen
	LostBeforeTap        int64            `json:"lost_before_tap"`
	MADPackets           int64            `json:"mad_packets"`
	CMPackets            int64            `json:"cm_packets"` // those of RDMA-CM
	FECNPackets          int64            `json:"fecn_packets"`
	BECNPackets          int64            `json:"becn_packets"`     // CNPs without the bit do exist
	MirroredPackets      int64            `json:"mirrored_packets"` // came inside GRE or ERSPAN
	MissedByTap          int64            `json:"missed_by_tap"`
	TruncatedRoCE        int64            `json:"truncated_roce_packets"` // cut before the end of their headers: counted, not analysed
	PFCPauseFrames       int64            `json:"pfc_pause_frames"`
	ICRCChecked          int64            `json:"icrc_checked"`
	ICRCBad              *int64           `json:"icrc_bad"` // null: not asked for, or no packet was whole
	Opcodes              map[string]int64 `json:"opcodes"`
	ECN                  ECNCounts        `json:"ecn"`
	Unattributed         Unattributed     `json:"unattributed"`
}

// ECNCounts counts RoCE packets by ECN codepoint.
type ECNCounts struct {
	NotECT int64 `json:"not_ect"`
	ECT1   int64 `json:"ect1"`
	ECT0   int64 `json:"ect0"`
	CE     int64 `json:"ce"`
}

// Unattributed counts control packets that could not be joined to a data flow.
type Unattributed struct {
	Acks int64 `json:"acks"`
	NAKs int64 `json:"naks"`
	CNPs int64 `json:"cnps"`
}

// States of a flow.
const (
	StateOK      = "ok"
	StateFailed  = "failed"
	StatePartial = "partial"
)

// Flow is one direction of one QP in one life of that QP.
type Flow struct {
	ID          string  `json:"id"`
	Name        string  `json:"name,omitempty"` // of the source, from Options.Names
	Incarnation int     `json:"incarnation"`
	Src         string  `json:"src"`
	Dst         string  `json:"dst"`
	SrcPort     uint16  `json:"src_port"`
	DstQP       uint32  `json:"dst_qp"`
	SrcQP       *uint32 `json:"src_qp"`     // known from the paired direction (RC) or the packets (UD)
	RequestID   *string `json:"request_id"` // READ: the direction that carries the requests
	Service     string  `json:"service"`    // RC, UC or UD

	Operations   Operations `json:"operations"`
	Packets      int64      `json:"packets"` // data packets: requests and READ responses
	PayloadBytes int64      `json:"payload_bytes"`
	UniqueBytes  int64      `json:"unique_bytes"`
	WireBytes    int64      `json:"wire_bytes"` // whole frames of the data packets, without FCS
	GoodputBps   *float64   `json:"goodput_bps"`
	HWGoodputBps *float64   `json:"hw_goodput_bps"`
	FirstNS      int64      `json:"first_ns"`
	LastNS       int64      `json:"last_ns"`

	CEPackets   int64    `json:"ce_packets"`
	ECTPackets  int64    `json:"ect_packets"` // ECT(0) or ECT(1), not CE
	Acks        *int64   `json:"acks"`        // null: no packet of the other direction was captured
	CNPs        *int64   `json:"cnps"`
	CNPRateHz   *float64 `json:"cnp_rate_hz"`
	HWCNPRateHz *float64 `json:"hw_cnp_rate_hz"`
	NAKs        *NAKs    `json:"naks"`

	RetransmittedPackets int64    `json:"retransmitted_packets"`
	RetransmittedBytes   int64    `json:"retransmitted_bytes"`
	DuplicatePackets     int64    `json:"duplicate_packets"`
	OutOfOrderPackets    int64    `json:"out_of_order_packets"`
	LostBeforeTap        int64    `json:"lost_before_tap"`
	SelectivePackets     int64    `json:"selective_packets"` // of the retransmitted ones: resent alone, not by a restart
	MissedByTap          int64    `json:"missed_by_tap"`     // acknowledged, but never captured
	RTTNS                Latency  `json:"rtt_ns"`
	HWRTTNS              Latency  `json:"hw_rtt_ns"`
	MessageNS            Messages `json:"message_ns"`
	HWMessageNS          Messages `json:"hw_message_ns"`

	CompletionNS Completions `json:"completion_ns"` // message_ns by operation
	CEShare      *float64    `json:"ce_share"`      // ce_packets / packets
	CNPGapNS     Latency     `json:"cnp_gap_ns"`    // between one CNP of this flow and the next
	CNPDelayNS   Latency     `json:"cnp_delay_ns"`  // from the first CE mark without an answer to the CNP
	Reaction     *Reaction   `json:"reaction"`      // null: no CNP was captured
	Bursts       Bursts      `json:"bursts"`
	Recovery     *Recovery   `json:"recovery"` // null: nothing was refused or sent again

	DSCP []int `json:"dscp"`
	PCP  []int `json:"pcp"` // of the outer VLAN tag; empty: untagged
	VLAN []int `json:"vlan"`

	State string   `json:"state"`
	Notes []string `json:"notes"`
}

// Operations counts messages whose last packet was seen, by kind.
type Operations struct {
	Write  int64 `json:"write"`
	Send   int64 `json:"send"`
	Read   int64 `json:"read"`
	Atomic int64 `json:"atomic"`
}

// NAKs counts negative acknowledgements by kind (IBTA vol 1, table 47).
type NAKs struct {
	Sequence       int64 `json:"sequence"`
	RNR            int64 `json:"rnr"`
	Invalid        int64 `json:"invalid"`
	Access         int64 `json:"access"`
	Remote         int64 `json:"remote"`
	InvalidRequest int64 `json:"invalid_rd"`
	Other          int64 `json:"other"`
}

// Latency summarises round-trip times in ns. Without samples all but Samples is null.
type Latency struct {
	Samples int64  `json:"samples"`
	Min     *int64 `json:"min"`
	P50     *int64 `json:"p50"`
	P90     *int64 `json:"p90"`
	P99     *int64 `json:"p99"`
	P999    *int64 `json:"p999"`
	Max     *int64 `json:"max"`
}

// Messages summarises message completion times in ns.
type Messages struct {
	Count int64  `json:"count"`
	Until string `json:"until"` // "ack", "last_packet" or "" without samples
	P50   *int64 `json:"p50"`
	P99   *int64 `json:"p99"`
	Max   *int64 `json:"max"`
}

// Aggregate is about all flows together.
type Aggregate struct {
	GoodputBps         *float64       `json:"goodput_bps"`
	HWGoodputBps       *float64       `json:"hw_goodput_bps"`
	WireBps            *float64       `json:"wire_bps"`
	Jain               *float64       `json:"jain"`
	Utilisation        *float64       `json:"utilisation"` // wire_bps over the link's rate
	GoodputUtilisation *float64       `json:"goodput_utilisation"`
	MinMax             *float64       `json:"min_max"` // lowest goodput over highest
	ActiveFlows        int            `json:"active_flows"`
	Common             *Common        `json:"common"`      // null: there is no moment at which all are active
	Convergence        []Convergence  `json:"convergence"` // after each flow that joined or left
	Excluded           []Excluded     `json:"excluded"`
	PerPhase           []PhaseSummary `json:"per_phase"`
}

// Excluded is a flow that was left out of a number, and why.
type Excluded struct {
	Flow   string `json:"flow"`
	Reason string `json:"reason"`
}

// PhaseSummary holds the numbers of one phase. Rates, shares and indices are over the trimmed window
// [start_ns+trim_ns, end_ns-trim_end_ns); the counts are over the whole phase.
type PhaseSummary struct {
	Name      string `json:"name"`
	StartNS   int64  `json:"start_ns"`
	EndNS     int64  `json:"end_ns"`
	TrimNS    int64  `json:"trim_ns"`
	TrimEndNS int64  `json:"trim_end_ns"`

	GoodputBps         float64  `json:"goodput_bps"`
	HWGoodputBps       float64  `json:"hw_goodput_bps"`
	WireBps            float64  `json:"wire_bps"`
	Jain               *float64 `json:"jain"`
	JainMeanOfBins     *float64 `json:"jain_mean_of_bins"`
	JainBins           int      `json:"jain_bins"` // bins in that mean
	MinMax             *float64 `json:"min_max"`
	JainPacer          *float64 `json:"jain_pacer"` // over mean pacer rates; null unless the handlers' logs have them of all flows
	Utilisation        *float64 `json:"utilisation"`
	GoodputUtilisation *float64 `json:"goodput_utilisation"`
	CEShare            *float64 `json:"ce_share"` // CE-marked data packets over data packets
	CNPRateHz          *float64 `json:"cnp_rate_hz"`
	HWCNPRateHz        *float64 `json:"hw_cnp_rate_hz"`

	Packets              int64       `json:"packets"` // whole phase, data packets
	CEPackets            int64       `json:"ce_packets"`
	CNPs                 *int64      `json:"cnps"`
	RetransmittedPackets int64       `json:"retransmitted_packets"`
	Flows                []PhaseFlow `json:"flows"`
	Excluded             []Excluded  `json:"excluded"`
}

// PhaseFlow is one flow within one phase; the fields mean what they mean in PhaseSummary.
type PhaseFlow struct {
	Flow                 string   `json:"flow"`
	Name                 string   `json:"name,omitempty"`
	GoodputBps           float64  `json:"goodput_bps"`
	HWGoodputBps         float64  `json:"hw_goodput_bps"`
	WireBps              float64  `json:"wire_bps"`
	Utilisation          *float64 `json:"utilisation"`
	CEShare              *float64 `json:"ce_share"`
	CNPRateHz            *float64 `json:"cnp_rate_hz"`
	Packets              int64    `json:"packets"`
	CEPackets            int64    `json:"ce_packets"`
	CNPs                 *int64   `json:"cnps"`
	RetransmittedPackets int64    `json:"retransmitted_packets"`
}

// Path is the loss between the upstream taps and the judged ones.
type Path struct {
	Flows   []PathFlow `json:"flows"`
	Data    PathCount  `json:"data"`
	Control PathCount  `json:"control"`
	Notes   []string   `json:"notes"`
}

// PathCount compares packets at both ends. Judged and lost are null where the judged taps do not see that
// destination at all.
type PathCount struct {
	UpstreamPackets int64  `json:"upstream_packets"`
	JudgedPackets   *int64 `json:"judged_packets"`
	LostPackets     *int64 `json:"lost_packets"`
}

// PathFlow is one direction of one QP: its data packets, and its control packets (ACK, NAK, CNP) apart.
type PathFlow struct {
	ID      string    `json:"id"`
	Src     string    `json:"src"`
	Dst     string    `json:"dst"`
	DstQP   uint32    `json:"dst_qp"`
	Data    PathCount `json:"data"`
	Control PathCount `json:"control"`
}

// Direction is what was seen on the wire from one address to one QP, whatever it carried: the raw counts behind
// the flows, all lives of the QP together.
type Direction struct {
	ID               string           `json:"id"`
	Src              string           `json:"src"`
	Dst              string           `json:"dst"`
	DstQP            uint32           `json:"dst_qp"`
	Lives            int              `json:"lives"`
	Packets          int64            `json:"packets"`
	CEPackets        int64            `json:"ce_packets"`
	Opcodes          map[string]int64 `json:"opcodes"`
	RequestPackets   int64            `json:"request_packets"`
	ResponsePackets  int64            `json:"response_packets"`
	UniquePSNs       int64            `json:"request_unique_psns"`
	DuplicatePackets int64            `json:"request_duplicate_psn_packets"`
	PSNFirst         uint32           `json:"psn_first"`
	PSNLast          uint32           `json:"psn_last"`
	PSNBackwardSteps int64            `json:"psn_backward_steps"`
	PSNGaps          int64            `json:"psn_gaps"`
	Acks             int64            `json:"acks"`
	NAKs             NAKs             `json:"naks"`
	CNPs             int64            `json:"cnps"`
	RETHBytes        int64            `json:"reth_bytes"`
	RETHCount        int64            `json:"reth_count"`
}

// Series holds numbers over time. Bin i of a flow begins at start_ns + (first_bin+i)*bin_ns.
type Series struct {
	BinNS   int64        `json:"bin_ns"`
	StartNS int64        `json:"start_ns"`
	Bins    int          `json:"bins"`
	Jain    []*float64   `json:"jain"` // per bin, over the flows that are active in it; null: none
	Flows   []FlowSeries `json:"flows"`
}

// FlowSeries is one flow over time. The arrays have the same length.
type FlowSeries struct {
	ID          string    `json:"id"`
	FirstBin    int       `json:"first_bin"`
	GoodputBps  []float64 `json:"goodput_bps"`
	SentBps     []float64 `json:"sent_bps"` // whole frames of data packets, retransmissions included
	Packets     []int64   `json:"packets"`
	CE          []int64   `json:"ce"`
	CNPs        []int64   `json:"cnps"` // null: the other direction was not captured
	Retransmits []int64   `json:"retransmits"`

	// Of the sender's handlers, where its NIC logged their invocations; null where it did not, or no handler sets it. A bin is null
	// before the first invocation, and acks_per_call where there was none.
	PacerRateBps []*float64 `json:"pacer_rate_bps"` // as built
	CwndBytes    []*float64 `json:"cwnd_bytes"`
	AcksPerCall  []*float64 `json:"acks_per_call"` // acknowledged packets that an invocation was told of, mean
}

// Verdicts of a check.
const (
	Pass = "pass"
	Fail = "fail"
	Skip = "skip"
)

// Check is one verdict with the rows that led to it.
type Check struct {
	Name    string     `json:"name"`
	Verdict string     `json:"verdict"`
	Reason  string     `json:"reason"`
	Rows    []CheckRow `json:"rows"` // the first MaxCheckRows
	More    int64      `json:"more"` // rows that were left out
}

// MaxCheckRows bounds the rows of a check.
const MaxCheckRows = 50

// CheckRow is one finding.
type CheckRow struct {
	Flow   string `json:"flow"` // empty: not about one flow
	TimeNS *int64 `json:"time_ns"`
	Detail string `json:"detail"`
}
