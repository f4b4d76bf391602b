// Package endpoint runs both machines of RDCC over one UDP port of a host, and joins them to the transports that carry the
// messages.
//
//	                +-------------------------- Endpoint, one goroutine -------------+
//	RDCC port  <--> | udp.Socket <--> sender.Machine, receiver.Receiver <--> Host    |
//	                |                                                          ^     |
//	                |                                     Transport <----------+     | <--> data
//	                +-----------------------------------------------------------------+
//	application --> Send, Do                 Options.Accept, Outgoing.Ended --> application
//
// Each round takes what has arrived (recvmmsg), lets the machines do what is due, gives transports what they may transmit,
// sends all that came of it (sendmmsg), and waits until the next deadline; a deadline nearer than Options.Spin is waited for
// awake, since a sleep of a few microseconds ends tens of microseconds late.
//
// The endpoint never answers from another address than it was asked at, so that a host with several serves on all of them.
// It drops privileges once its ports are open (User), and tells what it counts on a loopback address (Metrics).
package endpoint
