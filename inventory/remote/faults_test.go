package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/remotetest"
	"github.com/pcmlab/pcmlab/inventory/remote/sshserver"
)

// wantError checks an error's class and that its text holds the words.
func wantError(t *testing.T, err error, kind remote.Kind, words ...string) {
	t.Helper()
	var e *remote.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v (%T), want a *remote.Error", err, err)
	}
	if e.Kind != kind {
		t.Errorf("%v: class %v, want %v", err, e.Kind, kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q lacks %q", err, w)
		}
	}
}

func mustFail(t *testing.T, lab *inventory.Lab, o remote.Options) error {
	t.Helper()
	h, err := remote.Dial(t.Context(), lab, lab.Hosts[0].Name, o)
	if err == nil {
		h.Close()
		t.Fatal("connected, want an error")
	}
	return err
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDial_checksHostKeys is O22, against a server that offers rsa, ecdsa and ed25519.
func TestDial_checksHostKeys(t *testing.T) {
	t.Parallel()
	s := remotetest.StartSSHD(t, home, "")
	rsa, ecdsa, ed := s.HostKeys[0], s.HostKeys[1], s.HostKeys[2]
	other := remotetest.NewKey(t, t.TempDir(), "ed25519", "")
	otherRSA := remotetest.NewKey(t, t.TempDir(), "rsa", "")
	sworn := strings.Fields(s.KnownHostsLine(ed))
	for _, tc := range []struct {
		name, why string
		known     string
		problem   remote.HostKeyProblem
		words     []string
	}{
		{"only_ed25519", "the server must be asked for the key that is known", s.KnownHostsLine(ed), "", nil},
		{"only_rsa", "likewise", s.KnownHostsLine(rsa), "", nil},
		{"only_ecdsa", "likewise", s.KnownHostsLine(ecdsa), "", nil},
		{"hashed", "Debian hashes names", hashed(t, s, ed), "", nil},
		{"pattern", "patterns and negation", "!10.*,[127.0.0.*]:* " + strings.Join(sworn[1:], " ") + "\n", "", nil},
		{"without_port", "a key known for the host will do", s.Host + " " + strings.Join(sworn[1:], " ") + "\n", "", nil},
		{"with_garbage", "bad lines are skipped as ssh does", "garbage\n# comment\n\n" + s.KnownHostsLine(ed), "", nil},
		{"unknown", "nothing is known", "", remote.UnknownHost, []string{"ssh-keyscan -p", "127.0.0.1"}},
		{"other_port", "the entry is of another server", strings.Replace(s.KnownHostsLine(other), fmt.Sprint(s.Port), "1", 1), remote.UnknownHost, []string{"ssh-keyscan"}},
		{"changed", "the entry has another key of the same type", s.KnownHostsLine(other), remote.ChangedKey,
			[]string{"ssh-keygen -R '[127.0.0.1]:" + fmt.Sprint(s.Port) + "'", ssh.FingerprintSHA256(other.Signer.PublicKey()), ":1"}},
		{"changed_rsa", "likewise", s.KnownHostsLine(otherRSA), remote.ChangedKey, []string{"ssh-keygen -R"}},
		{"changed_beside_right", "one right key is enough", s.KnownHostsLine(otherRSA) + s.KnownHostsLine(rsa), "", nil},
		{"revoked", "a revoked key is refused even if it is known", s.KnownHostsLine(ed) + "@revoked * " + strings.Join(sworn[1:], " ") + "\n", remote.RevokedKey, []string{":2"}},
		{"authority_for_a_server_without_certificate", "a plain key is unknown then", "@cert-authority * " + strings.Join(sworn[1:], " ") + "\n", remote.UnknownHost, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lab := s.Lab(t)
			lab.Hosts[0].SSH.KnownHosts = filepath.Join(t.TempDir(), "known_hosts")
			writeFile(t, lab.Hosts[0].SSH.KnownHosts, tc.known)
			if tc.problem == "" {
				dial(t, lab, options(t))
				return
			}
			err := mustFail(t, lab, options(t))
			var hk *remote.HostKeyError
			if !errors.As(err, &hk) || hk.Problem != tc.problem {
				t.Fatalf("error %v, want %q", err, tc.problem)
			}
			wantError(t, err, remote.Permission, append(tc.words, "host h3: connect: "+string(tc.problem))...)
		})
	}
}

