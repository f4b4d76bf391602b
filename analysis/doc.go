// Package analysis is the judge: it reads captures of RoCEv2 traffic in one pass and says what happened.
//
//	capture files ──merge by time──> decode ──> flow engine ──> Document ("pcmlab/analysis/v1")
//	  (judged taps)                              │ PSN tracking, pairing, RTT, bins, phases
//	  (upstream taps) ──> counts per flow ───────┘ loss between taps
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
// docs/analysis.md defines every field.
package analysis
