package guard

import (
	"encoding/json"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	pollEnding  = 20 * time.Millisecond
	pollKilling = 2 * time.Millisecond
	drainAlive  = 30 * time.Second // for a slow owner to take the output of a command that ended by itself
	drainKilled = 2 * time.Second  // likewise, of one that was ended
)

// inner is the guard at work. All its state belongs to the loop of run; other goroutines post to it.
type inner struct {
	cfg    Config
	begin  time.Time
	life   lifecycle
	fam    *family
	out    *outbox
	link   *link // the owner's, the latest
	ready  ReadyInfo
	events chan func() // what other goroutines have to tell, run by the loop
	quit   chan struct{}

	path   string // of the executable
	env    []string
	pid    int      // of the command; 0 before it starts
	stdin  *os.File // nil when the command reads nothing
	input  *input
	outs   []*os.File // our ends of the command's output
	pumped chan struct{}

	exit    ExitInfo
	file    string // record; "" when there is none
	record  Record
	finish  finishPhase
	until   time.Duration // end of the present finish phase
	restore *restoring
	exitNo  uint64
}

// finishPhase is what remains when no descendant is left.
type finishPhase int

const (
	working      finishPhase = iota
	draining                 // output that the owner has not taken yet
	awaitRestore             // the restore command runs
	reporting                // Exit is sent, not yet acknowledged
	done
)

// runInner guards one command and returns its exit status, or 128 plus the signal that ended it.
func runInner(cfg Config, stdin io.Reader, stdout, stderr io.Writer, outerGone io.Reader) int {
	runtime.LockOSThread() // Pdeathsig of the command follows the thread that started it: this one, to the end
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		io.WriteString(stderr, "guard: become subreaper: "+err.Error()+"\n")
		return 125
	}
	g := &inner{
		cfg: cfg, begin: time.Now(), fam: newFamily(), out: newOutbox(),
		events: make(chan func()), quit: make(chan struct{}), pumped: make(chan struct{}),
	}
	g.input = newInput(func() { g.postFunc(func() { g.link.beatNow() }) })
	defer close(g.quit)
	g.life.o = timing{deadline: cfg.Deadline, grace: cfg.Grace, silence: cfg.Silence, term: cfg.Term}.withDefaults()

	sig := make(chan os.Signal, 8)
	signal.Notify(sig, unix.SIGCHLD, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)
	go func() {
		io.Copy(io.Discard, outerGone)
		g.postFunc(func() { g.step(event{kind: evStop, signal: "TERM", cause: CauseGuardKilled}) })
	}()

	host, boot := identity()
	g.ready = ReadyInfo{Run: cfg.Run, ID: cfg.id, Host: host, BootID: boot, PID: os.Getppid(), Held: cfg.Hold}
	g.env = environ(append([]string{"PCMLAB_RUN=" + cfg.Run}, cfg.Env...))
	path, lookErr := lookPath(cfg.Args[0], cfg.Dir, g.env)
	g.path, g.ready.Exec = path, path
	ln := g.openStore(stderr)
	if ln != nil {
		defer closeStore(ln)
		go g.accept(ln)
	}
	g.adopt(&link{r: stdin, w: stdout}, 0)

	switch {
	case lookErr != nil:
		g.exit.Error = lookErr.Error()
		g.life.phase, g.life.cause = ended, CauseStart
		g.beginFinish()
	case !cfg.Hold:
		g.step(event{kind: evGo})
	}
	return g.loop(sig)
}

func (g *inner) now() time.Duration { return time.Since(g.begin) }

// postFunc runs f in the loop; it is dropped when the guard has ended.
func (g *inner) postFunc(f func()) {
	select {
	case g.events <- f:
	case <-g.quit:
	}
}

func (g *inner) loop(sig <-chan os.Signal) int {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for g.finish != done {
		timer.Reset(max(0, g.next()-g.now()))
		select {
		case f := <-g.events:
			f()
		case s := <-sig:
			g.signalled(s)
		case <-g.pumped:
			g.pumped = nil
		case <-timer.C:
		}
		g.fam.reap()
		g.step(event{kind: evTick})
	}
	if g.exit.Code >= 0 {
		return g.exit.Code
	}
	if n := unix.SignalNum("SIG" + g.exit.Signal); n > 0 {
		return 128 + int(n)
	}
	return 125
}

