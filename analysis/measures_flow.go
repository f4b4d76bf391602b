package analysis

var flowMeasures = join([]measure[Flow]{
	{"packets", unitPackets, "data packets: requests and READ responses", func(f *Flow) any { return f.Packets }, ""},
	{"payload_bytes", unitBytes, "their payload", func(f *Flow) any { return f.PayloadBytes }, ""},
	{"unique_bytes", unitBytes, "payload of PSNs seen for the first time", func(f *Flow) any { return f.UniqueBytes }, ""},
	{"wire_bytes", unitBytes, "whole frames of the data packets", func(f *Flow) any { return f.WireBytes }, ""},
	{"goodput", unitBps, "unique payload over the time the flow was active", func(f *Flow) any { return f.GoodputBps }, ""},
	{"hw_goodput", unitBps, "what that stands for on hardware", func(f *Flow) any { return f.HWGoodputBps }, ""},
	{"operations.write", unitMessages, "WRITE messages whose last packet was seen", func(f *Flow) any { return f.Operations.Write }, ""},
	{"operations.send", unitMessages, "SEND messages", func(f *Flow) any { return f.Operations.Send }, ""},
	{"operations.read", unitMessages, "READ messages", func(f *Flow) any { return f.Operations.Read }, ""},
	{"operations.atomic", unitMessages, "atomics", func(f *Flow) any { return f.Operations.Atomic }, ""},
	{"ce_packets", unitPackets, "CE-marked data packets", func(f *Flow) any { return f.CEPackets }, ""},
	{"ect_packets", unitPackets, "ECT data packets without CE", func(f *Flow) any { return f.ECTPackets }, ""},
	{"ce_share", unitNone, "CE-marked data packets / data packets", func(f *Flow) any { return f.CEShare }, ""},
	{"acks", unitPackets, "positive acknowledgements of the flow", func(f *Flow) any { return f.Acks }, ""},
	{"cnps", unitPackets, "CNPs of the flow", func(f *Flow) any { return f.CNPs }, ""},
	{"cnp_rate", unitHz, "CNPs per second", func(f *Flow) any { return f.CNPRateHz }, ""},
	{"hw_cnp_rate", unitHz, "what that stands for on hardware", func(f *Flow) any { return f.HWCNPRateHz }, ""},
}, within("naks.", nakMeasures, func(f *Flow) *NAKs { return f.NAKs }), []measure[Flow]{
	{"retransmitted_packets", unitPackets, "retransmitted data packets", func(f *Flow) any { return f.RetransmittedPackets }, ""},
	{"retransmitted_bytes", unitBytes, "their payload", func(f *Flow) any { return f.RetransmittedBytes }, ""},
	{"selective_packets", unitPackets, "of those: resent alone", func(f *Flow) any { return f.SelectivePackets }, ""},
	{"duplicate_packets", unitPackets, "data packets whose PSN was seen before", func(f *Flow) any { return f.DuplicatePackets }, ""},
	{"out_of_order_packets", unitPackets, "came late, alone, into a gap", func(f *Flow) any { return f.OutOfOrderPackets }, ""},
	{"lost_before_tap", unitPackets, "PSNs jumped over that did not come late", func(f *Flow) any { return f.LostBeforeTap }, ""},
	{"missed_by_tap", unitPackets, "acknowledged, but never captured", func(f *Flow) any { return f.MissedByTap }, ""},
},
	latency("rtt", unitNS, "from request to acknowledgement", func(f *Flow) *Latency { return &f.RTTNS }),
	latency("hw_rtt", unitNS, "what that stands for on hardware", func(f *Flow) *Latency { return &f.HWRTTNS }),
	messages("message", "completion time of messages", func(f *Flow) *Messages { return &f.MessageNS }),
	messages("hw_message", "what that stands for on hardware", func(f *Flow) *Messages { return &f.HWMessageNS }),
	messages("completion.write", "completion time of WRITEs", func(f *Flow) *Messages { return f.CompletionNS.Write }),
	messages("completion.send", "completion time of SENDs", func(f *Flow) *Messages { return f.CompletionNS.Send }),
	messages("completion.read", "completion time of READs", func(f *Flow) *Messages { return f.CompletionNS.Read }),
	messages("completion.atomic", "completion time of atomics", func(f *Flow) *Messages { return f.CompletionNS.Atomic }),
	latency("cnp_gap", unitNS, "between one CNP of the flow and the next", func(f *Flow) *Latency { return &f.CNPGapNS }),
	latency("cnp_delay", unitNS, "from the first CE mark without an answer to the CNP", func(f *Flow) *Latency { return &f.CNPDelayNS }),
	within("reaction.", reactionMeasures, func(f *Flow) *Reaction { return f.Reaction }),
	bursts("burst", "runs of data packets without a gap", func(f *Flow) *Bursts { return &f.Bursts }),
	within("recovery.", recoverySummary, func(f *Flow) *Recovery { return f.Recovery }),
)

