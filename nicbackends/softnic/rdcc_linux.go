package softnic

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/nicbackends/softnic/gate"
	"github.com/pcmlab/pcmlab/rdcc/domain"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
)

// rdccPort is the NIC's RDCC port: a socket, and the gate behind it. The loop owns it.
type rdccPort struct {
	c       domain.Config
	gate    *gate.Gate // nil: closed, and the socket still tells senders
	until   time.Duration
	fd      int
	rx, tx  *batch
	tos     byte
	drops   uint32 // as the socket last reported
	dropped uint64 // datagrams that found no room in the socket, either way
}

// rdccSize has room for each message.
const rdccSize = 256

// openRDCC opens the socket of the domain's port, which sends UDP checksums (Message Formats).
func openRDCC(ip netip.Addr, c domain.Config, priority int) (*rdccPort, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	set := func(name string, level, opt, value int) {
		if e := unix.SetsockoptInt(fd, level, opt, value); e != nil && err == nil {
			err = fmt.Errorf("setsockopt %s: %w", name, e)
		}
	}
	set("SO_RXQ_OVFL", unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1)
	set("SO_PRIORITY", unix.SOL_SOCKET, unix.SO_PRIORITY, min(priority, 6))
	force(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF)
	if err == nil {
		if e := unix.Bind(fd, &unix.SockaddrInet4{Port: int(c.Port), Addr: ip.As4()}); e != nil {
			err = os.NewSyscallError("bind", e)
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("RDCC port, UDP %v:%d: %w", ip, c.Port, err)
	}
	p := &rdccPort{c: c, fd: fd, rx: newBatch(rdccSize), tx: newBatch(rdccSize)}
	if d := c.DSCP.Control; d != nil {
		p.tos = *d << 2
	}
	return p, nil
}

// receive takes what has arrived, a batch at most, and says whether there may be more.
func (p *rdccPort) receive(l *loop) (more bool, err error) {
	n, err := p.rx.recv(p.fd)
	l.io.Syscalls++
	if err == unix.ECONNREFUSED { // a port of others was closed: what is silent there shows by itself
		err = nil
	}
	if err != nil {
		return false, os.NewSyscallError("recvmmsg", err)
	}
	now := l.now()
	var m message
	for i := range n {
		p.rx.message(i, &m)
		p.dropped += uint64(max(m.dropped, p.drops) - p.drops)
		p.drops = max(m.dropped, p.drops)
		from := netip.AddrPortFrom(netip.AddrFrom4(m.src), m.sport)
		if p.gate != nil {
			p.gate.Receive(now, from, m.data)
		} else if answer := gate.Refuse(m.data); answer != nil {
			p.tx.put(0, m.src, m.sport, p.tos, copy(p.tx.buffer(0), answer))
			p.send(l, 1)
		}
	}
	return n == batchSize, nil
}

// flush does what is due and sends what the gate has to say, until it has no more.
func (p *rdccPort) flush(l *loop) {
	for p.gate != nil {
		p.gate.Advance(l.now())
		if p.poll(l) == 0 {
			return
		}
	}
}

// poll sends what the gate has to say now.
func (p *rdccPort) poll(l *loop) (total int) {
	for n := 0; ; {
		to, b, ok := p.gate.Poll(p.tx.buffer(n)[:0])
		if ok {
			p.tx.put(n, to.Addr().As4(), to.Port(), p.tos, len(b))
			n++
		}
		if n == batchSize || !ok && n > 0 {
			p.send(l, n)
			total += n
			n = 0
		}
		if !ok {
			return total
		}
	}
}

// send sends the first n messages of tx.
func (p *rdccPort) send(l *loop, n int) {
	for at := 0; at < n; {
		sent, err := sendmmsg(p.fd, p.tx.hdrs[at:n])
		l.io.Syscalls++
		if err == unix.EINTR {
			continue
		}
		if err != nil { // lost, as on a wire: the protocol repeats it
			p.dropped++
			sent = 1
		}
		at += sent
	}
}

// deadline is when flush has something to do.
func (p *rdccPort) deadline() (time.Duration, bool) {
	if p.gate == nil {
		return p.until, true
	}
	return p.gate.Deadline()
}

// fabric is what the NIC knows of its path. The round trip is the lab's to know.
func (s *server) fabric() receiver.Fabric {
	return receiver.Fabric{LineRate: int64(s.nic.Rate()), Payload: s.pathMTU, Wire: s.pathMTU + 82}
}

// checkRDCC fills in what the NIC knows, and names what is missing.
func (s *server) checkRDCC(c domain.Config) (domain.Config, error) {
	if c.TimeScale != 0 && c.TimeScale != s.c.Scale.Factor() {
		return c, fmt.Errorf("rdcc: time_scale: %v, and the NIC's is %v (leave it out)", c.TimeScale, s.c.Scale.Factor())
	}
	c.TimeScale = s.c.Scale.Factor()
	if err := c.Validate(); err != nil {
		return c, err
	}
	if !c.BaseRTT.Given() {
		return c, errors.New("rdcc: base_rtt: the NIC does not know its path (name the domain's round-trip time without queues, of hardware: base_rtt=8us)")
	}
	return c, c.Check(s.fabric())
}

// setRDCC switches the gate. A new configuration is a new gate, which its peers see as a restart.
func (s *server) setRDCC(now time.Duration, c domain.Config) error {
	l := s.loop
	var next *rdccPort
	if !c.Off {
		var err error
		if c, err = s.checkRDCC(c); err != nil {
			return err
		}
	}
	if p := l.rdcc; p != nil && (c.Off || p.c.Port == c.Port) {
		s.closeRDCC(now)
	}
	if c.Off {
		return nil
	}
	if p := l.rdcc; p != nil && p.c.Port == c.Port { // its socket goes on
		unix.Close(p.fd)
		l.rdcc = nil
	}
	next, err := openRDCC(s.c.IP.Addr(), c, s.c.Priority)
	if err != nil {
		return err
	}
	if l.rdcc != nil {
		s.closeRDCC(now)
		unix.Close(l.rdcc.fd)
	}
	f := s.fabric()
	next.gate, err = gate.New(now, s.nic, gate.Config{Port: c.Port, Sender: c.Sender(f), Receiver: c.Receiver(f),
		Message: c.Message(f, netip.AddrPort{}, 0), MaxPending: c.MaxPending})
	if err != nil {
		unix.Close(next.fd)
		l.rdcc = nil
		return err
	}
	l.rdcc = next
	return nil
}

// closeRDCC ends the gate, if there is one. Its socket tells senders for a while, so that none waits for it until its patience
// ends: two requests at their slowest, and what is on its way.
func (s *server) closeRDCC(now time.Duration) {
	p := s.loop.rdcc
	if p == nil || p.gate == nil {
		return
	}
	p.gate.Close(now)
	p.poll(s.loop)
	s.addRDCC(s.rdccBefore, p)
	p.gate = nil
	p.until = now + s.c.Scale.Time(2*100*time.Millisecond) + time.Second
}

// addRDCC adds the counters of a gate.
func (s *server) addRDCC(m map[string]uint64, p *rdccPort) {
	for k, v := range p.gate.CounterMap() {
		m["rdcc_"+k] += v
	}
	m["rdcc_control_dropped"] += p.dropped
}

// rdccCounters are those of all gates so far. The loop calls it.
func (s *server) rdccCounters() map[string]uint64 {
	m := maps.Clone(s.rdccBefore)
	if p := s.loop.rdcc; p != nil && p.gate != nil {
		s.addRDCC(m, p)
	}
	return m
}

// rdccStatus describes the gate; nil without one. The loop calls it.
func (s *server) rdccStatus() *RDCCStatus {
	p := s.loop.rdcc
	if p == nil || p.gate == nil {
		return nil
	}
	return &RDCCStatus{Config: p.c, Status: p.gate.Status()}
}
