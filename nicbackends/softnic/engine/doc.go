// Package engine is a software RoCEv2 NIC without IO: queue pairs, memory regions, DCQCN, pacing at the line rate,
// counters, and datagrams with their ICRC. Datagrams and times go in and out; the driver has sockets and a clock.
//
// All that waits for a time hangs in one heap of queue pairs, ordered by deadline: an owed acknowledgement or CNP is
// due at once, data at its slot, timers when they end. Transmit takes the first and does what is due there.
//
// Departure is in virtual time: a data packet leaves at the later of its queue pair's slot and the time the port is
// free, whenever the driver's thread woke, so that rates do not depend on how late it was.
package engine
