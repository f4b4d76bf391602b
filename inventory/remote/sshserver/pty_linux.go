package sshserver

import (
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// pty is the terminal of an interactive session.
type pty struct {
	master, slave *os.File
	term          string
}

// openPTY answers pty-req (RFC 4254 section 6.2). Terminal modes are left at the kernel's defaults.
func (s *session) openPTY(payload []byte) bool {
	var p struct {
		Term                string
		Columns, Rows, W, H uint32
		Modes               string
	}
	if ssh.Unmarshal(payload, &p) != nil {
		return false
	}
	t, err := newPTY()
	if err != nil {
		s.o.Log.Warn("terminal", "err", err)
		return false
	}
	t.term = p.Term
	t.setSize(p.Columns, p.Rows)
	s.pty = t
	return true
}

func newPTY() (*pty, error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/ptmx: %w", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("unlock terminal: %w", err)
	}
	name := fmt.Sprintf("/dev/pts/%d", n)
	slave, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &pty{master: os.NewFile(uintptr(fd), "/dev/ptmx"), slave: slave}, nil
}

func (t *pty) attach(cmd *exec.Cmd) (streams, error) {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = t.slave, t.slave, t.slave
	cmd.SysProcAttr.Setctty = true
	cmd.Env = append(cmd.Env, "TERM="+t.term)
	return streams{in: t.master, out: t.master, far: []*os.File{t.slave}, sharedIn: true}, nil
}

func (t *pty) resize(payload []byte) bool {
	var p struct{ Columns, Rows, W, H uint32 }
	return ssh.Unmarshal(payload, &p) == nil && t.setSize(p.Columns, p.Rows)
}

func (t *pty) setSize(columns, rows uint32) bool {
	ok := false
	if rc, err := t.master.SyscallConn(); err == nil {
		rc.Control(func(fd uintptr) {
			ok = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(columns)}) == nil
		})
	}
	return ok
}

func (t *pty) close() {
	t.master.Close()
	t.slave.Close()
}
