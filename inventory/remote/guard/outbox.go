package guard

import (
	"sync"
)

// window is how much output is kept for an owner that has not acknowledged it. When it is full the command's output is
// no longer read, so that the command waits as it would for a slow pipe.
const window = 1 << 20

// outbox keeps the numbered frames until the owner has acknowledged them.
type outbox struct {
	mu      sync.Mutex
	changed sync.Cond // broadcast whenever anything below changes
	frames  [][]byte  // encoded; frames[0] has number base
	base    uint64
	bytes   int
	closed  bool  // output is dropped from now on
	dropped int64 // bytes
}

func newOutbox() *outbox {
	b := &outbox{}
	b.changed.L = &b.mu
	return b
}

// output appends output of the command, in frames, and waits while the window is full.
func (b *outbox) output(t Type, p []byte) {
	for len(p) > 0 {
		n := min(len(p), MaxPayload/2)
		enc, _ := Frame{Type: t, Payload: p[:n]}.Append(make([]byte, 0, headerLen+n))
		b.mu.Lock()
		for b.bytes >= window && !b.closed {
			b.changed.Wait()
		}
		if b.closed {
			b.dropped += int64(len(p))
			b.mu.Unlock()
			return
		}
		b.addLocked(enc)
		b.mu.Unlock()
		p = p[n:]
	}
}

// control appends a frame that never waits and is never dropped. It returns the frame's number.
func (b *outbox) control(t Type, payload []byte) uint64 {
	enc, err := Frame{Type: t, Payload: payload}.Append(nil)
	if err != nil {
		enc, _ = Frame{Type: t, Payload: []byte("{}")}.Append(nil)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addLocked(enc)
	return b.base + uint64(len(b.frames)) - 1
}

func (b *outbox) addLocked(enc []byte) {
	b.frames = append(b.frames, enc)
	b.bytes += len(enc)
	b.changed.Broadcast()
}

// ack forgets the frames before number next.
func (b *outbox) ack(next uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.base < next && len(b.frames) > 0 {
		b.bytes -= len(b.frames[0])
		b.frames = b.frames[1:]
		b.base++
	}
	b.changed.Broadcast()
}

// acked reports whether frame n has been acknowledged.
func (b *outbox) acked(n uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.base > n
}

// rewind returns the number with which a new owner's stream begins when it lacks frame next, or false when the frame
// is gone.
func (b *outbox) rewind(next uint64) (uint64, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if next < b.base || next > b.base+uint64(len(b.frames)) {
		return 0, false
	}
	return next, true
}

// get returns frame n, waiting for it until stop says true. stop is called with the lock held, whenever anything
// changes; use wake after changing what it looks at.
func (b *outbox) get(n uint64, stop func() bool) ([]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if stop() {
			return nil, false
		}
		if n < b.base { // acknowledged already: cannot be for a sane owner
			return nil, false
		}
		if i := n - b.base; i < uint64(len(b.frames)) {
			return b.frames[i], true
		}
		b.changed.Wait()
	}
}

func (b *outbox) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changed.Broadcast()
}

// closeOutput lets output that waits, and all later output, be dropped and counted.
func (b *outbox) closeOutput() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.changed.Broadcast()
}

func (b *outbox) droppedBytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}
