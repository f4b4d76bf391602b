package vlab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/inventory"
)

// Up builds the lab and returns when every host can be reached and the self-test has passed. On error, or when ctx
// ends first, nothing is left.
func Up(ctx context.Context, lab *inventory.Lab, o Options) (*Instance, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("lab %q: %w", lab.Name, err)
	}
	l, err := plan(lab)
	if err != nil {
		return nil, fmt.Errorf("lab %q: %w", lab.Name, err)
	}
	for i := range l.Fabrics {
		l.Fabrics[i].Config.Seed = o.Seed
	}
	if o.ID == "" {
		o.ID = newID(lab.Name)
	}
	if !validID(o.ID) {
		return nil, fmt.Errorf("lab %q: id %q: need letters, digits, and - _ . inside, at most 63", lab.Name, o.ID)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("not up after %s", o.Timeout))
	defer cancel()
	b := &builder{o: o, layout: l, began: time.Now(), machine: look(), dir: filepath.Join(o.StateDir, o.ID)}
	b.state = state{Schema: stateSchema, ID: o.ID, Name: lab.Name, Created: time.Now().UTC(), Machine: machineBootID(),
		DataDir: filepath.Join(o.DataDir, o.ID), Ephemeral: o.Ephemeral, Lab: lab}
	inst, err := b.up(ctx)
	if err != nil {
		b.undo()
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
		return nil, fmt.Errorf("lab %q: %w", lab.Name, err)
	}
	return inst, nil
}

// builder is one Up.
type builder struct {
	o       Options
	layout  *layout
	machine machine
	dir     string
	began   time.Time
	state   state
	made    bool // dir is ours

	listeners []*os.File
	user      keyPair
	specs     []hostSpec
	keeper    *lifeline
}

// lifeline is the connection to the keeper of a lab that this process built, and the keeper as its child.
type lifeline struct {
	ch     *channel
	cmd    *exec.Cmd
	exited chan struct{} // closed when the keeper has been waited for
	events chan string
}

func (b *builder) step(what string) { b.o.Progress(Step{What: what, At: time.Since(b.began)}) }

// phase records what is going to be made.
func (b *builder) phase(p string) error {
	b.state.Phase = p
	if err := b.state.save(b.dir); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	b.step("begin " + p)
	return nil
}

func (b *builder) up(ctx context.Context) (*Instance, error) {
	rootless := b.o.Rootless || !b.machine.admin
	io, err := b.machine.wires(b.o.IO)
	if err != nil {
		return nil, err
	}
	if err := makePrivate(b.o.StateDir); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		if errors.Is(err, os.ErrExist) {
			err = fmt.Errorf("id %q is taken (fix: pcmlab lab down %s)", b.o.ID, b.o.ID)
		}
		return nil, err
	}
	b.made = true
	if b.state.Owner, err = identify(os.Getpid()); err != nil {
		return nil, err
	}
	if err := b.phase("folders"); err != nil {
		return nil, err
	}
	if err := makePrivate(b.o.DataDir); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	if err := os.Mkdir(b.state.DataDir, 0o700); err != nil {
		return nil, err
	}
	if err := b.phase("listeners"); err != nil {
		return nil, err
	}
	files, addrs, err := listen(b.o.ID, len(b.layout.Hosts))
	if err != nil {
		return nil, err
	}
	b.listeners = files
	if err := b.phase("keeper"); err != nil {
		return nil, err
	}
	if err := b.startKeeper(rootless); err != nil {
		return nil, err
	}
	// While it starts, everything is written that hosts and clients read. It waits for its specification.
	if err := b.hosts(io, addrs); err != nil {
		return nil, err
	}
	if err := b.phase("hosts"); err != nil {
		return nil, err
	}
	if err := b.instruct(io, rootless); err != nil {
		return nil, err
	}
	closeFiles(b.listeners)
	b.listeners = nil
	hash := make(chan error, 1)
	go func() { hash <- b.shareBinary() }()
	err = b.await(ctx)
	if e := <-hash; err == nil { // joined in any case: it writes into a folder that undo removes
		err = e
	}
	if err != nil {
		return nil, err
	}
	if err := b.processes(); err != nil {
		return nil, err
	}
	b.state.Made.TimeScale = b.state.Lab.Scale().Factor()
	if err := b.phase(phaseReady); err != nil {
		return nil, err
	}
	if err := b.keeper.ch.send(message{Type: msgCommit}); err != nil {
		return nil, fmt.Errorf("keeper: %w", err)
	}
	inst := &Instance{ID: b.state.ID, Dir: b.dir, SSHConfig: filepath.Join(b.dir, sshConfigFile), state: &b.state, opts: b.o, keeper: b.keeper}
	go b.keeper.follow()
	b.step("ready")
	return inst, nil
}

