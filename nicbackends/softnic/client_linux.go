package softnic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/nicbackends/perftest"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/qp"
)

var (
	_ perftest.Verbs  = Verbs{}
	_ perftest.Device = (*device)(nil)
	_ perftest.QP     = (*clientQP)(nil)
)

// Verbs opens the software NICs of this host. Dir is where they listen; empty means RunDir.
type Verbs struct{ Dir string }

func (v Verbs) dir() string {
	if v.Dir != "" {
		return v.Dir
	}
	return RunDir()
}

// Devices lists the NICs that answer, sorted.
func (v Verbs) Devices() ([]string, error) {
	entries, err := os.ReadDir(v.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("RDMA devices: %w", err)
	}
	var names []string
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".sock")
		if !ok {
			continue
		}
		if c, err := dial(filepath.Join(v.dir(), e.Name())); err == nil {
			c.close()
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names, nil
}

// Open opens a NIC by its device name.
func (v Verbs) Open(name string) (perftest.Device, error) {
	path := filepath.Join(v.dir(), name+".sock")
	if strings.ContainsAny(name, "/\x00") || name == "" {
		path = ""
	}
	c, err := dial(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) || path == "" {
		known, _ := v.Devices()
		return nil, &perftest.NoDeviceError{Device: name, Known: known}
	}
	if err != nil {
		return nil, fmt.Errorf("RDMA device %q: %w", name, err)
	}
	r, err := c.call(request{Op: "info"})
	if err == nil && r.Info == nil {
		err = errors.New("no description in the reply")
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("RDMA device %q: %w", name, err)
	}
	return &device{conn: c, info: *r.Info}, nil
}

// conn is a connection to a NIC. One goroutine reads; calls take turns.
type conn struct {
	c       *net.UnixConn
	callMu  sync.Mutex
	replies chan reply
	gone    chan struct{} // closed by the reader at its end

	mu  sync.Mutex
	qps map[uint32]*clientQP
	err error // why the connection is gone
}

// recvDepth is the number of receive buffers of a queue pair, as perftest's default.
const recvDepth = 512

const callTimeout = 10 * time.Second

func dial(path string) (*conn, error) {
	u, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	c := &conn{c: u, replies: make(chan reply, 1), gone: make(chan struct{}), qps: map[uint32]*clientQP{}}
	go c.read()
	return c, nil
}

func (c *conn) read() {
	buf := make([]byte, maxMessage)
	var err error
	for {
		var n int
		if n, err = c.c.Read(buf); err != nil || n == 0 {
			break
		}
		if m, ok := parseCompletion(buf[:n]); ok {
			c.mu.Lock()
			q := c.qps[m.qpn]
			c.mu.Unlock()
			if q != nil {
				q.completed(m)
			}
			continue
		}
		var r reply
		if err = json.Unmarshal(buf[:n], &r); err != nil {
			break
		}
		select {
		case c.replies <- r:
		default: // nobody asked
		}
	}
	c.mu.Lock()
	c.err = errors.New("the NIC has closed the connection: it has stopped or died")
	c.mu.Unlock()
	c.c.Close()
	close(c.gone)
}

