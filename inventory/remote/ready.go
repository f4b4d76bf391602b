package remote

import (
	"bytes"
	"context"
	"sync"
)

// StartReady starts c and returns when the first line of its standard output is word. When it ends before that, ended is
// how, and p is nil; when ctx ends first, p is the process that is not ready.
func StartReady(ctx context.Context, h Host, c Cmd, word string) (p Process, ended *Result, err error) {
	watch := &firstLine{word: word, seen: make(chan struct{})}
	c.Stdout = watch
	if p, err = h.Start(ctx, c); err != nil {
		return nil, nil, err
	}
	select {
	case <-watch.seen:
		return p, nil, nil
	case <-p.Done():
		res, err := p.Wait(ctx)
		return nil, &res, err
	case <-ctx.Done():
		return p, nil, ctx.Err()
	}
}

// firstLine closes seen when the first line is word.
type firstLine struct {
	word string
	seen chan struct{}

	mu   sync.Mutex
	buf  []byte
	done bool
}

func (f *firstLine) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.done {
		f.buf = append(f.buf, b...)
		if line, _, ok := bytes.Cut(f.buf, []byte("\n")); ok {
			f.done, f.buf = true, nil
			if string(line) == f.word {
				close(f.seen)
			}
		}
	}
	return len(b), nil
}