// hosts makes the keys and writes every file that hosts and clients read.
func (b *builder) hosts(io IO, addrs []netip.AddrPort) (err error) {
	if b.user, err = newKey("pcmlab lab " + b.o.ID); err != nil {
		return err
	}
	etc := filepath.Join(b.state.DataDir, "hosts.txt")
	if err := os.WriteFile(etc, []byte(hostsFile(b.layout)), 0o644); err != nil {
		return err
	}
	for i, h := range b.layout.Hosts {
		key, err := newKey("pcmlab host " + h.Name)
		if err != nil {
			return err
		}
		s := hostSpec{hostPlan: h, LabID: b.o.ID, IO: io, BootID: newBootID(), Data: filepath.Join(b.state.DataDir, "hosts", h.Name),
			SSH: filepath.Join(b.state.DataDir, "ssh"), EtcHost: etc, Hide: []string{b.o.StateDir, b.o.DataDir}, Binary: b.o.Binary, HostKey: key.Private, UserKey: b.user.Public,
			NoNIC: b.o.NoNIC, KeepOffloads: b.o.keepOffloads}
		b.specs = append(b.specs, s)
		b.state.Hosts = append(b.state.Hosts, hostState{Name: h.Name, Address: addrs[i].Addr().String(), Port: int(addrs[i].Port()),
			HostKey: key.Public, BootID: s.BootID})
	}
	for _, s := range b.specs {
		if err := b.folders(s); err != nil {
			return fmt.Errorf("host %q: %w", s.Name, err)
		}
	}
	if err := writeInsideSSH(filepath.Join(b.state.DataDir, "ssh"), b.user, b.layout, b.state.Hosts); err != nil {
		return err
	}
	specs, err := json.Marshal(b.specs)
	if err != nil {
		return err
	}
	if err := writeAtomic(b.specFile(), specs, 0o600); err != nil {
		return err
	}
	return writeSSHFiles(b.dir, b.user, b.state.Hosts)
}

func (b *builder) specFile() string { return filepath.Join(b.dir, "hosts.json") }

func (b *builder) folders(s hostSpec) error {
	for _, d := range []struct {
		name string
		mode os.FileMode
	}{{"home", 0o700}, {"tmp", 0o777 | os.ModeSticky}, {"var-tmp", 0o777 | os.ModeSticky}, {"log", 0o755}} {
		path := filepath.Join(s.Data, d.name)
		if err := os.MkdirAll(path, 0o700); err != nil {
			return err
		}
		if err := os.Chmod(path, d.mode); err != nil { // past the umask
			return err
		}
	}
	return os.Mkdir(filepath.Join(s.Data, "home", ".ssh"), 0o700)
}

// startKeeper starts the keeper and records it. It does nothing until it is instructed, and ends when we end first.
func (b *builder) startKeeper(rootless bool) error {
	ch, theirs, err := packetPair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	log, err := os.OpenFile(filepath.Join(b.dir, "keeper.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		ch.close()
		return err
	}
	defer log.Close()
	cmd := exec.Command(b.o.Binary, "lab-host", roleKeeper)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	cmd.Env = environment()
	cmd.ExtraFiles = append([]*os.File{theirs}, b.listeners...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true,
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
	if rootless {
		// One user is all that needs no help of a privileged program; inside it is root.
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		ch.close()
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EACCES) {
			return b.machine.namespaceError(rootless, err)
		}
		return err
	}
	b.keeper = &lifeline{ch: ch, cmd: cmd, exited: make(chan struct{}), events: make(chan string, 64)}
	go func() {
		cmd.Wait()
		close(b.keeper.exited)
	}()
	b.step("keeper started")
	if b.state.Keeper, err = identify(cmd.Process.Pid); err != nil {
		return err
	}
	if err := b.state.save(b.dir); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	b.step("keeper recorded")
	return nil
}

// instruct gives the keeper its specification, which is the permission to begin.
func (b *builder) instruct(kind IO, rootless bool) error {
	return b.keeper.ch.send(message{Type: msgSpec, Spec: &keeperSpec{ID: b.o.ID, Dir: b.dir, DataDir: b.state.DataDir, Binary: b.o.Binary, IO: kind,
		Rootless: rootless, Ephemeral: b.o.Ephemeral, NoSelfTest: b.o.NoSelfTest, ProbeTimeout: b.layout.probeTimeout(),
		Specs: b.specFile(), Fabrics: b.layout.Fabrics, Trunks: b.layout.Trunks, Hosts: len(b.specs)}})
}

// environment keeps the caller's secrets out of the lab: hosts see what is meant for pcmlab and the Go runtime only.
func environment() []string {
	out := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + hostHome}
	for _, kv := range os.Environ() {
		for _, prefix := range []string{"PCMLAB_", "GODEBUG=", "GOCOVERDIR=", "GOTRACEBACK=", "GORACE="} {
			if strings.HasPrefix(kv, prefix) {
				out = append(out, kv)
			}
		}
	}
	return out
}

