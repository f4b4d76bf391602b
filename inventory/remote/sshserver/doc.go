// Package sshserver is an SSH server as a library: public keys only, commands, shells, signals, SFTP and the
// forwarding that jump hosts need.
//
// Tests run it in their own process, and each host of a virtual lab runs one as its only way in. It behaves as
// OpenSSH's sshd does where a client can tell the difference:
//
//   - a command runs through the user's shell in a session (setsid) of its own;
//   - exit status or exit signal are sent when the command ends, the channel stays open until its output has ended;
//   - a lost client closes the command's standard input and output and nothing more: killing what is left is the
//     business of the guard that the command runs under;
//   - the eleventh session of a connection and the eleventh unauthenticated connection are refused with the words
//     of sshd (MaxSessions, MaxStartups).
//
// It offers no passwords, no agent or X11 forwarding and no remote port forwarding.
//
//	ln, err := net.Listen("tcp", "127.0.0.1:0")
//	...
//	err = sshserver.Serve(ctx, ln, sshserver.Options{
//		HostKeys:       []ssh.Signer{hostKey},
//		AuthorizedKeys: []ssh.PublicKey{userKey},
//		SFTP:           true,
//	})
package sshserver
