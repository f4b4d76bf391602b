package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/shell"
	"github.com/pcmlab/pcmlab/pcm/trace"
)

// replay runs the events of a trace through a shell and says, one JSON line each, what the flow is to do after them.
func replay(args []string) int {
	flags := flag.NewFlagSet("pcmlab-nic replay", flag.ContinueOnError)
	object := flags.String("shell", "", "shared object")
	file := flags.String("trace", "", "trace")
	seed := flags.Uint64("seed", 1, "seed of the handler's random numbers")
	each := flags.Bool("each", false, "write every line at once, so that a crash shows how far it came")
	if err := flags.Parse(args); err != nil || *object == "" || *file == "" || flags.NArg() > 0 {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	said, err := apart()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 3
	}
	defer flushC()
	if err := replayFile(*object, *file, *seed, *each, said); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 3
	}
	return 0
}

// apart keeps what handlers print out of what this program says: their standard output is its standard error.
func apart() (io.Writer, error) {
	fd, err := unix.Dup(1)
	if err == nil {
		err = unix.Dup2(2, 1)
	}
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "stdout"), nil
}

// flushC writes what handlers have printed and the C library has kept: no exit function of C runs at the end of a program in Go.
func flushC() {
	if f, err := purego.Dlsym(purego.RTLD_DEFAULT, "fflush"); err == nil {
		purego.SyscallN(f, 0)
	}
}

func replayFile(object, file string, seed uint64, each bool, stdout io.Writer) error {
	s, err := shell.Open(object)
	if err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(stdout)
	var flow *shell.Flow
	err = trace.Read(file, f, func(e *trace.Event) error {
		if flow == nil {
			if flow, err = s.NewFlow(e.TNS, seed); err != nil {
				return err
			}
		}
		in := inputOf(e)
		var out shell.Output
		flow.Flush(&in, &out)
		fmt.Fprintf(w, `{"t_ns":%d,"fired":%d,"failed":%d,"cwnd":%d,"rate":%d,"ev":%d,"pull_no":%d,"rtt_probe":%d}`+"\n",
			e.TNS, out.Fired, out.Failed, out.CWND, out.Rate, out.EV, out.PullNo, out.RTTProbe)
		if each {
			return w.Flush()
		}
		return nil
	})
	if flow != nil {
		flow.Close()
	}
	if err != nil {
		return err
	}
	return w.Flush()
}

func inputOf(e *trace.Event) shell.Input {
	in := shell.Input{Now: e.TNS, Mask: e.Mask}
	for source, to := range map[pcm.Source]*uint64{pcm.ACK: &in.ACK, pcm.RTO: &in.RTO, pcm.NACK: &in.NACK, pcm.ECN: &in.ECN, pcm.RTT: &in.RTT, pcm.DataTX: &in.DataTX,
		pcm.DataNACKed: &in.DataNACKed, pcm.InFlight: &in.InFlight, pcm.ACKEV: &in.ACKEV, pcm.ECNEV: &in.ECNEV, pcm.NACKEV: &in.NACKEV, pcm.TXReadyPackets: &in.TXReadyPackets,
		pcm.TXBacklogBytes: &in.TXBacklogBytes, pcm.CNP: &in.CNP, pcm.TXBytes: &in.TXBytes, pcm.Queue: &in.Queue, pcm.PullTarget: &in.PullTarget, pcm.Loopback: &in.Loopback} {
		*to = e.Values[source]
	}
	return in
}
