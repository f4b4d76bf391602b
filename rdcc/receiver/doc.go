// Package receiver is the receiver's side of Receiver-Driven Credit Control: a machine that admits associations, bounds
// the octets that all senders together may have in flight, and decides which message gets credit and at what rate.
//
// The machine has no clock, socket, goroutine or logger. The caller gives it the time of a monotonic clock with each call,
// the datagrams of the RDCC port and what the data transport received, and takes away datagrams and events:
//
//	r, err := receiver.New(receiver.Config{Fabric: fabric})
//	r.Receive(now, from, datagram)                    // control
//	r.Data(now, assoc, receiver.Arrival{...})         // data, counted by the transport binding
//	if at, ok := r.Deadline(); ok && at <= now { r.Advance(now) }
//	for { out, ok := r.Poll(buf[:0]); ... }           // to be sent
//	for { ev, ok := r.Event(); ... }                  // for the transport and the application
//
// # Accounts
//
// Each octet that may arrive is charged once, to G_u while it is unscheduled and to G_s once it is granted (decision 3):
//
//	CREDIT_REQUEST, unscheduled  ->  G_u  --grant moves the rest-->  G_s  <--  CREDIT_GRANT
//	                                  |                               |
//	                                  +--- arrival, release time -----+--- arrival, reclaim time, return, cancel
//
// The sum never exceeds G. What is free goes to waiting messages by class, deadline and weight ([Config] has the bounds),
// each with a pacing rate such that the live rates together stay within the access link (decision 17).
//
// # Work
//
// An event costs the same however many associations there are: messages wait in a heap per association, associations in a
// heap by their first message, timers in wheels, rates are brought up to date when they are looked at. In the steady state
// nothing is allocated.
//
// A Receiver is not safe for concurrent use.
package receiver
