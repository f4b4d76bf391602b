package fabric

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/internal/units"
)

// childEnv makes the test binary a fabric process: its value is the configuration file. noRingEnv forbids it io_uring
// as a container's seccomp profile does.
const (
	childEnv  = "PCMLAB_FABRIC_TEST_CHILD"
	noRingEnv = "PCMLAB_FABRIC_TEST_NO_RING"
)

func childMain() int {
	if os.Getenv(noRingEnv) != "" {
		if err := forbidRing(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
	}
	cfg, err := LoadConfig(os.Getenv(childEnv))
	if err == nil {
		err = Main(context.Background(), cfg)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// forbidRing makes io_uring_setup fail with EPERM in the whole process.
func forbidRing() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_IO_URING_SETUP, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0x00050000 | uint32(unix.EPERM)}, // SECCOMP_RET_ERRNO
		{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000},                      // SECCOMP_RET_ALLOW
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	const setModeFilter, allThreads = 1, 1
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, allThreads, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	runtime.KeepAlive(filter)
	return nil
}

// child is a fabric process.
type child struct {
	*exec.Cmd
	stderr strings.Builder // to be read after done
	done   chan struct{}   // closed after Wait
}

// process starts a fabric process with the hosts' descriptors and waits until it is ready.
func process(t *testing.T, cfg Config, env ...string) *child {
	t.Helper()
	dir, err := os.MkdirTemp("", "fabric")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	heard, say, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer heard.Close()
	cmd := &child{Cmd: exec.Command(os.Args[0]), done: make(chan struct{})}
	cmd.Stderr = &cmd.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.ExtraFiles = []*os.File{say}
	cfg.ReadyFD = 3
	for i := range cfg.Ports {
		f := os.NewFile(uintptr(cfg.Ports[i].FD), cfg.Ports[i].Name)
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		cfg.Ports[i].FD = 4 + i
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "fabric.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), append(env, childEnv+"="+path)...)
	started := make(chan error, 1)
	go func() { // PDEATHSIG is that of the starting thread, which must live
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(cmd.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-cmd.done
	})
	say.Close()
	if err := heard.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if line, err := io.ReadAll(heard); string(line) != "ready\n" {
		t.Fatalf("fabric process said %q (%v)", line, err)
	}
	return cmd
}

// exited waits for the end of a process.
func (c *child) exited(t *testing.T) (status int, stderr string) {
	t.Helper()
	select {
	case <-c.done:
		return c.ProcessState.ExitCode(), c.stderr.String()
	case <-time.After(5 * time.Second):
		t.Fatal("process still runs after 5s")
		return -1, ""
	}
}

func TestMain_process(t *testing.T) {
	for _, row := range []struct {
		name string
		env  []string
		want IO
		why  string
	}{
		{"auto", nil, IOUring, "io_uring is best for TAP devices where it works"},
		{"forced", []string{EnvIO + "=readwrite"}, IOReadWrite, "tests force a path by environment"},
		{"io_uring_forbidden", []string{noRingEnv + "=yes"}, IOReadWrite, "containers' seccomp profiles forbid it"},
	} {
		t.Run(row.name, func(t *testing.T) {
			hosts := newHosts(t, 2, KindTAP)
			control := filepath.Join(t.TempDir(), "c")
			if len(control) > 100 {
				t.Fatalf("socket path %s is too long", control)
			}
			cmd := process(t, Config{Name: "p", Control: control, Ports: ports(hosts, units.GbitPerSec, 0, KindTAP)}, row.env...)
			a, b := udp(t, hosts[0], 4791), udp(t, hosts[1], 4791)
			if _, err := a.WriteTo([]byte("hello"), b.LocalAddr()); err != nil {
				t.Fatal(err)
			}
			if err := b.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Read(make([]byte, 10)); err != nil {
				t.Fatal(err)
			}
			c, err := Query(control)
			if err != nil {
				t.Fatal(err)
			}
			if c.IO != row.want || c.Port("h2").TxRoCEPackets != 1 {
				t.Errorf("io %s, want %s (%s); %d packets to h2, want 1", c.IO, row.want, row.why, c.Port("h2").TxRoCEPackets)
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if code, stderr := cmd.exited(t); code != 0 {
				t.Errorf("exit status %d after SIGTERM, want 0; stderr %s", code, stderr)
			}
			if _, err := os.Stat(control); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("control socket is left behind (%v)", err)
			}
			if _, err := Query(control); err == nil || !strings.Contains(err.Error(), "is the lab up?") {
				t.Errorf("query of an ended fabric: %v", err)
			}
		})
	}
}

// TestMain_processKilledLeavesItsPlaceToTheNext: SIGKILL leaves the socket's file, which the next fabric takes over,
// but not while another one answers there.
func TestMain_processKilledLeavesItsPlaceToTheNext(t *testing.T) {
	control := filepath.Join(t.TempDir(), "c")
	cfg := func() Config {
		return Config{Name: "k", Control: control, Ports: ports(newHosts(t, 1, KindTAP), units.GbitPerSec, 0, KindTAP)}
	}
	cmd := process(t, cfg())
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.exited(t)
	process(t, cfg())
	if err := Run(t.Context(), cfg(), nil, nil); err == nil || !strings.Contains(err.Error(), "another fabric answers there") {
		t.Errorf("second fabric on the same socket: %v", err)
	}
	if _, err := Query(control); err != nil {
		t.Errorf("the first no longer answers: %v", err)
	}
}

func TestRun_refusesBeforeItStarts(t *testing.T) {
	for _, row := range []struct {
		name, env string
		io        IO
		want      string
	}{
		{"unknown_environment", "fast", IOAuto, `PCMLAB_FABRIC_IO="fast": need io_uring, readwrite or packet`},
		{"packet_for_tap", "", IOPacket, `io "packet" does not fit these ports: readwrite does`},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.env != "" {
				t.Setenv(EnvIO, row.env)
			}
			hosts := newHosts(t, 1, KindTAP)
			err := Run(t.Context(), Config{Name: "x", IO: row.io, Ports: ports(hosts, units.GbitPerSec, 0, KindTAP)}, nil, nil)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v, want %q in it", err, row.want)
			}
		})
	}
}

