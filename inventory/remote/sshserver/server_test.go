package sshserver

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"github.com/pcmlab/pcmlab/internal/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newKey(t *testing.T) ssh.Signer {
	t.Helper()
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type testServer struct {
	addr string
	user ssh.Signer
	host ssh.Signer
}

// serve runs a server for the test and checks that it ends when told to.
func serve(t *testing.T, o Options) testServer {
	t.Helper()
	ts := testServer{user: newKey(t), host: newKey(t)}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ts.addr = ln.Addr().String()
	o.HostKeys = []ssh.Signer{ts.host}
	o.AuthorizedKeys = []ssh.PublicKey{ts.user.PublicKey()}
	o.KillGrace = 50 * time.Millisecond
	if o.Home == "" {
		o.Home = t.TempDir()
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, ln, o) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("Serve did not end within 10 s of its context")
		}
	})
	return ts
}

func (ts testServer) dial(t *testing.T) *ssh.Client {
	t.Helper()
	c, err := ssh.Dial("tcp", ts.addr, &ssh.ClientConfig{
		User: "lab", Auth: []ssh.AuthMethod{ssh.PublicKeys(ts.user)},
		HostKeyCallback: ssh.FixedHostKey(ts.host.PublicKey()), Timeout: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func newTestSession(t *testing.T, c *ssh.Client) *ssh.Session {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestServe_relaysExitStatus(t *testing.T) {
	c := serve(t, Options{}).dial(t)
	for _, tc := range []struct {
		name, why, command string
		status             int
		signal, out        string
	}{
		{"status_zero", "success", "echo hello", 0, "", "hello\n"},
		{"status_three", "a status must arrive unchanged", "echo no; exit 3", 3, "", "no\n"},
		{"signal", "a signal is not a status", "kill -TERM $$", 0, "TERM", ""},
		{"missing_command", "the shell answers 127", "/no/such/tool 2>/dev/null", 127, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := newTestSession(t, c).Output(tc.command)
			var exit *ssh.ExitError
			if errors.As(err, &exit) {
				if exit.Signal() != tc.signal || (tc.signal == "" && exit.ExitStatus() != tc.status) {
					t.Errorf("%s: status %d signal %q, want %d %q", tc.command, exit.ExitStatus(), exit.Signal(), tc.status, tc.signal)
				}
			} else if err != nil || tc.status != 0 || tc.signal != "" {
				t.Errorf("%s: %v, want status %d signal %q", tc.command, err, tc.status, tc.signal)
			}
			if string(out) != tc.out {
				t.Errorf("%s: output %q, want %q", tc.command, out, tc.out)
			}
		})
	}
}

func TestServe_passesInputEnvironmentAndHome(t *testing.T) {
	home := t.TempDir()
	c := serve(t, Options{Home: home}).dial(t)
	s := newTestSession(t, c)
	if err := s.Setenv("LAB", "x y"); err != nil {
		t.Fatal(err)
	}
	s.Stdin = strings.NewReader("from input\n")
	out, err := s.CombinedOutput(`cat; echo "$LAB"; pwd; echo error >&2`)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"from input\n", "x y\n", home + "\n", "error\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("output %q lacks %q", out, want)
		}
	}
}

func TestServe_sendsSignalsToTheCommandsGroup(t *testing.T) {
	c := serve(t, Options{}).dial(t)
	s := newTestSession(t, c)
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(`sleep 100 & echo ready; wait`); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	if err := s.Signal(ssh.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var exit *ssh.ExitError
	if err := s.Wait(); !errors.As(err, &exit) || exit.Signal() != "TERM" {
		t.Errorf("Wait: %v, want signal TERM", err)
	}
}

func TestServe_closesInputOfLostClient(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "saw-eof")
	c := serve(t, Options{}).dial(t)
	s := newTestSession(t, c)
	in, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start("echo ready; cat >/dev/null; touch " + marker); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	c.Close()
	testwait.For(t, 10*time.Second, "the command to see EOF", func() bool { _, err := os.Stat(marker); return err == nil })
}

func TestServe_refusesSessionsAndStartups(t *testing.T) {
	ts := serve(t, Options{MaxSessions: 2, MaxStartups: 2})
	c := ts.dial(t)
	a, b := newTestSession(t, c), newTestSession(t, c)
	var refused *ssh.OpenChannelError
	if _, err := c.NewSession(); !errors.As(err, &refused) || refused.Reason != ssh.ConnectionFailed {
		t.Errorf("third session: %v, want refusal with reason ConnectionFailed", err)
	}
	a.Close()
	b.Close()
	testwait.For(t, 10*time.Second, "a closed session to be free again", func() bool {
		s, err := c.NewSession()
		if err != nil {
			return false
		}
		s.Close()
		return true
	})

	for range 2 {
		idle, err := net.Dial("tcp", ts.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer idle.Close()
		if _, err := io.ReadFull(idle, make([]byte, 4)); err != nil { // its version line: it has been counted
			t.Fatal(err)
		}
	}
	third, err := net.Dial("tcp", ts.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	text, _ := io.ReadAll(third)
	if !strings.HasPrefix(string(text), "Exceeded MaxStartups") {
		t.Errorf("third connection read %q, want the refusal of MaxStartups", text)
	}
}

func TestServe_refusesOtherKeysAndPasswords(t *testing.T) {
	ts := serve(t, Options{})
	for name, auth := range map[string]ssh.AuthMethod{
		"other key": ssh.PublicKeys(newKey(t)), "password": ssh.Password("lab"),
	} {
		_, err := ssh.Dial("tcp", ts.addr, &ssh.ClientConfig{User: "lab", Auth: []ssh.AuthMethod{auth}, HostKeyCallback: ssh.FixedHostKey(ts.host.PublicKey())})
		if err == nil || !strings.Contains(err.Error(), "unable to authenticate") {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
}

func TestServe_carriesFiles(t *testing.T) {
	home := t.TempDir()
	c := serve(t, Options{SFTP: true, Home: home}).dial(t)
	fc, err := sftp.NewClient(c)
	if err != nil {
		t.Fatal(err)
	}
	defer fc.Close()
	f, err := fc.Create("relative")
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	if _, err := f.Write(want); err != nil {
		t.Fatal(err)
	}
	f.Close()
	got, err := os.ReadFile(filepath.Join(home, "relative"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("file of %d bytes, error %v; want the %d bytes written", len(got), err, len(want))
	}
}

func TestServe_forwardsOnlyWhenAllowed(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			io.Copy(c, c)
			c.Close()
		}
	}()
	for _, allowed := range []bool{true, false} {
		c := serve(t, Options{TCPForward: allowed}).dial(t)
		conn, err := c.Dial("tcp", echo.Addr().String())
		if !allowed {
			if err == nil {
				t.Error("forwarding is off, yet a channel was opened")
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "ping")
		buf := make([]byte, 4)
		if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != "ping" {
			t.Errorf("echo: %q, %v", buf, err)
		}
		conn.Close()
	}
}

func TestServe_killsCommandsWhenItEnds(t *testing.T) {
	pid := make(chan int, 1)
	start := func(cmd *exec.Cmd) error {
		err := cmd.Start()
		if err == nil {
			pid <- cmd.Process.Pid
		}
		return err
	}
	t.Run("serve", func(t *testing.T) {
		s := newTestSession(t, serve(t, Options{Start: start}).dial(t))
		if err := s.Start("trap '' HUP; while :; do sleep 1; done"); err != nil {
			t.Fatal(err)
		}
	})
	if p := <-pid; exists(p) {
		t.Errorf("process %d is alive after Serve", p)
	}
}

// TestServe_withOpenSSHClient meets a client that is not of the same library.
func TestServe_withOpenSSHClient(t *testing.T) {
	client, err := exec.LookPath("ssh")
	if err != nil {
		t.Skip("no ssh client on this machine")
	}
	dir := t.TempDir()
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(priv, "")
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, pemBytes(block), 0o600); err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	host := newKey(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, ln, Options{HostKey: host, AuthorizedKeys: []ssh.PublicKey{signer.PublicKey()}, Home: dir, SFTP: true})
	}()
	defer func() { cancel(); <-done }()
	addr, port, _ := net.SplitHostPort(ln.Addr().String())
	known := filepath.Join(dir, "known_hosts")
	line := fmt.Sprintf("[%s]:%s %s", addr, port, ssh.MarshalAuthorizedKey(host.PublicKey()))
	if err := os.WriteFile(known, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		args = append([]string{"-F", "none", "-i", key, "-p", port, "-o", "UserKnownHostsFile=" + known, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"}, args...)
		cmd := exec.CommandContext(ctx, client, args...)
		cmd.Stdin = strings.NewReader("")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run("lab@"+addr, "echo out; echo err >&2; exit 7")
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 7 {
		t.Errorf("ssh: %v, want exit status 7 (%s)", err, out)
	}
	if !strings.Contains(out, "out\n") || !strings.Contains(out, "err\n") {
		t.Errorf("ssh: output %q, want both streams", out)
	}
	if out, err = run("-tt", "lab@"+addr, "test -t 0 && echo terminal $TERM"); err != nil || !strings.Contains(out, "terminal") {
		t.Errorf("ssh -tt: %v, output %q, want a terminal", err, out)
	}
}
