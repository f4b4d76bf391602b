// Package counters says what NICs, interfaces and queues have counted: read as it is, compared with what it was, and named the
// same for all vendors.
//
//	Watch      one process on a host that is asked as often as wanted: its clock, and all its counters, raw
//	Compare    two readings: how much each counter moved, and whether it wrapped, began again, stuck or is not there
//	Named      the same under names that mean one thing on every NIC, with the source of each
//
// A counter that a NIC does not have is absent and never zero; one that began again between two readings has no growth, because
// what it had counted before is not known. Counters without a name of ours stay in the raw readings.
package counters
