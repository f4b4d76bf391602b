package capture

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const inUserNamespace = "PCMLAB_TEST_IN_USER_NAMESPACE"

// inNetns puts the test into a network namespace of its own. As root the thread moves there; a plain user's test runs again
// as a child in a user namespace (the caller returns at once when it gets false).
func inNetns(t testing.TB) bool {
	t.Helper()
	if os.Getuid() == 0 {
		runtime.LockOSThread() // and never unlocked: the thread ends with the test's goroutine, its namespace with it
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Skipf("needs a network namespace of its own: %v", err)
		}
		return true
	}
	againInUserNamespace(t)
	return false
}

// againInUserNamespace runs the test alone in a child that is root in a new user and network namespace.
func againInUserNamespace(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inUserNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil && strings.Contains(string(out), "--- SKIP"):
		t.Skipf("in a user namespace: %s", out)
	case err != nil && cmd.Process == nil:
		t.Skipf("user namespaces are not allowed here: %v", err)
	case err != nil:
		t.Fatalf("in a user namespace: %v\n%s", err, out)
	}
}

// vethPair makes two joined interfaces, silent but for what the test sends, and brings them up.
func vethPair(t testing.TB, a, b string) {
	t.Helper()
	for _, name := range []string{"all", "default"} {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0o644); err != nil {
			t.Logf("IPv6 stays on: %v", err)
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = a, 9000
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: b}); err != nil {
		t.Skipf("needs veth interfaces: %v", err)
	}
	for _, name := range []string{a, b} {
		setLink(t, name, true)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		l, err := netlink.LinkByName(a)
		if err == nil && l.Attrs().OperState == netlink.OperUp {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come up: %v", a, err)
		}
		runtime.Gosched()
	}
}

func setLink(t testing.TB, name string, up bool) {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err == nil && up {
		err = netlink.LinkSetUp(l)
	} else if err == nil {
		err = netlink.LinkSetDown(l)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// sender sends frames on an interface with as few system calls as it can.
type sender struct {
	fd int
	to unix.RawSockaddrLinklayer
}

// mmsghdr is struct mmsghdr of sendmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
	_   [4]byte
}

func newSender(t testing.TB, iface string) *sender {
	t.Helper()
	l, err := netlink.LinkByName(iface)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skipf("needs packet sockets: %v", err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return &sender{fd, unix.RawSockaddrLinklayer{Family: unix.AF_PACKET, Ifindex: int32(l.Attrs().Index), Halen: 6}}
}

// send sends every frame once, in order, and returns when the kernel has delivered them all.
func (s *sender) send(frames [][]byte) error {
	var msgs [64]mmsghdr
	var iovs [64]unix.Iovec
	for len(frames) > 0 {
		n := min(len(frames), len(msgs))
		for i, f := range frames[:n] {
			iovs[i].Base = &f[0]
			iovs[i].SetLen(len(f))
			msgs[i].hdr = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&s.to)), Namelen: uint32(unsafe.Sizeof(s.to)), Iov: &iovs[i], Iovlen: 1}
		}
		done, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&msgs[0])), uintptr(n), 0, 0, 0)
		if errno == unix.ENOBUFS || errno == unix.EINTR {
			continue
		} else if errno != 0 {
			return fmt.Errorf("sendmmsg: %w", errno)
		}
		frames = frames[done:]
	}
	return nil
}

// readySignal is a writer whose channel closes at the first line.
type readySignal struct {
	line string
	c    chan struct{}
}

func newReady() *readySignal { return &readySignal{c: make(chan struct{})} }

func (r *readySignal) Write(b []byte) (int, error) {
	if r.line == "" {
		defer close(r.c)
	}
	r.line += string(b)
	return len(b), nil
}

// runTap runs a tap on the test's own thread; while, in another goroutine, runs when the tap is live, and its end stops the tap.
func runTap(t testing.TB, o TapOptions, while func(context.Context) error) (TapStats, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ready := newReady()
	o.Ready = ready
	result := make(chan error, 1)
	go func() {
		defer cancel()
		select {
		case <-ready.c:
			result <- while(ctx)
		case <-ctx.Done():
			result <- ctx.Err()
		}
	}()
	stats, err := RunTap(ctx, o)
	cancel()
	if werr := <-result; werr != nil && err == nil {
		t.Fatalf("while capturing: %v", werr)
	}
	if err == nil && ready.line != "listening on "+o.Iface+"\n" {
		t.Errorf("ready line %q", ready.line)
	}
	return stats, err
}
