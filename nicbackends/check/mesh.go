package check

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
)

// Path is one way between two data addresses, in one direction.
type Path struct {
	From    string  `json:"from"` // host, and NIC where it has several
	To      string  `json:"to"`
	Probe   string  `json:"probe"` // packet: datagrams to UDP 4791; verbs: ib_write_bw
	Verdict Verdict `json:"verdict"`
	Sent    int     `json:"sent"`    // small datagrams
	Arrived *int    `json:"arrived"` // nil: nobody looked
	Full    int     `json:"full_sent"`
	FullIn  *int    `json:"full_arrived"` // of the lab's MTU
	RTT     *int64  `json:"rtt_ns"`       // the smallest; nil without an answer
	DSCP    *int    `json:"dscp"`         // as it arrived
	ECN     *int    `json:"ecn"`
	Why     string  `json:"why,omitempty"`
	Fix     string  `json:"fix,omitempty"`

	toHost string
}

// MeshOptions say how paths are probed.
type MeshOptions struct {
	With  string        // packet, verbs, or "": packets where the receiving NIC leaves them to the kernel, verbs elsewhere
	Count int           // datagrams of each size; 0 means 3
	Wait  time.Duration // for the last answers; 0 means 1 s

	// Bars: a path beyond one fails.
	MaxRTT  time.Duration // of the fastest datagram; 0 means none
	MaxLost *int          // datagrams of a path; nil: a path that loses some, but not all, is a warning
}

// port is one data address of the lab.
type port struct {
	host  *inventory.Host
	nic   *inventory.NIC
	name  string
	a     *Answer
	index int // among the host's NICs
}

func ports(lab *inventory.Lab, answers []Answer) []port {
	var out []port
	for _, h := range lab.Hosts {
		for i, n := range h.NICs {
			p := port{host: h, nic: n, name: h.Name, index: i}
			if len(h.NICs) > 1 {
				p.name += "." + n.Netdev
			}
			for k := range answers {
				if answers[k].Host == h.Name {
					p.a = &answers[k]
				}
			}
			out = append(out, p)
		}
	}
	return out
}

// kernelSees says that UDP to 4791 passes the receiving host's kernel, where a packet socket shows it. A ConnectX takes
// RoCE packets out before, and drops those of no queue pair.
func kernelSees(n *inventory.NIC) bool { return n.Backend == "softnic" || n.Backend == "rxe" }

// Mesh probes every path between data addresses of one family on different hosts. Hosts that could not be asked are left
// alone; their paths are skips.
func Mesh(ctx context.Context, pool *remote.Pool, lab *inventory.Lab, answers []Answer, o MeshOptions) []Path {
	if o.Count == 0 {
		o.Count = 3
	}
	if o.Wait == 0 {
		o.Wait = time.Second
	}
	all := ports(lab, answers)
	m := &mesh{pool: pool, lab: lab, o: o, ports: all, paths: map[[2]int]*Path{}}
	var order [][2]int
	for i, from := range all {
		for k, to := range all {
			if from.host == to.host || from.nic.IP.Addr().Is4() != to.nic.IP.Addr().Is4() {
				continue
			}
			p := &Path{From: from.name, To: to.name, Probe: "packet", toHost: to.host.Name}
			if o.With == "verbs" || o.With == "" && !kernelSees(to.nic) {
				p.Probe = "verbs"
			}
			for _, end := range []port{from, to} {
				if end.a == nil || end.a.Facts.Hostname == "" {
					p.Verdict, p.Why = Skip, "host "+end.host.Name+" could not be asked"
				} else if end.index < len(end.a.Facts.NICs) && !end.a.Facts.NICs[end.index].Netdev.Known() {
					p.Verdict, p.Why = Skip, "host "+end.host.Name+" has no interface "+end.nic.Netdev
				}
			}
			m.paths[[2]int{i, k}] = p
			order = append(order, [2]int{i, k})
		}
	}
	m.packets(ctx)
	m.verbs(ctx)
	out := make([]Path, 0, len(order))
	for _, key := range order {
		out = append(out, *m.paths[key])
	}
	return out
}

type mesh struct {
	pool  *remote.Pool
	lab   *inventory.Lab
	o     MeshOptions
	ports []port
	paths map[[2]int]*Path // by index of both ends
}

// listener is one packet socket on a host.
type listener struct {
	p    remote.Process
	err  error
	seen []Listened
}