var nakMeasures = []measure[NAKs]{
	{"sequence", unitPackets, "NAKs: PSN sequence error", func(n *NAKs) any { return n.Sequence }, ""},
	{"rnr", unitPackets, "receiver not ready", func(n *NAKs) any { return n.RNR }, ""},
	{"invalid", unitPackets, "invalid request", func(n *NAKs) any { return n.Invalid }, ""},
	{"access", unitPackets, "remote access error", func(n *NAKs) any { return n.Access }, ""},
	{"remote", unitPackets, "remote operational error", func(n *NAKs) any { return n.Remote }, ""},
	{"invalid_rd", unitPackets, "invalid RD request", func(n *NAKs) any { return n.InvalidRequest }, ""},
	{"other", unitPackets, "other codes", func(n *NAKs) any { return n.Other }, ""},
}

var reactionMeasures = join([]measure[Reaction]{
	{"window", unitNS, "window in which rates are taken", func(r *Reaction) any { return r.WindowNS }, ""},
	{"episodes", unitNone, "CNPs that began an episode", func(r *Reaction) any { return r.Episodes }, ""},
	{"cut", unitNone, "episodes in which the rate fell", func(r *Reaction) any { return r.Cut }, ""},
	{"no_cut", unitNone, "episodes in which it did not", func(r *Reaction) any { return r.NoCut }, ""},
	{"recovered", unitNone, "cut, and back", func(r *Reaction) any { return r.Recovered }, ""},
	{"interrupted", unitNone, "cut, and CNPs came again before it was back", func(r *Reaction) any { return r.Interrupted }, ""},
	{"unfinished", unitNone, "still going on at the end", func(r *Reaction) any { return r.Unfinished }, ""},
},
	rates("before", "rate before the CNP, of cut episodes", func(r *Reaction) *Rates { return r.BeforeBps }),
	rates("lowest", "lowest rate after it, of cut episodes", func(r *Reaction) *Rates { return r.LowestBps }),
	latency("recover", unitNS, "from the CNP to the rate being back", func(r *Reaction) *Latency { return &r.RecoverNS }),
)

var recoverySummary = join([]measure[Recovery]{
	{"restarts", unitNone, "go-back-N restarts", func(r *Recovery) any { return r.Restarts }, ""},
	{"by_nak", unitNone, "of those: after a NAK", func(r *Recovery) any { return r.ByNAK }, ""},
	{"by_rnr", unitNone, "after an RNR NAK", func(r *Recovery) any { return r.ByRNR }, ""},
	{"by_timeout", unitNone, "no NAK was seen", func(r *Recovery) any { return r.ByTimeout }, ""},
	{"selective", unitPackets, "packets resent alone", func(r *Recovery) any { return r.Selective }, ""},
	{"rnr_wait", unitNS, "waited for receivers that were not ready", func(r *Recovery) any { return r.RNRWaitNS }, ""},
}, latency("delay", unitNS, "from the NAK to the first packet sent again", func(r *Recovery) *Latency { return &r.DelayNS }))

