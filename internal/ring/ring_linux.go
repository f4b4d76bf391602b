package ring

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Kernel numbers, from include/uapi/linux/io_uring.h.
const (
	setupCQSize       = 1 << 3
	setupRDisabled    = 1 << 6
	setupSubmitAll    = 1 << 7
	setupCoopTaskrun  = 1 << 8
	setupSingleIssuer = 1 << 12
	setupDeferTaskrun = 1 << 13

	featSingleMmap = 1 << 0
	featExtArg     = 1 << 8
	featMinTimeout = 1 << 15

	offSQRing = 0
	offSQEs   = 0x10000000

	enterGetEvents = 1 << 0
	enterExtArg    = 1 << 3
	enterAbsTimer  = 1 << 5

	registerFiles       = 2
	registerProbe       = 8
	registerEnableRings = 12
	registerPbufRing    = 22

	sqeFixedFile    = 1 << 0
	sqeBufferSelect = 1 << 5

	opAsyncCancel   = 14
	opRead          = 22
	opWrite         = 23
	opReadMultishot = 49

	cancelAll = 1 << 0
	cancelAny = 1 << 2

	opSupported = 1 << 0
)

// SQE is the kernel's submission entry; the fields are those that the operations here use.
type SQE struct {
	op       uint8
	flags    uint8
	ioprio   uint16
	fd       int32
	off      uint64
	addr     uint64
	len      uint32
	opFlags  uint32
	userData uint64
	bufGroup uint16
	_        [22]byte
}

// CQE is the kernel's completion entry.
type CQE struct {
	UserData uint64
	Res      int32 // a count, or a negative errno
	Flags    uint32
}

// More says that a multishot operation goes on; without it, it has to be submitted again.
func (c CQE) More() bool { return c.Flags&2 != 0 }

// Buffer is the number of the provided buffer that was filled.
func (c CQE) Buffer() (id uint16, ok bool) { return uint16(c.Flags >> 16), c.Flags&1 != 0 }

// Errno is the error of a completion, 0 when there is none.
func (c CQE) Errno() unix.Errno {
	if c.Res < 0 {
		return unix.Errno(-c.Res)
	}
	return 0
}

type sqOffsets struct {
	head, tail, mask, entries, flags, dropped, array, _ uint32
	_                                                   uint64
}

type cqOffsets struct {
	head, tail, mask, entries, overflow, cqes, flags, _ uint32
	_                                                   uint64
}

type params struct {
	sqEntries, cqEntries, flags, cpu, idle, features, wq uint32
	_                                                    [3]uint32
	sq                                                   sqOffsets
	cq                                                   cqOffsets
}

type getEventsArg struct {
	sigmask   uint64
	sigmaskSz uint32
	minWait   uint32
	ts        uint64
}

// Ring is one io_uring. Not for concurrent use; Enable binds it to the calling thread, which must be locked.
type Ring struct {
	fd       int
	enabled  bool
	rings    []byte // submission and completion rings
	sqeBytes []byte
	sqes     []SQE
	cqes     []CQE

	sqHead, sqTail, cqHead, cqTail *uint32
	sqMask, cqMask                 uint32
	tail                           uint32 // of the submission queue, entries filled but not yet shown to the kernel included
	pending                        uint32

	relative  bool // kernel before 6.12: no absolute timer
	noMinWait bool // kernel before 6.12: no gathering
	ts        unix.Timespec
	arg       getEventsArg
	groups    []*Buffers

	// Syscalls counts entries into the kernel.
	Syscalls uint64
}

