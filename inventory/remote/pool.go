package remote

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/pcmlab/pcmlab/inventory"
)

// Pool reaches the hosts of one lab. It shares what they have in common: jump hosts, limits, the hash of the binary.
// It is safe for concurrent use.
type Pool struct {
	o          Options
	lab        *inventory.Lab
	handshakes semaphore
	exe        executables
	wg         sync.WaitGroup // goroutines of connections

	mu     sync.Mutex
	hosts  map[string]*sshHost
	jumps  map[string]*jump
	idents map[string]string // hostname and boot id -> host of the lab
	closed bool
}

// jump is the one connection to a jump host.
type jump struct {
	mu    sync.Mutex
	t     *transport
	limit semaphore // handshakes through it
}

// NewPool checks the options. It connects to nothing.
func NewPool(lab *inventory.Lab, o Options) (*Pool, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Pool{
		o: o, lab: lab, handshakes: make(semaphore, o.Handshakes),
		hosts: map[string]*sshHost{}, jumps: map[string]*jump{}, idents: map[string]string{},
	}, nil
}

// Dial reaches one host of a lab. Closing it ends all that was opened for it.
func Dial(ctx context.Context, lab *inventory.Lab, hostName string, o Options) (Host, error) {
	p, err := NewPool(lab, o)
	if err != nil {
		return nil, wrap(hostName, "connect", err)
	}
	h, err := p.Host(ctx, hostName)
	if err != nil {
		p.Close()
		return nil, err
	}
	h.(*sshHost).owner = p
	return h, nil
}

// Run is the id that everything started by the pool carries.
func (p *Pool) Run() string { return p.o.Run }

// Host returns a host of the lab, connecting on first use. All callers share it; the pool closes it.
func (p *Pool) Host(ctx context.Context, name string) (Host, error) {
	lh := p.lab.Host(name)
	if lh == nil {
		return nil, &Error{Host: name, Step: "connect", Kind: Usage, Err: fmt.Errorf("no host %q in lab %q", name, p.lab.Name)}
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, &Error{Host: name, Step: "connect", Kind: Usage, Err: ErrClosed}
	}
	h := p.hosts[name]
	if h == nil {
		h = newSSHHost(p, lh)
		p.hosts[name] = h
	}
	p.mu.Unlock()
	if err := h.connect(ctx); err != nil {
		return nil, wrap(name, "connect", err)
	}
	return h, nil
}

// Each calls f for each of the named hosts (all of the lab when names is empty), Options.Parallel at a time, and joins
// the errors, of connecting too, in the order of names.
func (p *Pool) Each(ctx context.Context, names []string, f func(context.Context, Host) error) error {
	if len(names) == 0 {
		for _, h := range p.lab.Hosts {
			names = append(names, h.Name)
		}
	}
	errs := make([]error, len(names))
	var g errgroup.Group
	g.SetLimit(p.o.Parallel)
	for i, n := range names {
		g.Go(func() error {
			h, err := p.Host(ctx, n)
			if err == nil {
				err = f(ctx, h)
			}
			errs[i] = err
			return nil
		})
	}
	g.Wait()
	return errors.Join(errs...)
}

// Close closes all hosts and jump hosts and waits until their goroutines have ended.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	hosts, jumps := p.hosts, p.jumps
	p.hosts, p.jumps = map[string]*sshHost{}, map[string]*jump{}
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, h := range hosts {
		wg.Go(func() { h.shut() })
	}
	wg.Wait()
	for _, j := range jumps {
		j.mu.Lock()
		if j.t != nil {
			j.t.close()
		}
		j.mu.Unlock()
	}
	p.wg.Wait()
	return nil
}

// route works out how to open a TCP connection to a host with the settings, connecting to its jump hosts. limits
// bound the handshakes that go that way.
func (p *Pool) route(ctx context.Context, s Settings, depth int) (dialer, []semaphore, error) {
	var d dialer = (&net.Dialer{KeepAlive: p.o.KeepAlive}).DialContext
	limits := []semaphore{p.handshakes}
	if depth > 8 {
		return nil, nil, fault(Usage, "", "jump hosts: more than 8 in a chain: does one name itself?")
	}
	key := ""
	for i, hop := range s.ProxyJump {
		in, err := parseHop(hop)
		if err != nil {
			return nil, nil, fault(Usage, "", "%w", err)
		}
		name := in.Address
		if lh := p.lab.Host(name); lh != nil && in.User == "" && in.Port == 0 {
			in = lh.SSH
		}
		hs, err := resolve(name, in, p.o)
		if err != nil {
			return nil, nil, wrapJump(name, err)
		}
		if i == 0 {
			// The first hop is reached by its own settings; further ones through the chain, as ssh -J does.
			if d, limits, err = p.route(ctx, hs, depth+1); err != nil {
				return nil, nil, err
			}
		}
		key += ">" + hs.User + "@" + hs.Addr()
		j := p.jump(key)
		t, err := j.connect(ctx, p, hs, d, limits)
		if err != nil {
			return nil, nil, wrapJump(name, err)
		}
		d, limits = t.dial, []semaphore{p.handshakes, j.limit}
	}
	return d, limits, nil
}

func wrapJump(name string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		c := *e
		c.Err = fmt.Errorf("jump host %s: %w", name, e.Err)
		return &c
	}
	return fmt.Errorf("jump host %s: %w", name, err)
}

func (p *Pool) jump(key string) *jump {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := p.jumps[key]
	if j == nil {
		j = &jump{limit: make(semaphore, p.o.PerJump)}
		p.jumps[key] = j
	}
	return j
}

func (j *jump) connect(ctx context.Context, p *Pool, s Settings, d dialer, limits []semaphore) (*transport, error) {
	j.mu.Lock() // held while connecting: others want the same connection
	defer j.mu.Unlock()
	if j.t != nil && j.t.alive() {
		return j.t, nil
	}
	client, err := handshake(ctx, s, d, limits)
	if err != nil {
		return nil, err
	}
	j.t = newTransport(p, client, s.Addr())
	return j.t, nil
}

// identify holds what a guard echoed against the lab: two hosts of the lab are two machines, and stay what they were.
func (p *Pool) identify(host, name, bootID string) error {
	if p.o.SameMachine || bootID == "" {
		return nil
	}
	key := name + "/" + bootID
	p.mu.Lock()
	defer p.mu.Unlock()
	if other, ok := p.idents[key]; ok && other != host {
		return fault(Usage, "check address: of both in the lab file and HostName in ssh_config",
			"is the same machine as host %s: both say hostname %q, boot id %s", other, name, bootID)
	}
	p.idents[key] = host
	return nil
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
