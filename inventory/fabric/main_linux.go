package fabric

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Main is the fabric's process: it moves packets between the inherited descriptors of cfg until ctx ends or SIGTERM or
// SIGINT comes (nil), or all ports are gone (ErrPortsGone). It owns the descriptors and closes them.
func Main(ctx context.Context, cfg Config) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// A collection could hold up the data path. It makes no garbage, and questions make little: collect late.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryLimit)
	var ready io.Writer
	if cfg.ReadyFD > 0 {
		unix.CloseOnExec(cfg.ReadyFD)
		f := os.NewFile(uintptr(cfg.ReadyFD), "ready")
		defer f.Close()
		ready = f
	}
	return Run(ctx, cfg, ready, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

// memoryLimit is where garbage collection begins in the fabric's process.
const memoryLimit = 1 << 30

// Run is Main for a caller that handles signals itself: it writes "ready\n" to ready (may be nil), and closes it if it
// is an io.Closer, when packets flow. Nil log discards. It always closes the descriptors of cfg.
func Run(ctx context.Context, cfg Config, ready io.Writer, log *slog.Logger) error {
	defer closeAll(cfg)
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err := cfg.check(); err != nil {
		return fmt.Errorf("fabric %q: %w", cfg.Name, err)
	}
	cfg = cfg.withDefaults()
	if env := IO(os.Getenv(EnvIO)); cfg.IO == IOAuto && env != IOAuto {
		if !slices.Contains([]IO{IOUring, IOReadWrite, IOPacket}, env) {
			return fmt.Errorf("fabric %q: %s=%q: need %s, %s or %s", cfg.Name, EnvIO, env, IOUring, IOReadWrite, IOPacket)
		}
		cfg.IO = env
	}
	e, err := newEngine(cfg, log)
	if err != nil {
		return fmt.Errorf("fabric %q: %w", cfg.Name, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if cfg.Control != "" {
		l, err := listen(cfg.Control)
		if err != nil {
			e.io.close()
			return fmt.Errorf("fabric %q: control socket: %w", cfg.Name, err)
		}
		wg.Go(func() { e.control(ctx, l) })
	}
	err = e.run(ctx, func() {
		if ready != nil {
			if _, err := io.WriteString(ready, "ready\n"); err != nil {
				log.Warn("starter is not there to hear that the fabric is ready", "error", err)
			}
			if c, ok := ready.(io.Closer); ok {
				_ = c.Close()
			}
		}
	})
	if err != nil && !errors.Is(err, ErrPortsGone) {
		err = fmt.Errorf("fabric %q: %w", cfg.Name, err)
	}
	return err
}

// closeAll closes all descriptors at once: each TAP that goes away costs an RCU grace period, but they can share it.
func closeAll(cfg Config) {
	var wg sync.WaitGroup
	for _, p := range cfg.Ports {
		wg.Go(func() { _ = unix.Close(p.FD) })
	}
	for _, m := range cfg.Mirrors {
		wg.Go(func() { _ = unix.Close(m.FD) })
	}
	wg.Wait()
}

// listen opens the control socket, in place of one that a killed fabric left behind.
func listen(path string) (net.Listener, error) {
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return nil, fmt.Errorf("%s: another fabric answers there", path)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// maxClients bounds the connections served at once; more wait in the listener's backlog.
const maxClients = 16

// control serves the socket until ctx ends; it owns l.
func (e *engine) control(ctx context.Context, l net.Listener) {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, maxClients)
	for {
		slots <- struct{}{} // freed by a client's end, which ctx forces
		conn, err := l.Accept()
		if err != nil {
			return
		}
		wg.Go(func() {
			defer func() { <-slots }()
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			defer conn.Close()
			e.serveClient(ctx, conn)
		})
	}
}

const clientIdle = time.Minute

func (e *engine) serveClient(ctx context.Context, conn net.Conn) {
	lines := bufio.NewScanner(conn)
	lines.Buffer(make([]byte, 4096), 64<<10)
	out := json.NewEncoder(conn)
	for {
		if conn.SetDeadline(time.Now().Add(clientIdle)) != nil || !lines.Scan() {
			return
		}
		a := e.answer(ctx, lines.Bytes())
		if out.Encode(a) != nil {
			return
		}
	}
}

func (e *engine) answer(ctx context.Context, line []byte) Answer {
	var r Request
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return Answer{Error: fmt.Sprintf("request: %v", err)}
	}
	var a Answer
	var err error
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	switch r.Op {
	case "counters":
		var c Counters
		if err = e.do(ctx, func() { c = e.counters() }); err == nil {
			a.Counters = &c
		}
	case "reset_lateness":
		err = e.do(ctx, e.resetLateness)
	case "set":
		var refused error
		if err = e.do(ctx, func() { refused = e.set(r) }); err == nil {
			err = refused
		}
	default:
		err = fmt.Errorf("op %q: need counters, reset_lateness or set", r.Op)
	}
	if err != nil {
		a = Answer{Error: err.Error()}
	}
	return a
}

// set changes one port's link; on the engine's thread.
func (e *engine) set(r Request) error {
	port := slices.IndexFunc(e.cfg.Ports, func(p PortConfig) bool { return p.Name == r.Port })
	if port < 0 {
		return fmt.Errorf("no port %q", r.Port)
	}
	l := e.sw.Link(port)
	if r.Buffer != nil {
		l.Buffer = *r.Buffer
	}
	if r.Rate != nil {
		l.Rate = *r.Rate
	}
	if r.Delay != nil {
		l.Delay = *r.Delay
	}
	if r.ECN != nil {
		l.ECN = nil
		if err := json.Unmarshal(r.ECN, &l.ECN); err != nil {
			return fmt.Errorf("ecn: %w", err)
		}
	}
	if err := e.sw.SetLink(port, l); err != nil {
		return fmt.Errorf("port %q: %w", r.Port, err)
	}
	return nil
}
