package perftest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
)

// Endpoint is one end of a flow: a host and its NIC.
type Endpoint struct {
	Host remote.Host
	NIC  *inventory.NIC
}

// Flow is one pair of processes. What Params leaves open and depends on a host (device, port of the device, GID index,
// traffic class) is taken from that end's NIC.
type Flow struct {
	Name           string
	Server, Client Endpoint   // the client sends; for ib_read_bw the payload comes from the server
	Params         Params     // Port 0: one from the pool
	Meet           netip.Addr // where the server is met for the exchange of keys; the zero value: at its NIC's data address
}

// SessionOptions say how flows are run. Zero values mean what the fields say.
type SessionOptions struct {
	Run         string        // run id; "" makes one
	Owner       string        // of the port claims, for others to read
	Ports       PortRange     // pool of each receiving host
	Listen      time.Duration // how long a server may take to listen; 0 means 10 s
	Life        time.Duration // how long the session may last in all; 0 means one hour. Every process ends by then
	Slack       time.Duration // how much longer than its duration a flow may take; 0 means 30 s
	Linger      time.Duration // how long one side may take to end after the other; 0 means 5 s
	Pin         bool          // one core of the NIC's NUMA node per process, where there are any
	ToolVersion string        // of perftest on the hosts, when known
	Progress    func(string)  // what happens, for logs; may be nil
}

func (o SessionOptions) settle() SessionOptions {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.Listen, 10*time.Second)
	def(&o.Life, time.Hour)
	def(&o.Slack, 30*time.Second)
	def(&o.Linger, 5*time.Second)
	if o.Run == "" {
		o.Run = fmt.Sprintf("adhoc-%d", time.Now().UnixNano())
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	o.Ports = o.Ports.settle()
	return o
}

// The states of a flow's result.
const (
	FlowOK          = "ok"
	FlowFailed      = "failed"
	FlowInterrupted = "interrupted" // stopped by the session before its end
	FlowNotStarted  = "not started"
)

// FlowResult is what became of a flow.
type FlowResult struct {
	Name      string    `json:"name"`
	State     string    `json:"state"`
	Port      int       `json:"port"`
	Client    *Side     `json:"client"` // nil when it was never started
	Server    *Side     `json:"server"`
	ClientGID GIDChoice `json:"client_gid"`
	ServerGID GIDChoice `json:"server_gid"`
	Began     time.Time `json:"began"` // when the client was let go
	Output    *Output   `json:"output"`
	Failure   *Failure  `json:"failure,omitempty"`
	Retries   int       `json:"retries"` // after START_RACE
	Notes     []string  `json:"notes,omitempty"`
}

// Session runs flows over hosts: Prepare starts all servers and holds all clients, Start lets clients go together, Wait
// collects results, Close stops what is left. It stops nothing that it did not start. Its methods may be called from
// several goroutines; Prepare once, first.
type Session struct {
	o      SessionOptions
	runs   []*flowRun
	mu     sync.Mutex
	leases []*PortLease
	notes  []string
	closed bool
}

// NewSession checks the flows and touches nothing. The error joins every problem.
func NewSession(flows []Flow, o SessionOptions) (*Session, error) {
	s := &Session{o: o.settle()}
	var errs []error
	names := map[string]bool{}
	for _, f := range flows {
		if f.Name == "" || names[f.Name] {
			errs = append(errs, fmt.Errorf("flow %q: need a name of its own", f.Name))
		}
		names[f.Name] = true
		if f.Server.Host == nil || f.Client.Host == nil || f.Server.NIC == nil || f.Client.NIC == nil {
			errs = append(errs, fmt.Errorf("flow %s: need a host and a NIC at both ends", f.Name))
			continue
		}
		for _, p := range f.Params.Check() {
			errs = append(errs, fmt.Errorf("flow %s: %w", f.Name, p))
		}
		s.runs = append(s.runs, newFlowRun(s.o, f))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// Notes are remarks on the session as a whole: hosts without cores to pin to, shared cores.
func (s *Session) Notes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.notes)
}

