package qp

// ring is a bounded queue that never allocates after newRing.
type ring[T any] struct {
	buf  []T
	head uint64 // count of pops
	tail uint64 // count of pushes
}

func newRing[T any](n int) ring[T] { return ring[T]{buf: make([]T, n)} }

func (r *ring[T]) len() int { return int(r.tail - r.head) }

// push needs room; callers bound it.
func (r *ring[T]) push(v T) {
	r.buf[r.tail%uint64(len(r.buf))] = v
	r.tail++
}

func (r *ring[T]) pop() (v T, ok bool) {
	if r.head == r.tail {
		return v, false
	}
	v = r.buf[r.head%uint64(len(r.buf))]
	r.head++
	return v, true
}

// at is the element with absolute number i, head <= i < tail.
func (r *ring[T]) at(i uint64) *T { return &r.buf[i%uint64(len(r.buf))] }
