package vlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/inventory/fabric"
)

// Descriptors that the keeper inherits.
const (
	keeperChannelFD  = 3
	keeperListenerFD = 4 // the first of one per host
)

// HostMain is the hidden subcommand `pcmlab lab-host`: args is what follows it. It is only started by Up.
func HostMain(ctx context.Context, args []string, stderr io.Writer) int {
	role := strings.Join(args, " ")
	var err error
	switch role {
	case roleKeeper:
		err = keeperMain(ctx)
	case roleHost:
		err = hostMain(ctx)
	default:
		err = fmt.Errorf("lab-host %q: is started by `pcmlab lab up` only", role)
	}
	if err != nil {
		fmt.Fprintf(stderr, "pcmlab: lab-host %s: %v\n", role, err)
		return 3
	}
	return 0
}

const (
	roleKeeper = "keeper"
	roleHost   = "host"
)

// keeper is PID 1 of a lab's PID namespace. When it ends, for whatever reason, the kernel ends everything below it.
type keeper struct {
	spec    keeperSpec
	specs   []hostSpec
	caller  *channel
	log     io.Writer
	nl      *netlink.Handle
	hosts   []*child
	fabrics []*child
	made    Provenance
	fds     map[wire]int // the fabric's ends

	mu       sync.Mutex // of log, fds, made, hosts, fabrics and stopping
	stopping bool       // nothing may be started any more
}

// child is a process of the keeper.
type child struct {
	name    string
	cmd     *exec.Cmd
	ch      *channel // hosts only
	answers chan message
	runDir  int // the host's /run/pcmlab
	done    chan struct{}
	status  string // valid when done is closed
}

// keeperMain is `pcmlab lab-host keeper`.
func keeperMain(ctx context.Context) error {
	unix.CloseOnExec(keeperChannelFD)
	caller, err := newChannel(os.NewFile(keeperChannelFD, "caller"))
	if err != nil {
		return err
	}
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGPIPE) // the terminal's are not the lab's
	term := make(chan os.Signal, 1)
	signal.Notify(term, unix.SIGTERM)
	m, _, err := caller.receive()
	if err == io.EOF {
		return nil // the caller died before it recorded us
	}
	if err != nil {
		return err
	}
	if m.Type != msgSpec || m.Spec == nil {
		return fmt.Errorf("message %q: need %q", m.Type, msgSpec)
	}
	k := &keeper{spec: *m.Spec, caller: caller, log: os.Stderr, fds: map[wire]int{}}
	for i := range k.spec.Hosts {
		unix.CloseOnExec(keeperListenerFD + i)
	}
	committed, lost := k.watchCaller()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	built := make(chan error, 1)
	go func() { built <- k.build(ctx) }()
	for {
		select {
		case err := <-built:
			if err != nil {
				k.say(message{Type: msgError, Text: err.Error()})
				k.stop()
				return err
			}
			k.made.Kernel = kernelRelease()
			k.say(message{Type: msgReady, Made: &k.made})
			built = nil
		case <-committed:
			committed = nil
			if !k.spec.Ephemeral {
				lost = nil // the lab outlives its caller from now on
			}
		case <-lost:
			// The lab was never finished, or lives and dies with its caller.
			k.stop()
			k.removeFolders()
			return nil
		case <-term:
			k.stop()
			return nil
		}
	}
}

// watchCaller reads the caller's messages; lost is closed when the caller is gone.
func (k *keeper) watchCaller() (committed, lost chan struct{}) {
	committed, lost = make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(lost)
		for {
			m, fds, err := k.caller.receive()
			if err != nil {
				return
			}
			closeAll(fds)
			if m.Type == msgCommit {
				committed <- struct{}{}
			}
		}
	}()
	return committed, lost
}

// say tells the caller, if it is still there, and the log.
func (k *keeper) say(m message) {
	k.mu.Lock()
	b, _ := json.Marshal(m)
	fmt.Fprintf(k.log, "%s %s\n", time.Now().UTC().Format(time.RFC3339Nano), b)
	k.mu.Unlock()
	k.caller.send(m)
}

func (k *keeper) step(format string, args ...any) {
	k.say(message{Type: msgStep, Text: fmt.Sprintf(format, args...)})
}

func (k *keeper) build(ctx context.Context) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// Children are found by the numbers of this PID namespace.
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount proc: %w%s", err, mountFix(k.spec.Rootless))
	}
	var err error
	if k.specs, err = readSpecs(k.spec.Specs); err != nil {
		return err
	}
	if k.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return err
	}
	if err := quietIPv6(); err != nil {
		return err
	}
	k.made = Provenance{IO: k.spec.IO, Rootless: k.spec.Rootless, IPv6Off: true, FabricIO: map[string]string{}}
	if err := k.startHosts(); err != nil {
		return err
	}
	services := make(chan error, 1)
	go func() {
		services <- k.each(func(c *child) error {
			_, err := c.await(msgReady)
			return err
		})
	}()
	err = k.startFabrics(ctx)
	if err = errors.Join(err, <-services); err != nil {
		return err
	}
	k.step("ssh and NIC daemons")
	if err := k.selfTest(); err != nil {
		return err
	}
	return k.each(func(c *child) error { return c.ch.send(message{Type: msgReady}) })
}

