package guard

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// runOuter holds the inner guard and does its work to the end when it is killed.
func runOuter(cfg Config, stdin, stdout, stderr *os.File) int {
	runtime.LockOSThread()
	fail := func(step string, err error) int {
		fmt.Fprintf(stderr, "guard: %s: %v\n", step, err)
		return 125
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fail("become subreaper", err)
	}
	sig := make(chan os.Signal, 8)
	signal.Notify(sig, unix.SIGCHLD, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)

	// The inner guard holds the read end: it sees the end of the pipe when this process dies.
	life, lifeW, err := os.Pipe()
	if err != nil {
		return fail("pipe", err)
	}
	defer lifeW.Close()
	cfg.inner, cfg.id = true, randomID(8)
	fam := newFamily()
	pid, err := fam.start("/proc/self/exe", append([]string{"pcmlab"}, cfg.Argv()...), &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{stdin.Fd(), stdout.Fd(), stderr.Fd(), life.Fd()},
	})
	life.Close()
	if err != nil {
		return fail("start inner guard", err)
	}
	for {
		if s := <-sig; s == unix.SIGTERM || s == unix.SIGINT {
			unix.Kill(pid, unix.SIGTERM)
		}
		fam.reap()
		ws, ok := fam.status(pid)
		if !ok {
			continue
		}
		if ws.Exited() {
			killRest(fam, sig, 0)
			return ws.ExitStatus()
		}
		_, name := decode(ws)
		killRest(fam, sig, max(cfg.Term, TermWait))
		cleanAfterInner(cfg, fam, sig, name)
		fmt.Fprintf(stderr, "guard: the inner guard was ended by signal %s; all that it had started was stopped\n", name)
		return 125
	}
}

// killRest ends every descendant: TERM, after wait KILL, for at most killWait.
func killRest(fam *family, sig <-chan os.Signal, wait time.Duration) (left []proc) {
	if wait > 0 {
		if n, _ := signalAll(unix.SIGTERM); n > 0 {
			signalAll(unix.SIGCONT)
			waitNone(fam, sig, wait, pollEnding, func() {})
		}
	}
	first := true
	waitNone(fam, sig, killWait, pollKilling, func() {
		_, denied := signalAll(unix.SIGKILL)
		if first && len(denied) > 0 {
			fam.sudoKill("KILL", denied)
		}
		first = false
	})
	return descendants(os.Getpid())
}

// waitNone waits until no descendant is left, for at most d, and calls each before every look.
func waitNone(fam *family, sig <-chan os.Signal, d, poll time.Duration, each func()) {
	end := time.Now().Add(d)
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		fam.reap()
		if len(descendants(os.Getpid())) == 0 || !time.Now().Before(end) {
			return
		}
		each()
		select {
		case <-sig:
		case <-tick.C:
		}
	}
}

// cleanAfterInner restores and records in the place of an inner guard that was killed.
func cleanAfterInner(cfg Config, fam *family, sig <-chan os.Signal, by string) {
	exit := ExitInfo{Code: -1, Cause: CauseGuardKilled, Error: "inner guard ended by signal " + by, Ended: time.Now()}
	for _, p := range descendants(os.Getpid()) {
		exit.Left = append(exit.Left, p.String())
	}
	file, rec := "", Record{}
	if dir, err := Dir(); err == nil {
		file = filepath.Join(dir, cfg.Run, cfg.id+".json")
		if recs, err := readRecords(file); err == nil && len(recs) > 0 {
			rec = recs[0]
			if recs[len(recs)-1].Event == "ended" {
				return // it had done its work
			}
		} else {
			file = ""
		}
		os.Remove(filepath.Join(dir, cfg.Run, cfg.id+".sock"))
	}
	if len(cfg.Restore) > 0 {
		exit.Restore = &RestoreInfo{Args: cfg.Restore, Code: -1}
		env := environ(append([]string{"PCMLAB_RUN=" + cfg.Run}, cfg.Env...))
		if r, err := startRestore(fam, cfg, env); err != nil {
			exit.Restore.Error = err.Error()
		} else {
			end := time.Now().Add(restoreWait)
			tick := time.NewTicker(pollEnding)
			defer tick.Stop()
			for !r.ended(fam, exit.Restore, time.Now().After(end)) {
				select {
				case <-sig:
				case <-tick.C:
				}
			}
		}
	}
	if file == "" {
		return
	}
	rec.Event, rec.At, rec.Exit, rec.Token = "ended", time.Now().UTC(), &exit, ""
	logEnd(rec)
	if exit.unmended() {
		appendRecord(file, rec)
	} else {
		os.Remove(file)
		os.Remove(runDir(file))
	}
}

// asFile returns the file behind a standard stream.
func asFile(name string, s any) (*os.File, error) {
	if f, ok := s.(*os.File); ok {
		return f, nil
	}
	return nil, fmt.Errorf("guard: %s is %T, want a file", name, s)
}
