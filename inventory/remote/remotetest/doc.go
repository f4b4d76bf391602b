// Package remotetest holds the conformance suite of remote.Host, and servers to run it against: the project's own SSH
// server in the test's process, and a real OpenSSH sshd.
//
// The test binary is pushed as pcmlab: a package that uses this must let TestMain hand "guard ..." to guard.Main.
package remotetest
