// Package analysis is the judge: it reads captures of RoCEv2 traffic in one pass and says what happened.
//
//	capture files ──> source ──> order ──> lanes ──> Document ("pcmlab/analysis/v1")
//
// The smallest use:
//
//	doc, err := analysis.Run(ctx, []analysis.Input{{Path: "r1.pcapng"}}, analysis.Options{})
//
// Memory is bounded by the number of flows, never by the length of the capture, and nothing is allocated per
// packet. A number that was not measured is null, never zero.
//
// The package knows nothing of SSH, playbooks or terminals. It refuses to guess: a flow whose acknowledgements were
// not captured has no round-trip time, and a capture without RoCE packets while NIC counters moved is "blind".
//
// Where to find what, in the order in which a packet passes:
//
//	run, pipeline           who does what on how many goroutines
//	source, record, intern  a file's packets become records of a cache line
//	order, dedup            one sequence by time; copies of mirrors go; what looks at all flows together:
//	  pause, scopes, pacing, arrivals
//	lane, direction         a flow's books; join finds who answers whom, cm what handshakes say
//	  psn, disorder, recovery    sequence numbers, losses, resends
//	  messages, deque            completion times
//	  reaction, clock, tally, hist, distributions
//	finish, flow, series, phases, converge, path, quality    the books become the document
//	checks*                 verdicts on the finished document
//	document*, options      what goes in and comes out
//	tables*, rows, measures*, parquet/, report/    the document as tables, long form, page
//
// docs/analysis.md and docs/analysis-congestion.md define every field.
package analysis