func TestDial_distinguishesUnknownKeyType(t *testing.T) {
	t.Parallel()
	s := remotetest.Start(t, home, sshserver.Options{}) // has an ed25519 key only
	lab := s.Lab(t)
	writeFile(t, lab.Hosts[0].SSH.KnownHosts, s.KnownHostsLine(remotetest.NewKey(t, t.TempDir(), "ecdsa", "")))
	err := mustFail(t, lab, options(t))
	var hk *remote.HostKeyError
	if !errors.As(err, &hk) || hk.Problem != remote.UnknownKeyType {
		t.Fatalf("error %v, want %q", err, remote.UnknownKeyType)
	}
	wantError(t, err, remote.Permission, "ssh-keyscan", "ecdsa-sha2-nistp256")
}

func hashed(t *testing.T, s remotetest.Server, k remotetest.Key) string {
	t.Helper()
	keygen, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Skip("no ssh-keygen on this machine")
	}
	file := filepath.Join(t.TempDir(), "known_hosts")
	writeFile(t, file, s.KnownHostsLine(k))
	if out, err := exec.Command(keygen, "-H", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen -H: %v: %s", err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(b), "|1|") {
		t.Fatalf("not hashed: %q", b)
	}
	return string(b)
}

func TestDial_trustsCertificateAuthorities(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, key := remotetest.NewKey(t, dir, "ed25519", ""), remotetest.NewKey(t, dir, "ed25519", "")
	certify := func(principal string) ssh.Signer {
		cert := &ssh.Certificate{Key: key.Signer.PublicKey(), CertType: ssh.HostCert, ValidPrincipals: []string{principal}, ValidBefore: ssh.CertTimeInfinity}
		if err := cert.SignCert(strings.NewReader(strings.Repeat("r", 64)), ca.Signer); err != nil {
			t.Fatal(err)
		}
		signer, err := ssh.NewCertSigner(cert, key.Signer)
		if err != nil {
			t.Fatal(err)
		}
		return signer
	}
	line := "@cert-authority [127.0.0.1]:* " + string(ssh.MarshalAuthorizedKey(ca.Signer.PublicKey()))
	for principal, ok := range map[string]bool{"127.0.0.1": true, "elsewhere": false} {
		s := remotetest.Start(t, home, sshserver.Options{HostKeys: []ssh.Signer{certify(principal)}})
		lab := s.Lab(t)
		writeFile(t, lab.Hosts[0].SSH.KnownHosts, line)
		if ok {
			dial(t, lab, options(t))
			continue
		}
		var hk *remote.HostKeyError
		if err := mustFail(t, lab, options(t)); !errors.As(err, &hk) || hk.Problem != remote.BadCertificate {
			t.Errorf("certificate for %s: %v, want %q", principal, err, remote.BadCertificate)
		}
	}
}

func TestDial_acceptsNewHostsWhenAsked(t *testing.T) {
	t.Parallel()
	s := remotetest.Start(t, home, sshserver.Options{})
	lab := s.Lab(t)
	file := filepath.Join(t.TempDir(), "new", "known_hosts")
	lab.Hosts[0].SSH.KnownHosts = file
	o := options(t)
	o.AcceptNew = true
	dial(t, lab, o).Close()
	b, err := os.ReadFile(file)
	if err != nil || string(b) != s.KnownHostsLine(s.HostKeys[0]) {
		t.Errorf("known_hosts %q, %v; want the server's line", b, err)
	}
	o.AcceptNew = false
	dial(t, lab, o)
	writeFile(t, file, s.KnownHostsLine(remotetest.NewKey(t, t.TempDir(), "ed25519", "")))
	o.AcceptNew = true
	var hk *remote.HostKeyError
	if err := mustFail(t, lab, o); !errors.As(err, &hk) || hk.Problem != remote.ChangedKey {
		t.Errorf("changed key with accept-new: %v, want %q", err, remote.ChangedKey)
	}
}

