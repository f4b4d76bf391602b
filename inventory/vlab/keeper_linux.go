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
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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
