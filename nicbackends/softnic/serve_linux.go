package softnic

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/engine"
	"github.com/pcmlab/pcmlab/pcm/calls"
)

// server is a running NIC: the loop, the listener, and one attachment a client.
type server struct {
	c       Config
	mac     [6]byte
	pathMTU int
	nic     *engine.NIC // the loop's
	loop    *loop

	wg     sync.WaitGroup // attachments
	nextID uint64         // the accepting goroutine's

	mu      sync.Mutex
	conns   map[*net.UnixConn]bool
	closing bool

	viewMu sync.Mutex
	view   *sysfsView // nil: nothing is published

	load     Loader
	handlers []HandlerStatus // the loop's, as are the calls
	calls    *calls.Log      // nil: no diagnostic mode

	rdccBefore map[string]uint64 // the loop's: counters of gates that were closed
}

// Serve runs a software NIC until ctx ends, and then returns nil. The NIC is ready when its socket accepts connections.
//
// It raises GOMAXPROCS to 4 where it is lower: the loop's thread blocks in system calls, and the runtime must not make
// it queue for a processor when it comes back.
//
// load loads handlers; a program that cannot gives nil.
func Serve(ctx context.Context, c Config, load Loader) error {
	c, err := c.withDefaults()
	if err != nil {
		return fmt.Errorf("NIC: %w", err)
	}
	s := &server{c: c, conns: map[*net.UnixConn]bool{}, load: load, rdccBefore: map[string]uint64{}}
	if err := s.open(); err != nil {
		return fmt.Errorf("NIC %s: %w", c.Device, err)
	}
	if err := s.run(ctx); err != nil {
		return fmt.Errorf("NIC %s: %w", c.Device, err)
	}
	return nil
}

// open fills in what the network interface says and makes the engine and its sockets.
func (s *server) open() error {
	if s.c.MTU == 0 || s.c.MAC == "" {
		i, err := net.InterfaceByName(s.c.Netdev)
		if err != nil {
			return fmt.Errorf("netdev %q: %w", s.c.Netdev, err)
		}
		if s.c.MTU == 0 {
			s.c.MTU = i.MTU
		}
		if s.c.MAC == "" {
			s.c.MAC = i.HardwareAddr.String()
		}
	}
	if mac, err := net.ParseMAC(s.c.MAC); err == nil && len(mac) == 6 {
		s.mac = [6]byte(mac)
	} else if s.c.MAC != "" { // the loopback has none
		return fmt.Errorf("mac %q: want six bytes, such as 02:00:00:00:00:01", s.c.MAC)
	}
	var err error
	if s.pathMTU, err = engine.PathMTU(s.c.MTU); err != nil {
		return fmt.Errorf("netdev %q: %w", s.c.Netdev, err)
	}
	s.nic, err = engine.New(engine.Config{
		IP: s.c.IP.Addr().As4(), Rate: units.Rate(s.c.RateBps), MTU: s.pathMTU, DSCP: s.c.DSCP, ECN: s.c.ECN,
		DCQCN: s.c.DCQCN.Enabled, Params: s.c.DCQCN.Hardware().Scale(s.c.Scale), Scale: s.c.Scale,
		AckEvery: s.c.AckEvery, Window: s.c.MaxOutstanding, CatchUp: s.c.MaxCatchUp,
		AcceptForeign: s.c.ForeignICRC == "accept", Random: rand.Uint32,
		FirstQPN: 0x11 + rand.Uint32N(1<<16), // stale packets of an earlier NIC must not meet a new queue pair
	})
	if err != nil {
		return err
	}
	s.loop, err = newLoop(s.c, s.nic, s.c.MTU+128)
	return err
}

func (s *server) run(ctx context.Context) error {
	if runtime.GOMAXPROCS(0) < 4 {
		runtime.GOMAXPROCS(4)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	loopErr := make(chan error, 1)
	go func() { loopErr <- s.loop.run(ctx) }()
	fail := func(err error) error {
		cancel()
		return errors.Join(err, <-loopErr)
	}
	if s.c.Sysfs != "" {
		view, err := newSysfsView(s.c, s.mac)
		if err != nil {
			return fail(err)
		}
		s.view = view
		if err := s.publish(); err != nil {
			return fail(err)
		}
		defer func() { _ = s.view.remove() }()
	}
	listener, err := listen(s.c.Socket)
	if err != nil {
		return fail(err)
	}
	var helpers sync.WaitGroup
	helpers.Go(func() { s.accept(listener) })
	helpers.Go(func() { s.publishOften(ctx) })

	err = <-loopErr // ends with ctx, or fails
	cancel()
	listener.Close()
	s.closeAll()
	helpers.Wait()
	s.wg.Wait()
	return err
}

// listen opens the socket, over one that a dead NIC left behind but not over a live one.
func listen(path string) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("socket directory: %w", err)
	}
	addr := &net.UnixAddr{Name: path, Net: "unixpacket"}
	if c, err := net.DialUnix("unixpacket", nil, addr); err == nil {
		c.Close()
		return nil, fmt.Errorf("socket %s: another NIC listens there (end it, or give this one another device name or socket)", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("stale socket: %w", err)
	}
	l, err := net.ListenUnix("unixpacket", addr)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		l.Close()
		return nil, fmt.Errorf("socket: %w", err)
	}
	return l, nil
}

