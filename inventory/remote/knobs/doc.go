// Package knobs changes settings of hosts for the time of a run, and puts them back.
//
// A knob is a file of the kernel (sysfs, procfs, any file of one value), a queueing discipline, the
// connection manager's type of service in configfs, settings of NVIDIA's tools
// (mlxconfig, mlxreg, mlnx_qos: package mft), or anything that commands show, change and change back. For each the host remembers in a journal what was before, changes it, and reads back that
// it is so; then the next. At the end they are put back in reverse order, and what is shown then must be what was shown
// before. The journal is written to disk before each change, so that whoever comes next can finish the work:
//
//	the run ends              its holder on the host is stopped, and the holder's guard restores
//	the orchestrator is lost  the guard sees it and restores
//	guard and all are killed  the next run finds the journal and says whose it is; `pcmlab cleanup --run ID -i LAB` restores
//	the host reboots          the same; what the reboot has reset is as before, and left alone
//
// A knob that somebody else has changed meanwhile is not touched: the error says what is there, and what to type.
package knobs
