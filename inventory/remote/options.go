package remote

import (
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"time"
)

// Options say how hosts are reached. The zero value works.
type Options struct {
	// Run is the id that everything started carries; it is what stop and cleanup go by. "" makes one up.
	Run string
	// Binaries holds the pcmlab executable per GOARCH that is pushed to hosts. For the architecture of the running
	// process the running executable is the default.
	Binaries map[string]string
	// NoGuard switches guards off: plain commands only.
	NoGuard bool

	Home        string   // home directory for ~ and ~/.ssh; "" means the user's
	ConfigFiles []string // ssh_config files; nil means ~/.ssh/config and /etc/ssh/ssh_config; empty means none
	AcceptNew   bool     // keys of hosts that are not known yet are accepted and written down, as with StrictHostKeyChecking accept-new

	ConnectTimeout time.Duration // for TCP and handshake, each hop; 0 means 10 s
	KeepAlive      time.Duration // between keepalives; 0 means 5 s
	KeepAliveLost  time.Duration // without an answer for so long a connection is closed; 0 means 15 s
	FileTimeout    time.Duration // for one file when the context has no deadline; 0 means 10 min

	Channels    int // sessions at a time on one connection; 0 means 8 (sshd's MaxSessions is 10 by default)
	Connections int // connections to one host at most: further ones are opened when all channels stay in use; 0 means 4
	Handshakes  int // handshakes at a time; 0 means 16
	PerJump     int // handshakes at a time through one jump host; 0 means 5 (sshd's MaxStartups begins to refuse at 10)
	Parallel    int // hosts at a time in Pool.Each; 0 means 16

	// SameMachine allows two hosts of the lab to be one machine. Without it a second host that echoes the hostname and
	// boot id of another is refused: traffic would silently start from the wrong place.
	SameMachine bool

	Log *slog.Logger // nil discards
}

const (
	defaultDeadline = 30 * time.Second
	defaultMaxOut   = 1 << 20
)

func (o Options) withDefaults() (Options, error) {
	def := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.ConnectTimeout, 10*time.Second)
	def(&o.KeepAlive, 5*time.Second)
	def(&o.KeepAliveLost, 15*time.Second)
	def(&o.FileTimeout, 10*time.Minute)
	num := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	num(&o.Channels, 8)
	num(&o.Connections, 4)
	num(&o.Handshakes, 16)
	num(&o.PerJump, 5)
	num(&o.Parallel, 16)
	if o.Run == "" {
		o.Run = "run-" + randomHex(8)
	}
	if o.Home == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return o, fault(Usage, "set HOME", "home directory: %w", err)
		}
		o.Home = home
	}
	if o.ConfigFiles == nil {
		o.ConfigFiles = []string{filepath.Join(o.Home, ".ssh", "config"), "/etc/ssh/ssh_config"}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

func localUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}
