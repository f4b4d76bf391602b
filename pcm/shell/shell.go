// Package shell loads a compiled CPU shell into this process and runs flows of its handler, without cgo.
//
// Whoever imports it becomes a dynamically linked program (the loader of shared objects belongs to the C library), so only
// programs that run shells do. A shell that crashes takes the process with it.
package shell

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// abi is PCM_SHELL_ABI of pcm_shell.h.
const abi = 3

// Input is struct pcm_input. Bit i of Mask says that the i-th field behind Now counts; times are ns, or the ticks that the shell was built for.
type Input struct {
	Mask, Now                                                                                                                 uint64
	ACK, RTO, NACK, ECN, RTT, DataTX, DataNACKed, InFlight, ElapsedTime, ACKEV, ECNEV, NACKEV, TXReadyPackets, TXBacklogBytes uint64
	CNP, TXBytes, Queue, PullTarget, Loopback                                                                                 uint64
}

// Output is struct pcm_output. A control that the package does not have is all ones.
type Output struct {
	CWND, Rate, EV, PullNo, RTTProbe uint64
	Fired                            uint64 // signals that made the handler run
	Failed                           uint64 // what it returned when it failed, which stopped it; 0: it goes on
}

// Event is struct pcm_event.
type Event struct {
	Flow uintptr
	In   Input
}

// Shell is one that is loaded. It is never unloaded.
type Shell struct {
	Name, Hash        string
	FlowBytes         int
	Sources, Controls uint64 // masks of inputs and outputs
	Kind              Kind
	Skew              uint64 // of BoundedSkew, in updates

	none Output // what a shell does not write: see Output

	create, destroy, flush, batch, read, note, serve, peek, poke uintptr
}

// Kind is how the handler gets its signals: enum pcm_kind.
type Kind uint32

// A synchronous shell's flow belongs to one goroutine at a time. Those of the others have two halves: Note and Read may be called by any,
// while one calls Serve.
const (
	Synchronous Kind = iota
	Relaxed
	ZeroSkew
	BoundedSkew
)

func (k Kind) String() string {
	if names := []string{"synchronous", "relaxed", "zero-skew", "bounded-skew"}; int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint32(k))
}

// Open loads the shared object at path.
func Open(path string) (*Shell, error) {
	lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("load shell: %w", err)
	}
	s := &Shell{}
	var info uintptr
	if info, err = purego.Dlsym(lib, "pcm_get_info"); err != nil {
		return nil, fmt.Errorf("load shell: %s is none: %w", path, err)
	}
	at, _, _ := purego.SyscallN(info)
	i := (*struct {
		abi, flowBytes    uint32
		name, hash        *byte
		sources, controls uint64
		kind, _           uint32
		skew              uint64
	})(*(*unsafe.Pointer)(unsafe.Pointer(&at)))
	if i.abi != abi { // before all else: another one has other functions, and its structure ends elsewhere
		return nil, fmt.Errorf("load shell: %s has interface %d, this pcmlab knows %d: build it again", path, i.abi, abi)
	}
	for name, to := range map[string]*uintptr{"pcm_create": &s.create, "pcm_destroy": &s.destroy, "pcm_flush": &s.flush,
		"pcm_batch": &s.batch, "pcm_read": &s.read, "pcm_note": &s.note, "pcm_serve": &s.serve, "pcm_peek": &s.peek, "pcm_poke": &s.poke} {
		if *to, err = purego.Dlsym(lib, name); err != nil {
			return nil, fmt.Errorf("load shell: %s is none: %w", path, err)
		}
	}
	s.Name, s.Hash, s.FlowBytes, s.Sources, s.Controls = text(i.name), text(i.hash), int(i.flowBytes), i.sources, i.controls
	s.Kind, s.Skew = Kind(i.kind), i.skew
	s.none = Output{CWND: math.MaxUint64, Rate: math.MaxUint64, EV: math.MaxUint64, PullNo: math.MaxUint64, RTTProbe: math.MaxUint64}
	return s, nil
}

