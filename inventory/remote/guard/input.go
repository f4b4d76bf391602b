package guard

import (
	"io"
	"sync"
)

// InputWindow is how much input the owner may send ahead of the command's reading.
const InputWindow = 256 << 10

// input holds what the owner sent and the command has not read yet.
type input struct {
	mu      sync.Mutex
	changed sync.Cond
	data    []byte
	taken   uint64 // bytes handed to the command, or thrown away since it reads no more
	closed  bool   // no more will come
	dead    bool   // the command reads no more
	notify  func() // something was taken
}

func newInput(notify func()) *input {
	in := &input{notify: notify}
	in.changed.L = &in.mu
	return in
}

func (in *input) write(p []byte) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.dead || in.closed {
		in.taken += uint64(len(p))
		return
	}
	in.data = append(in.data, p...)
	in.changed.Broadcast()
}

func (in *input) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	in.changed.Broadcast()
}

func (in *input) consumed() uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.taken
}

func (in *input) received() uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.taken + uint64(len(in.data))
}

// feed writes the input to w until it is closed or w takes no more, and closes w.
func (in *input) feed(w io.WriteCloser) {
	defer w.Close()
	for {
		in.mu.Lock()
		for len(in.data) == 0 && !in.closed {
			in.changed.Wait()
		}
		p := in.data
		in.mu.Unlock()
		if len(p) == 0 {
			return
		}
		_, err := w.Write(p)
		in.mu.Lock()
		in.data = in.data[len(p):]
		in.taken += uint64(len(p))
		if err != nil {
			in.dead = true
			in.taken += uint64(len(in.data))
			in.data = nil
		}
		in.mu.Unlock()
		in.notify()
		if err != nil {
			return
		}
	}
}
