// Package vlab turns a lab file with a `virtual:` section into running network namespaces, and back into nothing.
//
//	caller (pcmlab lab up, pcmlab run)
//	  │ listeners 127.L.0.i:2222, opened here and handed in
//	  └─ keeper           PID 1 of the lab's PID namespace; its network namespace is the lab's wiring
//	       ├─ fabric      one process per switch, holds the TAP descriptors
//	       ├─ host h1     PID 1 of its own PID, network, mount, UTS and IPC namespaces; SSH server, NIC daemon
//	       └─ host h2 …
//
// Everything that runs is in the keeper's PID namespace and everything that is mounted is in private mount namespaces
// below it, so the kernel itself removes all of it when the keeper dies, however it dies. What is left then are two
// folders, which are named in the state file before they are made. The caller's network, mounts and processes are
// never changed. Processes are known by number and start time, never by name.
//
// A virtual host is a host: own HOME, /run, /tmp, /var/log, /dev/shm, terminals, hostname, boot id, /proc, a /sys view
// with /sys/class/infiniband for its NIC; the rest of the file system is the caller's, read-only.
//
// Rates are divided and delays multiplied by the lab's time scale here and nowhere else in the lab.
//
//	inst, err := vlab.Up(ctx, lab, vlab.Options{Binary: "/usr/local/bin/pcmlab"})
//	defer inst.Down(ctx)
//	lab = inst.Lab() // addresses, ports, keys and known_hosts filled in
//
// It refuses to guess: a lab whose NICs and links do not fit is an error before anything is made.
package vlab
