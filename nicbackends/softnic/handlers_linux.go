package softnic

import (
	"errors"
	"fmt"
	"time"

	"github.com/pcmlab/pcmlab/nicbackends/softnic/engine"
)

// setHandler gives every queue pair a policy of the handler at path; "" takes them away. The one before stays when the new
// one cannot be loaded.
func (s *server) setHandler(path string) error {
	if path == "" {
		return s.install(nil, HandlerInfo{})
	}
	if s.load == nil {
		return errors.New("this NIC runs in a program that cannot load handlers: start it as pcmlab-nic serve (pcmlab nic serve does so where pcmlab-nic lies beside pcmlab)")
	}
	p, info, err := s.load(path)
	if err != nil {
		return err
	}
	return s.install(p, info)
}

func (s *server) install(p engine.Program, info HandlerInfo) error {
	var failed error
	err := s.loop.do(func(now time.Duration) {
		if failed = s.nic.SetProgram(now, p); failed != nil {
			failed = fmt.Errorf("handler %s: %w", info.Name, failed)
			return
		}
		s.handler = info
	})
	return errors.Join(err, failed)
}
