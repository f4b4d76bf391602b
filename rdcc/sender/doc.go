// Package sender is the sender's side of Receiver-Driven Credit Control as a machine without sockets, clocks or goroutines.
//
// Time, datagrams and what the data transport did go in; datagrams, events and what the transport may do come out:
//
//	         Submit, Cancel, Return            Event
//	application ------------>  +---------+  ------------> application
//	                           |         |
//	  Transmitted, RTTSample,  |         |  Allowance, Wait, DSCP
//	  Pause, SetRate ------>   | Machine |  ------------> data transport
//	                           |         |
//	         Receive, Advance  |         |  Poll, Deadline
//	RDCC port --------------> +---------+  ------------> RDCC port
//
// One Machine serves all receivers of a host, since the backlog threshold is over all of them (Sender Backlog Indication).
// The driver's loop: hand in what arrived, take what Poll and Event give, send data up to Allowance and say so with
// Transmitted at the same instant, sleep until Deadline or Wait.
//
// A message goes through the states of the specification's Sender Message State Machine; [State] has the picture. What the
// specification leaves open is settled by design/RDCC-DECISIONS.md, cited as "decision N". Durations of the protocol are
// those of [Timing], which scales with a virtual lab's time. Nothing here allocates per datagram once the machine has seen
// its largest load.
//
// It refuses to send without credit: a receiver that never answers is reported with [EventWithout], and what is then sent is
// the transport's own doing.
package sender