// New makes a disabled ring for at most entries submissions and completions entries between two Enters. The error says
// what is missing where the kernel has no io_uring of the needed age or forbids it (EPERM, ENOSYS in its chain).
func New(entries, completions uint32) (*Ring, error) {
	p := params{
		cqEntries: completions,
		flags:     setupCQSize | setupRDisabled | setupSubmitAll | setupCoopTaskrun | setupSingleIssuer | setupDeferTaskrun,
	}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("io_uring_setup: %w (needs Linux 6.7, and kernel.io_uring_disabled=0 or root)", errno)
	}
	unix.CloseOnExec(int(fd))
	r := &Ring{fd: int(fd)}
	if err := r.open(&p); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Ring) open(p *params) error {
	if p.features&featSingleMmap == 0 || p.features&featExtArg == 0 {
		return fmt.Errorf("io_uring: kernel features %#x lack a single mapping or timed waits: %w", p.features, unix.ENOSYS)
	}
	if err := r.probe(opReadMultishot); err != nil {
		return err
	}
	r.noMinWait = p.features&featMinTimeout == 0
	size := max(p.sq.array+p.sqEntries*4, p.cq.cqes+p.cqEntries*uint32(unsafe.Sizeof(CQE{})))
	var err error
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	if r.rings, err = unix.Mmap(r.fd, offSQRing, int(size), prot, flags); err != nil {
		return fmt.Errorf("io_uring: map rings: %w", err)
	}
	if r.sqeBytes, err = unix.Mmap(r.fd, offSQEs, int(p.sqEntries)*int(unsafe.Sizeof(SQE{})), prot, flags); err != nil {
		return fmt.Errorf("io_uring: map entries: %w", err)
	}
	word := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.rings[off])) }
	r.sqHead, r.sqTail, r.sqMask = word(p.sq.head), word(p.sq.tail), *word(p.sq.mask)
	r.cqHead, r.cqTail, r.cqMask = word(p.cq.head), word(p.cq.tail), *word(p.cq.mask)
	r.sqes = unsafe.Slice((*SQE)(unsafe.Pointer(&r.sqeBytes[0])), p.sqEntries)
	r.cqes = unsafe.Slice((*CQE)(unsafe.Pointer(&r.rings[p.cq.cqes])), p.cqEntries)
	array := unsafe.Slice(word(p.sq.array), p.sqEntries)
	for i := range array {
		array[i] = uint32(i)
	}
	r.tail = *r.sqTail
	return nil
}

// probe asks whether the kernel knows an operation.
func (r *Ring) probe(op uint8) error {
	const ops = 64
	var probe struct {
		last, n uint8
		_       uint16
		_       [3]uint32
		ops     [ops]struct {
			op, _ uint8
			flags uint16
			_     uint32
		}
	}
	if err := r.register(registerProbe, unsafe.Pointer(&probe), ops); err != nil {
		return fmt.Errorf("io_uring: probe: %w", err)
	}
	if op > probe.last || probe.ops[op].flags&opSupported == 0 {
		return fmt.Errorf("io_uring: operation %d is unknown to this kernel (needs Linux 6.7): %w", op, unix.ENOSYS)
	}
	return nil
}

func (r *Ring) register(what uintptr, arg unsafe.Pointer, n int) error {
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), what, uintptr(arg), uintptr(n), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Files registers descriptors; operations name them by their index from then on.
func (r *Ring) Files(fds []int32) error {
	if err := r.register(registerFiles, unsafe.Pointer(&fds[0]), len(fds)); err != nil {
		return fmt.Errorf("io_uring: register %d files: %w", len(fds), err)
	}
	return nil
}

// Enable binds the ring to this thread; before it nothing can be submitted.
func (r *Ring) Enable() error {
	if err := r.register(registerEnableRings, nil, 0); err != nil {
		return fmt.Errorf("io_uring: enable: %w", err)
	}
	r.enabled = true
	return nil
}

// Room is how many operations can be prepared before the next Enter.
func (r *Ring) Room() int {
	return len(r.sqes) - int(r.tail-atomic.LoadUint32(r.sqHead))
}

// next is a cleared entry. It panics when there is no Room: the caller's bound is wrong.
func (r *Ring) next() *SQE {
	if r.Room() == 0 {
		panic("ring: submission queue is full")
	}
	e := &r.sqes[r.tail&r.sqMask]
	*e = SQE{}
	r.tail++
	r.pending++
	return e
}

// Write prepares a write of b, which must stay as it is until its completion, to a registered file.
func (r *Ring) Write(file int, b []byte, userData uint64) {
	e := r.next()
	e.op, e.flags, e.fd = opWrite, sqeFixedFile, int32(file)
	e.addr, e.len = uint64(uintptr(unsafe.Pointer(&b[0]))), uint32(len(b))
	e.userData = userData
}

// Read prepares a read into b, which must stay until its completion, of a registered file.
func (r *Ring) Read(file int, b []byte, userData uint64) {
	e := r.next()
	e.op, e.flags, e.fd = opRead, sqeFixedFile, int32(file)
	e.addr, e.len = uint64(uintptr(unsafe.Pointer(&b[0]))), uint32(len(b))
	e.userData = userData
}

