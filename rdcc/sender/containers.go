package sender

// queue is a first-in-first-out ring that keeps its memory.
type queue[T any] struct {
	ring     []T
	first, n int
}

func (q *queue[T]) push(v T) {
	if q.n == len(q.ring) {
		ring := make([]T, max(16, 2*len(q.ring)))
		for i := range q.n {
			ring[i] = q.ring[(q.first+i)&(len(q.ring)-1)]
		}
		q.ring, q.first = ring, 0
	}
	q.ring[(q.first+q.n)&(len(q.ring)-1)] = v
	q.n++
}

func (q *queue[T]) pop() (v T, ok bool) {
	if q.n == 0 {
		return v, false
	}
	var none T
	v, q.ring[q.first] = q.ring[q.first], none
	q.first = (q.first + 1) & (len(q.ring) - 1)
	q.n--
	return v, true
}

// table finds messages by their id: open addressing without tombstones, since Go's maps allocate now and then when entries
// come and go for ever.
type table struct {
	slots []*message // a power of two of them, at most half full
	n     int
}

// home is where an id belongs. Its upper bits are the association's, so that they must reach the lower ones.
func home(id uint64) int {
	h := id * 0x9e3779b97f4a7c15
	h ^= h >> 32
	return int(h * 0xd6e8feb86659fd93 >> 32)
}

func (t *table) get(id uint64) *message {
	if len(t.slots) == 0 {
		return nil
	}
	for i := home(id); ; i++ {
		m := t.slots[i&(len(t.slots)-1)]
		if m == nil || m.id == id {
			return m
		}
	}
}

func (t *table) put(m *message) {
	if 2*(t.n+1) > len(t.slots) {
		old := t.slots
		t.slots, t.n = make([]*message, max(64, 2*len(old))), 0
		for _, o := range old {
			if o != nil {
				t.put(o)
			}
		}
	}
	i := home(m.id)
	for t.slots[i&(len(t.slots)-1)] != nil {
		i++
	}
	t.slots[i&(len(t.slots)-1)] = m
	t.n++
}

// remove closes the gap by moving back those that collided behind it.
func (t *table) remove(m *message) {
	mask := len(t.slots) - 1
	i := home(m.id) & mask
	for t.slots[i] != m {
		if t.slots[i] == nil {
			return
		}
		i = (i + 1) & mask
	}
	for j := (i + 1) & mask; t.slots[j] != nil; j = (j + 1) & mask {
		if (j-home(t.slots[j].id))&mask >= (j-i)&mask {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = nil
	t.n--
}
