package remote

import (
	"context"
	"io"
	"sync"

	"github.com/pcmlab/pcmlab/inventory/remote/guard"
)

// sink takes one output stream of a command: it keeps the end, and copies all to the caller's writer, which may be
// slower by a bounded queue.
type sink struct {
	kept  *tail
	queue chan []byte // nil: no writer
	ended chan struct{}

	mu  sync.Mutex
	err error // of the writer, the first
}

const queueLen = 64 // frames, of up to 32 KiB

func newSink(maxOut int, w io.Writer) *sink {
	s := &sink{kept: newTail(maxOut)}
	if w == nil {
		return s
	}
	s.queue, s.ended = make(chan []byte, queueLen), make(chan struct{})
	go func() {
		defer close(s.ended)
		for b := range s.queue {
			if s.broken() {
				continue
			}
			if _, err := w.Write(b); err != nil {
				s.mu.Lock()
				s.err = err
				s.mu.Unlock()
			}
		}
	}()
	return s
}

func (s *sink) broken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

func (s *sink) write(ctx context.Context, b []byte) {
	s.kept.Write(b)
	if s.queue == nil || s.broken() {
		return
	}
	select {
	case s.queue <- append([]byte(nil), b...):
	case <-ctx.Done():
	}
}

// finish waits until the writer has all. A writer that blocks for ever blocks its own command only up to the caller's
// Stop or the process's deadline: then what is queued is left to it.
func (s *sink) finish(ctx context.Context) {
	if s.queue == nil {
		return
	}
	close(s.queue)
	select {
	case <-s.ended:
	case <-ctx.Done():
	}
}

func (s *sink) failure(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return nil
	}
	return fault(Infrastructure, "", "copy %s: %w", name, s.err)
}

// source carries a command's input: at most guard.InputWindow bytes ahead of what the command has read, kept until
// then in case the connection is cut.
type source struct {
	mu      sync.Mutex
	changed sync.Cond
	data    []byte // from base on
	base    uint64 // consumed
	sent    uint64
	eof     bool
	over    bool // the command has ended
	link    bool // sent is right for the present link
}

func newSource() *source {
	s := &source{link: true}
	s.changed.L = &s.mu
	return s
}

// fill reads the caller's input.
func (s *source) fill(r io.Reader, done <-chan struct{}) {
	go func() {
		<-done
		s.mu.Lock()
		s.over = true
		s.changed.Broadcast()
		s.mu.Unlock()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		s.mu.Lock()
		s.data = append(s.data, buf[:n]...)
		s.eof = err != nil
		s.changed.Broadcast()
		for len(s.data) >= guard.InputWindow && !s.over {
			s.changed.Wait()
		}
		over := s.over
		s.mu.Unlock()
		if err != nil || over {
			return
		}
	}
}

// send sends what there is over the process's link.
func (s *source) send(p *process) {
	closed := uint64(0) // links on which the end was sent
	for {
		s.mu.Lock()
		for !s.over && (!s.link || s.sent == s.base+uint64(len(s.data)) && (!s.eof || closed > 0)) {
			s.changed.Wait()
		}
		if s.over {
			s.mu.Unlock()
			return
		}
		chunk := s.data[s.sent-s.base:]
		chunk = append([]byte(nil), chunk[:min(len(chunk), 32<<10)]...)
		s.sent += uint64(len(chunk))
		last := s.eof && s.sent == s.base+uint64(len(s.data))
		s.mu.Unlock()

		p.mu.Lock()
		l := p.link
		p.mu.Unlock()
		var err error
		if len(chunk) > 0 {
			err = l.send(guard.Frame{Type: guard.Stdin, Payload: chunk})
		}
		if err == nil && last {
			err = l.send(guard.Frame{Type: guard.StdinClose})
			closed++
		}
		if err != nil {
			closed = 0
			s.mu.Lock()
			s.link = false // until resume
			s.mu.Unlock()
		}
	}
}

// consumed forgets what the command has read.
func (s *source) consumed(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.base && n <= s.base+uint64(len(s.data)) {
		s.data = s.data[n-s.base:]
		s.base = n
		s.changed.Broadcast()
	}
}

// resume begins a new link, on which the guard has received the first n bytes.
func (s *source) resume(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent, s.link = max(n, s.base), true
	s.changed.Broadcast()
}
