package softnic

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/nicbackends/softnic/engine"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/qp"
)

// attachment is one client connection: a process with its queue pairs. serve is its reading goroutine; a second one
// writes completions, so that a client that does not read holds up nobody else.
type attachment struct {
	s    *server
	id   uint64 // protection domain
	conn *net.UnixConn
	qps  map[uint32]*attachedQP // used by serve alone

	mu    sync.Mutex
	ready []*attachedQP // with counts to report
	kick  chan struct{} // holds one token when ready is not empty
}

// attachedQP is a queue pair of a client. The loop owns engine state and the counts' growth; mu of the attachment
// guards the counts.
type attachedQP struct {
	a      *attachment
	q      *engine.QP
	qpn    uint32
	source *source
	mem    []byte // shared with the client
	region *engine.Region
	rkey   uint32 // remote
	va     uint64

	counts completionMessage
	listed bool
}

func (s *server) attach(conn *net.UnixConn) {
	s.nextID++
	a := &attachment{s: s, id: s.nextID, conn: conn, qps: map[uint32]*attachedQP{}, kick: make(chan struct{}, 1)}
	s.wg.Go(func() {
		finished := make(chan struct{})
		var writer sync.WaitGroup
		writer.Go(func() { a.report(finished) })
		a.serve()
		conn.Close()
		close(finished)
		writer.Wait()
		a.destroyAll()
		s.forget(conn)
	})
}

func (a *attachment) serve() {
	buf := make([]byte, maxMessage)
	oob := make([]byte, 256)
	for {
		n, oobn, flags, _, err := a.conn.ReadMsgUnix(buf, oob)
		if err != nil || n == 0 {
			return
		}
		fds := received(oob[:oobn])
		if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
			closeAll(fds)
			return
		}
		if p, ok := parsePost(buf[:n]); ok {
			closeAll(fds)
			a.postWork(p)
			continue
		}
		var r request
		var out reply
		if err := json.Unmarshal(buf[:n], &r); err != nil {
			out.Error = fmt.Sprintf("request: %v", err)
		} else if err := a.handle(r, fds, &out); err != nil {
			out = reply{Error: err.Error()}
		}
		closeAll(fds)
		b, err := json.Marshal(out)
		if err != nil {
			return
		}
		if _, err := a.conn.Write(b); err != nil {
			return
		}
	}
}

// received takes the descriptors that came with a message.
func received(oob []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

func (a *attachment) handle(r request, fds []int, out *reply) error {
	s := a.s
	switch {
	case r.Op == "info":
		i := s.info()
		out.Info = &i
		return nil
	case r.Op == "create_qp" && r.CreateQP != nil:
		return a.create(*r.CreateQP, fds, out)
	case r.Op == "connect" && r.Connect != nil:
		return a.connect(r.QPN, *r.Connect)
	case r.Op == "destroy_qp":
		q := a.qps[r.QPN]
		if q == nil {
			return fmt.Errorf("queue pair 0x%x: not on this connection", r.QPN)
		}
		delete(a.qps, r.QPN)
		return a.destroy(q)
	case r.Op == "show":
		st, err := s.status()
		out.Show = &st
		return err
	case r.Op == "counters":
		m, err := s.counters()
		out.Counters = m
		return err
	case r.Op == "lateness":
		return s.loop.do(func(time.Duration) { l := s.loop.late.summary(); out.Lateness = &l })
	case r.Op == "set" && r.Set != nil:
		return s.set(*r.Set)
	case r.Op == "calls" && r.Calls != "":
		h, err := s.writeCalls(r.Calls)
		out.Calls = h
		return err
	}
	return fmt.Errorf("request %q: unknown, or without its arguments", r.Op)
}

const maxBuffer = 4 << 30

func (a *attachment) create(r createRequest, fds []int, out *reply) error {
	if len(fds) != 1 {
		return fmt.Errorf("create_qp: want one memory descriptor, got %d", len(fds))
	}
	if r.Size <= 0 || r.Size > maxBuffer {
		return fmt.Errorf("create_qp: buffer of %d bytes: want 1 to %d", r.Size, maxBuffer)
	}
	// A file that its owner could shorten would let a later access to the mapping kill the NIC with SIGBUS.
	seals, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return errors.New("create_qp: memory is not a memfd sealed against shrinking")
	}
	var st unix.Stat_t
	if err := unix.Fstat(fds[0], &st); err != nil || st.Size < int64(r.Size) {
		return fmt.Errorf("create_qp: memory has %d bytes, want %d", st.Size, r.Size)
	}
	mem, err := unix.Mmap(fds[0], 0, r.Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("create_qp: %w", os.NewSyscallError("mmap", err))
	}
	q := &attachedQP{a: a, mem: mem}
	var createErr error
	err = a.s.loop.do(func(time.Duration) {
		q.q, createErr = a.s.nic.CreateQP(engine.Options{
			PD: a.id, Local: mem, MTU: r.MTU, TrafficClass: r.TrafficClass, Timeout: r.Timeout, RetryCount: r.RetryCount,
			RNRRetry: 7, MinRNRTimer: 12, SendDepth: max(r.SendDepth, 1), RecvDepth: max(r.RecvDepth, 0),
		})
		if createErr != nil {
			return
		}
		q.q.Tag, q.qpn = q, q.q.QPN()
		q.counts.qpn = q.qpn
		q.region = a.s.nic.Register(a.id, mem, r.VA)
		out.Created = &createReply{QPN: q.qpn, PSN: q.q.PSN(), RKey: q.region.RKey}
	})
	if err := errors.Join(err, createErr); err != nil {
		_ = unix.Munmap(mem)
		return err
	}
	a.qps[q.qpn] = q
	return nil
}

