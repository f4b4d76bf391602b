package vlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/inventory/fabric"
)

// wires makes the veth pairs, our ends in this namespace. Those of NICs come first: an mtu that the kernel refuses is that of a NIC, and a mirror has it
// from there.
func (k *keeper) wires() error {
	index := 0
	pair := func(c *child, netdev string, mtu int) error {
		index++
		return k.wire(wire{c.name, netdev}, index-1, mtu, c.cmd.Process.Pid, k.specOf(c.name).KeepOffloads)
	}
	for _, c := range k.hosts {
		for _, n := range k.specOf(c.name).NICs {
			if err := pair(c, n.Netdev, n.MTU); err != nil {
				return err
			}
		}
	}
	for _, c := range k.hosts {
		for _, m := range k.specOf(c.name).Mirrors {
			if err := pair(c, m.Netdev, m.MTU); err != nil {
				return err
			}
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
		return fmt.Errorf("veth pair of mtu %d: %w", t.MTU, err)
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
