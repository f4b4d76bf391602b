package fabric

// Packet is one frame in a pooled buffer. It may be in several queues at once (flooding, mirrors); each holds a
// reference. Not for concurrent use.
type Packet struct {
	Data []byte // the frame, from the destination address on, without FCS; aliases the pool's buffer

	buf   []byte
	refs  int32
	class int8
	hdr   header
}

// poolClasses are the buffer sizes below that of the largest frame. A frame uses the smallest that holds it, so that
// acknowledgements do not pin jumbo buffers.
var poolClasses = []int{256, 1024, 2304, 4608}

// slabBytes is what the pool asks the runtime for at once.
const slabBytes = 256 << 10

// Pool holds packets for reuse. It grows to what was in use at once and never shrinks; what is in use is bounded by the
// switch's buffer and the ingress limits. The zero value is not usable. Not for concurrent use.
type Pool struct {
	sizes []int
	free  [][]*Packet
	inUse int
}

// NewPool makes an empty pool for frames of at most maxFrame bytes.
func NewPool(maxFrame int) *Pool {
	p := &Pool{}
	for _, size := range poolClasses {
		if size < maxFrame {
			p.sizes = append(p.sizes, size)
		}
	}
	// One byte more than the largest frame, to notice a longer one, and whole cache lines.
	p.sizes = append(p.sizes, (maxFrame+1+63)&^63)
	p.free = make([][]*Packet, len(p.sizes))
	return p
}

// InUse is the number of packets taken and not released.
func (p *Pool) InUse() int { return p.inUse }

// Get takes a packet for n bytes with one reference; its data is whatever was there. n over the largest frame gives
// the largest buffer.
func (p *Pool) Get(n int) *Packet {
	class := 0
	for class < len(p.sizes)-1 && p.sizes[class] < n {
		class++
	}
	if len(p.free[class]) == 0 {
		p.grow(class)
	}
	list := p.free[class]
	pkt := list[len(list)-1]
	p.free[class] = list[:len(list)-1]
	p.inUse++
	pkt.refs = 1
	pkt.Data = pkt.buf[:min(n, len(pkt.buf))]
	return pkt
}

// Largest takes a packet whose data is the whole largest buffer: what an arriving frame is read into.
func (p *Pool) Largest() *Packet { return p.Get(p.sizes[len(p.sizes)-1]) }

// Fit returns a packet with the first n bytes of pkt: pkt itself, or a copy in a smaller buffer (taken tells which; pkt
// is still the caller's when it was copied).
func (p *Pool) Fit(pkt *Packet, n int) (fit *Packet, taken bool) {
	if int(pkt.class) > 0 && n <= p.sizes[max(0, len(p.sizes)-2)] {
		fit = p.Get(n)
		copy(fit.Data, pkt.buf[:n])
		return fit, false
	}
	pkt.Data = pkt.buf[:n]
	return pkt, true
}

// Copy takes a packet with the same data.
func (p *Pool) Copy(data []byte) *Packet {
	pkt := p.Get(len(data))
	copy(pkt.Data, data)
	return pkt
}

// Release gives one reference back.
func (p *Pool) Release(pkt *Packet) {
	pkt.refs--
	if pkt.refs > 0 {
		return
	}
	if pkt.refs < 0 {
		panic("fabric: packet released twice")
	}
	p.inUse--
	p.free[pkt.class] = append(p.free[pkt.class], pkt)
}

func (p *Pool) grow(class int) {
	size := p.sizes[class]
	n := max(4, slabBytes/size)
	slab := make([]byte, n*size)
	packets := make([]Packet, n)
	for i := range packets {
		packets[i].buf = slab[i*size : (i+1)*size : (i+1)*size]
		packets[i].class = int8(class)
		p.free[class] = append(p.free[class], &packets[i])
	}
	// Release must not allocate: the list has room for all packets of the class.
	if spare := cap(p.free[class]) - len(p.free[class]); spare < p.inUse+n {
		p.free[class] = append(make([]*Packet, 0, 2*(len(p.free[class])+p.inUse+n)), p.free[class]...)
	}
}

// queue is a first-in first-out of items in a ring that grows by doubling.
type queue struct {
	ring []item
	head int
	n    int
}

// item is a packet with a time (of arrival or delivery) and what the queue decided about it.
type item struct {
	p    *Packet
	at   int64 // ns of virtual time
	mark bool  // set CE when it departs
}

func (q *queue) push(it item) {
	if q.n == len(q.ring) {
		bigger := make([]item, max(64, 2*len(q.ring)))
		for i := range q.n {
			bigger[i] = q.ring[(q.head+i)&(len(q.ring)-1)]
		}
		q.ring, q.head = bigger, 0
	}
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = it
	q.n++
}

func (q *queue) front() *item { return &q.ring[q.head] }

func (q *queue) pop() item {
	slot := &q.ring[q.head]
	it := *slot
	slot.p = nil
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	return it
}