// next is when the loop must wake without an event.
func (g *inner) next() time.Duration {
	t := g.life.deadline()
	switch {
	case g.finish == draining || g.finish == awaitRestore:
		t = min(g.until, g.now()+pollEnding)
	case g.finish == reporting && !g.life.lost:
		t = min(t, g.until)
	case g.finish != working:
	case g.life.phase == ending:
		t = min(t, g.now()+pollEnding)
	case g.life.phase == killing:
		t = min(t, g.now()+pollKilling)
	}
	return t
}

func (g *inner) signalled(s os.Signal) {
	switch s {
	case unix.SIGTERM, unix.SIGINT:
		g.step(event{kind: evStop, signal: "TERM", cause: CauseSignal})
	case unix.SIGHUP:
		g.step(event{kind: evLost})
	}
}

// step feeds the life cycle and does what it says, including what follows at once.
func (g *inner) step(ev event) {
	acts := g.life.step(g.now(), ev, nil)
	if g.collect() {
		acts = g.life.step(g.now(), event{kind: evExit}, acts)
	}
	for _, a := range acts {
		switch a.kind {
		case actStart:
			g.start()
		case actSignal:
			g.signal(a.signal)
		case actKill:
			g.signal("KILL")
		case actFinish:
			g.beginFinish()
		}
	}
	if g.finish == working && (g.life.phase == ending || g.life.phase == killing) {
		if g.noneLeft() {
			for _, a := range g.life.step(g.now(), event{kind: evNone}, nil) {
				if a.kind == actFinish {
					g.beginFinish()
				}
			}
		} else if g.life.phase == killing {
			signalAll(unix.SIGKILL) // again: forks may have run ahead
		}
	}
	g.proceed()
}

// collect takes the command's exit status when it has ended, and reports whether that was just now.
func (g *inner) collect() bool {
	if g.pid == 0 {
		return false
	}
	g.fam.reap()
	ws, ok := g.fam.status(g.pid)
	if !ok {
		return false
	}
	g.pid = 0
	g.exit.Code, g.exit.Signal = decode(ws)
	g.exit.Ended = time.Now()
	if g.life.phase == running {
		g.exit.Leftover = len(descendants(os.Getpid()))
	}
	return true
}

// noneLeft reports whether the command and all that it started have ended. The command may be dead and not yet
// collected: its status comes first.
func (g *inner) noneLeft() bool {
	g.collect()
	g.fam.reap()
	return g.pid == 0 && len(descendants(os.Getpid())) == 0
}

func (g *inner) signal(name string) {
	n := unix.SignalNum("SIG" + name)
	if n == 0 {
		n = unix.SIGTERM
	}
	_, denied := signalAll(n)
	if len(denied) > 0 {
		g.fam.sudoKill(name, denied)
	}
	if n != unix.SIGKILL {
		signalAll(unix.SIGCONT) // a stopped process could not act on it
	}
}

// start starts the command on this thread.
func (g *inner) start() {
	files, err := g.openStreams()
	if err == nil {
		g.pid, err = g.fam.start(g.path, g.cfg.Args, &syscall.ProcAttr{
			Dir: g.cfg.Dir, Env: g.env,
			Files: []uintptr{files[0].Fd(), files[1].Fd(), files[2].Fd()},
			Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
		})
	}
	for _, f := range files {
		f.Close()
	}
	if err != nil {
		close(g.pumped)
		g.exit.Error = err.Error()
		for _, a := range g.life.step(g.now(), event{kind: evStartFailed}, nil) {
			if a.kind == actFinish {
				g.beginFinish()
			}
		}
		return
	}
	now := time.Now()
	g.exit.Started = &now
	b, _ := json.Marshal(StartedInfo{PID: g.pid, At: now})
	g.out.control(Started, b)

	var wg sync.WaitGroup
	for i, t := range []Type{Stdout, Stderr} {
		r := g.outs[i]
		wg.Go(func() {
			buf := make([]byte, MaxPayload/2)
			for {
				n, err := r.Read(buf)
				g.out.output(t, buf[:n])
				if err != nil {
					return
				}
			}
		})
	}
	pumped := g.pumped
	go func() { wg.Wait(); close(pumped) }()
	if g.stdin != nil {
		go g.input.feed(g.stdin)
	}
}

