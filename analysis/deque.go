package analysis

// deque is a ring of values in ascending order of PSN, with a bound. It doubles until the bound and allocates nothing in
// between; an empty one gives a small buffer back to its lane, since most flows have nothing waiting most of the time.
type deque[T any] struct {
	buf     []T
	head, n uint32
}

// dequeMin is the smallest capacity.
const dequeMin = 4

// spares are the small buffers that nobody uses.
type spares[T any] struct{ free [][]T }

func (d *deque[T]) len() int { return int(d.n) }

func (d *deque[T]) at(i int) *T { return &d.buf[(int(d.head)+i)&(len(d.buf)-1)] }

// push appends v unless limit values are held; ok is false then.
func (d *deque[T]) push(v T, limit int, s *spares[T]) (ok bool) {
	if int(d.n) == len(d.buf) {
		if int(d.n) >= limit {
			return false
		}
		d.grow(s)
	}
	d.n++
	*d.at(int(d.n) - 1) = v
	return true
}

func (d *deque[T]) grow(s *spares[T]) {
	if d.buf == nil {
		if n := len(s.free); n > 0 {
			d.buf, s.free = s.free[n-1], s.free[:n-1]
		} else {
			d.buf = make([]T, dequeMin)
		}
		d.head = 0
		return
	}
	buf := make([]T, 2*len(d.buf))
	for i := range int(d.n) {
		buf[i] = *d.at(i)
	}
	if len(d.buf) == dequeMin {
		s.free = append(s.free, d.buf)
	}
	d.buf, d.head = buf, 0
}

// insert puts v before index i.
func (d *deque[T]) insert(i int, v T, limit int, s *spares[T]) (ok bool) {
	if !d.push(v, limit, s) {
		return false
	}
	for j := int(d.n) - 1; j > i; j-- {
		*d.at(j) = *d.at(j - 1)
	}
	*d.at(i) = v
	return true
}

func (d *deque[T]) pop() {
	d.head = (d.head + 1) & uint32(len(d.buf)-1)
	d.n--
}

// release gives the buffer of an empty small deque back.
func (d *deque[T]) release(s *spares[T]) {
	if d.n == 0 && len(d.buf) == dequeMin {
		s.free = append(s.free, d.buf)
		d.buf = nil
	}
}
