package remote_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/testwait"
	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/remotetest"
	"github.com/pcmlab/pcmlab/inventory/remote/sshserver"
)

// throughProxy is a lab whose host is reached through a proxy.
func throughProxy(t *testing.T) (*inventory.Lab, *remotetest.Proxy) {
	t.Helper()
	return proxied(t, remotetest.Start(t, home, sshserver.Options{SFTP: true}))
}

func proxied(t *testing.T, s remotetest.Server) (*inventory.Lab, *remotetest.Proxy) {
	t.Helper()
	p := remotetest.NewProxy(t, s.Addr())
	lab := s.Lab(t)
	var known string
	for _, k := range s.HostKeys {
		known += strings.Replace(s.KnownHostsLine(k), fmt.Sprint(s.Port), fmt.Sprint(p.Port()), 1)
	}
	writeFile(t, lab.Hosts[0].SSH.KnownHosts, known)
	lab.Hosts[0].SSH.Port = p.Port()
	return lab, p
}

// TestHost_survivesACutPath cuts the connection while a command prints, and lets the next one through.
func TestHost_survivesACutPath(t *testing.T) {
	t.Parallel()
	for name, s := range bothServers(t, sshserver.Options{SFTP: true}, "") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			survivesACutPath(t, s)
		})
	}
}

// bothServers are our own server and OpenSSH's, set up alike.
func bothServers(t *testing.T, own sshserver.Options, sshd string) map[string]remotetest.Server {
	t.Helper()
	return map[string]remotetest.Server{"own": remotetest.Start(t, home, own), "openssh": remotetest.StartSSHD(t, home, sshd)}
}

func survivesACutPath(t *testing.T, s remotetest.Server) {
	lab, p := proxied(t, s)
	h := dial(t, lab, options(t))

	held, err := h.Start(t.Context(), remote.Cmd{Args: []string{"echo", "late"}, Hold: true})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	var mu sync.Mutex
	seen := func() int { mu.Lock(); defer mu.Unlock(); return out.Len() }
	c := remote.Cmd{Args: []string{"sh", "-c", `for i in 1 2 3 4 5 6 7 8; do seq $((i*1000)) $((i*1000+999)); sleep 0.3; done; cat; exit 6`},
		Stdout: writerFunc(func(b []byte) (int, error) { mu.Lock(); defer mu.Unlock(); return out.Write(b) }), Stdin: strings.NewReader("input\n")}
	proc, err := h.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	testwait.For(t, 10*time.Second, "some output", func() bool { return seen() > 3000 })
	p.Cut()
	if err := held.Release(t.Context()); err != nil {
		t.Errorf("release over the new connection: %v", err)
	}
	res, err := proc.Wait(t.Context())
	if err != nil || res.Code != 6 {
		t.Errorf("%+v, %v; want code 6", res.Code, err)
	}
	var want strings.Builder
	for i := 1000; i < 9000; i++ {
		fmt.Fprintln(&want, i)
	}
	want.WriteString("input\n")
	if out.String() != want.String() {
		t.Errorf("%d bytes of output, want every line once: %d bytes", out.Len(), want.Len())
	}
	if res, err := held.Wait(t.Context()); err != nil || string(res.Stdout) != "late\n" {
		t.Errorf("%q, %v; want the held command's output", res.Stdout, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestHost_noticesAPathThatIsSilent stalls the connection: no end of it reaches either side.
func TestHost_noticesAPathThatIsSilent(t *testing.T) {
	t.Parallel()
	lab, p := throughProxy(t)
	o := options(t)
	o.KeepAlive, o.KeepAliveLost = 200*time.Millisecond, 3*time.Second
	h := dial(t, lab, o)
	proc, err := h.Start(t.Context(), remote.Cmd{Args: []string{"sh", "-c", "sleep 6; echo end"}})
	if err != nil {
		t.Fatal(err)
	}
	p.Stall()
	res, err := proc.Wait(t.Context())
	if err != nil || string(res.Stdout) != "end\n" {
		t.Errorf("%q, %v; want the output, over a new connection", res.Stdout, err)
	}
}

func TestHost_saysWhenThePathStaysCut(t *testing.T) {
	t.Parallel()
	lab, p := proxied(t, remotetest.StartSSHD(t, home, ""))
	o := options(t)
	h := dial(t, lab, o)
	proc, err := h.Start(t.Context(), remote.Cmd{Args: []string{"sleep", "309"}, Step: "hold link"})
	if err != nil {
		t.Fatal(err)
	}
	p.Block(true)
	_, err = proc.Wait(t.Context())
	if !errors.Is(err, remote.ErrLost) {
		t.Errorf("error %v, want ErrLost", err)
	}
	wantError(t, err, remote.Infrastructure, "host h3: hold link: connection lost", "pcmlab cleanup --run "+o.Run)
	testwait.For(t, 10*time.Second, "the guard to end the command", func() bool { return len(remotetest.Alive(o.Run)) == 0 })
}

// TestHost_leavesNothingWhenItsProcessIsKilled kills the orchestrator with -9 at several moments.
func TestHost_leavesNothingWhenItsProcessIsKilled(t *testing.T) {
	t.Parallel()
	own := remotetest.Start(t, home, sshserver.Options{SFTP: true})
	sshd := remotetest.StartSSHD(t, home, "")
	for i, s := range []remotetest.Server{own, sshd, own, sshd, own, sshd} {
		t.Run(fmt.Sprint("after_", i, "_lines"), func(t *testing.T) {
			t.Parallel()
			ssh, err := json.Marshal(s.SSH(t))
			if err != nil {
				t.Fatal(err)
			}
			run := "kill-" + randomName()
			cmd := exec.Command(os.Args[0], "orchestrate", run, string(ssh))
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var seen lines
			read := make(chan struct{})
			go func() { seen.count(out); close(read) }()
			testwait.For(t, 40*time.Second, "the orchestrator to get there", func() bool {
				select {
				case <-read:
					return true
				default:
					return seen.get() > i
				}
			})
			if seen.get() <= i {
				t.Fatalf("orchestrator ended: %s", &errs)
			}
			before := len(remotetest.Alive(run)) // its own command line counts as well
			cmd.Process.Kill()
			begin := time.Now()
			<-read
			cmd.Wait()
			defer func() {
				if t.Failed() {
					t.Logf("alive: %q", remotetest.Alive(run))
				}
			}()
			testwait.For(t, 10*time.Second, "all that it started to end", func() bool { return len(remotetest.Alive(run)) == 0 })
			t.Logf("%d processes gone after %v", before, time.Since(begin).Round(10*time.Millisecond))
		})
	}
}