// await follows the keeper until the lab is up.
func (b *builder) await(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { b.keeper.ch.conn.SetReadDeadline(time.Now()) })
	defer stop()
	pids := map[string]int{}
	var lastEvent string
	for {
		m, fds, err := b.keeper.ch.receive()
		closeAll(fds)
		switch {
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("phase %q", b.state.Phase)
		case errors.Is(err, io.EOF) || errors.Is(err, unix.EPIPE):
			<-b.keeper.exited
			return fmt.Errorf("keeper: %s%s (log: %s)", b.keeper.cmd.ProcessState, lastEvent, tail(filepath.Join(b.dir, "keeper.log")))
		case err != nil:
			return fmt.Errorf("keeper: %w", err)
		}
		switch m.Type {
		case msgStep:
			b.step(m.Text)
		case msgEvent:
			lastEvent = "; " + m.Text
		case msgHost, msgFabric:
			pids[m.Type+" "+m.Name] = m.PID
		case msgError:
			return errors.New(m.Text)
		case msgReady:
			if m.Made != nil {
				b.state.Made = *m.Made
			}
			return b.record(pids)
		}
	}
}

// record notes the children as they are seen from here.
func (b *builder) record(pids map[string]int) error {
	seen, err := children(b.state.Keeper.PID)
	if err != nil {
		return err
	}
	for i := range b.state.Hosts {
		b.state.Hosts[i].Init = seen[pids[msgHost+" "+b.state.Hosts[i].Name]]
	}
	for _, f := range b.layout.Fabrics {
		b.state.Fabrics = append(b.state.Fabrics, fabricState{Switch: f.Switch, Process: seen[pids[msgFabric+" "+f.Switch]]})
	}
	return nil
}

// processes checks that nothing died between its start and now.
func (b *builder) processes() error {
	for _, h := range b.state.Hosts {
		if !h.Init.alive() {
			return fmt.Errorf("host %q: init process is gone (log: %s)", h.Name, tail(filepath.Join(b.dir, "keeper.log")))
		}
	}
	for _, f := range b.state.Fabrics {
		if !f.Process.alive() {
			return fmt.Errorf("fabric %q: is gone: %s", f.Switch, tail(filepath.Join(b.dir, "fabric-"+f.Switch+".log")))
		}
	}
	return nil
}

// shareBinary puts a link to the binary where the orchestrator would push it, under its content's hash, so that
// nothing is pushed into hosts that have it already.
func (b *builder) shareBinary() error {
	f, err := os.Open(b.o.Binary)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	for _, s := range b.specs {
		dir := filepath.Join(s.Data, "home", ".cache", "pcmlab", hex.EncodeToString(sum.Sum(nil)))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.Symlink(binDir+"/pcmlab", filepath.Join(dir, "pcmlab")); err != nil {
			return err
		}
	}
	return nil
}

// undo removes whatever was made.
func (b *builder) undo() {
	closeFiles(b.listeners)
	ctx, cancel := context.WithTimeout(context.Background(), downTimeout)
	defer cancel()
	if b.keeper != nil {
		b.state.Keeper.kill(ctx, unix.SIGKILL)
		b.keeper.cmd.Process.Kill()
		b.keeper.ch.close()
		<-b.keeper.exited
	}
	if b.made {
		removeAll(b.state.DataDir)
		os.RemoveAll(b.dir)
	}
}

// follow passes on what the keeper tells until it is gone.
func (l *lifeline) follow() {
	defer close(l.events)
	defer l.ch.close()
	for {
		m, fds, err := l.ch.receive()
		if err != nil {
			return
		}
		closeAll(fds)
		if m.Type == msgEvent {
			select {
			case l.events <- m.Text:
			default: // nobody listens: the keeper's log has it
			}
		}
	}
}