func (s *server) accept(l *net.UnixListener) {
	for {
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // out of descriptors: the client sees its connection refused or waits
		}
		s.mu.Lock()
		if s.closing {
			s.mu.Unlock()
			c.Close()
			return
		}
		s.conns[c] = true
		s.mu.Unlock()
		s.attach(c)
	}
}

func (s *server) forget(c *net.UnixConn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

func (s *server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	for c := range s.conns {
		c.Close()
	}
}

// snapshot copies the counters on the loop, so that they belong to one instant.
func (s *server) snapshot() (c engine.Counters, err error) {
	err = s.loop.do(func(time.Duration) { c = s.loop.snapshot() })
	return c, err
}

// publish brings the files up to the present counters.
func (s *server) publish() error {
	c, err := s.snapshot()
	if err != nil {
		return err
	}
	return s.publishThese(&c)
}

func (s *server) publishThese(c *engine.Counters) error {
	s.viewMu.Lock()
	defer s.viewMu.Unlock()
	if s.view == nil {
		return nil
	}
	return s.view.publish(c)
}

func (s *server) publishOften(ctx context.Context) {
	t := time.NewTicker(s.c.PublishEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			_ = s.publish() // a full disk shows again at the next query, which reports it
		}
	}
}

// counters gives all counters of one instant and publishes them, so that files and answer agree.
func (s *server) counters() (map[string]uint64, error) {
	var c engine.Counters
	var own, credit map[string]uint64
	if err := s.loop.do(func(time.Duration) { c, own, credit = s.loop.snapshot(), s.handlerCounters(), s.rdccCounters() }); err != nil {
		return nil, err
	}
	if err := s.publishThese(&c); err != nil {
		return nil, fmt.Errorf("publish counters: %w", err)
	}
	m := counterMap(&c)
	maps.Copy(m, own)
	maps.Copy(m, credit)
	return m, nil
}

func (s *server) status() (Status, error) {
	st := Status{Schema: "pcmlab/nic/v1", Info: s.info(), QPs: []QPStatus{}}
	err := s.loop.do(func(now time.Duration) {
		st.Handlers, st.Diagnostic = s.handlerStatus(), s.calls != nil
		if i := slices.IndexFunc(st.Handlers, func(h HandlerStatus) bool { return h.Name != inventory.NoHandler }); i >= 0 {
			st.Handler = &st.Handlers[i].HandlerInfo
		}
		st.DCQCN, st.RateBps, st.QPCount = s.nic.DCQCN(), int64(s.nic.Rate()), s.nic.QPs()
		st.LatenessNS, st.IO = s.loop.late.summary(), s.loop.io
		st.RDCC = s.rdccStatus()
		st.IO.WallNS, st.Receiver = int64(now), s.loop.receiver()
		s.nic.Each(func(q *engine.QP) {
			if len(st.QPs) == maxShown {
				return
			}
			ip, qpn := q.Remote()
			rp := q.RP()
			runs, last, _ := q.Policy()
			deciding := []string{}
			for _, i := range q.Rules() {
				deciding = append(deciding, s.handlers[i].Counter)
			}
			st.QPs = append(st.QPs, QPStatus{Handlers: deciding, HandlerRuns: runs, WindowBytes: last.Window, HandlerFailed: last.Failed, PacedBps: int64(q.Rate()),
				QPN: q.QPN(), State: q.State().String(), RemoteIP: netip.AddrFrom4(ip), RemoteQPN: qpn,
				SrcPort: q.SrcPort(), Queued: q.Queued(), RateBps: int64(rp.Rate()), TargetBps: int64(rp.Target()), Alpha: rp.Alpha(), DCQCNPhase: rp.Phase().String()})
		})
	})
	slices.SortFunc(st.QPs, func(a, b QPStatus) int { return int(a.QPN) - int(b.QPN) })
	return st, err
}

func (s *server) set(v Settings) error {
	if v.RateBps != nil && *v.RateBps <= 0 {
		return fmt.Errorf("rate_bps %d: want the line rate in bit/s", *v.RateBps)
	}
	if v.Handlers != nil {
		if err := s.setHandlers(*v.Handlers); err != nil {
			return err
		}
	}
	if v.Diagnostic != nil {
		if err := s.setDiagnostic(*v.Diagnostic); err != nil {
			return err
		}
	}
	var failed error
	err := s.loop.do(func(now time.Duration) {
		if v.DCQCN != nil {
			s.nic.SetDCQCN(now, *v.DCQCN)
		}
		if v.RateBps != nil {
			s.nic.SetRate(now, units.Rate(*v.RateBps))
			if p := s.loop.rdcc; p != nil && p.gate != nil {
				p.gate.SetRate(now, *v.RateBps)
			}
		}
		if v.RDCC != nil {
			failed = s.setRDCC(now, *v.RDCC)
		}
		if v.ResetLateness {
			s.loop.late = latenessHistogram{}
		}
	})
	return errors.Join(err, failed)
}
