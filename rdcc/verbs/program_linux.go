package verbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Options say which device a program opens.
type Options struct {
	Device   string     // as ibv_devices names it; "" means the one that has Address
	GIDIndex int        // -1: the one of RoCE v2 with Address
	Address  netip.Addr // of this host's RDMA interface; may be invalid when Device and GIDIndex say it
	Port     int        // of the device; 0 means 1
	Region   int        // octets of memory that are written from and into, again and again; 0 means 4 MiB
	MaxQPs   int        // 0 means 64
	Spin     bool       // polls instead of waiting: a core for microseconds
	NoRate   bool       // paces in the program, though the NIC could limit a queue pair's rate

	// Command is what is started instead of the program that Build builds; for tests.
	Command []string
	Env     []string // KEY=VALUE, in addition
}

// Device is what a program says of the device that it opened.
type Device struct {
	Name             string
	GID              netip.Addr
	GIDIndex         int
	MTU              int // octets of payload in a packet
	Region           uint64
	MaxQPs           int
	Depth            int   // segments in flight on a queue pair
	RateMin, RateMax int64 // bit/s to which the NIC limits a queue pair; RateMax 0: it cannot

	address uint64
	rkey    uint32
}

// Report is what a program tells by itself.
type Report struct {
	Kind    ReportKind
	QP      uint32
	Message uint64        // Posted, Acked
	UpTo    uint64        // Posted, Acked: octets of the message
	Flight  int           // Posted, Acked: RDMA messages not yet acknowledged
	RTT     time.Duration // Acked: of a segment that was alone on its way; otherwise 0
	Octets  uint64        // Arrived
	RDMA    int           // Arrived: RDMA messages
	Last    uint32        // Arrived: immediate of the last one
	At      time.Duration // of CLOCK_MONOTONIC
	Err     error         // Failed, Ended; of Complaint what was wrong with a command without an answer
}

// ReportKind says what a Report is about.
type ReportKind uint8

// Kinds of reports.
const (
	Posted    ReportKind = 1 + iota // handed to the NIC
	Acked                           // acknowledged by the peer's NIC
	Arrived                         // written into this host's memory
	Failed                          // the queue pair is dead
	Complaint                       // a command was refused
	Ended                           // the program has ended; the last report
)

// Error is what a program answers to a command that it cannot do.
type Error struct {
	Command string
	QP      uint32
	Errno   syscall.Errno
	Text    string // with device, call, errno and fix
}

func (e *Error) Error() string { return fmt.Sprintf("verbs: %s: %s", e.Command, e.Text) }
func (e *Error) Unwrap() error { return e.Errno }

// Program is a running pcmlab-verbs. It is safe for concurrent use.
type Program struct {
	conn   *net.UnixConn
	cmd    *exec.Cmd
	stderr tailWriter
	report func(Report)
	done   chan struct{}

	mu      sync.Mutex
	tag     uint32
	waiting map[uint32]*answer
	closed  bool
}

type answer struct {
	command msgType
	want    msgType
	body    any
	ready   chan error
}

// Start builds the program where needed, starts it and opens the device. report is called for what the program tells, by one
// goroutine; it must not call the program's commands that wait (it may Post and Pace). Close ends it.
func Start(ctx context.Context, o Options, report func(Report)) (*Program, Device, error) {
	command := o.Command
	if len(command) == 0 {
		file, err := Build(ctx)
		if err != nil {
			return nil, Device{}, err
		}
		command = []string{file}
	}
	p := &Program{report: report, done: make(chan struct{}), waiting: map[uint32]*answer{}}
	if err := p.start(command, o.Env); err != nil {
		return nil, Device{}, err
	}
	d, err := p.open(ctx, o)
	if err != nil {
		p.Close()
		return nil, Device{}, err
	}
	return p, d, nil
}

func (p *Program) start(command, env []string) error {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("verbs: socketpair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "steering")
	ours := os.NewFile(uintptr(fds[0]), "steering")
	defer theirs.Close()
	defer ours.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		return fmt.Errorf("verbs: steering socket: %w", err)
	}
	p.conn = c.(*net.UnixConn)
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.cmd.Stderr = &p.stderr
	p.cmd.Env = append(os.Environ(), env...)
	if err := p.cmd.Start(); err != nil {
		p.conn.Close()
		return fmt.Errorf("verbs: start %s: %w", command[0], err)
	}
	go p.read()
	return nil
}

// Done is closed when the program has ended.
func (p *Program) Done() <-chan struct{} { return p.done }

// Close ends the program: its queue pairs go with it. It returns when the program has ended.
func (p *Program) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.conn.Close()
	select {
	case <-p.done:
	case <-time.After(2 * time.Second): // its end is its own affair, unless it hangs in the kernel
		p.cmd.Process.Kill()
		<-p.done
	}
	return nil
}

