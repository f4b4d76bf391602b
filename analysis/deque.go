package analysis

// deque is a ring of values in ascending order of PSN, with a bound. It doubles until the bound and allocates nothing in
// between. Most flows have nothing waiting most of the time: an empty deque goes back to its lane's spares, and nil is empty.
type deque[T any] struct {
	buf     []T
	head, n uint32
}

// dequeMin is the smallest capacity; spare deques have no other.
const dequeMin = 4

// spares are the deques that nobody uses.
type spares[T any] struct{ free []*deque[T] }

func (d *deque[T]) len() int {
	if d == nil {
		return 0
	}
	return int(d.n)
}

func (d *deque[T]) at(i int) *T { return &d.buf[(int(d.head)+i)&(len(d.buf)-1)] }

// take gives an empty deque.
func (s *spares[T]) take() *deque[T] {
	if n := len(s.free); n > 0 {
		d := s.free[n-1]
		s.free = s.free[:n-1]
		return d
	}
	return &deque[T]{buf: make([]T, dequeMin)}
}

// insert puts v before index i of *d unless limit values are held; ok is false then.
func (s *spares[T]) insert(to **deque[T], i int, v T, limit int) (ok bool) {
	d := *to
	if d == nil {
		d = s.take()
		*to = d
	}
	if int(d.n) == len(d.buf) {
		if int(d.n) >= limit {
			return false
		}
		buf := make([]T, 2*len(d.buf))
		for j := range int(d.n) {
			buf[j] = *d.at(j)
		}
		d.buf, d.head = buf, 0
	}
	d.n++
	for j := int(d.n) - 1; j > i; j-- {
		*d.at(j) = *d.at(j - 1)
	}
	*d.at(i) = v
	return true
}

// push appends v.
func (s *spares[T]) push(to **deque[T], v T, limit int) (ok bool) {
	return s.insert(to, (*to).len(), v, limit)
}

func (d *deque[T]) pop() {
	d.head = (d.head + 1) & uint32(len(d.buf)-1)
	d.n--
}

// release takes an empty small deque back.
func (s *spares[T]) release(from **deque[T]) {
	if d := *from; d != nil && d.n == 0 && len(d.buf) == dequeMin {
		d.head = 0
		s.free = append(s.free, d)
		*from = nil
	}
}