func text(p *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

// Flow is one flow of a shell. It belongs to one goroutine at a time, but for the halves of an asynchronous one (Kind), and must be closed.
type Flow struct {
	shell *Shell
	at    uintptr
}

// arguments are those of calls that are under way: the list that SyscallN takes would be garbage of each call.
var arguments = sync.Pool{New: func() any { return new([3]uintptr) }}

// call calls a function of the shell; one that takes fewer arguments does not look at the rest.
//
//go:uintptrescapes
func call(function, a, b, c uintptr) uintptr {
	list := arguments.Get().(*[3]uintptr)
	*list = [3]uintptr{a, b, c}
	v, _, _ := purego.SyscallN(function, list[:]...)
	arguments.Put(list)
	return v
}

// ErrMemory: the shell could not make a flow.
var ErrMemory = errors.New("no memory for another flow")

// NewFlow makes a flow that begins now (ns), with a seed for its random numbers.
func (s *Shell) NewFlow(nowNS, seed uint64) (*Flow, error) {
	at, _, _ := purego.SyscallN(s.create, uintptr(nowNS), uintptr(seed))
	if at == 0 {
		return nil, ErrMemory
	}
	return &Flow{s, at}, nil
}

// Close frees the flow.
func (f *Flow) Close() {
	if f.at != 0 {
		purego.SyscallN(f.shell.destroy, f.at)
		f.at = 0
	}
}

// Handle names the flow in events.
func (f *Flow) Handle() uintptr { return f.at }

// Flush takes what happened and says what to do.
func (f *Flow) Flush(in *Input, out *Output) {
	*out = f.shell.none
	call(f.shell.flush, f.at, uintptr(unsafe.Pointer(in)), uintptr(unsafe.Pointer(out)))
	runtime.KeepAlive(in)
	runtime.KeepAlive(out)
}

// Note is the datapath's half of a flush: it takes what happened, and says whether the handler is due.
func (f *Flow) Note(in *Input) (due bool) {
	v := call(f.shell.note, f.at, uintptr(unsafe.Pointer(in)), 0)
	runtime.KeepAlive(in)
	return int32(v) != 0
}

// Serve is the control plane's half: it runs the handler if a trigger fires now, and says what to do and whether it is due again.
func (f *Flow) Serve(now uint64, out *Output) (due bool) {
	*out = f.shell.none
	v := call(f.shell.serve, f.at, uintptr(now), uintptr(unsafe.Pointer(out)))
	runtime.KeepAlive(out)
	return int32(v) != 0
}

// Read says what to do, without an event.
func (f *Flow) Read(out *Output) {
	*out = f.shell.none
	call(f.shell.read, f.at, uintptr(unsafe.Pointer(out)), 0)
	runtime.KeepAlive(out)
}

// Batch flushes events of any flows of the shell in order; out has room for as many.
func (s *Shell) Batch(events []Event, out []Output) {
	if len(events) == 0 {
		return
	}
	_ = out[len(events)-1]
	for i := range events {
		out[i] = s.none
	}
	call(s.batch, uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(unsafe.Pointer(&out[0])))
	runtime.KeepAlive(events)
	runtime.KeepAlive(out)
}

// Part is what Peek and Poke reach, for tests and diagnostics.
type Part uint32

// The parts of a flow.
const (
	Control Part = iota
	Variable
	Signal
)

// Peek is a word of the flow.
func (f *Flow) Peek(p Part, index int) uint64 {
	v, _, _ := purego.SyscallN(f.shell.peek, f.at, uintptr(p), uintptr(index))
	return uint64(v)
}

// Poke sets a word of the flow.
func (f *Flow) Poke(p Part, index int, v uint64) {
	purego.SyscallN(f.shell.poke, f.at, uintptr(p), uintptr(index), uintptr(v))
}
