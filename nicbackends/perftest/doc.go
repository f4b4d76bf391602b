// Package perftest knows the traffic tool ib_write_bw (and ib_send_bw, ib_read_bw): how it is started, when it is
// ready, what its output says, why it failed. It drives the real tool on hosts with RDMA NICs and carries a tool of
// the same face, Tool, for hosts whose NIC is the software NIC.
//
//	Params --Args--> argv --Session over remote.Host--> Side (stdout, stderr, code, times)
//	                                                     |
//	                              Parse: Output{Rows}  <-+->  Classify: Failure{Class, Cause, Fix}
//
// A result counts only when the tool exited with 0, its output was understood and bytes did flow. A peak of 0.00 is
// "not measured". The package does not know playbooks, captures or namespaces.
package perftest