// packets raises a listener at each receiving port, then lets all send, then ends the listeners.
func (m *mesh) packets(ctx context.Context) {
	targets := map[int][]netip.Addr{} // by sender
	receivers := map[int]*listener{}
	for key, p := range m.paths {
		if p.Probe == "packet" && p.Verdict == "" {
			targets[key[0]] = append(targets[key[0]], m.ports[key[1]].nic.IP.Addr())
			receivers[key[1]] = &listener{}
		}
	}
	if len(receivers) == 0 {
		return
	}
	b := make([]byte, 8)
	rand.Read(b) // never fails
	nonce := hex.EncodeToString(b)
	each(receivers, func(i int, l *listener) { l.p, l.err = m.listen(ctx, m.ports[i], nonce) })
	sent := map[int]*[]Sent{}
	failed := map[int]*error{}
	for i := range targets {
		sent[i], failed[i] = new([]Sent), new(error)
	}
	each(sent, func(i int, s *[]Sent) { *s, *failed[i] = m.send(ctx, m.ports[i], nonce, targets[i]) })
	each(receivers, func(_ int, l *listener) {
		if l.p != nil {
			l.seen, l.err = finish(ctx, l.p)
		}
	})
	for key, p := range m.paths {
		if p.Probe == "packet" && p.Verdict == "" {
			m.packetVerdict(p, m.ports[key[0]], m.ports[key[1]], *sent[key[0]], *failed[key[0]], receivers[key[1]])
		}
	}
}

// each calls f for every entry, all at once.
func each[T any](m map[int]T, f func(int, T)) {
	var wg sync.WaitGroup
	for k, v := range m {
		wg.Go(func() { f(k, v) })
	}
	wg.Wait()
}

// root says that a command needs sudo to have root's rights on a port's host.
func (p port) root() bool {
	return p.host.Sudo && !strings.HasSuffix(string(p.a.Facts.User), "(0)")
}

const listenFor = 60 * time.Second

func (m *mesh) listen(ctx context.Context, p port, nonce string) (remote.Process, error) {
	h, err := m.pool.Host(ctx, p.host.Name)
	if err != nil {
		return nil, err
	}
	ready := newWaiter("listening")
	proc, err := h.Start(ctx, remote.Cmd{
		Args: []string{"pcmlab", "probe", "listen", "--iface", p.nic.Netdev, "--ip", p.nic.IP.Addr().String(), "--nonce", nonce},
		Sudo: p.root(), Deadline: listenFor, Stdout: ready, Step: "listen for datagrams on " + p.nic.Netdev,
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-ready.found:
		return proc, nil
	case <-proc.Done():
		res, err := proc.Wait(ctx)
		if err == nil {
			err = fmt.Errorf("exit status %d: %s", res.Code, strings.TrimSpace(string(res.Stderr)))
		}
		return nil, err
	case <-ctx.Done():
		proc.Stop(context.WithoutCancel(ctx), "INT")
		return nil, context.Cause(ctx)
	}
}

func finish(ctx context.Context, p remote.Process) ([]Listened, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	if err := p.Stop(ctx, "INT"); err != nil {
		return nil, err
	}
	res, err := p.Wait(ctx)
	_, doc, ok := bytes.Cut(res.Stdout, []byte("\n"))
	var seen []Listened
	if jerr := json.Unmarshal(doc, &seen); !ok || jerr != nil {
		if err == nil {
			err = fmt.Errorf("exit status %d: %s", res.Code, strings.TrimSpace(string(res.Stderr)))
		}
		return nil, err
	}
	return seen, nil
}

func (m *mesh) send(ctx context.Context, p port, nonce string, to []netip.Addr) ([]Sent, error) {
	h, err := m.pool.Host(ctx, p.host.Name)
	if err != nil {
		return nil, err
	}
	args := []string{"pcmlab", "probe", "send", "--iface", p.nic.Netdev, "--ip", p.nic.IP.Addr().String(), "--nonce", nonce, "--tos", strconv.Itoa(tos(p.nic)),
		"--sizes", fmt.Sprintf("%d,%d", smallest, full(p.nic)), "--count", strconv.Itoa(m.o.Count), "--wait", m.o.Wait.String()}
	slices.SortFunc(to, netip.Addr.Compare)
	for _, a := range to {
		args = append(args, a.String())
	}
	res, err := h.Run(ctx, remote.Cmd{Args: args, Deadline: listenFor, Step: "send datagrams from " + p.nic.IP.Addr().String()})
	if err != nil {
		return nil, err
	}
	var out []Sent
	if json.Unmarshal(res.Stdout, &out) != nil {
		return nil, &remote.Error{Host: h.Name(), Step: "send datagrams from " + p.nic.IP.Addr().String(), Err: fmt.Errorf("exit status %d: %s", res.Code, strings.TrimSpace(string(res.Stderr)))}
	}
	return out, nil
}

// tos is the lab's DSCP with ECT(0), as data packets have it.
func tos(n *inventory.NIC) int {
	if n.ECN {
		return n.DSCP<<2 | 2
	}
	return n.DSCP << 2
}

func full(n *inventory.NIC) int {
	mtu := n.MTU
	if mtu == 0 {
		mtu = 1500
	}
	return room(mtu, n.IP.Addr().Is6())
}

// waiter is a writer that notices a first line.
type waiter struct {
	line  string
	found chan struct{}
	text  []byte
	done  bool
}

func newWaiter(line string) *waiter { return &waiter{line: line + "\n", found: make(chan struct{})} }

func (w *waiter) Write(b []byte) (int, error) {
	if !w.done {
		w.text = append(w.text, b...)
		if w.done = bytes.HasPrefix(w.text, []byte(w.line)); w.done {
			close(w.found)
		}
	}
	return len(b), nil
}
