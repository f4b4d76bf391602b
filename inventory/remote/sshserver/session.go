package sshserver

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// session is one session channel: at most one command, shell or subsystem (RFC 4254 section 6).
type session struct {
	*connection
	ch   ssh.Channel
	env  []string
	used bool // a command, shell or subsystem has been asked for
	wg   sync.WaitGroup
	gone chan struct{} // closed when the client has closed the channel or is lost
	pty  *pty          // nil: none asked for

	mu  sync.Mutex
	cmd *exec.Cmd // running command, for signals; nil before and after
}

func newSession(c *connection, ch ssh.Channel) *session {
	return &session{connection: c, ch: ch, gone: make(chan struct{})}
}

// run answers the channel's requests until the client closes it, then waits for what it started.
func (s *session) run(reqs <-chan *ssh.Request) {
	defer func() {
		close(s.gone)
		s.wg.Wait()
		s.ch.Close()
		if s.pty != nil {
			s.pty.close()
		}
	}()
	for req := range reqs {
		ok := s.request(req)
		if req.WantReply {
			req.Reply(ok, nil)
		}
	}
}

func (s *session) request(req *ssh.Request) bool {
	switch req.Type {
	case "env":
		var kv struct{ Name, Value string }
		if ssh.Unmarshal(req.Payload, &kv) != nil || kv.Name == "" {
			return false
		}
		s.env = append(s.env, kv.Name+"="+kv.Value)
		return true
	case "exec":
		var p struct{ Command string }
		if s.used || ssh.Unmarshal(req.Payload, &p) != nil {
			return false
		}
		s.used = true
		return s.start(exec.Command(s.o.Shell, "-c", p.Command))
	case "shell":
		if s.used {
			return false
		}
		s.used = true
		return s.start(exec.Command(s.o.Shell, "-l"))
	case "subsystem":
		var p struct{ Name string }
		if s.used || ssh.Unmarshal(req.Payload, &p) != nil || p.Name != "sftp" || !s.o.SFTP {
			return false
		}
		s.used = true
		s.wg.Go(s.sftp)
		return true
	case "signal":
		var p struct{ Name string }
		if ssh.Unmarshal(req.Payload, &p) != nil {
			return false
		}
		return s.signal(unix.SignalNum("SIG" + p.Name))
	case "pty-req":
		return !s.used && s.pty == nil && s.openPTY(req.Payload)
	case "window-change":
		return s.pty != nil && s.pty.resize(req.Payload)
	default:
		return false
	}
}

func (s *session) signal(sig syscall.Signal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil || sig == 0 {
		return false
	}
	// The command is the leader of its own session, so its group has its number.
	return unix.Kill(-s.cmd.Process.Pid, sig) == nil || s.cmd.Process.Signal(sig) == nil
}

// start starts the command and the goroutines that carry its streams.
func (s *session) start(cmd *exec.Cmd) bool {
	cmd.Dir = s.o.Home
	cmd.Env = append(append([]string{}, s.o.Env...), s.env...)
	cmd.Env = append(cmd.Env, connectionEnv(s.conn)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}

	var streams streams
	var err error
	if s.pty != nil {
		streams, err = s.pty.attach(cmd)
	} else {
		streams, err = pipes(cmd)
	}
	if err != nil {
		s.o.Log.Warn("session streams", "err", err)
		return false
	}
	err = s.o.Start(cmd)
	streams.closeFar()
	if err != nil {
		streams.closeNear()
		s.o.Log.Warn("start command", "err", err)
		// As a shell would answer for a command that cannot run.
		io.WriteString(s.ch.Stderr(), err.Error()+"\n")
		s.wg.Go(func() { s.finish(126, "") })
		return true
	}
	s.mu.Lock()
	s.cmd = cmd
	s.mu.Unlock()

	s.wg.Go(func() {
		io.Copy(streams.in, s.ch)
		streams.closeIn()
	})
	var out sync.WaitGroup
	out.Go(func() { io.Copy(s.ch, streams.out) })
	if streams.err != nil {
		out.Go(func() { io.Copy(s.ch.Stderr(), streams.err) })
	}
	ended := make(chan struct{}) // command and its output
	s.wg.Go(func() {
		defer close(ended)
		code, sig := s.wait(cmd)
		s.sendExit(code, sig)
		// A background child may hold the output open: as with sshd the channel then stays open too.
		out.Wait()
		s.ch.CloseWrite()
		s.ch.Close()
	})
	s.wg.Go(func() {
		select {
		case <-s.gone:
		case <-ended:
		}
		streams.closeNear() // the command sees EOF on its input and EPIPE on its output, as with sshd
	})
	s.wg.Go(func() { s.killAtEnd(cmd, ended) })
	return true
}

