// Package check looks at every host, NIC and path of a lab before a run, and says of each problem how to mend it.
//
// Ask reads what the hosts are, in parallel, without changing or pushing anything. Judge holds that against the lab: it is a
// pure function, so that every rule can be tested on recorded hosts. Mesh sends datagrams between the data addresses.
//
// A finding that could not be judged is a skip with its reason, which is no pass.
package check