func TestDial_explainsKeys(t *testing.T) {
	t.Parallel()
	s := remotetest.Start(t, home, sshserver.Options{})
	dir := t.TempDir()
	wrong := remotetest.NewKey(t, dir, "ed25519", "")
	locked := remotetest.NewKey(t, dir, "ed25519", "secret")
	open := remotetest.NewKey(t, dir, "ed25519", "")
	if err := os.Chmod(open.File, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, key string
		kind      remote.Kind
		words     []string
	}{
		{"wrong", wrong.File, remote.Permission, []string{"no key accepted", wrong.File, "ssh-copy-id -p"}},
		{"encrypted", locked.File, remote.Permission, []string{"is encrypted and no agent holds it", "ssh-add " + locked.File}},
		{"missing", filepath.Join(dir, "none"), remote.Usage, []string{"no such file"}},
		{"open_to_all", open.File, remote.Permission, []string{"0644", "chmod 600"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lab := s.Lab(t)
			lab.Hosts[0].SSH.Key = tc.key
			wantError(t, mustFail(t, lab, options(t)), tc.kind, append(tc.words, "host h3: connect: ")...)
		})
	}
}

func TestDial_usesTheAgentForEncryptedKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := remotetest.NewKey(t, dir, "ed25519", "secret")
	s := remotetest.Start(t, home, sshserver.Options{AuthorizedKeys: []ssh.PublicKey{key.Signer.PublicKey()}})

	ring := agent.NewKeyring()
	for range 8 { // more than a server lets one try
		if err := ring.Add(agent.AddedKey{PrivateKey: remotetest.NewKey(t, dir, "ed25519", "").Private()}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ring.Add(agent.AddedKey{PrivateKey: key.Private()}); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "agent")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { agent.ServeAgent(ring, c); c.Close() })
		}
	})
	defer wg.Wait()
	defer ln.Close()

	lab := s.Lab(t)
	lab.Hosts[0].SSH.Key = key.File
	o := options(t)
	o.ConfigFiles = []string{filepath.Join(dir, "config")}
	writeFile(t, o.ConfigFiles[0], "Host *\n  IdentityAgent "+socket+"\n")
	h, err := remote.Dial(t.Context(), lab, "h3", o)
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
}

func TestDial_givesUpOnHostsThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s := remotetest.Start(t, home, sshserver.Options{})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for _, tc := range []struct {
		name  string
		port  int
		words []string
	}{
		{"silent", silent.Addr().(*net.TCPAddr).Port, []string{"no answer within 2s", "is it an SSH server?"}},
		{"refused", closed.Addr().(*net.TCPAddr).Port, []string{"connection refused", "is sshd running there"}},
	} {
		lab := s.Lab(t)
		lab.Hosts[0].SSH.Port = tc.port
		o := options(t)
		o.ConnectTimeout = 2 * time.Second
		begin := time.Now()
		wantError(t, mustFail(t, lab, o), remote.Infrastructure, append(tc.words, "host h3: connect: ")...)
		if took := time.Since(begin); took > 8*time.Second {
			t.Errorf("%s: took %v", tc.name, took)
		}
	}
}

// TestDial_comesBackAfterMaxStartups is O21: refused handshakes are repeated, and named when they stay refused.
func TestDial_comesBackAfterMaxStartups(t *testing.T) {
	t.Parallel()
	for name, s := range bothServers(t, sshserver.Options{MaxStartups: 2}, "MaxStartups 2:100:2") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			comesBackAfterMaxStartups(t, s)
		})
	}
}

