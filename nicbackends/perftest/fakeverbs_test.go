package perftest

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// fakeFabric is a FAKE: RDMA devices in the memory of the test that copy bytes between buffers when a message is
// posted. There is no packet, no loss and no time in it. It shows that the tool drives queue pairs rightly; what a
// network does is the software NIC's to show.
type fakeFabric struct {
	mu   sync.Mutex
	all  map[fakeKey]*fakeQP
	next uint64
}

// fakeKey finds a queue pair; real hosts can have the same queue pair numbers and addresses.
type fakeKey struct {
	qpn, psn, rkey uint32
	va             uint64
}

func keyOf(i QPInfo) fakeKey { return fakeKey{i.QPN, i.PSN, i.RKey, i.VA} }

func newFakeFabric() *fakeFabric { return &fakeFabric{all: map[fakeKey]*fakeQP{}, next: 0x40590000} }

// fakeVerbs is one host's view of the fabric.
type fakeVerbs struct {
	fabric *fakeFabric
	info   DeviceInfo
	none   bool                    // no device at all
	fixed  []QPInfo                // numbers of the queue pairs in order of creation; nil: made up
	fail   func(done int) *WCError // asked with the number of completions so far
	block  bool                    // nothing ever completes
	made   []*fakeQP
}

func (f *fakeFabric) host(name string, gid netip.Addr) *fakeVerbs {
	return &fakeVerbs{fabric: f, info: DeviceInfo{
		Name: name, Transport: "IB", LinkLayer: "Ethernet", Active: true, ActiveMTU: 1024,
		GIDs: []GIDEntry{
			{Index: 0, GID: netip.MustParseAddr("fe80::1"), Type: "RoCE v2"},
			{Index: 1, GID: netip.AddrFrom16(gid.As16()), Type: "RoCE v2"},
			{Index: 2, GID: netip.MustParseAddr("2001:db8:1::11"), Type: "RoCE v2"},
		},
	}}
}

func (v *fakeVerbs) Devices() ([]string, error) {
	if v.none {
		return nil, nil
	}
	return []string{v.info.Name}, nil
}

func (v *fakeVerbs) Open(name string) (Device, error) {
	if v.none || name != v.info.Name {
		return nil, &NoDeviceError{name, []string{v.info.Name}}
	}
	return v, nil
}

func (v *fakeVerbs) Info() DeviceInfo { return v.info }
func (v *fakeVerbs) Close() error     { return nil }

func (v *fakeVerbs) CreateQP(o QPOptions) (QP, error) {
	f := v.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	q := &fakeQP{verbs: v, options: o, buffer: make([]byte, o.BufferSize), wake: make(chan struct{}, 1)}
	for i := range q.buffer {
		q.buffer[i] = byte(i*7 + len(v.info.Name))
	}
	if n := len(v.made); n < len(v.fixed) {
		q.local = v.fixed[n]
	} else {
		q.local = QPInfo{QPN: uint32(f.next >> 12 & 0xfff), PSN: 0x31baee, RKey: uint32(f.next >> 8), VA: f.next, OutReads: 1}
	}
	for _, g := range v.info.GIDs {
		if g.Index == o.GIDIndex {
			q.local.GID = g.GID.As16()
		}
	}
	f.next += uint64(o.BufferSize+0xffff) &^ 0xffff
	f.all[keyOf(q.local)] = q
	v.made = append(v.made, q)
	return q, nil
}

type fakeQP struct {
	verbs   *fakeVerbs
	options QPOptions
	local   QPInfo
	remote  *fakeQP
	buffer  []byte

	mu       sync.Mutex
	pending  int
	done     int
	received int // messages written into this buffer
	closed   bool
	wake     chan struct{}
}

func (q *fakeQP) Local() QPInfo { return q.local }

func (q *fakeQP) Connect(r QPInfo) error {
	q.verbs.fabric.mu.Lock()
	defer q.verbs.fabric.mu.Unlock()
	if q.remote = q.verbs.fabric.all[keyOf(r)]; q.remote == nil || q.remote == q {
		q.remote = &fakeQP{buffer: make([]byte, q.options.BufferSize)} // a scripted peer, or one in another process
	}
	return nil
}

func (q *fakeQP) post(n, size int, move func()) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pending+n > q.options.TxDepth {
		return fmt.Errorf("%d messages do not fit a send queue of %d with %d in it", n, q.options.TxDepth, q.pending)
	}
	if size > len(q.buffer) {
		return fmt.Errorf("message of %d bytes, buffer of %d", size, len(q.buffer))
	}
	move()
	q.pending += n
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return nil
}

func (q *fakeQP) PostWrites(n, size int) error {
	return q.post(n, size, func() {
		q.remote.mu.Lock()
		defer q.remote.mu.Unlock()
		for range n {
			copy(q.remote.buffer, q.buffer[:size])
		}
		q.remote.received += n
	})
}

func (q *fakeQP) Completions(ctx context.Context, timeout time.Duration) (int, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		q.mu.Lock()
		n := q.pending
		if q.verbs.block {
			n = 0
		}
		if fail := q.verbs.fail; n > 0 && fail != nil {
			if wc := fail(q.done); wc != nil {
				q.mu.Unlock()
				return 0, wc
			}
		}
		q.pending -= n
		q.done += n
		q.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-timer.C:
			return 0, nil
		case <-q.wake:
		}
	}
}

func (q *fakeQP) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	return nil
}

// readingVerbs is a fakeVerbs whose queue pairs can READ as well.
type readingVerbs struct{ *fakeVerbs }

func (v readingVerbs) Open(name string) (Device, error) {
	d, err := v.fakeVerbs.Open(name)
	if err != nil {
		return nil, err
	}
	return readingDevice{d}, nil
}

type readingDevice struct{ Device }

func (d readingDevice) CreateQP(o QPOptions) (QP, error) {
	q, err := d.Device.CreateQP(o)
	if err != nil {
		return nil, err
	}
	return readingQP{q.(*fakeQP)}, nil
}

type readingQP struct{ *fakeQP }

func (q readingQP) PostReads(n, size int) error {
	return q.post(n, size, func() {
		for range n {
			copy(q.buffer[:size], q.remote.buffer[:size])
		}
	})
}

var (
	_ Verbs      = (*fakeVerbs)(nil)
	_ Device     = (*fakeVerbs)(nil)
	_ QP         = (*fakeQP)(nil)
	_ ReadPoster = readingQP{}
)