var recoveryMeasures = []measure[RecoveryEvent]{
	{"packets", unitPackets, "sent again in this restart; its first packet is the time", func(r *RecoveryEvent) any { return r.Packets }, ""},
	{"skipped", unitPackets, "numbers that were not sent again", func(r *RecoveryEvent) any { return r.Skipped }, ""},
	{"delay", unitNS, "from the NAK", func(r *RecoveryEvent) any { return r.DelayNS }, ""},
	{"nak_psn", unitNone, "PSN that the NAK named", func(r *RecoveryEvent) any { return r.NAKPSN }, ""},
	{"from_psn", unitNone, "where the sender went on", func(r *RecoveryEvent) any { return r.FromPSN }, ""},
	{"high_psn", unitNone, "the highest it had sent", func(r *RecoveryEvent) any { return r.HighPSN }, ""},
}

var fileMeasures = []measure[File]{
	{"packets", unitPackets, "records", func(f *File) any { return f.Packets }, ""},
	{"roce_packets", unitPackets, "RoCEv2 packets, copies included", func(f *File) any { return f.RoCEPackets }, ""},
	{"bytes", unitBytes, "frames as they were on the wire", func(f *File) any { return f.Bytes }, ""},
	{"duration", unitNS, "from its first record, the time, to its last", func(f *File) any {
		if f.FirstNS == nil || f.LastNS == nil {
			return nil
		}
		return *f.LastNS - *f.FirstNS
	}, ""},
	{"truncated_at", unitBytes, "offset of the cut", func(f *File) any { return f.TruncatedAt }, ""},
	{"out_of_order", unitPackets, "records older than the one before", func(f *File) any { return f.OutOfOrder }, ""},
	{"drops", unitPackets, "by the file's own statistics", func(f *File) any { return f.Drops }, ""},
}

var interfaceMeasures = []measure[Interface]{
	{"snaplen", unitBytes, "snap length", func(f *Interface) any { return f.Snaplen }, ""},
	{"packets", unitPackets, "records", func(f *Interface) any { return f.Packets }, ""},
	{"drops", unitPackets, "by the file's own statistics", func(f *Interface) any { return f.Drops }, ""},
}

var directionMeasures = join([]measure[Direction]{
	{"lives", unitNone, "lives of the QP", func(d *Direction) any { return d.Lives }, ""},
	{"packets", unitPackets, "RoCEv2 packets", func(d *Direction) any { return d.Packets }, ""},
	{"ce_packets", unitPackets, "CE-marked", func(d *Direction) any { return d.CEPackets }, ""},
	{"request_packets", unitPackets, "requests", func(d *Direction) any { return d.RequestPackets }, ""},
	{"response_packets", unitPackets, "responses", func(d *Direction) any { return d.ResponsePackets }, ""},
	{"unique_psns", unitPackets, "PSNs of requests, each once", func(d *Direction) any { return d.UniquePSNs }, ""},
	{"duplicate_psn_packets", unitPackets, "requests whose PSN was seen before", func(d *Direction) any { return d.DuplicatePackets }, ""},
	{"psn_first", unitNone, "first PSN of requests", func(d *Direction) any { return d.PSNFirst }, ""},
	{"psn_last", unitNone, "last PSN of requests", func(d *Direction) any { return d.PSNLast }, ""},
	{"psn_backward_steps", unitNone, "steps back", func(d *Direction) any { return d.PSNBackwardSteps }, ""},
	{"psn_gaps", unitNone, "numbers jumped over", func(d *Direction) any { return d.PSNGaps }, ""},
	{"acks", unitPackets, "positive acknowledgements", func(d *Direction) any { return d.Acks }, ""},
	{"cnps", unitPackets, "CNPs", func(d *Direction) any { return d.CNPs }, ""},
	{"reth_bytes", unitBytes, "sum of RETH lengths", func(d *Direction) any { return d.RETHBytes }, ""},
	{"reth_count", unitPackets, "packets with a RETH", func(d *Direction) any { return d.RETHCount }, ""},
}, within("naks.", nakMeasures, func(d *Direction) *NAKs { return &d.NAKs }))