func comesBackAfterMaxStartups(t *testing.T, s remotetest.Server) {
	occupy := func() (free func()) {
		var idle []net.Conn
		for range 2 {
			c, err := net.Dial("tcp", s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
			idle = append(idle, c)
		}
		return func() {
			for _, c := range idle {
				c.Close()
			}
		}
	}
	free := occupy()
	timer := time.AfterFunc(600*time.Millisecond, free)
	defer timer.Stop()
	dial(t, s.Lab(t), options(t))

	free = occupy()
	defer free()
	wantError(t, mustFail(t, s.Lab(t), options(t)), remote.Infrastructure, "MaxStartups", "Exceeded MaxStartups", "raise MaxStartups")
}

func TestPool_staysBelowMaxStartupsOfAJumpHost(t *testing.T) {
	t.Parallel()
	bastion := remotetest.StartSSHD(t, home, "MaxStartups 1:100:1")
	target := remotetest.StartSSHD(t, home, "MaxStartups 5:100:5\nMaxSessions 2")
	lab := &inventory.Lab{Name: "many"}
	for i := range 12 {
		host := &inventory.Host{Name: fmt.Sprintf("h%d", i), SSH: target.SSH(t)}
		host.SSH.Jump = "bastion"
		lab.Hosts = append(lab.Hosts, host)
	}
	names := make([]string, 12)
	for i := range names {
		names[i] = lab.Hosts[i].Name
	}
	lab.Hosts = append(lab.Hosts, &inventory.Host{Name: "bastion", SSH: bastion.SSH(t)})
	pool, err := remote.NewPool(lab, options(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	err = pool.Each(t.Context(), names, func(ctx context.Context, h remote.Host) error {
		res, err := h.Run(ctx, remote.Cmd{Args: []string{"echo", h.Name()}})
		if err == nil && string(res.Stdout) != h.Name()+"\n" {
			err = fmt.Errorf("output %q", res.Stdout)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestHost_waitsWhereSessionsAreFew(t *testing.T) {
	t.Parallel()
	few := bothServers(t, sshserver.Options{SFTP: true, MaxSessions: 2}, "MaxSessions 2")
	none := bothServers(t, sshserver.Options{MaxSessions: -1}, "MaxSessions 0")
	for name := range few {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := dial(t, few[name].Lab(t), options(t))
			var wg sync.WaitGroup
			for range 6 {
				wg.Go(func() {
					if res, err := h.Run(t.Context(), remote.Cmd{Args: []string{"sleep", "0.2"}}); err != nil || res.Code != 0 {
						t.Errorf("%+v, %v", res, err)
					}
				})
			}
			wg.Wait()
			_, err := dial(t, none[name].Lab(t), options(t)).Run(t.Context(), remote.Cmd{Args: []string{"true"}})
			wantError(t, err, remote.Infrastructure, "MaxSessions", "host h3: run true: ")
		})
	}
}

// TestHost_namesWhatSudoLacks is O23.
func TestHost_namesWhatSudoLacks(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, sudo string
		words      []string
	}{
		{"password", `echo "sudo: a password is required" >&2; exit 1`, []string{"needs a password", "ALL=(root) NOPASSWD: ", "/ls"}},
		{"old_password", `echo "sudo: no tty present and no askpass program specified" >&2; exit 1`, []string{"needs a password", "NOPASSWD"}},
		{"terminal", `echo "sudo: sorry, you must have a tty to run sudo" >&2; exit 1`, []string{"needs a terminal", "!requiretty"}},
		{"not_allowed", `echo "Sorry, user lab is not allowed to execute '/usr/bin/ls' as root on h3." >&2; exit 1`, []string{"does not allow", "NOPASSWD"}},
		{"works", `shift 2; exec "$@"`, nil},
		{"asks_without_n", `[ "$1" = -n ] || { echo "Password:" >&2; read x; }; shift 2; exec "$@"`, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			script(t, dir, "sudo", tc.sudo)
			s := remotetest.Start(t, home, sshserver.Options{SFTP: true, Env: []string{"HOME=" + home, "PATH=" + dir + ":" + os.Getenv("PATH")}})
			res, err := dial(t, s.Lab(t), options(t)).Run(t.Context(), remote.Cmd{Args: []string{"ls", "/"}, Sudo: true, Step: "read settings"})
			if tc.words == nil {
				if err != nil || res.Code != 0 {
					t.Errorf("%+v, %v; want success", res, err)
				}
				return
			}
			if !errors.Is(err, remote.ErrNeedSudo) {
				t.Fatalf("error %v, want ErrNeedSudo", err)
			}
			wantError(t, err, remote.Permission, append(tc.words, "host h3: read settings: NEED_SUDO", "to sudoers on h3")...)
		})
	}
}

func TestHost_getsPlainCommandsWhereTheBinaryCannotBe(t *testing.T) {
	t.Parallel()
	odd := t.TempDir()
	script(t, odd, "uname", `[ "$1" = -m ] && echo vax || echo Linux`)
	for name, s := range map[string]remotetest.Server{
		"no_sftp":      remotetest.Start(t, "", sshserver.Options{}),
		"unknown_arch": remotetest.Start(t, "", sshserver.Options{SFTP: true, Env: []string{"HOME=/nowhere", "PATH=" + odd + ":" + os.Getenv("PATH")}}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := dial(t, s.Lab(t), options(t))
			res, err := h.Run(t.Context(), remote.Cmd{Args: []string{"sh", "-c", `echo "$X" 'a b'; exit 3`}, Env: []string{"X=1 2"}, Dir: "/"})
			if err != nil || res.Code != 3 || string(res.Stdout) != "1 2 a b\n" {
				t.Errorf("%+v, %v; want code 3 and the output", res, err)
			}
			ok, reason := h.(interface{ Guarded() (bool, string) }).Guarded()
			if ok || reason == "" {
				t.Errorf("guarded %v, %q; want false and a reason", ok, reason)
			}
			if _, err := h.Binary(t.Context()); err == nil {
				t.Error("Binary gave a path")
			}
			_, err = h.Start(t.Context(), remote.Cmd{Args: []string{"true"}, Hold: true})
			wantError(t, err, remote.Usage, "needs a guard")
			_, err = h.Run(t.Context(), remote.Cmd{Args: []string{"sleep", "307"}, Deadline: 300 * time.Millisecond})
			if !errors.Is(err, remote.ErrDeadline) {
				t.Errorf("error %v, want ErrDeadline", err)
			}
			p, err := h.Start(t.Context(), remote.Cmd{Args: []string{"sleep", "308"}})
			if err != nil {
				t.Fatal(err)
			}
			p.Stop(t.Context(), "TERM")
			if res, err := p.Wait(t.Context()); err != nil || res.Signal != "TERM" {
				t.Errorf("%+v, %v; want signal TERM", res, err)
			}
		})
	}
}

func TestPool_refusesTwoHostsThatAreOne(t *testing.T) {
	t.Parallel()
	s := remotetest.Start(t, home, sshserver.Options{SFTP: true})
	lab := s.Lab(t)
	lab.Hosts = append(lab.Hosts, &inventory.Host{Name: "h4", SSH: s.SSH(t)})
	o := options(t)
	o.SameMachine = false
	pool, err := remote.NewPool(lab, o)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var errs []error
	for _, n := range []string{"h3", "h4"} {
		h, err := pool.Host(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.Run(t.Context(), remote.Cmd{Args: []string{"true"}})
		errs = append(errs, err)
	}
	if errs[0] != nil {
		t.Error(errs[0])
	}
	wantError(t, errs[1], remote.Usage, "host h4: run true: is the same machine as host h3")
}
