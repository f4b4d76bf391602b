package capture

// Batch is a run of successive packets of one capture with memory of its own, so that it can be looked at while the
// reader goes on. The zero value is ready; reuse it for another ReadBatch when nobody needs its packets any more.
type Batch struct {
	Packets []Packet // their Data is valid until the batch is reused
	buf     []byte
}

// maxBatch bounds the packets of a batch.
const maxBatch = 4096

// batchSource is what a format gives to fill a batch.
type batchSource interface {
	Next(p *Packet) error
	// buffered appends the packets that are in memory as a whole, as many as b has room for. What Next must be asked for it
	// leaves.
	buffered(b *Batch)
}

// readBatch fills b with the packets that one buffer holds. The first may need reading; an error after it ends the
// batch and comes back at the next call.
func (f *file) readBatch(r batchSource, b *Batch) error {
	if cap(b.Packets) == 0 {
		b.Packets = make([]Packet, 0, maxBatch)
	}
	b.Packets = b.Packets[:0]
	if f.ended != nil {
		return f.ended
	}
	f.lend(b)
	defer f.takeBack(b)
	if r.buffered(b); len(b.Packets) > 0 {
		return nil
	}
	b.Packets = b.Packets[:1]
	if err := r.Next(&b.Packets[0]); err != nil {
		b.Packets = b.Packets[:0]
		return err
	}
	r.buffered(b)
	return nil
}

// lend makes b's buffer the one that is read into and fills it.
func (s *source) lend(b *Batch) {
	if len(b.buf) < max(readBuffer, s.hi-s.lo) {
		b.buf = make([]byte, max(readBuffer, s.hi-s.lo))
	}
	s.base += int64(s.lo)
	n := copy(b.buf, s.buf[s.lo:s.hi])
	s.own, s.buf = s.buf, b.buf
	s.lo, s.hi = 0, n
	s.top()
}

// takeBack moves what b does not use into the source's own buffer again.
func (s *source) takeBack(b *Batch) {
	b.buf = s.buf // it may have grown for a long record
	n := s.hi - s.lo
	if len(s.own) < n {
		s.own = make([]byte, n)
	}
	copy(s.own, s.buf[s.lo:s.hi])
	s.base += int64(s.lo)
	s.buf, s.own = s.own, nil
	s.lo, s.hi = 0, n
}

// top reads until the buffer is full or the stream ends or pauses.
func (s *source) top() {
	for s.hi < len(s.buf) && s.err == nil {
		var got int
		got, s.err = s.r.Read(s.buf[s.hi:])
		s.hi += got
		if got == 0 {
			return // fill counts those
		}
		if s.hi >= minTop {
			return
		}
	}
}

// minTop is enough to start with: a pipe gives 64 KiB at a time, and what is there should not wait for more.
const minTop = 64 << 10