// Prepare resolves GIDs, takes ports and cores, starts every server and waits until each listens, and starts every
// client held. When anything fails it stops what it had started and gives the ports back.
func (s *Session) Prepare(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}()
	if err := s.resolve(ctx); err != nil {
		return err
	}
	if err := s.claim(ctx); err != nil {
		return err
	}
	return s.each(ctx, s.runs, func(r *flowRun, ctx context.Context) error {
		if err := r.startServer(ctx); err != nil {
			return err
		}
		return r.startClient(ctx, true)
	})
}

// each runs fn, a method expression, for all flows at once and joins their errors, which are about single flows and do not hinder others.
func (s *Session) each(ctx context.Context, runs []*flowRun, fn func(*flowRun, context.Context) error) error {
	errs := make([]error, len(runs))
	var g errgroup.Group
	g.SetLimit(16)
	for i, r := range runs {
		g.Go(func() error {
			if err := fn(r, ctx); err != nil {
				errs[i] = fmt.Errorf("flow %s: %w", r.flow.Name, err)
			}
			return nil
		})
	}
	_ = g.Wait()
	return errors.Join(errs...)
}

// resolve finds, once per host and NIC, GID index, the tool's path and the cores.
func (s *Session) resolve(ctx context.Context) error {
	type key struct{ host, device string }
	ends := map[key][]*end{}
	for _, r := range s.runs {
		for _, e := range []*end{&r.server, &r.client} {
			k := key{e.host.Name(), e.nic.Device}
			ends[k] = append(ends[k], e)
		}
	}
	var g errgroup.Group
	g.SetLimit(16)
	var mu sync.Mutex
	var errs []error
	for _, group := range ends {
		g.Go(func() error {
			if err := s.resolveEnds(ctx, group); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
			return nil
		})
	}
	_ = g.Wait()
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

func (s *Session) resolveEnds(ctx context.Context, ends []*end) error {
	h, nic := ends[0].host, ends[0].nic
	tool, gid := "", GIDChoice{}
	if nic.Backend == SoftBackend {
		// The software NIC has no sysfs of the kernel's; its tool picks the GID of the data address itself.
		var err error
		if tool, err = linkTool(ctx, h, ends[0].params.ToolName()); err != nil {
			return err
		}
		if nic.GIDIndex != nil {
			gid = GIDChoice{Entry: GIDEntry{Index: *nic.GIDIndex}, Given: true}
		}
	} else {
		var err error
		if gid, err = ResolveGID(ctx, h, nic); err != nil {
			return err
		}
	}
	var cores []int
	if s.o.Pin {
		c, err := ReadCores(ctx, h, nic.Netdev)
		if err != nil {
			return err
		}
		var shared bool
		if cores, shared = c.Assign(len(ends)); shared {
			s.note(fmt.Sprintf("host %s: %d processes share %d cores near %s: their rates hinder each other", h.Name(), len(ends), len(c.List), nic.Netdev))
		}
		if c.Note != "" {
			s.note(fmt.Sprintf("host %s: %s: %s", h.Name(), nic.Netdev, c.Note))
		}
	}
	for i, e := range ends {
		e.toolPath, e.gid = tool, gid
		if gid.Given || nic.Backend != SoftBackend {
			index := gid.Entry.Index
			if e.params.GIDIndex == nil {
				e.params.GIDIndex = &index
			}
		}
		if cores != nil {
			e.core = &cores[i]
		}
	}
	return nil
}

// SoftBackend is the inventory's name of the software NIC, whose tool is pcmlab itself.
const SoftBackend = "softnic"

// linkTool makes the pushed pcmlab callable under the tool's name, which is how it knows what to be.
func linkTool(ctx context.Context, h remote.Host, tool string) (string, error) {
	bin, err := h.Binary(ctx)
	if err != nil {
		return "", err
	}
	link := path.Join(path.Dir(bin), tool)
	step := "link " + tool
	res, err := h.Run(ctx, remote.Cmd{Args: []string{"ln", "-sfn", bin, link}, Step: step})
	if err != nil {
		return "", err
	}
	if res.Code != 0 {
		return "", fmt.Errorf("host %s: %s: exit status %d (stderr: %q)", h.Name(), step, res.Code, strings.TrimSpace(string(res.Stderr)))
	}
	return link, nil
}

func (s *Session) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.notes, text) {
		s.notes = append(s.notes, text)
	}
}

