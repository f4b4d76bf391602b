package endpoint

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/user"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// Order is a message that a program of this host hands to its endpoint, as JSON over a UNIX socket. The file with its
// octets comes beside it (SCM_RIGHTS), so that the endpoint need not be able to open it; without one they have no meaning.
type Order struct {
	To        netip.AddrPort `json:"to"`
	Length    uint64         `json:"length"`
	Class     uint8          `json:"class"`
	Weight    uint8          `json:"weight,omitempty"`
	Hint      rdcc.Hint      `json:"hint,omitempty"`
	Scheduled bool           `json:"scheduled,omitempty"`
}

// Reply is a line of the answer: where the message is, and at last what became of it.
type Reply struct {
	Progress *Progress `json:"progress,omitempty"`
	Result   *Result   `json:"result,omitempty"`
	Error    string    `json:"error,omitempty"` // of the result, or of the order
}

// errorsByText are those that the other end of the socket is to tell apart.
var errorsByText = []error{ErrWithout, ErrRefused, ErrGaveUp, ErrClosed}

// Socket is where programs of this host hand in messages.
type Socket struct {
	listener *net.UnixListener
	wg       sync.WaitGroup
}

// OpenSocket listens on a UNIX socket, for one user alone: owner, or who runs this process.
func OpenSocket(path, owner string) (*Socket, error) {
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("rdcc: socket %s: another endpoint listens there", path)
	} else if errors.Is(err, syscall.ECONNREFUSED) { // left behind by one that was killed
		os.Remove(path)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("rdcc: socket: %w", err)
	}
	err = os.Chmod(path, 0o600)
	if err == nil && owner != "" {
		err = chown(path, owner)
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("rdcc: socket: %w", err)
	}
	return &Socket{listener: l}, nil
}

func chown(path, owner string) error {
	u, err := user.Lookup(owner)
	if err != nil {
		return err
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	return errors.Join(err1, err2, os.Chown(path, uid, gid))
}

// Serve takes orders until ctx ends. complete fills in what the order does not say.
func (s *Socket) Serve(ctx context.Context, e *Endpoint, complete func(*Outgoing)) error {
	stop := context.AfterFunc(ctx, func() { s.listener.Close() })
	defer stop()
	defer s.wg.Wait()
	for {
		c, err := s.listener.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("rdcc: socket: %w", err)
		}
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			defer c.Close()
			serveOrder(ctx, c, e, complete)
		}()
	}
}

const progressEvery = 200 * time.Millisecond

// serveOrder sends one message. Whoever hangs up cancels it.
func serveOrder(ctx context.Context, c *net.UnixConn, e *Endpoint, complete func(*Outgoing)) {
	enc := json.NewEncoder(c)
	o, f, err := readOrder(c)
	if err != nil {
		_ = enc.Encode(Reply{Error: err.Error()})
		return
	}
	if f != nil {
		defer f.Close()
	}
	done := make(chan Result, 1)
	m := &Outgoing{
		To: o.To, Kind: rdcc.BindingOpaque, Length: o.Length, Class: o.Class, Weight: o.Weight, Hint: o.Hint, Scheduled: o.Scheduled,
		Ended: func(r Result) { done <- r },
	}
	if f != nil {
		m.Data = f
	}
	complete(m)
	if err := e.Send(m); err != nil {
		_ = enc.Encode(Reply{Error: err.Error()})
		return
	}
	gone := make(chan struct{})
	go func() {
		_, _ = c.Read(make([]byte, 1)) // nothing more comes: this is the end of the other side
		close(gone)
	}()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case r := <-done:
			reply := Reply{Result: &r}
			if r.Err != nil {
				reply.Error = r.Err.Error()
			}
			_ = enc.Encode(reply)
			return
		case <-tick.C:
			if p, ok := e.Progress(m); ok {
				_ = enc.Encode(Reply{Progress: &p})
			}
		case <-gone:
			gone = nil
			e.Cancel(m)
		case <-e.Done():
			select {
			case r := <-done:
				_ = enc.Encode(Reply{Result: &r, Error: ErrClosed.Error()})
			default:
			}
			return
		}
	}
}

func readOrder(c *net.UnixConn) (o Order, f *os.File, err error) {
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	b, oob := make([]byte, 4096), make([]byte, 64)
	n, k, _, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return o, nil, err
	}
	_ = c.SetReadDeadline(time.Time{})
	if messages, err := syscall.ParseSocketControlMessage(oob[:k]); err == nil {
		for _, m := range messages {
			fds, err := syscall.ParseUnixRights(&m)
			for i, fd := range fds {
				file := os.NewFile(uintptr(fd), "message")
				if err != nil || i > 0 || f != nil {
					file.Close()
					continue
				}
				f = file
			}
		}
	}
	err = json.Unmarshal(b[:n], &o)
	switch {
	case err != nil:
	case !o.To.IsValid() || o.To.Port() == 0:
		err = errors.New("an order without the receiver's address and port")
	case o.Length == 0:
		err = errors.New("an order without octets")
	case o.Class > rdcc.MaxClass:
		err = fmt.Errorf("class %d: 0 to %d", o.Class, rdcc.MaxClass)
	case f != nil:
		info, statErr := f.Stat()
		if statErr != nil || !info.Mode().IsRegular() || uint64(info.Size()) < o.Length {
			err = errors.New("the file beside the order is none, or shorter than the order says")
		}
	}
	if err != nil && f != nil {
		f.Close()
		f = nil
	}
	return o, f, err
}

// SendOver hands a message to the endpoint that listens on path, and waits for its end. progress may be nil.
func SendOver(ctx context.Context, path string, o Order, f *os.File, progress func(Progress)) (Result, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return Result{}, fmt.Errorf("rdcc: no endpoint listens on %s: %w", path, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	b, err := json.Marshal(o)
	if err != nil {
		return Result{}, err
	}
	var oob []byte
	if f != nil {
		oob = syscall.UnixRights(int(f.Fd()))
	}
	if _, _, err := conn.(*net.UnixConn).WriteMsgUnix(b, oob, nil); err != nil {
		return Result{}, fmt.Errorf("rdcc: socket %s: %w", path, err)
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		var r Reply
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return Result{}, fmt.Errorf("rdcc: socket %s: %w", path, err)
		}
		switch {
		case r.Progress != nil:
			if progress != nil {
				progress(*r.Progress)
			}
			continue
		case r.Error != "":
			err = errors.New(r.Error)
			for _, known := range errorsByText {
				if known.Error() == r.Error {
					err = known
				}
			}
		}
		if r.Result == nil {
			return Result{}, err
		}
		r.Result.Err = err
		return *r.Result, nil
	}
	if ctx.Err() != nil {
		return Result{}, ctx.Err()
	}
	return Result{}, fmt.Errorf("rdcc: socket %s: the endpoint has ended", path)
}