// each runs f for all hosts at once and reports every failure.
func (k *keeper) each(f func(*child) error) error {
	errs := make([]error, len(k.hosts))
	var wg sync.WaitGroup
	for i, c := range k.hosts {
		wg.Go(func() {
			if err := f(c); err != nil {
				errs[i] = fmt.Errorf("host %q: %w", c.name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// startHosts starts all init processes, waits until their interfaces are there and has them start their services.
func (k *keeper) startHosts() error {
	errs := make([]error, len(k.specs))
	var wg sync.WaitGroup
	for i := range k.specs {
		wg.Go(func() { errs[i] = k.startHost(i) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if k.spec.IO == IOPacket {
		if err := k.wires(); err != nil {
			return err
		}
	}
	return k.each(func(c *child) error {
		m, err := c.await(msgNet)
		if err != nil {
			return err
		}
		k.mu.Lock()
		k.made.Offloads = append(k.made.Offloads, m.Offloads...)
		for note := range strings.Lines(m.Text) {
			k.made.Notes = append(k.made.Notes, "host "+c.name+": "+strings.TrimSpace(note))
		}
		k.mu.Unlock()
		k.step("host %s", c.name)
		if err := k.haveTAPs(c); err != nil {
			return err
		}
		return c.ch.send(message{Type: msgStart}) // its services need no other host
	})
}

// launch starts a child unless the lab is being stopped.
func (k *keeper) launch(c *child, group *[]*child, kind string, start func(*exec.Cmd) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopping {
		return errors.New("the lab is being taken down")
	}
	if err := start(c.cmd); err != nil {
		return err
	}
	*group = append(*group, c)
	go k.wait(c, kind)
	return nil
}

func (k *keeper) specOf(name string) *hostSpec {
	for i := range k.specs {
		if k.specs[i].Name == name {
			return &k.specs[i]
		}
	}
	return nil
}

func (k *keeper) startHost(i int) error {
	spec := k.specs[i]
	fail := func(err error) error { return fmt.Errorf("host %q: %w", spec.Name, err) }
	ch, theirs, err := packetPair()
	if err != nil {
		return fail(err)
	}
	defer theirs.Close()
	listener := os.NewFile(uintptr(keeperListenerFD+i), "listener")
	defer listener.Close() // only the host has it then: when the host dies, its address refuses
	stdin, w, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	defer stdin.Close()
	cmd := exec.Command(k.spec.Binary, "lab-host", roleHost)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, os.Stderr, os.Stderr
	cmd.ExtraFiles = []*os.File{theirs, listener}
	// Dozens of init processes share the machine's few cores; one thread each costs a third less to start.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC,
	}
	c := &child{name: spec.Name, cmd: cmd, ch: ch, answers: make(chan message, 256), runDir: -1, done: make(chan struct{})}
	if err := k.launch(c, &k.hosts, "host", (*exec.Cmd).Start); err != nil {
		w.Close()
		ch.close()
		return fail(err)
	}
	go func() {
		json.NewEncoder(w).Encode(spec)
		w.Close()
	}()
	go k.listen(c)
	k.say(message{Type: msgHost, Name: spec.Name, PID: cmd.Process.Pid})
	return nil
}

// listen passes a host's messages on until its end of the channel is closed.
func (k *keeper) listen(c *child) {
	defer close(c.answers)
	for {
		m, fds, err := c.ch.receive()
		if err != nil {
			return
		}
		if m.Type == msgEvent {
			closeAll(fds)
			k.say(m)
			continue
		}
		if m.Type == msgNet && len(fds) > 0 {
			c.runDir = fds[0]
			k.mu.Lock()
			k.takeFDs(c.name, fds[1:])
			k.mu.Unlock()
		} else {
			closeAll(fds)
		}
		c.answers <- m
	}
}

// takeFDs sorts a host's TAP descriptors: its NICs in order, then its mirrors.
func (k *keeper) takeFDs(name string, fds []int) {
	s := k.specOf(name)
	for i, fd := range fds {
		switch {
		case i < len(s.NICs):
			k.fds[wire{name, s.NICs[i].Netdev}] = fd
		case i < len(s.NICs)+len(s.Mirrors):
			k.fds[wire{name, s.Mirrors[i-len(s.NICs)].Netdev}] = fd
		default:
			unix.Close(fd)
		}
	}
}

func (k *keeper) haveTAPs(c *child) error {
	if k.spec.IO != IOTap {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.specOf(c.name).NICs {
		if _, ok := k.fds[wire{c.name, n.Netdev}]; !ok {
			return fmt.Errorf("interface %s: no descriptor arrived", n.Netdev)
		}
	}
	return nil
}

// wait records the end of a process.
func (k *keeper) wait(c *child, what string) {
	c.cmd.Wait()
	c.status = "ended"
	if c.cmd.ProcessState != nil {
		c.status = statusText(c.cmd.ProcessState.Sys().(syscall.WaitStatus))
	}
	close(c.done)
	k.say(message{Type: msgEvent, Name: c.name, Text: what + " " + c.name + ": " + c.status})
}

// buildStep bounds each wait for a host's answer.
const buildStep = 30 * time.Second

func (c *child) await(kind string) (message, error) {
	t := time.NewTimer(buildStep)
	defer t.Stop()
	select {
	case m, ok := <-c.answers:
		switch {
		case !ok:
			<-c.done
			return m, fmt.Errorf("init process: %s", c.status)
		case m.Type == msgError:
			return m, errors.New(m.Text)
		case m.Type != kind:
			return m, fmt.Errorf("answer %q: need %q", m.Type, kind)
		}
		return m, nil
	case <-t.C:
		return message{}, fmt.Errorf("no answer %q after %s", kind, buildStep)
	}
}

// wires makes the veth pairs, our ends in this namespace.
func (k *keeper) wires() error {
	index := 0
	for _, c := range k.hosts {
		spec := k.specOf(c.name)
		type end struct {
			netdev string
			mtu    int
		}
		var ends []end
		for _, n := range spec.NICs {
			ends = append(ends, end{n.Netdev, n.MTU})
		}
		for _, m := range spec.Mirrors {
			ends = append(ends, end{m.Netdev, m.MTU})
		}
		for _, e := range ends {
			if err := k.wire(wire{c.name, e.netdev}, index, e.mtu, c.cmd.Process.Pid, spec.KeepOffloads); err != nil {
				return err
			}
			index++
		}
		if err := c.ch.send(message{Type: msgLinks}); err != nil {
			return fmt.Errorf("host %q: %w", c.name, err)
		}
	}
	return nil
}

func (k *keeper) wire(w wire, index, mtu, pid int, keep bool) error {
	fd, offs, err := makeVeth(k.nl, w, index, mtu, pid, keep)
	if err != nil {
		return fmt.Errorf("host %q: interface %s: %w", w.Host, w.Netdev, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fds[w] = fd
	k.made.Offloads = append(k.made.Offloads, offs...)
	return nil
}

// trunk makes a veth pair of which both ends stay here.
func (k *keeper) trunk(t trunkPlan) error {
	if err := k.nl.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: t.A.Netdev, MTU: t.MTU, TxQLen: queueLen}, PeerName: t.B.Netdev, PeerMTU: uint32(t.MTU)}); err != nil {
		return fmt.Errorf("veth pair: %w", err)
	}
	for _, w := range []wire{t.A, t.B} {
		fd, offs, err := wireEnd(k.nl, w, w.Netdev, false)
		if err != nil {
			return err
		}
		k.mu.Lock()
		k.fds[w] = fd
		k.made.Offloads = append(k.made.Offloads, offs...)
		k.mu.Unlock()
	}
	return nil
}

// startFabrics starts one process per switch and waits until packets flow.
func (k *keeper) startFabrics(ctx context.Context) error {
	for _, t := range k.spec.Trunks {
		if err := k.trunk(t); err != nil {
			return fmt.Errorf("trunk %s: %w", t.A.Netdev, err)
		}
	}
	for _, p := range k.spec.Fabrics {
		if err := k.startFabric(ctx, p); err != nil {
			return fmt.Errorf("fabric %q: %w", p.Switch, err)
		}
		k.step("fabric %s", p.Switch)
	}
	// Only fabric and host hold a TAP now: the last of the two to die removes it, and hosts die in parallel.
	for _, fd := range k.fds {
		unix.Close(fd)
	}
	return nil
}

func (k *keeper) startFabric(ctx context.Context, p fabricPlan) error {
	var files []*os.File
	inherit := func(fd int) (int, error) {
		dupfd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return 0, err
		}
		files = append(files, os.NewFile(uintptr(dupfd), "wire"))
		return 2 + len(files), nil
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	kind := func(w wire) fabric.Kind {
		if k.spec.IO == IOPacket || w.Host == "" {
			return fabric.KindPacket
		}
		return fabric.KindTAP
	}
	cfg := p.Config
	var err error
	for i, w := range p.Ports {
		cfg.Ports[i].Kind = kind(w)
		if cfg.Ports[i].FD, err = inherit(k.fds[w]); err != nil {
			return err
		}
	}
	for i, w := range p.Mirrors {
		cfg.Mirrors[i].Kind = kind(w)
		if cfg.Mirrors[i].FD, err = inherit(k.fds[w]); err != nil {
			return err
		}
	}
	// The socket is in the /run of the switch's host. Its folder is handed over as a descriptor, since no path outside
	// of that host leads there, and the name stays far below the 107 bytes that a socket's may have.
	dir := -1
	for _, c := range k.hosts {
		if c.name == p.Host {
			dir = c.runDir
		}
	}
	if dir < 0 {
		if dir, err = unix.Open(k.spec.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		defer unix.Close(dir)
	}
	n, err := inherit(dir)
	if err != nil {
		return err
	}
	cfg.Control = fmt.Sprintf("/proc/self/fd/%d/%s", n, p.Socket)
	ready, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	files = append(files, w)
	cfg.ReadyFD = 2 + len(files)

	config := filepath.Join(k.spec.Dir, "fabric-"+p.Switch+".json")
	b, err := json.MarshalIndent(cfg, "", "  ")
	if err != nil {
		return err
	}
	if err := writeAtomic(config, append(b, '\n'), 0o600); err != nil {
		return err
	}
	logName := filepath.Join(k.spec.Dir, "fabric-"+p.Switch+".log")
	log, err := os.OpenFile(logName, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(k.spec.Binary, "fabric", "--config", config)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles, cmd.Dir = log, log, files, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c := &child{name: p.Switch, cmd: cmd, done: make(chan struct{})}
	urgent, err := startUrgent(cmd, fabricNice, func(*exec.Cmd) error { return k.launch(c, &k.fabrics, "fabric", (*exec.Cmd).Start) })
	if err != nil {
		return err
	}
	if !urgent {
		k.mu.Lock()
		k.made.Notes = append(k.made.Notes, "fabric "+p.Switch+": ordinary priority (a lower nice value needs root)")
		k.mu.Unlock()
	}
	for _, f := range files {
		f.Close() // the pipe's end too: EOF means that the fabric is gone
	}
	files = nil
	k.say(message{Type: msgFabric, Name: p.Switch, PID: cmd.Process.Pid})
	ready.SetReadDeadline(time.Now().Add(buildStep))
	if _, err := ready.Read(make([]byte, 16)); err != nil {
		if errors.Is(err, io.EOF) {
			<-c.done
			return fmt.Errorf("%s: %s", c.status, tail(logName))
		}
		return fmt.Errorf("not ready after %s: %s", buildStep, tail(logName))
	}
	counters, err := fabric.Query(fmt.Sprintf("/proc/self/fd/%d/%s", dir, p.Socket))
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.made.FabricIO[p.Switch] = string(counters.IO)
	k.mu.Unlock()
	return ctx.Err()
}

// selfTest exchanges datagrams around a ring over all NICs of a subnet: each NIC sends, receives and answers.
func (k *keeper) selfTest() error {
	if k.spec.NoSelfTest {
		k.made.SelfTest = "skipped"
		return nil
	}
	pairs := ring(k.specs)
	byHost := map[string][]probePair{}
	for _, p := range pairs {
		byHost[p.Host] = append(byHost[p.Host], p)
	}
	err := k.each(func(c *child) error {
		for _, p := range byHost[c.name] {
			if err := c.ch.send(message{Type: msgProbe, From: p.From, To: p.To, Timeout: int64(k.spec.ProbeTimeout)}); err != nil {
				return err
			}
		}
		var errs []error
		for range byHost[c.name] {
			m, err := c.await(msgProbe)
			if err != nil {
				return err
			}
			if m.Text != "" {
				i := slices.IndexFunc(pairs, func(p probePair) bool { return p.From == m.From && p.To == m.To })
				errs = append(errs, fmt.Errorf("self-test from %s to %s (%s to %s): %s", c.name, pairs[i].Peer, m.From, m.To, m.Text))
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return err
	}
	k.made.SelfTest = fmt.Sprintf("%d pairs, UDP both ways", len(pairs))
	k.step("self-test %s", k.made.SelfTest)
	return nil
}

// stop ends all children. The fabrics go first: then each TAP is closed by its own host, in parallel.
func (k *keeper) stop() {
	k.mu.Lock()
	k.stopping = true
	fabrics, hosts := k.fabrics, k.hosts
	k.mu.Unlock()
	for _, group := range [][]*child{fabrics, hosts} {
		for _, c := range group {
			c.cmd.Process.Kill()
		}
		for _, c := range group {
			<-c.done
		}
	}
}

func (k *keeper) removeFolders() {
	removeAll(k.spec.DataDir)
	os.RemoveAll(k.spec.Dir)
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return runtime.GOOS
	}
	return unix.ByteSliceToString(u.Release[:])
}
