package sshserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/user"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// Options say who may enter and what they may do. HostKey or HostKeys and AuthorizedKeys are needed, the rest has
// defaults.
type Options struct {
	// HostKey and HostKeys are the keys that the server proves its identity with, at most one per key type.
	HostKey  ssh.Signer
	HostKeys []ssh.Signer
	// AuthorizedKeys may log in, under any user name: commands run as the user of this process all the same.
	AuthorizedKeys []ssh.PublicKey

	// Start starts a command; nil means (*exec.Cmd).Start. It may change the command before starting it (credentials,
	// namespaces, an own process group); standard streams, environment and directory are set already. It must have
	// started cmd itself when it returns nil: the server calls cmd.Wait.
	Start func(cmd *exec.Cmd) error
	// Wait waits for a command that Start started; nil means (*exec.Cmd).Wait. A process that reaps orphans (PID 1),
	// and so may take a command's status before cmd.Wait does, brings its own.
	Wait func(cmd *exec.Cmd) (syscall.WaitStatus, error)

	Shell string   // the user's shell, run as SHELL -c COMMAND; empty means /bin/sh
	Home  string   // directory of commands and of relative SFTP paths; empty means the user's home directory
	Env   []string // environment of commands; nil means HOME, USER, LOGNAME, SHELL and PATH. Variables that the client sends are added

	SFTP       bool // offer the sftp subsystem
	TCPForward bool // allow direct-tcpip channels (ProxyJump through this host)
	// Dial connects for direct-tcpip; nil means net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	MaxSessions int           // sessions per connection; 0 means 10 as in sshd
	MaxStartups int           // connections that have not logged in yet; 0 means 100
	LoginGrace  time.Duration // time to log in; 0 means 30 s
	KillGrace   time.Duration // when Serve is told to end: time between HUP and KILL for commands; 0 means 2 s

	Log *slog.Logger // nil discards
}

const (
	defaultMaxSessions = 10
	defaultMaxStartups = 100
	defaultLoginGrace  = 30 * time.Second
	defaultKillGrace   = 2 * time.Second
	defaultPath        = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

func wait(cmd *exec.Cmd) (syscall.WaitStatus, error) {
	err := cmd.Wait()
	if cmd.ProcessState == nil {
		return 0, err
	}
	return cmd.ProcessState.Sys().(syscall.WaitStatus), nil
}

func (o Options) withDefaults() (Options, error) {
	if o.HostKey != nil {
		o.HostKeys = append([]ssh.Signer{o.HostKey}, o.HostKeys...)
	}
	if len(o.HostKeys) == 0 {
		return o, errors.New("ssh server: no host key")
	}
	if len(o.AuthorizedKeys) == 0 {
		return o, errors.New("ssh server: no authorized key: nobody could log in")
	}
	if o.Start == nil {
		o.Start = (*exec.Cmd).Start
	}
	if o.Wait == nil {
		o.Wait = wait
	}
	if o.Shell == "" {
		o.Shell = "/bin/sh"
	}
	if o.Home == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return o, fmt.Errorf("ssh server: %w", err)
		}
		o.Home = home
	}
	if o.Env == nil {
		name := "root"
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
		o.Env = []string{"HOME=" + o.Home, "USER=" + name, "LOGNAME=" + name, "SHELL=" + o.Shell, "PATH=" + defaultPath}
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	}
	if o.MaxSessions == 0 {
		o.MaxSessions = defaultMaxSessions
	}
	if o.MaxStartups == 0 {
		o.MaxStartups = defaultMaxStartups
	}
	if o.LoginGrace == 0 {
		o.LoginGrace = defaultLoginGrace
	}
	if o.KillGrace == 0 {
		o.KillGrace = defaultKillGrace
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}
