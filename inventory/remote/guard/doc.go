// Package guard owns a process on a lab host: nothing that the process starts outlives it, and the process does not
// outlive its owner.
//
// The orchestrator runs every remote command as
//
//	pcmlab guard --run ID --deadline D [--hold] [--grace 5s] -- COMMAND
//
// over an SSH channel. The guard is two processes, an outer one that holds an inner one, both subreapers
// (PR_SET_CHILD_SUBREAPER), so that every orphan below them stays below them:
//
//	sshd - outer - inner - COMMAND - whatever it starts, double forks and sessions included
//
// The inner guard does the work. When it dies, by kill -9 too, its descendants become the outer guard's, which kills
// them; when the outer guard dies, the inner one sees the end of a pipe and kills its descendants. A command is never
// looked for by name: only descendants are signalled.
//
// Standard input and output of the guard carry frames (frame.go): output, heartbeats and the exit status one way,
// heartbeats, go, signals and input the other. The owner is lost when the channel ends or when nothing was heard for
// Lost. It may then re-attach within Grace through a UNIX socket with the guard's token and misses nothing: output is
// numbered and kept until acknowledged. Otherwise, and when the deadline passes, the guard sends TERM to every
// descendant, waits 2 s, sends KILL until none is left, runs the restore command, and adds what it did to
// ~/.cache/pcmlab/guards.log (one JSON document a line). Its file guards/RUN/ID.json stays where something is left to
// mend, and where the guard went down with its host; otherwise nothing of the run is on the host any more.
//
// A guard that runs as a plain user cannot signal what sudo started. It tries `sudo -n kill`, and names in its record
// what it had to leave.
package guard
