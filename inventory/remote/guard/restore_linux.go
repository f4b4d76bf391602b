package guard

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	restoreOutput = 4 << 10         // bytes of its output that are kept
	restoreDrain  = 1 * time.Second // for the end of its output once it has ended
)

// restoring is a restore command at work.
type restoring struct {
	pid    int
	killed bool
	out    *os.File
	eof    chan struct{}
	mu     sync.Mutex
	tail   []byte
}

// startRestore starts the restore command, which has its own deadline and cannot be interrupted by a lost owner.
func (g *inner) startRestore() {
	g.finish = awaitRestore
	if len(g.cfg.Restore) == 0 {
		return
	}
	g.until = g.now() + restoreWait
	g.exit.Restore = &RestoreInfo{Args: g.cfg.Restore, Code: -1}
	r, err := startRestore(g.fam, g.cfg, g.env)
	if err != nil {
		g.exit.Restore.Error = err.Error()
		return
	}
	g.restore = r
}

// restoreEnded moves the restore command on and reports whether it is over.
func (g *inner) restoreEnded(now time.Duration) bool {
	if g.restore == nil {
		return true
	}
	if !g.restore.ended(g.fam, g.exit.Restore, now >= g.until) {
		return false
	}
	g.restore = nil
	return true
}

func startRestore(fam *family, cfg Config, env []string) (*restoring, error) {
	path, err := lookPath(cfg.Restore[0], cfg.Dir, env)
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer pw.Close()
	pid, err := fam.start(path, cfg.Restore, &syscall.ProcAttr{
		Dir: cfg.Dir, Env: env, Files: []uintptr{null.Fd(), pw.Fd(), pw.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		pr.Close()
		return nil, err
	}
	r := &restoring{pid: pid, out: pr, eof: make(chan struct{})}
	go func() {
		defer close(r.eof)
		buf := make([]byte, restoreOutput)
		for {
			n, err := pr.Read(buf)
			r.mu.Lock()
			r.tail = append(r.tail, buf[:n]...)
			if len(r.tail) > restoreOutput {
				r.tail = append([]byte(nil), r.tail[len(r.tail)-restoreOutput:]...)
			}
			r.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return r, nil
}

// ended fills info when the command is over. What it left behind is killed; so is the command itself when late.
func (r *restoring) ended(fam *family, info *RestoreInfo, late bool) bool {
	fam.reap()
	if r.pid != 0 {
		ws, ok := fam.status(r.pid)
		switch {
		case ok:
			r.pid = 0
			var sig string
			info.Code, sig = decode(ws)
			if sig != "" && info.Error == "" {
				info.Error = "ended by signal " + sig
			}
		case late:
			info.Error = "not done within " + restoreWait.String()
			signalAll(unix.SIGKILL)
			return false
		default:
			return false
		}
	}
	if len(descendants(os.Getpid())) > 0 && !late {
		signalAll(unix.SIGKILL)
		return false
	}
	// What was written is in the pipe and wants reading, even when this process got no time for it yet. Its end
	// comes by itself, unless a process that nobody may kill holds it open.
	r.out.SetReadDeadline(time.Now().Add(restoreDrain))
	<-r.eof
	r.out.Close()
	r.mu.Lock()
	info.Output = string(r.tail)
	r.mu.Unlock()
	return true
}

// sudoKill asks sudo to signal processes that belong to root. Without permission for that it does nothing.
func (f *family) sudoKill(signal string, procs []proc) {
	path, err := lookPath("sudo", "", os.Environ())
	if err != nil || os.Geteuid() == 0 {
		return
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer null.Close()
	args := []string{"sudo", "-n", "--", "kill", "-" + signal}
	for _, p := range procs {
		args = append(args, strconv.Itoa(p.pid))
	}
	f.start(path, args, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
}

func runDir(file string) string { return filepath.Dir(file) }
