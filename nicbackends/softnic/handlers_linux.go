package softnic

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/engine"
	"github.com/pcmlab/pcmlab/pcm/calls"
)

// setHandlers gives queue pairs policies of the handlers that match them; an empty list takes them away. Those before stay when one of
// the new ones cannot be loaded.
func (s *server) setHandlers(list []HandlerSetting) error {
	var rules []engine.Rule
	var status []HandlerStatus
	var infos []HandlerInfo
	for i, h := range list {
		if h.Shell == inventory.NoHandler {
			rules = append(rules, engine.Rule{Match: h.Match})
			infos = append(infos, HandlerInfo{Name: inventory.NoHandler})
			continue
		}
		if s.load == nil {
			return errors.New("this NIC runs in a program that cannot load handlers: start it as pcmlab-nic serve (pcmlab nic serve does so where pcmlab-nic lies beside pcmlab)")
		}
		p, info, err := s.load(h.Shell)
		if err != nil {
			return fmt.Errorf("handler %d of %d: %w", i+1, len(list), err)
		}
		rules, infos = append(rules, engine.Rule{Match: h.Match, Program: p}), append(infos, info)
	}
	for i, name := range CounterNames(infos) {
		status = append(status, HandlerStatus{HandlerInfo: infos[i], Match: list[i].Match.String(), Counter: name, signals: list[i].Signals})
	}
	var failed error
	err := s.loop.do(func(now time.Duration) {
		s.nic.SetTrace(nil)
		s.calls, s.handlers = nil, nil
		if failed = s.nic.SetRules(now, rules); failed != nil {
			_ = s.nic.SetRules(now, nil)
			return
		}
		s.handlers = status
	})
	return errors.Join(err, failed)
}

// handlerStatus is what the handlers did so far. The loop calls it.
func (s *server) handlerStatus() []HandlerStatus {
	out := []HandlerStatus{}
	for i, n := range s.nic.PolicyCounters() {
		h := s.handlers[i]
		h.Flows, h.Runs = n.Flows, n.Runs
		out = append(out, h)
	}
	return out
}

// handlerCounters are the counters of each handler. The loop calls it.
func (s *server) handlerCounters() map[string]uint64 {
	m := map[string]uint64{}
	for i, n := range s.nic.PolicyCounters() {
		h := s.handlers[i]
		if h.Name == inventory.NoHandler {
			continue
		}
		for name, v := range map[string]uint64{"flows": n.Flows, "runs": n.Runs, "changes": n.Changes, "failures": n.Failures} {
			m["handler_"+name+"_"+h.Counter] = v
		}
	}
	return m
}

// setDiagnostic begins a log of invocations, or throws it away.
func (s *server) setDiagnostic(on bool) error {
	var log *calls.Log
	if on {
		log = calls.New(calls.Bound) // here and not on the loop, which it would hold up
		log.Device, log.Src = s.c.Device, s.c.IP.Addr()
	}
	return s.loop.do(func(time.Duration) {
		s.calls = log
		s.nic.SetTrace(nil)
		if log == nil {
			return
		}
		for _, h := range s.handlers {
			log.Handlers = append(log.Handlers, calls.Handler{Name: h.Counter, Signals: h.signals})
		}
		began := s.loop.start.UnixNano()
		s.nic.SetTrace(func(c *engine.Call) {
			remote, qpn := c.QP.Remote()
			log.Add(calls.Record{TimeNS: began + int64(c.At), Fired: c.Decision.Fired, Window: c.Decision.Window, Rate: int64(c.Decision.Rate), Pacer: int64(c.QP.Rate()),
				QPN: c.QP.QPN(), Dst: remote, DstQP: qpn, ACKs: uint32(c.ACKs), Packets: uint32(c.Packets), Handler: uint16(c.Rule), Failed: c.Decision.Failed})
		})
	})
}

// writeCalls writes the log of invocations to a file. The loop goes on meanwhile.
func (s *server) writeCalls(path string) (*calls.Header, error) {
	var log *calls.Log
	err := s.loop.do(func(time.Duration) {
		if s.calls != nil {
			log = s.calls.Snapshot()
		}
	})
	if err != nil {
		return nil, err
	}
	if log == nil {
		return nil, errors.New("no log of handlers is kept (pcmlab nic set diagnostic=on begins one)")
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".calls-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(log.Write(f), f.Chmod(0o644), f.Close()); err != nil {
		return nil, err
	}
	h := log.Header()
	return &h, os.Rename(f.Name(), path)
}
