package counters

import (
	"strconv"
	"strings"
)

// Scope is what a counter counts for: more than one flow passes a port, so that none of them is of one flow.
type Scope string

// The scopes.
const (
	OfDevice    Scope = "device"    // all ports of an RDMA device
	OfPort      Scope = "port"      // one port of an RDMA device
	OfInterface Scope = "interface" // a network interface, everything that passes it
	OfPriority  Scope = "priority"  // one priority of an interface
	OfQueue     Scope = "queue"     // a queueing discipline
)

// meaning is a name of ours, and what it is called elsewhere. A # stands for a priority, 0 to 7. The first alternative that is
// there as a whole counts, so that nothing is counted twice.
type meaning struct {
	name, unit string
	from       []alternative
}

type alternative struct {
	source Source
	scope  Scope
	raw    []string // added up
	times  uint64   // unit of the source in units of ours; 0 means 1
}

func alt(source Source, scope Scope, raw ...string) alternative {
	return alternative{source: source, scope: scope, raw: raw}
}

// meanings are taken from the drivers: mlx5 (drivers/infiniband/hw/mlx5/counters.c, drivers/net/ethernet/mellanox/mlx5/core/en_stats.c),
// bnxt (bnxt_re/hw_counters.c, bnxt_ethtool.c), ionic (ionic_stats.c and its RDMA statistics), rxe (rxe_hw_counters.c). Drivers of one
// vendor rename theirs: bnxt_re outside the kernel calls tx_cnp_pkts np_cnp_sent.
var meanings = []meaning{
	{"tx_roce_packets", "packets", []alternative{alt(HWCounters, OfPort, "tx_roce_packets"), alt(HWCounters, OfPort, "sent_pkts"), alt(HWCounters, OfPort, "tx_roce_only_pkts"),
		alt(HWCounters, OfPort, "tx_rdma_ucast_pkts"), alt(Ethtool, OfInterface, "tx_vport_rdma_unicast_packets"), alt(PortCounters, OfPort, "port_xmit_packets")}},
	{"rx_roce_packets", "packets", []alternative{alt(HWCounters, OfPort, "rx_roce_packets"), alt(HWCounters, OfPort, "rcvd_pkts"), alt(HWCounters, OfPort, "rx_roce_only_pkts"),
		alt(HWCounters, OfPort, "rx_rdma_ucast_pkts"), alt(Ethtool, OfInterface, "rx_vport_rdma_unicast_packets"), alt(PortCounters, OfPort, "port_rcv_packets")}},
	// Data counters of ports are in words of 32 bits (IBTA volume 1, PortXmitData).
	{"tx_roce_bytes", "bytes", []alternative{alt(HWCounters, OfPort, "tx_roce_bytes"), alt(HWCounters, OfPort, "tx_roce_only_bytes"), alt(HWCounters, OfPort, "tx_rdma_ucast_bytes"),
		alt(Ethtool, OfInterface, "tx_vport_rdma_unicast_bytes"), {PortCounters, OfPort, []string{"port_xmit_data"}, 4}}},
	{"rx_roce_bytes", "bytes", []alternative{alt(HWCounters, OfPort, "rx_roce_bytes"), alt(HWCounters, OfPort, "rx_roce_only_bytes"), alt(HWCounters, OfPort, "rx_rdma_ucast_bytes"),
		alt(Ethtool, OfInterface, "rx_vport_rdma_unicast_bytes"), {PortCounters, OfPort, []string{"port_rcv_data"}, 4}}},

	{"cnp_sent", "packets", []alternative{alt(HWCounters, OfPort, "np_cnp_sent"), alt(HWCounters, OfPort, "tx_cnp_pkts"), alt(HWCounters, OfPort, "tx_rdma_cnp_pkts")}},
	{"cnp_received", "packets", []alternative{alt(HWCounters, OfPort, "rx_cnp_pkts"), alt(HWCounters, OfPort, "rx_rdma_cnp_pkts"), alt(HWCounters, OfPort, "rp_cnp_handled", "rp_cnp_ignored")}},
	{"ecn_marked_received", "packets", []alternative{alt(HWCounters, OfPort, "np_ecn_marked_roce_packets"), alt(HWCounters, OfPort, "rx_ecn_marked_pkts"), alt(HWCounters, OfPort, "rx_rdma_ecn_pkts")}},
	{"out_of_sequence", "packets", []alternative{alt(HWCounters, OfPort, "out_of_sequence"), alt(HWCounters, OfPort, "out_of_seq_request"), alt(HWCounters, OfPort, "oos_drop_count"), alt(HWCounters, OfPort, "resp_rx_outouf_seq")}},
	{"nak_sequence_received", "packets", []alternative{alt(HWCounters, OfPort, "packet_seq_err"), alt(HWCounters, OfPort, "rcvd_seq_err"), alt(HWCounters, OfPort, "seq_err_naks_rcvd"), alt(HWCounters, OfPort, "req_rx_pkt_seq_err")}},
	{"nak_rnr_received", "packets", []alternative{alt(HWCounters, OfPort, "rcvd_rnr_err"), alt(HWCounters, OfPort, "rnr_naks_rcvd"), alt(HWCounters, OfPort, "rnr_nak_retry_err"), alt(HWCounters, OfPort, "req_rx_rnr_retry_err")}},
	{"duplicate_requests", "packets", []alternative{alt(HWCounters, OfPort, "duplicate_request"), alt(HWCounters, OfPort, "dup_req"), alt(HWCounters, OfPort, "resp_rx_dup_request")}},
	{"ack_timeouts", "events", []alternative{alt(HWCounters, OfPort, "local_ack_timeout_err"), alt(HWCounters, OfPort, "to_retransmits"), alt(HWCounters, OfPort, "tx_rdma_ack_timeout")}},
	{"retries_exceeded", "events", []alternative{alt(HWCounters, OfPort, "retry_exceeded_err"), alt(HWCounters, OfPort, "max_retry_exceeded"), alt(HWCounters, OfPort, "req_tx_retry_excd_err")}},
	{"receive_buffer_missing", "packets", []alternative{alt(HWCounters, OfPort, "out_of_buffer"), alt(HWCounters, OfPort, "rx_out_of_buffer"), alt(HWCounters, OfPort, "resp_rx_outof_buf")}},
	{"icrc_errors", "packets", []alternative{alt(HWCounters, OfPort, "rx_icrc_encapsulated"), alt(HWCounters, OfPort, "rx_icrc_errors")}},
	{"roce_discards_received", "packets", []alternative{alt(HWCounters, OfPort, "rx_roce_discards")}},

	{"pause_received_prio#", "frames", []alternative{alt(Ethtool, OfPriority, "rx_prio#_pause"), alt(Ethtool, OfPriority, "rx_pfc_ena_frames_pri#"), alt(Ethtool, OfPriority, "frames_rx_pripause#"), alt(Ethtool, OfPriority, "frames_rx_pripause_#")}},
	{"pause_sent_prio#", "frames", []alternative{alt(Ethtool, OfPriority, "tx_prio#_pause"), alt(Ethtool, OfPriority, "tx_pfc_ena_frames_pri#"), alt(Ethtool, OfPriority, "frames_tx_pripause#"), alt(Ethtool, OfPriority, "frames_tx_pripause_#")}},
	{"paused_us_prio#", "us", []alternative{alt(Ethtool, OfPriority, "rx_prio#_pause_duration"), alt(Ethtool, OfPriority, "pfc_pri#_rx_duration_us")}},
	{"pause_received", "frames", []alternative{alt(Ethtool, OfInterface, "rx_pause_ctrl_phy"), alt(Ethtool, OfInterface, "rx_pause_frames"), alt(Ethtool, OfInterface, "frames_rx_pause")}},
	{"pause_sent", "frames", []alternative{alt(Ethtool, OfInterface, "tx_pause_ctrl_phy"), alt(Ethtool, OfInterface, "tx_pause_frames"), alt(Ethtool, OfInterface, "frames_tx_pause")}},
	{"tx_packets_prio#", "packets", []alternative{alt(Ethtool, OfPriority, "tx_prio#_packets"), alt(Ethtool, OfPriority, "tx_packets_pri#"), alt(Ethtool, OfPriority, "frames_tx_pri_#"), alt(Ethtool, OfPriority, "frames_tx_pri#")}},
	{"rx_packets_prio#", "packets", []alternative{alt(Ethtool, OfPriority, "rx_prio#_packets"), alt(Ethtool, OfPriority, "rx_packets_pri#"), alt(Ethtool, OfPriority, "frames_rx_pri_#"), alt(Ethtool, OfPriority, "frames_rx_pri#")}},
	{"tx_bytes_prio#", "bytes", []alternative{alt(Ethtool, OfPriority, "tx_prio#_bytes"), alt(Ethtool, OfPriority, "tx_bytes_pri#")}},
	{"rx_bytes_prio#", "bytes", []alternative{alt(Ethtool, OfPriority, "rx_prio#_bytes"), alt(Ethtool, OfPriority, "rx_bytes_pri#")}},
	{"rx_discards_prio#", "packets", []alternative{alt(Ethtool, OfPriority, "rx_prio#_discards")}},

	{"netdev_tx_packets", "packets", []alternative{alt(Netdev, OfInterface, "tx_packets")}},
	{"netdev_rx_packets", "packets", []alternative{alt(Netdev, OfInterface, "rx_packets")}},
	{"netdev_tx_bytes", "bytes", []alternative{alt(Netdev, OfInterface, "tx_bytes")}},
	{"netdev_rx_bytes", "bytes", []alternative{alt(Netdev, OfInterface, "rx_bytes")}},
	{"netdev_tx_dropped", "packets", []alternative{alt(Netdev, OfInterface, "tx_dropped")}},
	{"netdev_rx_dropped", "packets", []alternative{alt(Netdev, OfInterface, "rx_dropped")}},
}