var scopeMeasures = join([]measure[CNPScope]{
	{"groups", unitNone, "groups of CNPs at this scope", func(s *CNPScope) any { return s.Groups }, ""},
}, latency("gap", unitNS, "between CNPs within a group", func(s *CNPScope) *Latency { return &s.GapNS }))

var cnpCountMeasures = join([]measure[CNPCount]{
	{"cnps", unitPackets, "CNPs", func(c *CNPCount) any { return c.CNPs }, ""},
	{"rate", unitHz, "CNPs per second", func(c *CNPCount) any { return c.RateHz }, ""},
}, latency("gap", unitNS, "between one CNP and the next", func(c *CNPCount) *Latency { return &c.GapNS }))

var receiverMeasures = join([]measure[QueueAt]{
	{"gap", unitNS, "a longer gap ends a busy period", func(q *QueueAt) any { return q.GapNS }, ""},
	{"busy_share", unitNone, "busy share of the time", func(q *QueueAt) any { return q.BusyShare }, ""},
}, latency("busy", unitNS, "length of busy periods", func(q *QueueAt) *Latency { return &q.BusyNS }),
	bursts("busy_bytes", "busy periods", func(q *QueueAt) *Bursts { return &q.BusyBytes }),
	within("queue_", []measure[Queue]{
		{"p50", unitBytes, "queue that a port of the link's rate would have built, over arrivals", func(q *Queue) any { return q.P50 }, "STAT"},
		{"p99", unitBytes, "queue that a port of the link's rate would have built, over arrivals", func(q *Queue) any { return q.P99 }, "STAT"},
		{"max", unitBytes, "queue that a port of the link's rate would have built, over arrivals", func(q *Queue) any { return q.Max }, "STAT"},
	}, func(q *QueueAt) *Queue { return q.QueueBytes }))

var pauseMeasures = []measure[PausedPort]{
	{"pause_frames", unitPackets, "frames that asked for a pause", func(p *PausedPort) any { return p.PauseFrames }, ""},
	{"resume_frames", unitPackets, "frames that ended one", func(p *PausedPort) any { return p.ResumeFrames }, ""},
	{"pauses", unitNone, "times it stopped", func(p *PausedPort) any { return p.Pauses }, ""},
	{"paused", unitNS, "time paused", func(p *PausedPort) any { return p.PausedNS }, ""},
	{"longest", unitNS, "longest pause", func(p *PausedPort) any { return p.LongestNS }, ""},
	{"duration", unitNS, "from its first frame, the time, to its last", func(p *PausedPort) any { return p.LastNS - p.FirstNS }, ""},
}

var connectionMeasures = []measure[Connection]{
	{"src_qp", unitNone, "QP of who asked; its request is the time", func(c *Connection) any { return c.SrcQP }, ""},
	{"dst_qp", unitNone, "QP of who was asked", func(c *Connection) any { return c.DstQP }, ""},
	{"src_psn", unitNone, "where the requests of src start", func(c *Connection) any { return c.SrcPSN }, ""},
	{"dst_psn", unitNone, "where the requests of dst start", func(c *Connection) any { return c.DstPSN }, ""},
	{"reject_reason", unitNone, "reason of the rejection", func(c *Connection) any { return c.RejectReason }, ""},
	{"setup", unitNS, "from REQ to RTU", func(c *Connection) any { return c.SetupNS }, ""},
	{"lifetime", unitNS, "from REQ to the disconnect", func(c *Connection) any {
		if c.RequestNS == nil || c.DisconnectNS == nil {
			return nil
		}
		return *c.DisconnectNS - *c.RequestNS
	}, ""},
}

var pathMeasures = []measure[PathCount]{
	{"upstream_packets", unitPackets, "seen by the upstream taps", func(p *PathCount) any { return p.UpstreamPackets }, ""},
	{"judged_packets", unitPackets, "seen by the judged taps", func(p *PathCount) any { return p.JudgedPackets }, ""},
	{"lost_packets", unitPackets, "lost between", func(p *PathCount) any { return p.LostPackets }, ""},
}