func TestControl_answersEachLine(t *testing.T) {
	hosts := newHosts(t, 1, KindTAP)
	r := start(t, Config{Name: "c", Ports: ports(hosts, units.GbitPerSec, 0, KindTAP)})
	conn, err := net.Dial("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	lines := bufio.NewReader(conn)
	for _, row := range []struct{ line, want string }{
		{`{"op":"counters"}`, `"schema":"pcmlab/fabric-counters/v1"`},
		{`{"op":"counters"}`, `"p50":null`},
		{`{"op":"reset_lateness"}`, `{}`},
		{`{"op":"set","port":"h1","buffer":"64KiB","rate":"2Gbit/s","delay_ns":1000,"ecn":{"kmin":"10KiB","kmax":"20KiB","pmax":0.1}}`, `{}`},
		{`{"op":"set","port":"h1","ecn":{"kmin":"30KiB","kmax":"20KiB","pmax":0.1}}`, `need 0 \u003c= kmin \u003c= kmax`},
		{`{"op":"set","port":"h1","ecn":null}`, `{}`},
		{`{"op":"set","port":"h9"}`, `no port \"h9\"`},
		{`{"op":"stop"}`, `need counters, reset_lateness or set`},
		{`{"op":"counters","verbose":1}`, `unknown field \"verbose\"`},
		{`hello`, `invalid character`},
		{`{"op":"counters"}`, `"name":"h1"`},
	} {
		if _, err := io.WriteString(conn, row.line+"\n"); err != nil {
			t.Fatal(err)
		}
		got, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("%s: %v", row.line, err)
		}
		if !strings.Contains(got, row.want) {
			t.Errorf("%s: answer %s, want %s in it", row.line, got, row.want)
		}
	}
	if _, err := Ask(r.socket, Request{Op: "set", Port: "h9"}); err == nil || !strings.Contains(err.Error(), `no port "h9"`) {
		t.Errorf("Ask: %v", err)
	}
}

// TestRun_stopsAtAnyMomentUnderLoad: frames come in and go out, clients ask; it ends cleanly all the same.
func TestRun_stopsAtAnyMomentUnderLoad(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, path := range paths {
		t.Run(fmt.Sprintf("%s_%s", path.io, path.kind), func(t *testing.T) {
			for range 5 {
				hosts := newHosts(t, 2, path.kind)
				r := start(t, Config{Name: "s", IO: path.io, Ports: ports(hosts, units.GbitPerSec, time.Millisecond, path.kind)})
				b := newBlaster(t, hosts[0], udpFrame([6]byte(hosts[0].mac), [6]byte(hosts[1].mac), 4154))
				stop, done := make(chan struct{}), make(chan struct{})
				go blast([]*blaster{b}, 0, stop, done)
				n := uint64(random.IntN(2000))
				waitUntil(t, "some load", func() bool { return r.counters(t).Port("h2").TxPackets > n })
				r.cancel()
				select {
				case err := <-r.ended:
					if err != nil {
						t.Errorf("ended with %v", err)
					}
					r.ended <- nil
				case <-time.After(3 * time.Second):
					t.Error("still running 3s after it was told to stop")
				}
				close(stop)
				<-done
			}
		})
	}
}
