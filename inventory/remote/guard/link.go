package guard

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"
	"time"
)

// link is one connection to an owner: the guard's standard streams, or an attach. Its reader posts frames to the
// guard's loop; its writer sends Ready, the numbered frames from next on, and heartbeats.
type link struct {
	r     io.Reader
	w     io.Writer
	close func() // may be nil
	ready ReadyInfo
	out   *outbox
	post  func(linkEvent)
	// consumed is how much of the owner's input the command has read; heartbeats carry it.
	consumed func() uint64

	// Guarded by out.mu.
	dead bool // no longer the owner's link
	beat bool // a heartbeat is due
}

// linkEvent is a frame that arrived, or the end of the link.
type linkEvent struct {
	link  *link
	frame Frame // payload owned by the receiver
	err   error // not nil: the link has ended
}

func (l *link) run() {
	go l.read()
	go l.write()
	go l.beats()
}

// end stops the link's writer; its reader ends with its connection, or with the process.
func (l *link) end() {
	l.out.mu.Lock()
	l.dead = true
	l.out.changed.Broadcast()
	l.out.mu.Unlock()
	if l.close != nil {
		l.close()
	}
}

// beatNow sends a heartbeat without waiting for the next one's time.
func (l *link) beatNow() {
	l.out.mu.Lock()
	l.beat = true
	l.out.changed.Broadcast()
	l.out.mu.Unlock()
}

func (l *link) read() {
	r := NewReader(bufio.NewReaderSize(l.r, MaxPayload))
	for {
		f, err := r.Read()
		if err != nil {
			l.post(linkEvent{link: l, err: err})
			return
		}
		if f.Type == Heartbeat && len(f.Payload) == 8 {
			l.out.ack(binary.BigEndian.Uint64(f.Payload)) // here, so that a busy loop does not hold up output
		}
		f.Payload = append([]byte(nil), f.Payload...)
		l.post(linkEvent{link: l, frame: f})
	}
}

func (l *link) beats() {
	t := time.NewTicker(HeartbeatEvery)
	defer t.Stop()
	for range t.C {
		l.out.mu.Lock()
		dead := l.dead
		l.beat = true
		l.out.changed.Broadcast()
		l.out.mu.Unlock()
		if dead {
			return
		}
	}
}

func (l *link) write() {
	send := func(b []byte) bool {
		if _, err := l.w.Write(b); err != nil {
			l.post(linkEvent{link: l, err: err})
			return false
		}
		return true
	}
	b, _ := json.Marshal(l.ready)
	first, _ := Frame{Type: Ready, Payload: b}.Append([]byte(Magic))
	if !send(first) {
		return
	}
	var beat []byte
	next := l.ready.Next
	for {
		b, ok := l.out.get(next, func() bool { return l.dead || l.beat })
		if ok {
			if !send(b) {
				return
			}
			next++
			continue
		}
		l.out.mu.Lock()
		dead, due := l.dead, l.beat
		l.beat = false
		l.out.mu.Unlock()
		if dead || !due {
			return
		}
		beat, _ = Frame{Type: Heartbeat, Payload: binary.BigEndian.AppendUint64(nil, l.consumed())}.Append(beat[:0])
		if !send(beat) {
			return
		}
	}
}
