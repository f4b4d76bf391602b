package ring

import (
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newRing makes a ring that belongs to this test's thread, or skips.
func newRing(t *testing.T) *Ring {
	t.Helper()
	r, err := New(64, 256)
	if err != nil {
		t.Skipf("no io_uring here: %v", err)
	}
	runtime.LockOSThread()
	t.Cleanup(func() {
		r.Close()
		runtime.UnlockOSThread()
	})
	return r
}

func monotonic(t *testing.T) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

func TestRing_readsEveryMessageOfABlockingSocketInOrder(t *testing.T) {
	r := newRing(t)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	if err := r.Files([]int32{int32(pair[0]), int32(pair[1])}); err != nil {
		t.Fatal(err)
	}
	const buffers = 4
	g, err := r.Buffers(3, buffers)
	if err != nil {
		t.Fatal(err)
	}
	var mem [buffers][16]byte
	for i := range mem {
		g.Provide(mem[i][:], uint16(i))
	}
	if err := r.Enable(); err != nil {
		t.Fatal(err)
	}
	const reading, writing = 1, 2
	r.ReadMultishot(0, g, reading)
	// More messages than buffers: the multishot read ends with ENOBUFS and is armed again.
	const n = 64
	sent, got, rearmed := 0, 0, 0
	message := []byte("message 0")
	for got < n {
		if sent < n && sent-got < 2*buffers {
			message[8] = byte(sent)
			r.Write(1, message, writing)
			sent++
		}
		if err := r.Enter(Wait{Completions: 1, Until: monotonic(t) + time.Second}); err != nil {
			t.Fatal(err)
		}
		for {
			c, ok := r.Next()
			if !ok {
				break
			}
			if c.UserData == writing {
				if int(c.Res) != len(message) {
					t.Fatalf("write: %v", c.Errno())
				}
				continue
			}
			if id, ok := c.Buffer(); ok && c.Res > 0 {
				if want := byte(got); int(c.Res) != len(message) || mem[id][8] != want {
					t.Fatalf("message %d: %d bytes, last %d", got, c.Res, mem[id][8])
				}
				got++
				g.Provide(mem[id][:], id)
			} else if c.Errno() != unix.ENOBUFS {
				t.Fatalf("read: %v", c.Errno())
			}
			if !c.More() {
				rearmed++
				r.ReadMultishot(0, g, reading)
			}
		}
	}
	if r.Syscalls == 0 {
		t.Error("system calls were not counted")
	}
}

func TestRing_waitsUntilTheDeadlineAndNotBeyond(t *testing.T) {
	for _, row := range []struct {
		name     string
		relative bool
		why      string
	}{
		{"absolute", false, "Linux 6.12 and later"},
		{"relative", true, "kernels without IORING_ENTER_ABS_TIMER"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRing(t)
			r.relative = row.relative
			if err := r.Enable(); err != nil {
				t.Fatal(err)
			}
			from := monotonic(t)
			const wait = 3 * time.Millisecond
			if err := r.Enter(Wait{Completions: 1, Until: from + wait}); err != nil {
				t.Fatal(err)
			}
			if took := monotonic(t) - from; took < wait || took > time.Second {
				t.Errorf("waited %v, want %v (%s)", took, wait, row.why)
			}
			if err := r.Enter(Wait{Completions: 1, Until: from}); err != nil { // already passed
				t.Fatal(err)
			}
		})
	}
}

func TestRing_cancelEndsAReadThatWaits(t *testing.T) {
	r := newRing(t)
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pr.Close()
	defer pw.Close()
	if err := r.Files([]int32{int32(pr.Fd())}); err != nil { // Fd makes it blocking
		t.Fatal(err)
	}
	if err := r.Enable(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	r.Read(0, b, 7)
	if err := r.Enter(Wait{}); err != nil {
		t.Fatal(err)
	}
	r.CancelAll(8)
	if err := r.Enter(Wait{Completions: 2, Until: monotonic(t) + time.Second}); err != nil {
		t.Fatal(err)
	}
	seen := map[uint64]unix.Errno{}
	for {
		c, ok := r.Next()
		if !ok {
			break
		}
		seen[c.UserData] = c.Errno()
	}
	if seen[7] != unix.ECANCELED {
		t.Errorf("completions %v, want the read cancelled", seen)
	}
}

// TestRing_gathersForATimeThenTakesOne: a single completion ends the wait, but not before the gathering time.
func TestRing_gathersForATimeThenTakesOne(t *testing.T) {
	r := newRing(t)
	if r.noMinWait {
		t.Skip("kernel before 6.12 cannot gather")
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pr.Close()
	defer pw.Close()
	if err := r.Files([]int32{int32(pr.Fd())}); err != nil {
		t.Fatal(err)
	}
	if err := r.Enable(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	r.Read(0, b, 1)
	if err := r.Enter(Wait{}); err != nil {
		t.Fatal(err)
	}
	if _, err := pw.Write([]byte{7}); err != nil {
		t.Fatal(err)
	}
	from := monotonic(t)
	const gather = 5 * time.Millisecond
	if err := r.Enter(Wait{Completions: 8, Until: from + 10*time.Second, Gather: gather}); err != nil {
		t.Fatal(err)
	}
	if took := monotonic(t) - from; took < gather || took > 5*time.Second {
		t.Errorf("waited %v, want %v and not much more", took, gather)
	}
	if c, ok := r.Next(); !ok || c.Res != 1 || b[0] != 7 {
		t.Errorf("completion %+v (%v), byte %d", c, ok, b[0])
	}
}
