// Package calls is the log of a handler's invocations, one line each, that a NIC keeps in its diagnostic mode and a run has in its
// folder: what made the handler run, how many acknowledgements it was given at once, and what it set.
//
// A Log is memory that was reserved before the traffic: adding to it costs some nanoseconds, no system call and no allocation. It is bound,
// and says when it was full. Written, it is gzipped CSV, which zcat and every table program read:
//
//	# pcmlab/handler-calls/v1 device=softnic0 src=192.0.2.11 calls=3 logged=3 cut_ns=0
//	t_ns,qpn,dst,dst_qp,handler,fired,acks,packets,window_bytes,rate_bps,pacer_bps,failed
//	1764492000000000000,18,192.0.2.14,20,swift,ACKED_BYTES,1,16,65536,,500000000,0
//
// Times are Unix times; rate_bps is what the handler set, in hardware terms; pacer_bps is what the queue pair is paced with, as built. An
// empty cell is a control that the handler does not set. fired are the signals whose triggers made it run; acks are acknowledgements, packets are those that they acknowledged.
package calls