// killAtEnd ends the command when the server ends.
func (s *session) killAtEnd(cmd *exec.Cmd, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-s.ctx.Done():
	}
	s.signal(unix.SIGHUP)
	grace := time.NewTimer(s.o.KillGrace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
		s.signal(unix.SIGKILL)
	}
}

func (s *session) wait(cmd *exec.Cmd) (code int, signal string) {
	ws, err := s.o.Wait(cmd)
	s.mu.Lock()
	s.cmd = nil
	s.mu.Unlock()
	switch {
	case err != nil:
		s.o.Log.Warn("wait for command", "err", err)
		return 255, ""
	case ws.Signaled():
		return -1, unix.SignalName(ws.Signal())
	default:
		return ws.ExitStatus(), ""
	}
}

func (s *session) sendExit(code int, signal string) {
	if signal == "" {
		s.ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(code)}))
		return
	}
	s.ch.SendRequest("exit-signal", false, ssh.Marshal(struct {
		Signal     string
		CoreDumped bool
		Message    string
		Language   string
	}{Signal: trimSIG(signal)}))
}

func (s *session) finish(code int, signal string) {
	s.sendExit(code, signal)
	s.ch.CloseWrite()
	s.ch.Close()
}

func (s *session) sftp() {
	srv, err := sftp.NewServer(s.ch, sftp.WithServerWorkingDirectory(s.o.Home))
	if err != nil {
		s.finish(1, "")
		return
	}
	err = srv.Serve()
	srv.Close() // closes files that a lost client left open
	if err != nil && !errors.Is(err, io.EOF) {
		s.o.Log.Debug("sftp", "err", err)
		s.finish(1, "")
		return
	}
	s.finish(0, "")
}

func trimSIG(name string) string {
	if len(name) > 3 && name[:3] == "SIG" {
		return name[3:]
	}
	return name
}

func connectionEnv(conn ssh.ConnMetadata) []string {
	ch, cp, err1 := net.SplitHostPort(conn.RemoteAddr().String())
	sh, sp, err2 := net.SplitHostPort(conn.LocalAddr().String())
	if err1 != nil || err2 != nil {
		return nil
	}
	return []string{"SSH_CLIENT=" + ch + " " + cp + " " + sp, "SSH_CONNECTION=" + ch + " " + cp + " " + sh + " " + sp}
}

// streams are the server's ends of a command's standard streams. err is nil with a terminal.
type streams struct {
	in, out, err *os.File
	far          []*os.File // the command's ends, closed here once it has them
	sharedIn     bool       // in and out are one terminal: closing one closes both
}

func (s *streams) closeFar() {
	for _, f := range s.far {
		f.Close()
	}
}

// closeIn ends the command's input.
func (s *streams) closeIn() {
	if s.sharedIn {
		s.in.Write([]byte{4}) // ^D
		return
	}
	s.in.Close()
}

func (s *streams) closeNear() {
	s.in.Close()
	s.out.Close()
	if s.err != nil {
		s.err.Close()
	}
}

// pipes gives cmd plain pipes. os/exec's own would make Wait wait for background children that hold them.
func pipes(cmd *exec.Cmd) (streams, error) {
	var f [6]*os.File
	for i := 0; i < 6; i += 2 {
		r, w, err := os.Pipe()
		if err != nil {
			for _, g := range f[:i] {
				g.Close()
			}
			return streams{}, err
		}
		f[i], f[i+1] = r, w
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = f[0], f[3], f[5]
	return streams{in: f[1], out: f[2], err: f[4], far: []*os.File{f[0], f[3], f[5]}}, nil
}
