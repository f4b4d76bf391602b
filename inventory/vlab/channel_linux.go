package vlab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// message goes between the caller, the keeper and the hosts. Unused fields are absent.
type message struct {
	Type     string      `json:"type"`
	Text     string      `json:"text,omitempty"`
	Name     string      `json:"name,omitempty"`
	PID      int         `json:"pid,omitempty"` // as the keeper sees it
	From     string      `json:"from,omitempty"`
	To       string      `json:"to,omitempty"`
	Timeout  int64       `json:"timeout_ns,omitempty"`
	Offloads []Offload   `json:"offloads,omitempty"`
	Made     *Provenance `json:"made,omitempty"`
	Spec     *keeperSpec `json:"spec,omitempty"`
}

// The types of message.
const (
	msgSpec   = "spec"   // caller to keeper: build this
	msgCommit = "commit" // caller to keeper: the lab is recorded as ready and may outlive its caller
	msgStep   = "step"   // keeper to caller: this was done
	msgHost   = "host"   // keeper to caller: a host's init process
	msgFabric = "fabric" // keeper to caller: a fabric process
	msgReady  = "ready"  // all is up
	msgError  = "error"  // it cannot be built
	msgEvent  = "event"  // something of a running lab died
	msgLinks  = "links"  // keeper to host: your interfaces are there
	msgNet    = "net"    // host to keeper: my interfaces are configured; carries TAP descriptors and /run/pcmlab
	msgStart  = "start"  // keeper to host: start SSH and NIC daemons
	msgProbe  = "probe"  // keeper to host: exchange datagrams; host to keeper: the answer, Text empty when fine
)

const maxMessage = 160 << 10 // below the default socket buffer

// packetPair makes a connected pair of SOCK_SEQPACKET sockets: messages keep their borders and may carry descriptors.
func packetPair() (ours *channel, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "channel")
	ours, err = newChannel(os.NewFile(uintptr(fds[0]), "channel"))
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// channel is one end. Sending is safe from several goroutines, receiving from one.
type channel struct {
	conn *net.UnixConn
	mu   sync.Mutex
	buf  []byte
	oob  []byte
}

// newChannel takes f over.
func newChannel(f *os.File) (*channel, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	uc, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("descriptor %d is no UNIX socket: started by hand?", f.Fd())
	}
	return &channel{conn: uc, buf: make([]byte, maxMessage), oob: make([]byte, unix.CmsgSpace(4*64))}, nil
}

func (c *channel) send(m message, fds ...int) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(b) > maxMessage {
		return fmt.Errorf("message %q: %d bytes, at most %d fit", m.Type, len(b), maxMessage)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, _, err = c.conn.WriteMsgUnix(b, oob, nil)
	return err
}

// receive waits for the next message. The descriptors are the caller's to close. io.EOF when the other end is gone.
func (c *channel) receive() (message, []int, error) {
	var m message
	n, oobn, flags, _, err := c.conn.ReadMsgUnix(c.buf, c.oob)
	if err != nil {
		if errors.Is(err, unix.ECONNRESET) {
			err = io.EOF
		}
		return m, nil, err
	}
	if n == 0 && oobn == 0 {
		return m, nil, io.EOF
	}
	fds, err := rights(c.oob[:oobn])
	if err != nil {
		return m, nil, err
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		closeAll(fds)
		return m, nil, fmt.Errorf("message cut: more than %d bytes or 64 descriptors", maxMessage)
	}
	if err := json.Unmarshal(c.buf[:n], &m); err != nil {
		closeAll(fds)
		return m, nil, err
	}
	return m, fds, nil
}

func rights(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, m := range msgs {
		got, err := unix.ParseUnixRights(&m)
		if err != nil {
			closeAll(fds)
			return nil, err
		}
		fds = append(fds, got...)
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

func (c *channel) close() { c.conn.Close() }