// read hands on what the program says, until it ends.
func (p *Program) read() {
	b := make([]byte, bufferLen)
	var why error
	for why == nil {
		n, err := p.conn.Read(b)
		switch {
		case err != nil:
			why = err
		case n == 0:
			why = io.EOF
		default:
			why = p.take(b[:n])
		}
	}
	p.conn.Close()
	state := p.cmd.Wait()
	p.mu.Lock()
	wanted := p.closed
	p.closed = true
	waiting := p.waiting
	p.waiting = map[uint32]*answer{}
	p.mu.Unlock()
	err := p.ended(why, state)
	for _, a := range waiting {
		a.ready <- err
	}
	if !wanted {
		p.report(Report{Kind: Ended, Err: err})
	}
	close(p.done)
}

func (p *Program) ended(why, state error) error {
	said := string(bytes.TrimSpace(p.stderr.bytes()))
	if said != "" {
		said = fmt.Sprintf(" (stderr: %q)", said)
		if d, ok := diagnose("", string(p.stderr.bytes())).(*BuildError); ok && d.Fix != "" {
			return fmt.Errorf("verbs: the program ended%s: %s", said, d.Fix)
		}
	}
	switch {
	case state != nil:
		return fmt.Errorf("verbs: the program ended: %w%s", state, said)
	case errors.Is(why, io.EOF) || errors.Is(why, syscall.ECONNRESET):
		return fmt.Errorf("verbs: the program ended%s", said)
	}
	return fmt.Errorf("verbs: the program was given up: %w%s", why, said)
}

func (p *Program) take(b []byte) error {
	h, body, err := decodeHead(b)
	if err != nil {
		return err
	}
	p.mu.Lock()
	a := p.waiting[h.Tag]
	if h.Tag != 0 {
		delete(p.waiting, h.Tag)
	}
	p.mu.Unlock()
	switch h.Type {
	case typePosted, typeAcked:
		var m progressMsg
		if err := decode(h.Type, body, &m); err != nil {
			return err
		}
		r := Report{Kind: Posted, QP: m.QP, Message: m.Message, UpTo: m.UpTo, Flight: int(m.Flight), At: time.Duration(m.At), RTT: time.Duration(m.RTT)}
		if h.Type == typeAcked {
			r.Kind = Acked
		}
		p.report(r)
	case typeArrived:
		var m arrivedMsg
		if err := decode(h.Type, body, &m); err != nil {
			return err
		}
		p.report(Report{Kind: Arrived, QP: m.QP, Octets: m.Octets, RDMA: int(m.Messages), Last: m.Immediate, At: time.Duration(m.At)})
	case typeFailed, typeError:
		var m errorMsg
		if err := decode(h.Type, body, &m); err != nil {
			return err
		}
		e := &Error{Command: h.Type.String(), QP: m.QP, Errno: syscall.Errno(max(m.Code, 0)), Text: text(m.Text[:])}
		switch {
		case h.Type == typeFailed:
			e.Command, e.Errno = "queue pair failed", syscall.EIO
			p.report(Report{Kind: Failed, QP: m.QP, Err: e})
		case a != nil:
			e.Command = a.command.String()
			a.ready <- e
		default:
			e.Command = "refused"
			p.report(Report{Kind: Complaint, QP: m.QP, Err: e})
		}
	case typeOK, typeMade, typeOpened:
		if a == nil {
			return nil // nobody waits any more
		}
		if h.Type != a.want {
			err := fmt.Errorf("steering: %s answers %s", h.Type, a.command)
			a.ready <- err
			return err
		}
		err := decode(h.Type, body, a.body)
		a.ready <- err
		return err
	default:
		return fmt.Errorf("steering: the program sends %s", h.Type)
	}
	return nil
}

// send gives a command that wants no answer.
func (p *Program) send(t msgType, tag uint32, body any) error {
	if _, err := p.conn.Write(encode(t, tag, body)); err != nil {
		return fmt.Errorf("verbs: %s: the program has ended: %w", t, err)
	}
	return nil
}

// ask gives a command and waits for its answer.
func (p *Program) ask(ctx context.Context, t msgType, body any, want msgType, to any) error {
	a := &answer{command: t, want: want, body: to, ready: make(chan error, 1)}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return fmt.Errorf("verbs: %s: the program has ended", t)
	}
	p.tag++
	if p.tag == 0 {
		p.tag++
	}
	tag := p.tag
	p.waiting[tag] = a
	p.mu.Unlock()
	if err := p.send(t, tag, body); err != nil {
		select {
		case <-p.done: // it says why
		case <-time.After(time.Second):
			return err
		}
		select {
		case err := <-a.ready:
			return err
		default:
			return err
		}
	}
	select {
	case err := <-a.ready:
		return err
	case <-ctx.Done():
		p.mu.Lock()
		delete(p.waiting, tag)
		p.mu.Unlock()
		return ctx.Err()
	}
}

// tailWriter keeps the last octets that were written.
type tailWriter struct {
	mu sync.Mutex
	b  []byte
}

func (w *tailWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b = append(w.b, b...)
	if n := len(w.b) - 2000; n > 0 {
		w.b = append(w.b[:0], w.b[n:]...)
	}
	return len(b), nil
}

func (w *tailWriter) bytes() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Clone(w.b)
}