// openStreams makes the command's three files, which the caller closes, and keeps our ends.
func (g *inner) openStreams() (files []*os.File, err error) {
	defer func() {
		if err != nil {
			for _, f := range append(files, g.outs...) {
				f.Close()
			}
			files, g.outs = nil, nil
		}
	}()
	if g.cfg.Stdin {
		r, w, err := os.Pipe()
		if err != nil {
			return files, err
		}
		files, g.stdin = append(files, r), w
	} else {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
	for range 2 {
		r, w, err := os.Pipe()
		if err != nil {
			return files, err
		}
		files, g.outs = append(files, w), append(g.outs, r)
	}
	return files, nil
}

// adopt makes l the owner's link, which lacks the numbered frame next.
func (g *inner) adopt(l *link, next uint64) {
	if g.link != nil {
		g.link.end()
	}
	l.ready, l.out = g.ready, g.out
	l.ready.Next = next
	l.ready.Held = g.life.phase == held
	l.ready.Input = g.input.received()
	l.consumed = g.input.consumed
	l.post = func(e linkEvent) { g.postFunc(func() { g.received(e) }) }
	g.link = l
	l.run()
}

// received handles what the owner sent.
func (g *inner) received(e linkEvent) {
	if e.link != g.link {
		return // of an owner that has been replaced
	}
	if e.err != nil {
		g.link.end()
		g.step(event{kind: evLost})
		return
	}
	g.step(event{kind: evHeard})
	switch e.frame.Type {
	case Go:
		g.step(event{kind: evGo})
	case Signal:
		if g.pid != 0 {
			g.signal(string(e.frame.Payload))
		}
	case Stop:
		g.step(event{kind: evStop, signal: string(e.frame.Payload), cause: CauseStop})
	case Stdin:
		g.input.write(e.frame.Payload)
	case StdinClose:
		g.input.close()
	}
}

// proceed moves on through what remains when no descendant is left.
func (g *inner) proceed() {
	now := g.now()
	if g.finish == draining {
		if g.pumped != nil && now < g.until && !g.life.abandoned(now) {
			return
		}
		g.out.closeOutput()
		for _, f := range g.outs {
			f.Close() // a holder that is no descendant would keep us reading for ever
		}
		g.startRestore()
	}
	if g.finish == awaitRestore {
		if !g.restoreEnded(now) {
			return
		}
		g.report()
	}
	if g.finish == reporting && (g.out.acked(g.exitNo) || g.life.abandoned(now) || now >= g.until || g.life.cause == CauseGuardKilled) {
		g.close(g.out.acked(g.exitNo))
	}
}

func (g *inner) beginFinish() {
	if g.finish != working {
		return
	}
	if g.pid != 0 { // could not be killed
		g.exit.Code, g.exit.Ended = -1, time.Now()
	}
	if g.exit.Started == nil {
		g.exit.Code, g.exit.Ended = -1, time.Now()
		g.pumped = nil // nothing to drain
	}
	g.exit.Cause = g.life.cause
	for _, p := range descendants(os.Getpid()) {
		g.exit.Left = append(g.exit.Left, p.String())
	}
	g.input.close()
	g.finish = draining
	g.until = g.now() + drainAlive
	if g.life.cause != "" {
		g.until = g.now() + drainKilled
	}
}

// report queues the last frame.
func (g *inner) report() {
	g.exit.Dropped = g.out.droppedBytes()
	b, err := json.Marshal(g.exit)
	if err != nil || len(b) > MaxPayload {
		b, _ = json.Marshal(ExitInfo{Code: g.exit.Code, Signal: g.exit.Signal, Cause: g.exit.Cause, Ended: g.exit.Ended, Started: g.exit.Started})
	}
	g.exitNo = g.out.control(Exit, b)
	g.finish = reporting
	g.until = g.now() + drainAlive
	if g.exit.unmended() {
		g.writeEnded()
	}
}

// unmended says that something is left that somebody has to see to.
func (x *ExitInfo) unmended() bool {
	return len(x.Left) > 0 || x.Restore != nil && x.Restore.Code != 0
}

// acted says that the guard had to do more than its owner asked for.
func (x *ExitInfo) acted() bool {
	switch x.Cause {
	case "", CauseStop, CauseStart:
		return x.unmended()
	default:
		return true
	}
}

func (g *inner) close(acked bool) {
	g.finish = done
	if g.file == "" {
		return
	}
	if g.exit.acted() || !acked { // nobody has the result
		logEnd(g.ended())
	}
	if !g.exit.unmended() {
		os.Remove(g.file)
		os.Remove(runDir(g.file)) // when it is empty
	}
}

// ended is the last line of the guard's record.
func (g *inner) ended() Record {
	r := g.record
	r.Event, r.At, r.Exit, r.Token = "ended", time.Now().UTC(), &g.exit, ""
	return r
}

func (g *inner) writeEnded() {
	if g.file != "" {
		appendRecord(g.file, g.ended())
	}
}
