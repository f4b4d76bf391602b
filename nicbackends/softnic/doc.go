// Package softnic is a software RoCEv2 NIC: a daemon per host that speaks RC over UDP 4791, and the client with which
// processes of that host use it.
//
// The layers, each usable alone:
//
//	softnic          Serve (sockets, thread, clock), control, sysfs view, client (Verbs), Backend
//	softnic/engine   the NIC without IO: queue pairs, memory regions, DCQCN, line-rate pacing, counters, datagrams
//	softnic/qp       the RC queue pair machine
//	softnic/dcqcn    DCQCN notification and reaction point
package softnic