func (c *conn) call(r request, fds ...int) (reply, error) {
	c.callMu.Lock()
	defer c.callMu.Unlock()
	b, err := json.Marshal(r)
	if err != nil {
		return reply{}, err
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := c.c.WriteMsgUnix(b, oob, nil); err != nil {
		return reply{}, fmt.Errorf("%s: %w", r.Op, err)
	}
	timeout := time.NewTimer(callTimeout)
	defer timeout.Stop()
	select {
	case out := <-c.replies:
		if out.Error != "" {
			return reply{}, errors.New(out.Error)
		}
		return out, nil
	case <-c.gone:
		c.mu.Lock()
		defer c.mu.Unlock()
		return reply{}, fmt.Errorf("%s: %w", r.Op, c.err)
	case <-timeout.C:
		c.c.Close() // a late reply would be taken for the next one's
		return reply{}, fmt.Errorf("%s: no answer from the NIC within %v", r.Op, callTimeout)
	}
}

func (c *conn) close() {
	c.c.Close()
	<-c.gone
}

type device struct {
	conn *conn
	info Info

	mu  sync.Mutex
	qps []*clientQP
}

// Info describes the device as `ibv_devinfo` would.
func (d *device) Info() perftest.DeviceInfo {
	i := perftest.DeviceInfo{Name: d.info.Device, Transport: "IB", LinkLayer: "Ethernet", Active: true, ActiveMTU: d.info.PathMTU}
	for _, g := range d.info.GIDs {
		i.GIDs = append(i.GIDs, perftest.GIDEntry{Index: g.Index, GID: g.GID, Type: g.Type, Netdev: d.info.Netdev})
	}
	return i
}

// CreateQP makes a queue pair over fresh memory that the NIC maps too.
func (d *device) CreateQP(o perftest.QPOptions) (perftest.QP, error) {
	if o.TxDepth == 0 {
		o.TxDepth = 128
	}
	if o.GIDIndex < 0 || o.GIDIndex >= len(d.info.GIDs) {
		return nil, fmt.Errorf("RDMA device %q: GID index %d: the table has %d", d.info.Device, o.GIDIndex, len(d.info.GIDs))
	}
	fd, mem, err := sharedMemory(o.BufferSize)
	if err != nil {
		return nil, fmt.Errorf("RDMA device %q: buffer of %d bytes: %w", d.info.Device, o.BufferSize, err)
	}
	defer unix.Close(fd)
	va := uint64(uintptr(unsafe.Pointer(&mem[0])))
	r, err := d.conn.call(request{Op: "create_qp", CreateQP: &createRequest{
		VA: va, Size: o.BufferSize, MTU: o.MTU, GIDIndex: o.GIDIndex, TrafficClass: o.TrafficClass,
		Timeout: o.Timeout, RetryCount: o.RetryCount, SendDepth: o.TxDepth, RecvDepth: recvDepth}}, fd)
	if err == nil && r.Created == nil {
		err = errors.New("create_qp: no numbers in the reply")
	}
	if err != nil {
		_ = unix.Munmap(mem)
		return nil, fmt.Errorf("RDMA device %q: %w", d.info.Device, err)
	}
	q := &clientQP{d: d, o: o, mem: mem, signal: make(chan struct{}, 1), closed: make(chan struct{})}
	q.local = perftest.QPInfo{QPN: r.Created.QPN, PSN: r.Created.PSN, RKey: r.Created.RKey, VA: va,
		GID: d.info.GIDs[o.GIDIndex].GID.As16(), OutReads: max(o.OutReads, 1)}
	d.conn.mu.Lock()
	d.conn.qps[q.local.QPN] = q
	d.conn.mu.Unlock()
	d.mu.Lock()
	d.qps = append(d.qps, q)
	d.mu.Unlock()
	return q, nil
}

// Close ends the connection; the NIC destroys what was made on it.
func (d *device) Close() error {
	d.mu.Lock()
	qps := d.qps
	d.qps = nil
	d.mu.Unlock()
	for _, q := range qps {
		q.release()
	}
	d.conn.close()
	return nil
}

// sharedMemory makes a memfd that cannot shrink and maps it.
func sharedMemory(size int) (fd int, mem []byte, err error) {
	if size <= 0 {
		return -1, nil, errors.New("want at least one byte")
	}
	fd, err = unix.MemfdCreate("pcmlab-mr", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, nil, os.NewSyscallError("memfd_create", err)
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	}
	if err == nil {
		mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	return fd, mem, nil
}

// clientQP is a queue pair as a process sees it.
type clientQP struct {
	d      *device
	o      perftest.QPOptions
	mem    []byte
	local  perftest.QPInfo
	signal chan struct{} // one token when counts have grown
	closed chan struct{}

	mu          sync.Mutex
	connected   bool
	outstanding int // posted sends and writes that have not completed
	recvs       int // posted receives that have not completed
	done, recvd int // completed and not told yet
	failure     *perftest.WCError
	isClosed    bool
	buf         []byte
}

// Local is what the far side must know.
func (q *clientQP) Local() perftest.QPInfo { return q.local }

// Buffer is the registered memory: what remote WRITEs change. It is valid until Close.
func (q *clientQP) Buffer() []byte { return q.mem }

// Connect moves to RTS.
func (q *clientQP) Connect(remote perftest.QPInfo) error {
	_, err := q.d.conn.call(request{Op: "connect", QPN: q.local.QPN, Connect: &connectRequest{
		GID: netip.AddrFrom16(remote.GID), QPN: remote.QPN, PSN: remote.PSN, RKey: remote.RKey, VA: remote.VA}})
	if err != nil {
		return fmt.Errorf("RDMA device %q: %w", q.d.info.Device, err)
	}
	q.mu.Lock()
	q.connected = true
	q.mu.Unlock()
	return nil
}

// PostWrites enqueues n WRITEs.
func (q *clientQP) PostWrites(n, size int) error { return q.post(qp.Write, n, size) }

// PostSends enqueues n SENDs.
func (q *clientQP) PostSends(n, size int) error { return q.post(qp.Send, n, size) }

// PostRecvs enqueues n receive buffers, all over the start of the registered memory.
func (q *clientQP) PostRecvs(n, size int) error { return q.post(qp.Recv, n, size) }

func (q *clientQP) post(op qp.Op, n, size int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	count, depth := &q.outstanding, q.o.TxDepth
	if op == qp.Recv {
		count, depth = &q.recvs, recvDepth
	}
	switch {
	case n <= 0:
		return fmt.Errorf("post %v: %d requests: want at least 1", op, n)
	case size < 0 || size > q.o.BufferSize:
		return fmt.Errorf("post %v of %d bytes: the buffer has %d", op, size, q.o.BufferSize)
	case q.isClosed || !q.connected && op != qp.Recv:
		return fmt.Errorf("post %v: queue pair 0x%x is not connected", op, q.local.QPN)
	case *count+n > depth:
		return fmt.Errorf("post %v: %d outstanding and %d more: the queue has room for %d", op, *count, n, depth)
	}
	q.buf = postMessage{op: uint8(op), qpn: q.local.QPN, count: uint32(n), size: uint32(size)}.append(q.buf[:0])
	if _, err := q.d.conn.c.Write(q.buf); err != nil {
		return fmt.Errorf("post %v: %w", op, err)
	}
	*count += n
	return nil
}

func (q *clientQP) completed(m completionMessage) {
	q.mu.Lock()
	q.done += int(m.done)
	q.recvd += int(m.received)
	q.outstanding -= int(m.done)
	q.recvs -= int(m.received)
	if m.failed > 0 && q.failure == nil {
		q.failure = &perftest.WCError{Status: perftest.WCStatus(m.status), VendorSyndrome: m.syndrome}
	}
	q.mu.Unlock()
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

// Completions waits for completed WRITEs and SENDs.
func (q *clientQP) Completions(ctx context.Context, timeout time.Duration) (int, error) {
	return q.wait(ctx, timeout, &q.done)
}

// Received waits for completed receives.
func (q *clientQP) Received(ctx context.Context, timeout time.Duration) (int, error) {
	return q.wait(ctx, timeout, &q.recvd)
}

func (q *clientQP) wait(ctx context.Context, timeout time.Duration, count *int) (int, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		q.mu.Lock()
		n, failure := *count, q.failure
		*count = 0
		q.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		if failure != nil {
			return 0, failure
		}
		select {
		case <-q.signal:
		case <-timer.C:
			return 0, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-q.closed:
			return 0, fmt.Errorf("queue pair 0x%x: closed", q.local.QPN)
		case <-q.d.conn.gone:
			q.d.conn.mu.Lock()
			defer q.d.conn.mu.Unlock()
			return 0, fmt.Errorf("queue pair 0x%x: %w", q.local.QPN, q.d.conn.err)
		}
	}
}

// Close destroys the queue pair and frees its memory.
func (q *clientQP) Close() error {
	if !q.release() {
		return nil
	}
	_, err := q.d.conn.call(request{Op: "destroy_qp", QPN: q.local.QPN})
	select {
	case <-q.d.conn.gone: // it went with the connection
		return nil
	default:
		return err
	}
}

// release frees what the client holds; false when that was done before.
func (q *clientQP) release() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.isClosed {
		return false
	}
	q.isClosed = true
	close(q.closed)
	q.d.conn.mu.Lock()
	delete(q.d.conn.qps, q.local.QPN)
	q.d.conn.mu.Unlock()
	_ = unix.Munmap(q.mem)
	q.mem = nil
	return true
}
