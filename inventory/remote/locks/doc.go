// Package locks keeps two experiments from disturbing each other on the hosts of a shared lab.
//
// A lock lies on the host that it is for, as a file in Dir, so that all who can reach the host see it, whatever account
// they use and wherever they come from. It names what is held (Resource), by whom, why, since when and until when.
//
//	person  made by `pcmlab lock`: holds whole hosts until it expires, is taken back, or the host reboots
//	run     made by `pcmlab run`: holds NICs and port ranges while a process on the host lives, which its guard ends with the run
//
// Locks of one person and that person's runs go together; locks of two runs do not, whoever runs them. What has
// expired, or whose process is gone, counts for nothing and is removed by whoever comes next.
//
// Locks are advice among users of pcmlab: root can do what it likes.
package locks
