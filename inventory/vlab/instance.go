package vlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/pcmlab/pcmlab/inventory"
)

// Instance is a lab that is up.
type Instance struct {
	ID        string
	Dir       string // the lab's folder: state, keys, logs
	SSHConfig string // for `ssh -F SSHConfig HOST`

	state  *state
	opts   Options
	keeper *lifeline
}

// Name is the lab's name in its file.
func (i *Instance) Name() string { return i.state.Name }

// Provenance says how the lab was made.
func (i *Instance) Provenance() Provenance { return i.state.Made }

// Events tells of deaths in the running lab: "host h2: killed by SIGKILL". It is closed when the lab is down or when
// nothing can be told any more; nil for an Instance from Open. At most 64 untold events are kept.
func (i *Instance) Events() <-chan string {
	if i.keeper == nil {
		return nil
	}
	return i.keeper.events
}

// Lab is the lab as given, with what is needed to reach its hosts filled in. Its virtual section is kept, so that the
// time scale is known. The caller owns the copy.
func (i *Instance) Lab() *inventory.Lab {
	lab := *i.state.Lab
	lab.Hosts = nil
	for n, h := range i.state.Lab.Hosts {
		c := *h
		s := i.state.Hosts[n]
		c.Sudo = false // already root in there
		c.SSH = inventory.SSH{Address: s.Address, Port: s.Port, User: sshUser, Key: filepath.Join(i.Dir, keyFile),
			Jump: "none", KnownHosts: filepath.Join(i.Dir, knownHostsFile)}
		lab.Hosts = append(lab.Hosts, &c)
	}
	return &lab
}

// Stdio are the streams of Exec; nil ones are empty or discarded.
type Stdio struct {
	In       io.Reader
	Out, Err io.Writer
}

// sshTimeout is for connecting and logging in.
const sshTimeout = 10 * time.Second

// Exec runs argv on a host over SSH and gives its exit status, or 128 and the signal's number as shells do. A command
// that ran and failed is no error. When ctx ends the connection is closed; use a guard for what must not stay behind.
func (i *Instance) Exec(ctx context.Context, host string, argv []string, stdio Stdio) (int, error) {
	if len(argv) == 0 {
		return 0, errors.New("no command")
	}
	client, err := i.dial(ctx, host)
	if err != nil {
		return 0, fmt.Errorf("lab %s: host %q: %w", i.ID, host, err)
	}
	defer client.Close()
	stop := context.AfterFunc(ctx, func() { client.Close() })
	defer stop()
	session, err := client.NewSession()
	if err != nil {
		return 0, fmt.Errorf("lab %s: host %q: %w", i.ID, host, err)
	}
	defer session.Close()
	session.Stdin, session.Stdout, session.Stderr = stdio.In, stdio.Out, stdio.Err
	err = session.Run(quote(argv))
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		if exit.Signal() != "" {
			return 128 + signalNumber(exit.Signal()), nil
		}
		return exit.ExitStatus(), nil
	case ctx.Err() != nil:
		return 0, fmt.Errorf("lab %s: host %q: run %q: %w", i.ID, host, argv[0], ctx.Err())
	}
	return 0, fmt.Errorf("lab %s: host %q: run %q: %w", i.ID, host, argv[0], err)
}

func (i *Instance) dial(ctx context.Context, host string) (*ssh.Client, error) {
	var h *hostState
	var names []string
	for n := range i.state.Hosts {
		names = append(names, i.state.Hosts[n].Name)
		if i.state.Hosts[n].Name == host {
			h = &i.state.Hosts[n]
		}
	}
	if h == nil {
		return nil, fmt.Errorf("not in this lab (it has %s)", strings.Join(names, ", "))
	}
	pem, err := os.ReadFile(filepath.Join(i.Dir, keyFile))
	if err != nil {
		return nil, err
	}
	key, err := ssh.ParsePrivateKey(pem)
	if err != nil {
		return nil, err
	}
	check, err := knownhosts.New(filepath.Join(i.Dir, knownHostsFile))
	if err != nil {
		return nil, err
	}
	addr := net.JoinHostPort(h.Address, strconv.Itoa(h.Port))
	ctx, cancel := context.WithTimeout(ctx, sshTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline)
	c, chans, reqs, err := ssh.NewClientConn(conn, addr, &ssh.ClientConfig{
		User: sshUser, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: check,
		HostKeyAlgorithms: []string{ssh.KeyAlgoED25519},
	})
	if err != nil {
		conn.Close()
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	return ssh.NewClient(c, chans, reqs), nil
}

// quote writes argv for the remote shell: each word in single quotes.
func quote(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}

// signalNumber covers the signals of RFC 4254 section 6.10, with their numbers of Linux.
func signalNumber(name string) int {
	return map[string]int{"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "ABRT": 6, "FPE": 8, "KILL": 9, "USR1": 10, "SEGV": 11,
		"USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15}[name]
}
