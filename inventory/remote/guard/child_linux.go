package guard

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// family reaps every child of this process, its own and orphans that became its children. os/exec must not be used
// beside it.
type family struct {
	mu   sync.Mutex
	own  map[int]bool               // started here, not yet ended
	ends map[int]syscall.WaitStatus // ended, not yet asked for
}

func newFamily() *family {
	return &family{own: map[int]bool{}, ends: map[int]syscall.WaitStatus{}}
}

// start starts a process. The calling goroutine must be locked to its thread when attr asks for Pdeathsig.
func (f *family) start(path string, args []string, attr *syscall.ProcAttr) (int, error) {
	f.mu.Lock() // reap must not see the child before own does
	defer f.mu.Unlock()
	pid, err := syscall.ForkExec(path, args, attr)
	if err == nil {
		f.own[pid] = true
	}
	return pid, err
}

// reap collects all children that have ended. Call it on SIGCHLD.
func (f *family) reap() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if f.own[pid] {
			delete(f.own, pid)
			f.ends[pid] = ws
		}
	}
}

// status returns how a process that was started here ended, once.
func (f *family) status(pid int) (syscall.WaitStatus, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ws, ok := f.ends[pid]
	if ok {
		delete(f.ends, pid)
	}
	return ws, ok
}

// decode splits a status into the command's exit status and the name of the signal that ended it.
func decode(ws syscall.WaitStatus) (code int, signal string) {
	if ws.Signaled() {
		return -1, strings.TrimPrefix(unix.SignalName(ws.Signal()), "SIG")
	}
	return ws.ExitStatus(), ""
}

// lookPath finds the executable of a command as its environment and directory say.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(path) && dir != "" {
			path = filepath.Join(dir, path)
		}
		return path, executable(path)
	}
	search := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = v
		}
	}
	// Login shells of plain users often lack the sbin folders, where ethtool and tc are.
	for _, d := range filepath.SplitList(search + ":/usr/local/sbin:/usr/sbin:/sbin") {
		if d == "" {
			d = "."
		}
		if path := filepath.Join(d, name); executable(path) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w in %s", name, exec.ErrNotFound, search)
}

func executable(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st.IsDir() {
		return &os.PathError{Op: "exec", Path: path, Err: syscall.EISDIR}
	}
	return unix.Access(path, unix.X_OK)
}

// environ is the guard's environment with extra added; later values win.
func environ(extra []string) []string {
	keys := map[string]int{}
	var out []string
	for _, kv := range append(os.Environ(), extra...) {
		k, _, _ := strings.Cut(kv, "=")
		if i, ok := keys[k]; ok {
			out[i] = kv
			continue
		}
		keys[k] = len(out)
		out = append(out, kv)
	}
	return out
}
