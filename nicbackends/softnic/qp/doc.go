// Package qp is the RC queue pair as a sans-IO machine (IBTA volume 1, chapter 9): packets, work requests and times go
// in; packets, completions and a deadline come out. Nothing inside reads a clock, starts a goroutine or touches memory
// other than through Memory, so one seed replays a run.
//
//	       Connect              fatal NAK sent or received,
//	INIT ----------> READY ------------------------------> ERROR (all work is flushed)
//	                           retries exceeded, Fail
//
// A driver calls Receive for each packet, Post for work, then Next until it returns false, then waits until Deadline
// or the next event. Tick is part of Next.
//
// What it does not do: UC, UD, READ and atomics (a request for them is answered with an invalid-request NAK), end-to-end
// credits (the credit field says "none kept", as NICs do that answer with RNR NAKs), path migration.
package qp
