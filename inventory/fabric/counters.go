package fabric

// CountersSchema names the document.
const CountersSchema = "pcmlab/fabric-counters/v1"

// Counters is one consistent snapshot: all values are of the same instant of virtual time. They are cumulative since
// the start, except the peaks' and lateness's reset by request and the queued values, which are the present ones.
//
// Conservation holds exactly, in packets and bytes: for each port offered = tx + dropped + queued, and over the switch
// the sum of rx plus replicated = the sum of offered plus filtered.
type Counters struct {
	Schema    string  `json:"schema"`
	Name      string  `json:"name"`
	TimeScale float64 `json:"time_scale"`

	IO       IO     `json:"io"`
	Syscalls uint64 `json:"syscalls"` // of the data path's thread
	WallNS   int64  `json:"wall_ns"`  // since the first packet could flow
	CPUNS    int64  `json:"cpu_ns"`   // user and system time of the data path's thread

	Ports   []PortCounters   `json:"ports"`
	Mirrors []MirrorCounters `json:"mirrors"`

	BufferBytes       int64  `json:"buffer_bytes"` // size of the shared buffer
	QueuedBytes       int64  `json:"queued_bytes"` // in all egress queues
	PeakQueuedBytes   int64  `json:"peak_queued_bytes"`
	ReplicatedPackets uint64 `json:"replicated_packets"` // copies made by flooding beyond the first
	ReplicatedBytes   uint64 `json:"replicated_bytes"`
	FilteredPackets   uint64 `json:"filtered_packets"` // not forwarded: destination behind the same port, nobody there, reserved address, runt
	FilteredBytes     uint64 `json:"filtered_bytes"`

	Lateness Lateness `json:"lateness_ns"`
	Stalls   uint64   `json:"stalls"`   // times the driver was later than the catch-up bound
	StallNS  int64    `json:"stall_ns"` // by how much virtual time was held back in all
}

// PortCounters are those of one port; rx is from the host, tx towards it.
type PortCounters struct {
	Name string `json:"name"`

	RxPackets      uint64 `json:"rx_packets"` // arrived at the switch
	RxBytes        uint64 `json:"rx_bytes"`
	OfferedPackets uint64 `json:"offered_packets"` // forwarded to this port: sent, dropped or still queued
	OfferedBytes   uint64 `json:"offered_bytes"`
	TxPackets      uint64 `json:"tx_packets"` // departed
	TxBytes        uint64 `json:"tx_bytes"`
	DroppedPackets uint64 `json:"dropped_packets"` // at the tail of this port's egress queue
	DroppedBytes   uint64 `json:"dropped_bytes"`

	CEMarkedPackets uint64 `json:"ce_marked_packets"` // ECT packets that this port's queue changed to CE
	TxCEPackets     uint64 `json:"tx_ce_packets"`     // departed with CE, whoever marked them

	RxRoCEPackets      uint64 `json:"rx_roce_packets"` // UDP destination port 4791
	TxRoCEPackets      uint64 `json:"tx_roce_packets"`
	DroppedRoCEPackets uint64 `json:"dropped_roce_packets"`

	QueuedPackets  uint64 `json:"queued_packets"`
	QueuedBytes    uint64 `json:"queued_bytes"`
	PeakQueueBytes uint64 `json:"peak_queue_bytes"`

	IngressQueuedBytes     uint64 `json:"ingress_queued_bytes"` // on the host's link, not yet at the switch
	PeakIngressQueuedBytes uint64 `json:"peak_ingress_queued_bytes"`

	OversizePackets    uint64 `json:"oversize_packets"`    // longer than max_frame_bytes, dropped before rx
	UndeliveredPackets uint64 `json:"undelivered_packets"` // departed, but the host's interface did not take them
	Down               bool   `json:"down,omitempty"`      // its descriptor is gone

	// RxLostPackets were sent by the host, but the fabric did not read them in time and the kernel dropped them before
	// rx. Null for TAP devices: there the host's interface counts them (tx_dropped).
	RxLostPackets *uint64 `json:"rx_lost_packets"`
}

// MirrorCounters are those of one mirror.
type MirrorCounters struct {
	Name    string `json:"name"`
	Packets uint64 `json:"packets"` // copies taken by the mirror's interface
	Lost    uint64 `json:"lost"`    // copies that it did not take
}

// Lateness is how late packets were handed to the kernel; the percentiles are null without samples, exact to 3 %.
type Lateness struct {
	P50     *int64 `json:"p50"`
	P99     *int64 `json:"p99"`
	Max     *int64 `json:"max"`
	Samples uint64 `json:"samples"`
}

// Port finds a port's counters by name, or nil.
func (c Counters) Port(name string) *PortCounters {
	for i := range c.Ports {
		if c.Ports[i].Name == name {
			return &c.Ports[i]
		}
	}
	return nil
}

// Mirror finds a mirror's counters by name, or nil.
func (c Counters) Mirror(name string) *MirrorCounters {
	for i := range c.Mirrors {
		if c.Mirrors[i].Name == name {
			return &c.Mirrors[i]
		}
	}
	return nil
}
