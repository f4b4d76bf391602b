// Package facts reads what a host is, and says of everything that it could not read why not.
//
// One script, with no more than a POSIX shell, reads it all in one round trip: the system, its NICs, the tools with
// their versions, what earlier runs left. It changes nothing and needs no root for most of it; what needs root is asked
// for under sudo -n where the lab file says so, and is "unavailable: needs root" elsewhere. On the same channel the
// host's clock is compared with this machine's.
//
//	f, err := facts.Read(ctx, host, facts.Of(lab, "h1"))
//	fmt.Println(f.Kernel, f.NICs[0].MTU, f.NICs[0].Firmware)
package facts
