package remotetest

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/pcmlab/pcmlab/internal/testwait"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote/sshserver"
)

// Key is a key pair with its private half in a file.
type Key struct {
	Signer  ssh.Signer
	File    string // private key, OpenSSH format, mode 0600
	private any
}

// NewKey makes a key of a type (ed25519, ecdsa, rsa) in dir. With a passphrase the file is encrypted.
func NewKey(t testing.TB, dir, kind, passphrase string) Key {
	t.Helper()
	var priv any
	var err error
	switch kind {
	case "ed25519":
		_, priv, err = ed25519.GenerateKey(rand.Reader)
	case "ecdsa":
		priv, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "rsa":
		priv, err = rsa.GenerateKey(rand.Reader, 2048)
	default:
		t.Fatalf("key type %q", kind)
	}
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	var block *pem.Block
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(priv, "", []byte(passphrase))
	} else {
		block, err = ssh.MarshalPrivateKey(priv, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.CreateTemp(dir, kind+"-*")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := pem.Encode(f, block); err != nil {
		t.Fatal(err)
	}
	return Key{Signer: signer, File: f.Name(), private: priv}
}

// Private is the private key itself, for an agent.
func (k Key) Private() any { return k.private }

// Server is an SSH server on a loopback port.
type Server struct {
	Host     string
	Port     int
	HostKeys []Key
	UserKey  Key
	User     string
	Home     string // HOME of its commands
	Dir      string // for whatever belongs to it
}

// Addr is the server's address.
func (s Server) Addr() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// KnownHostsLine is the line that makes a key of the server known.
func (s Server) KnownHostsLine(k Key) string {
	return fmt.Sprintf("[%s]:%d %s", s.Host, s.Port, ssh.MarshalAuthorizedKey(k.Signer.PublicKey()))
}

// KnownHosts writes a known_hosts file with all of the server's keys and returns its path.
func (s Server) KnownHosts(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	for _, k := range s.HostKeys {
		b.WriteString(s.KnownHostsLine(k))
	}
	path := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// SSH is how a lab file describes the way to the server.
func (s Server) SSH(t testing.TB) inventory.SSH {
	t.Helper()
	return inventory.SSH{Address: s.Host, Port: s.Port, User: s.User, Key: s.UserKey.File, Jump: "none", KnownHosts: s.KnownHosts(t)}
}

// Lab is a lab of one host, h3, that is the server.
func (s Server) Lab(t testing.TB) *inventory.Lab {
	t.Helper()
	return &inventory.Lab{Name: "test", Hosts: []*inventory.Host{{Name: "h3", SSH: s.SSH(t)}}}
}

// Start runs the project's own server until the test ends. Empty fields of o are filled; home is the HOME of its
// commands, "" a temporary one.
func Start(t testing.TB, home string, o sshserver.Options) Server {
	t.Helper()
	s := newServer(t, home)
	for _, kind := range []string{"ed25519"} {
		s.HostKeys = append(s.HostKeys, NewKey(t, s.Dir, kind, ""))
	}
	if o.HostKeys == nil {
		for _, k := range s.HostKeys {
			o.HostKeys = append(o.HostKeys, k.Signer)
		}
	}
	o.AuthorizedKeys = append(o.AuthorizedKeys, s.UserKey.Signer.PublicKey())
	o.Home = s.Home
	if o.Env == nil {
		o.Env = []string{"HOME=" + s.Home, "PATH=" + os.Getenv("PATH"), "USER=" + s.User}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Port = ln.Addr().(*net.TCPAddr).Port
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- sshserver.Serve(ctx, ln, o) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("ssh server: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("ssh server did not end within 20 s")
		}
	})
	return s
}

func newServer(t testing.TB, home string) Server {
	t.Helper()
	s := Server{Host: "127.0.0.1", User: "lab", Home: home, Dir: t.TempDir()}
	if u, err := user.Current(); err == nil {
		s.User = u.Username
	}
	if s.Home == "" {
		s.Home = t.TempDir()
	}
	s.UserKey = NewKey(t, s.Dir, "ed25519", "")
	return s
}

// StartSSHD runs OpenSSH's sshd on a loopback port until the test ends, with host keys of three types. config is
// added to its configuration. It skips the test where sshd is missing.
func StartSSHD(t testing.TB, home, config string) Server {
	t.Helper()
	sshd := "/usr/sbin/sshd"
	if p, err := exec.LookPath("sshd"); err == nil {
		sshd = p
	}
	if _, err := os.Stat(sshd); err != nil {
		t.Skip("no sshd on this machine (Debian package openssh-server)")
	}
	if os.Geteuid() == 0 {
		// Its privilege separation directory; sshd refuses to start without.
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Skipf("sshd as root needs /run/sshd: %v", err)
		}
	}
	s := newServer(t, home)
	var b strings.Builder
	for _, kind := range []string{"rsa", "ecdsa", "ed25519"} {
		k := NewKey(t, s.Dir, kind, "")
		s.HostKeys = append(s.HostKeys, k)
		fmt.Fprintf(&b, "HostKey %s\n", k.File)
	}
	auth := filepath.Join(s.Dir, "authorized_keys")
	if err := os.WriteFile(auth, ssh.MarshalAuthorizedKey(s.UserKey.Signer.PublicKey()), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Port = freePort(t)
	fmt.Fprintf(&b, `ListenAddress %s:%d
AuthorizedKeysFile %s
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AllowTcpForwarding yes
Subsystem sftp internal-sftp
SetEnv HOME=%s
%s
`, s.Host, s.Port, auth, s.Home, config)
	conf := filepath.Join(s.Dir, "sshd_config")
	if err := os.WriteFile(conf, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(s.Dir, "sshd.log")
	cmd := exec.Command(sshd, "-D", "-f", conf, "-E", log)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { cmd.Wait(); close(exited) }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-exited
		if t.Failed() {
			b, _ := os.ReadFile(log)
			t.Logf("sshd log, last part:\n%s", b[max(0, len(b)-4000):])
		}
	})
	testwait.For(t, 10*time.Second, "sshd to listen", func() bool {
		select {
		case <-exited:
			b, _ := os.ReadFile(log)
			t.Fatalf("sshd ended: %s", b)
		default:
		}
		c, err := net.Dial("tcp", s.Addr())
		if err != nil {
			return false
		}
		c.Close()
		return true
	})
	return s
}

// freePort finds a port that is free now. sshd cannot be handed a listener.
func freePort(t testing.TB) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}