// claim takes the ports of every receiving host: first those that flows name, then free ones for the others.
func (s *Session) claim(ctx context.Context) error {
	byHost := map[string][]*flowRun{}
	var order []string
	for _, r := range s.runs {
		name := r.server.host.Name()
		if byHost[name] == nil {
			order = append(order, name)
		}
		byHost[name] = append(byHost[name], r)
	}
	for _, name := range order {
		var fixed, open []*flowRun
		var ports []int
		for _, r := range byHost[name] {
			if r.flow.Params.Port != 0 {
				if slices.Contains(ports, r.flow.Params.Port) {
					return fmt.Errorf("flow %s: port %d of host %s is another flow's: one server process takes one client on one port", r.flow.Name, r.flow.Params.Port, name)
				}
				fixed, ports = append(fixed, r), append(ports, r.flow.Params.Port)
			} else {
				open = append(open, r)
			}
		}
		h := byHost[name][0].server.host
		base := PortClaim{Run: s.o.Run, Owner: s.o.Owner, Range: s.o.Ports, For: s.o.Life}
		if len(fixed) > 0 {
			c := base
			c.Ports = ports
			if err := s.take(ctx, h, c, fixed); err != nil {
				return err
			}
		}
		if len(open) > 0 {
			c := base
			c.Count = len(open)
			c.Run += poolSuffix // so that a run does not take its own fixed ports again
			if err := s.take(ctx, h, c, open); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Session) take(ctx context.Context, h remote.Host, c PortClaim, runs []*flowRun) error {
	lease, err := ClaimPorts(ctx, h, c)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.leases = append(s.leases, lease)
	s.mu.Unlock()
	for i, r := range runs {
		r.server.params.Port, r.client.params.Port = lease.Ports[i], lease.Ports[i]
	}
	return nil
}

func (s *Session) named(names []string) ([]*flowRun, error) {
	if len(names) == 0 {
		return s.runs, nil
	}
	var out []*flowRun
	for _, n := range names {
		i := slices.IndexFunc(s.runs, func(r *flowRun) bool { return r.flow.Name == n })
		if i < 0 {
			return nil, fmt.Errorf("flow %q: not in this session", n)
		}
		out = append(out, s.runs[i])
	}
	return out, nil
}

// Start lets the clients of the named flows, or of all, go at once.
func (s *Session) Start(ctx context.Context, names ...string) error {
	runs, err := s.named(names)
	if err != nil {
		return err
	}
	return s.each(ctx, runs, (*flowRun).release)
}

// Wait waits until the named flows, or all, have ended, and gives their results in that order. When ctx ends first it
// gives what there is; the flows go on until Close.
func (s *Session) Wait(ctx context.Context, names ...string) ([]FlowResult, error) {
	runs, err := s.named(names)
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		select {
		case <-r.done:
		case <-ctx.Done():
			return s.results(runs), ctx.Err()
		}
	}
	return s.results(runs), nil
}

// Stop ends the named flows, or all, before their time: clients first, then servers. Flows that have ended keep their
// results.
func (s *Session) Stop(ctx context.Context, names ...string) error {
	runs, err := s.named(names)
	if err != nil {
		return err
	}
	return s.each(ctx, runs, (*flowRun).stop)
}

// Results gives what is known of all flows now.
func (s *Session) Results() []FlowResult { return s.results(s.runs) }

func (s *Session) results(runs []*flowRun) []FlowResult {
	out := make([]FlowResult, 0, len(runs))
	for _, r := range runs {
		out = append(out, r.result())
	}
	return out
}

// Close stops every process that the session started and gives its ports back. It may be called more than once.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	leases := s.leases
	s.leases = nil
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	errs := []error{s.Stop(ctx)}
	for _, l := range leases {
		errs = append(errs, l.Release(ctx))
	}
	return errors.Join(errs...)
}