func (a *attachment) connect(qpn uint32, r connectRequest) error {
	q := a.qps[qpn]
	if q == nil {
		return fmt.Errorf("connect: queue pair 0x%x: not on this connection", qpn)
	}
	if !r.GID.Is4In6() && !r.GID.Is4() {
		return fmt.Errorf("connect: remote GID %v is no IPv4 address: this NIC has IPv4 only; use GID index 1 (::ffff:%v) on both sides", r.GID, a.s.c.IP.Addr())
	}
	remote := r.GID.Unmap()
	if q.source != nil {
		return fmt.Errorf("connect: queue pair 0x%x is connected already", qpn)
	}
	fd, port, err := openSource(a.s.c.IP.Addr(), a.s.c.Priority, qpn, r.QPN)
	if err != nil {
		return err
	}
	var connectErr error
	err = a.s.loop.do(func(now time.Duration) {
		q.source, q.rkey, q.va = &source{fd}, r.RKey, r.VA
		connectErr = q.q.Connect(now, remote.As4(), r.QPN, r.PSN, port)
	})
	if err != nil && q.source == nil {
		unix.Close(fd)
	}
	return errors.Join(err, connectErr)
}

// postWork hands work requests to the loop. A request that the queue pair cannot take is a failed completion.
func (a *attachment) postWork(p postMessage) {
	q := a.qps[p.qpn]
	if q == nil {
		return
	}
	a.s.loop.post(func(now time.Duration) {
		for range p.count {
			var err error
			if qp.Op(p.op) == qp.Recv {
				err = q.q.PostRecv(qp.RecvRequest{Length: p.size})
			} else {
				err = q.q.Post(now, qp.WorkRequest{Op: qp.Op(p.op), Length: p.size, RemoteVA: q.va, RKey: q.rkey})
			}
			if err != nil {
				q.add(completionMessage{failed: 1, status: localQPOperation})
				return
			}
		}
	})
}

// localQPOperation is IBV_WC_LOC_QP_OP_ERR.
const localQPOperation = 2

// collect takes the completions of the engine's queue pair. The loop calls it.
func (q *attachedQP) collect(e *engine.QP) {
	var sum completionMessage
	for {
		c, ok := e.Poll()
		if !ok {
			break
		}
		switch {
		case c.Status != qp.Success:
			if sum.failed++; sum.failed == 1 {
				sum.status, sum.syndrome = uint32(c.Status), uint32(c.Syndrome)
			}
		case c.Op == qp.Recv:
			sum.received++
		default:
			sum.done++
		}
	}
	q.add(sum)
}

func (q *attachedQP) add(c completionMessage) {
	a := q.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if q.counts.failed == 0 {
		q.counts.status, q.counts.syndrome = c.status, c.syndrome
	}
	q.counts.done += c.done
	q.counts.received += c.received
	q.counts.failed += c.failed
	if !q.listed {
		q.listed = true
		a.ready = append(a.ready, q)
	}
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

// report writes completions to the client until it has gone.
func (a *attachment) report(finished <-chan struct{}) {
	var out []completionMessage
	var buf []byte
	for {
		select {
		case <-a.kick:
		case <-finished:
			return
		}
		a.mu.Lock()
		out = out[:0]
		for _, q := range a.ready {
			out = append(out, q.counts)
			q.counts = completionMessage{qpn: q.qpn}
			q.listed = false
		}
		a.ready = a.ready[:0]
		a.mu.Unlock()
		for _, c := range out {
			buf = c.append(buf[:0])
			if _, err := a.conn.Write(buf); err != nil {
				return
			}
		}
	}
}

func (a *attachment) destroy(q *attachedQP) error {
	err := a.s.loop.do(func(now time.Duration) {
		q.q.Destroy(now)
		a.s.nic.Deregister(q.region)
		q.close()
	})
	if err == nil || errors.Is(err, errStopped) {
		// The loop will not touch the memory again.
		<-a.s.loopIdle(err)
		_ = unix.Munmap(q.mem)
	}
	return err
}

func (a *attachment) destroyAll() {
	for _, q := range a.qps {
		_ = a.destroy(q)
	}
}

// close closes the sending socket; the loop calls it.
func (q *attachedQP) close() {
	if q.source != nil {
		unix.Close(q.source.fd)
		q.source = nil
	}
}

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// loopIdle is closed when the loop can no longer touch what a function that ended with err was about.
func (s *server) loopIdle(err error) <-chan struct{} {
	if err == nil {
		return closedChan
	}
	return s.loop.done
}

func (s *server) info() Info {
	return Info{Device: s.c.Device, Netdev: s.c.Netdev, IP: s.c.IP.Addr(), MTU: s.c.MTU, PathMTU: s.pathMTU,
		RateBps: s.c.RateBps, TimeScale: s.c.Scale, GIDs: []GID{
			{0, linkLocal(s.mac), "RoCE v2"},
			{1, netip.AddrFrom16(s.c.IP.Addr().As16()), "RoCE v2"},
		}}
}
