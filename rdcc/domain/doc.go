// Package domain is what configures Receiver-Driven Credit Control in a limited domain, in one struct: a playbook, a NIC and
// an endpoint's file say the same things with the same names.
//
// Sizes may be multiples of the access link's bandwidth-delay product and times multiples of its round-trip time, since
// that is how the specification gives its guidance (Operational Considerations):
//
//	port: 52001
//	G: 2*BDP
//	U: 16KiB
//	J: 1*RTT
//
// Everything but the port has the specification's default. All values are those of hardware; a virtual lab's time scale
// is applied when a machine is configured from them, so that a playbook says the same in a lab and on a testbed.
package domain
