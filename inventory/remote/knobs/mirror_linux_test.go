package knobs

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/internal/testwait"
)

// TestApply_mirror: what a port receives and sends comes out of another one while the run lasts, and then not any more; interfaces are real, in a network
// namespace of this test's thread. What somebody had there stays.
func TestApply_mirror(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	run := func(words string) string {
		t.Helper()
		f := strings.Fields(words)
		out, err := exec.Command(f[0], f[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v (%s)", words, err, out)
		}
		return string(out)
	}
	for _, pair := range []string{"port host", "mirr seen"} {
		p := strings.Fields(pair)
		run("ip link add " + p[0] + " type veth peer name " + p[1])
		for _, dev := range p {
			run("ip link set " + dev + " addrgenmode none up")
		}
	}
	socket := func(dev string) int {
		t.Helper()
		ifi, err := net.InterfaceByName(dev)
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, 0) // nothing arrives before it is bound
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0x0300, Ifindex: ifi.Index})
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	host, port, seen := socket("host"), socket("port"), socket("seen")
	frame := func(text string) []byte {
		return append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5}, []byte(text+strings.Repeat(" ", 60))...) // EtherType for experiments
	}
	mirrored := func(from int, text string) bool { // whether it comes out of the mirror before a later frame of the mirror's own link
		t.Helper()
		if _, err := unix.Write(from, frame(text)); err != nil {
			t.Fatal(err)
		}
		found := false
		buf := make([]byte, 2048)
		other := socket("mirr")
		if _, err := unix.Write(other, frame("end of "+text)); err != nil {
			t.Fatal(err)
		}
		testwait.For(t, 10*time.Second, "the frame behind", func() bool {
			for {
				n, err := unix.Read(seen, buf)
				if err != nil {
					return false
				}
				found = found || bytes.HasPrefix(buf[14:n], []byte(text))
				if bytes.HasPrefix(buf[14:n], []byte("end of "+text)) {
					return true
				}
			}
		})
		return found
	}
	dir := journals(t)
	show := func() string {
		return run("tc qdisc show dev port") + run("tc filter show dev port ingress") + run("tc filter show dev port egress")
	}
	before := show()
	if mirrored(host, "received before") {
		t.Fatal("it is mirrored before")
	}
	for _, c := range []struct {
		direction string
		in, out   bool
	}{{"", true, true}, {Ingress, true, false}, {Egress, false, true}} {
		j := apply(t, dir, Knob{Mirror: "port", To: "mirr", Direction: c.direction})
		if in, out := mirrored(host, "received"), mirrored(port, "sent"); in != c.in || out != c.out {
			t.Errorf("direction %q: received %t, sent %t", c.direction, in, out)
		}
		if err := j.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after := show(); after != before || mirrored(host, "received after") || mirrored(port, "sent after") {
			t.Errorf("direction %q: before %q, after %q", c.direction, before, after)
		}
	}

	// Somebody's own filter beside ours.
	run("tc qdisc add dev port clsact")
	run("tc filter add dev port ingress pref 7 protocol ip u32 match u32 0 0 flowid 1:1")
	before = show()
	j := apply(t, dir, Knob{Mirror: "port", To: "mirr"})
	if !mirrored(host, "received beside") {
		t.Error("it is not mirrored beside somebody's filter")
	}
	if err := j.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := show(); after != before {
		t.Errorf("before %q, after %q", before, after)
	}
	run("tc filter add dev port ingress pref 4791 protocol all u32 match u32 0 0 flowid 1:1")
	for _, bad := range []struct {
		k    Knob
		want string
	}{
		{Knob{Mirror: "port", To: "mirr"}, "preference 4791 already, which somebody made"},
		{Knob{Mirror: "host", To: "nowhere"}, "nowhere"},
		{Knob{Mirror: "nowhere", To: "mirr"}, "cannot be read before it is changed"},
	} {
		if _, err := Apply(t.Context(), dir, "run-2", "a@b", []Knob{bad.k}); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%v: %v, want %q", bad.k, err, bad.want)
		}
	}
	if l := left(t, dir); len(l) != 0 {
		t.Errorf("left: %+v", l)
	}
}
