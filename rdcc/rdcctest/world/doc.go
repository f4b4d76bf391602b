// Package world joins the two machines of RDCC over a network that does everything wrong, without sockets and clocks: events in
// virtual time, every decision drawn from a seed, or from a fuzzer's bytes.
//
//	Generate(seed) -> Scenario -> Run -> Result
//	                     ^                 | failed
//	                     +---- Shrink <----+          -> one line that replays what is left
//
// A [Scenario] is a value: hosts, messages, faults and what applications do, each of which can be taken out. Senders have a transport that asks
// Allowance before each packet, or hands what it may to a NIC that keeps the rate. Control datagrams are dropped, doubled,
// delayed, overtaken, damaged and forged, receivers forget everything, hosts are cut off, clocks differ and drift.
//
// What must hold is judged by oracles that see datagrams, packets and the time, and nothing of the machines' books: each recounts
// what grants that arrived allow ([senderOracle]), what may be on its way by the receiver's own datagrams ([receiverOracle]), and what
// really is on its way ([World]).
package world
