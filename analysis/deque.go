package analysis

// deque is a ring of values in ascending order of PSN, with a bound. It doubles until the bound and allocates
// nothing in between.
type deque[T any] struct {
	buf  []T
	head int
	n    int
}

func (d *deque[T]) at(i int) *T { return &d.buf[(d.head+i)&(len(d.buf)-1)] }

// push appends v unless limit values are held; ok is false then.
func (d *deque[T]) push(v T, limit int) (ok bool) {
	if d.n == len(d.buf) {
		if d.n >= limit {
			return false
		}
		buf := make([]T, max(8, 2*len(d.buf)))
		for i := range d.n {
			buf[i] = *d.at(i)
		}
		d.buf, d.head = buf, 0
	}
	d.n++
	*d.at(d.n - 1) = v
	return true
}

// insert puts v before index i.
func (d *deque[T]) insert(i int, v T, limit int) (ok bool) {
	if !d.push(v, limit) {
		return false
	}
	for j := d.n - 1; j > i; j-- {
		*d.at(j) = *d.at(j - 1)
	}
	*d.at(i) = v
	return true
}

func (d *deque[T]) pop() {
	d.head = (d.head + 1) & (len(d.buf) - 1)
	d.n--
}

func (d *deque[T]) clear() { d.head, d.n = 0, 0 }
