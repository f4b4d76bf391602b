// Package gate makes the traffic of a software NIC obey Receiver-Driven Credit Control without the applications knowing.
//
//	                    +-------------------- gate --------------------+
//	work requests ----> | a message each -> sender.Machine -> credit   | ----> barrier of the queue pair
//	arrived packets --> | the message they are of -> receiver.Receiver | ----> grants
//	                    +---------------- RDCC port -------------------+
//
// It is the RoCEv2 binding (Transport Bindings, decision 25): each WRITE or SEND is one RDCC message, bound to the peer's
// queue pair and to the message sequence number that the peer will give it, which is known when it is posted since a queue
// pair's messages are processed in order. A hardware NIC cannot stop inside an RDMA message; this one can, between packets,
// so a message is one RDMA message that goes as far as its credit does. Config.Segment makes it go in larger steps, as
// hardware would that was given several.
//
// A queue pair sends no faster than the smaller of its own congestion control and the Pacing Rate of the message whose turn
// it is (decision 26). Octets are told to the sender machine at the instant in which their packet leaves, and the machine is
// asked at that instant whether it may. What was sent once may be sent again.
//
// On the receiving side each packet's octets go to the message whose number the responder is at, so that what a peer sends
// without RDCC is never taken for what it sends with it.
//
// Like the engine it has no socket and no clock: the driver hands in datagrams of the RDCC port and times, and sends what Poll
// gives before it sends data.
package gate