// ReadMultishot prepares reads of a registered file, each into a buffer of g, until one completes without More. The
// file must be pollable and blocking: with O_NONBLOCK the kernel reports EAGAIN instead of waiting.
func (r *Ring) ReadMultishot(file int, g *Buffers, userData uint64) {
	e := r.next()
	e.op, e.flags, e.fd = opReadMultishot, sqeFixedFile|sqeBufferSelect, int32(file)
	e.bufGroup = g.group
	e.userData = userData
}

// CancelAll prepares the end of all operations; they complete with ECANCELED unless they were done.
func (r *Ring) CancelAll(userData uint64) {
	e := r.next()
	e.op, e.opFlags, e.userData = opAsyncCancel, cancelAll|cancelAny, userData
}

// Wait says what Enter waits for. The zero value does not wait.
type Wait struct {
	Completions uint32        // so many in all, those of what is submitted included; 0: do not wait
	Until       time.Duration // on CLOCK_MONOTONIC; 0: no limit

	// Gather, when not 0, is for how long Enter waits for Completions; then it returns with what there is, none
	// included. It is to get many completions with one wake-up. Until is then for kernels before 6.12, which cannot
	// gather: there one completion more than was submitted ends the wait.
	Gather time.Duration
}

// Enter submits what was prepared and waits. A passed deadline and a signal are no errors.
func (r *Ring) Enter(w Wait) error {
	atomic.StoreUint32(r.sqTail, r.tail)
	wait, until := w.Completions, w.Until
	flags := uintptr(enterGetEvents)
	var arg unsafe.Pointer
	var size uintptr
	gather := w.Gather.Microseconds()
	if gather > 0 && (r.relative || r.noMinWait) {
		gather, wait = 0, r.pending+1
	}
	if gather > 0 {
		// No deadline behind the time of gathering: Linux 6.18 was seen to sleep through such a one until the next
		// completion, in one of some 200,000 waits. Without a deadline the end of gathering ends the wait.
		until = 0
	}
	if wait > 0 && (until != 0 || gather > 0) {
		flags |= enterExtArg
		if until == 0 {
			until = math.MaxInt64
		}
		if r.relative {
			var now unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
				return fmt.Errorf("clock_gettime: %w", err)
			}
			until = max(until-time.Duration(now.Nano()), 0)
		} else {
			flags |= enterAbsTimer
		}
		r.ts = unix.NsecToTimespec(int64(until))
		r.arg = getEventsArg{ts: uint64(uintptr(unsafe.Pointer(&r.ts))), minWait: uint32(gather)}
		arg, size = unsafe.Pointer(&r.arg), unsafe.Sizeof(r.arg)
	}
	r.Syscalls++
	var n uintptr
	var errno unix.Errno
	if wait > 0 {
		n, _, errno = unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(r.pending), uintptr(wait), flags, uintptr(arg), size)
	} else { // short: the runtime need not know
		n, _, errno = unix.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(r.pending), 0, flags, 0, 0)
	}
	switch errno {
	case 0:
		r.pending -= uint32(n)
	case unix.ETIME, unix.EINTR, unix.EBUSY, unix.EAGAIN:
		r.pending = r.tail - atomic.LoadUint32(r.sqHead)
	case unix.EINVAL:
		if flags&enterAbsTimer != 0 && !r.relative { // learn once that the kernel has no absolute timer
			r.relative = true
			r.pending = r.tail - atomic.LoadUint32(r.sqHead)
			return nil
		}
		return fmt.Errorf("io_uring_enter: %w", errno)
	default:
		return fmt.Errorf("io_uring_enter: %w", errno)
	}
	return nil
}

// Next takes the next completion.
func (r *Ring) Next() (c CQE, ok bool) {
	head := *r.cqHead // only this thread writes it
	if head == atomic.LoadUint32(r.cqTail) {
		return CQE{}, false
	}
	c = r.cqes[head&r.cqMask]
	atomic.StoreUint32(r.cqHead, head+1)
	return c, true
}

// Ready is how many completions are there.
func (r *Ring) Ready() int { return int(atomic.LoadUint32(r.cqTail) - *r.cqHead) }

// Close ends the ring. The kernel ends what is still going on in its own time, so cancel and collect first where
// memory could be written afterwards.
func (r *Ring) Close() {
	_ = unix.Close(r.fd)
	for _, m := range [][]byte{r.rings, r.sqeBytes} {
		if m != nil {
			_ = unix.Munmap(m)
		}
	}
	for _, g := range r.groups {
		_ = unix.Munmap(g.mem)
	}
	r.rings, r.sqeBytes, r.groups = nil, nil, nil
}
