package vlab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/inventory/remote/sshserver"
)

// Descriptors that a host's init process inherits; its specification comes on standard input.
const (
	hostChannelFD  = 3
	hostListenerFD = 4
)

// host is the init process of one virtual host: PID 1 of its namespaces.
type host struct {
	spec   hostSpec
	keeper *channel
	reaper *reaper
	net    network
	echo   *echoServer
	env    []string
	shell  string
}

// hostMain is `pcmlab lab-host host`. It returns only when the keeper is gone or the host cannot be built.
func hostMain(ctx context.Context) error {
	for _, fd := range []int{hostChannelFD, hostListenerFD} {
		unix.CloseOnExec(fd)
	}
	keeper, err := newChannel(os.NewFile(hostChannelFD, "keeper"))
	if err != nil {
		return err
	}
	defer keeper.close()
	h := &host{keeper: keeper, reaper: newReaper()}
	if err := h.build(); err != nil {
		keeper.send(message{Type: msgError, Text: err.Error()})
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go h.reaper.run(ctx)
	err = h.serve(ctx)
	if err != nil {
		keeper.send(message{Type: msgError, Text: err.Error()})
	}
	return err
}

// build makes everything that needs no other host.
func (h *host) build() error {
	d := json.NewDecoder(os.Stdin)
	if err := d.Decode(&h.spec); err != nil {
		return fmt.Errorf("specification: %w", err)
	}
	os.Stdin.Close()
	if err := unix.Sethostname([]byte(h.spec.Name)); err != nil {
		return fmt.Errorf("hostname: %w", err)
	}
	unix.Umask(0o022)
	notes, err := view(&h.spec)
	if err != nil {
		return err
	}
	if h.spec.IO == IOPacket {
		// Our ends of the veth pairs are put here by the keeper.
		if m, _, err := h.keeper.receive(); err != nil || m.Type != msgLinks {
			return fmt.Errorf("wait for interfaces: %q: %w", m.Type, err)
		}
	}
	h.net.spec = &h.spec
	if err := h.net.setup(); err != nil {
		return err
	}
	if h.echo, err = startEcho(h.spec.NICs); err != nil {
		return err
	}
	if err := os.Chdir(hostHome); err != nil {
		return err
	}
	h.shell = "/bin/sh"
	if _, err := os.Stat("/bin/bash"); err == nil {
		h.shell = "/bin/bash"
	}
	h.env = []string{
		"HOME=" + hostHome, "USER=" + sshUser, "LOGNAME=" + sshUser, "SHELL=" + h.shell, "LANG=C.UTF-8",
		"PATH=" + binDir + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"XDG_RUNTIME_DIR=/run/user/0", "PCMLAB_LAB=" + h.spec.LabID,
	}
	run, err := unix.Open("/run/pcmlab", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(run)
	m := message{Type: msgNet, Offloads: h.net.offs}
	for _, n := range notes {
		m.Text += n + "\n"
	}
	return h.keeper.send(m, append([]int{run}, h.net.taps...)...)
}

// serve runs the services and answers the keeper.
func (h *host) serve(ctx context.Context) error {
	for {
		m, fds, err := h.keeper.receive()
		closeAll(fds)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch m.Type {
		case msgStart:
			if err := h.start(ctx); err != nil {
				return err
			}
			if err := h.keeper.send(message{Type: msgReady}); err != nil {
				return err
			}
		case msgProbe:
			go func() { // an exchange takes a while, and others may be waiting for it
				answer := message{Type: msgProbe, From: m.From, To: m.To}
				if err := probe(ctx, m.From, m.To, h.mtuOf(m.From), time.Duration(m.Timeout)); err != nil {
					answer.Text = err.Error()
				}
				h.keeper.send(answer)
			}()
		case msgReady: // the self-test is over
			h.echo.close()
		}
	}
}

func (h *host) mtuOf(ip string) int {
	for _, n := range h.spec.NICs {
		if n.IP.Addr().String() == ip {
			return n.MTU
		}
	}
	return 1500
}

func (h *host) start(ctx context.Context) error {
	if err := h.profile(); err != nil {
		return err
	}
	if err := h.ssh(ctx); err != nil {
		return err
	}
	if h.spec.NoNIC {
		return nil
	}
	return h.nics(ctx)
}

// profile puts our tools first for login shells too, whose /etc/profile sets PATH anew.
func (h *host) profile() error {
	path := filepath.Join(hostHome, ".profile")
	return os.WriteFile(path, []byte("PATH="+binDir+":$PATH\n"), 0o644)
}

// ssh serves the handed-in listener of the caller's namespace and port 22 of this one.
func (h *host) ssh(ctx context.Context) error {
	hostKey, err := ssh.ParsePrivateKey([]byte(h.spec.HostKey))
	if err != nil {
		return fmt.Errorf("host key: %w", err)
	}
	userKey, _, _, _, err := ssh.ParseAuthorizedKey([]byte(h.spec.UserKey))
	if err != nil {
		return fmt.Errorf("user key: %w", err)
	}
	opts := sshserver.Options{
		HostKey: hostKey, AuthorizedKeys: []ssh.PublicKey{userKey},
		Start: h.reaper.start, Wait: h.reaper.wait,
		Shell: h.shell, Home: hostHome, Env: h.env, SFTP: true, TCPForward: true,
		MaxSessions: 64, // one connection of the orchestrator carries every command of a run
	}
	f := os.NewFile(hostListenerFD, "listener")
	outside, err := net.FileListener(f)
	f.Close()
	if err != nil {
		return fmt.Errorf("ssh listener: %w", err)
	}
	inside, err := net.Listen("tcp", ":22")
	if err != nil {
		return fmt.Errorf("ssh listener inside: %w", err)
	}
	for _, ln := range []net.Listener{outside, inside} {
		go func() {
			if err := sshserver.Serve(ctx, ln, opts); err != nil {
				h.event("ssh server on %s: %v", ln.Addr(), err)
			}
		}()
	}
	return nil
}

func (h *host) event(format string, args ...any) {
	h.keeper.send(message{Type: msgEvent, Name: h.spec.Name, Text: fmt.Sprintf(format, args...)})
}

// nics starts the daemon of each software NIC and waits until it can be reached.
func (h *host) nics(ctx context.Context) error {
	first := true
	for _, n := range h.spec.NICs {
		if n.Daemon == nil {
			continue
		}
		if err := h.nic(ctx, n.Daemon); err != nil {
			return fmt.Errorf("NIC daemon %s: %w", n.Device, err)
		}
		if first {
			if err := os.Symlink("nic/"+n.Device+".json", "/run/pcmlab/nic.json"); err != nil {
				return err
			}
			if err := os.Symlink("nic/"+n.Device+".sock", "/run/pcmlab/nic.sock"); err != nil {
				return err
			}
			first = false
		}
	}
	return nil
}

// nicStart is how long a daemon may take to open its socket on a busy machine.
const nicStart = 15 * time.Second

func (h *host) nic(ctx context.Context, c *nicConfig) error {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	config := filepath.Join(nicRunDir, c.Device+".json")
	if err := os.WriteFile(config, append(b, '\n'), 0o644); err != nil {
		return err
	}
	logName := filepath.Join("/var/log", "pcmlab-nic-"+c.Device+".log")
	log, err := os.OpenFile(logName, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	cmd := exec.Command(binDir+"/pcmlab", "nic", "serve", "--config", config)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = null, log, log
	cmd.Env, cmd.Dir = h.env, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if _, err := startUrgent(cmd, nicNice, h.reaper.start); err != nil {
		return err
	}
	died := make(chan string, 1)
	go func() {
		ws, _ := h.reaper.wait(cmd)
		died <- statusText(ws)
	}()
	why, err := awaitSocket(ctx, c.Socket, died)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s", err, tail(logName))
	case why != "":
		return fmt.Errorf("%s: %s", why, tail(logName))
	}
	// It is not restarted: a NIC that lost its queue pairs and counters must show in the run.
	go func() {
		why := <-died
		os.WriteFile(filepath.Join(nicRunDir, c.Device+".died"), []byte(time.Now().UTC().Format(time.RFC3339Nano)+" "+why+"\n"), 0o644)
		h.event("NIC daemon %s: %s: %s", c.Device, why, tail(logName))
	}()
	return nil
}

// awaitSocket waits until a file of that name is there. When the daemon dies first, it says how.
func awaitSocket(ctx context.Context, path string, died <-chan string) (why string, err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return "", os.NewSyscallError("inotify_init1", err)
	}
	events := os.NewFile(uintptr(fd), "inotify") // takes part in the runtime's polling: Close ends Read
	defer events.Close()
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(path), unix.IN_CREATE|unix.IN_MOVED_TO); err != nil {
		return "", os.NewSyscallError("inotify_add_watch", err)
	}
	changed := make(chan struct{}, 1)
	go func() {
		buf := make([]byte, 4096)
		for {
			if _, err := events.Read(buf); err != nil {
				return
			}
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}()
	late := time.NewTimer(nicStart)
	defer late.Stop()
	for {
		if _, err := os.Stat(path); err == nil {
			return "", nil
		}
		select {
		case why := <-died:
			return why, nil
		case <-changed:
		case <-late.C:
			return "", fmt.Errorf("no socket %s after %s", path, nicStart)
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}