// Named gives the changes of a NIC under names of ours: those of its RDMA device and port ("mlx5_0/1", "" for none) and of its
// interface. A counter whose parts are not all known has the kind of the worst of them.
func Named(changes []Change, device, netdev string) []Change {
	type key struct {
		source Source
		raw    string
	}
	have := map[key]*Change{}
	for i := range changes {
		c := &changes[i]
		of := c.Object == netdev
		if c.Source == HWCounters || c.Source == PortCounters {
			of = c.Object == device
		}
		if of && c.Object != "" {
			have[key{c.Source, c.Name}] = c
		}
	}
	var out []Change
	one := func(m meaning, prio string) {
		for _, a := range m.from {
			var parts []*Change
			for _, raw := range a.raw {
				if c := have[key{a.source, strings.Replace(raw, "#", prio, 1)}]; c != nil {
					parts = append(parts, c)
				}
			}
			if len(parts) == len(a.raw) {
				out = append(out, joined(strings.Replace(m.name, "#", prio, 1), m.unit, a, parts))
				return
			}
		}
	}
	for _, m := range meanings {
		if !strings.Contains(m.name, "#") {
			one(m, "")
			continue
		}
		for p := range 8 {
			one(m, strconv.Itoa(p))
		}
	}
	return out
}

// joined is a counter of ours from its parts.
func joined(name, unit string, a alternative, parts []*Change) Change {
	c := Change{Name: name, Unit: unit, Source: a.source, Scope: a.scope, Object: parts[0].Object, Kind: Counted}
	times := max(a.times, 1)
	var before, after uint64
	var growth int64
	whole := [3]bool{true, true, true}
	for _, p := range parts {
		c.Raw = append(c.Raw, p.Name)
		if worse(p.Kind, c.Kind) {
			c.Kind, c.Why = p.Kind, p.Why
		}
		if whole[0] = whole[0] && p.Before != nil; whole[0] {
			before += *p.Before * times
		}
		if whole[1] = whole[1] && p.After != nil; whole[1] {
			after += *p.After * times
		}
		if whole[2] = whole[2] && p.Growth != nil; whole[2] {
			growth += *p.Growth * int64(times)
		}
	}
	if whole[0] {
		c.Before = &before
	}
	if whole[1] {
		c.After = &after
	}
	if whole[2] {
		c.Growth = &growth
	}
	return c
}

func worse(a, b Kind) bool {
	rank := map[Kind]int{Counted: 0, Wrapped: 1, Saturated: 2, Reset: 3, Absent: 4}
	return rank[a] > rank[b]
}
