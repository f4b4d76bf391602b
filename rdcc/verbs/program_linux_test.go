package verbs

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestProgram_noDevice: the real program on the real libibverbs. Where there is a device, another name than its own is asked for.
func TestProgram_noDevice(t *testing.T) {
	program, _ := compiled(t)
	_, _, err := Start(t.Context(), Options{Device: "none7", GIDIndex: -1, Command: []string{program}}, func(Report) {})
	if err == nil {
		t.Fatal("a device none7 was opened")
	}
	want := []string{"OPEN", "ibv_get_device_list", "errno", "no RDMA device on this host", "modprobe rdma_rxe"}
	if n, _ := os.ReadDir("/sys/class/infiniband"); len(n) > 0 {
		want = []string{"OPEN", `no RDMA device "none7"`, n[0].Name()}
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

// TestProgram_withoutSocket: started by hand it says what it is, and ends.
func TestProgram_withoutSocket(t *testing.T) {
	program, _ := compiled(t)
	out, err := exec.Command(program).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "pcmlab rdcc") {
		t.Errorf("%v: %q", err, out)
	}
}

func TestProgram_transfers(t *testing.T) {
	for _, row := range []struct {
		name, how, why   string
		length           uint64
		segment          uint32
		wantRDMA, region int
	}{
		{"one_segment", "", "a short message is one RDMA message", 2048, 4096, 1, 0},
		{"many_segments", "", "the last one is shorter", 1<<20 + 1, 4096, 257, 0},
		{"inline", "", "octets that fit into the work request", 200, 200, 1, 0},
		{"no_inline", "noinline", "a NIC without inline data gets none", 200, 200, 1, 0},
		{"longer_than_region", "", "the memory is used again and again, and a segment never crosses its end", 1 << 20, 3000, 350, 8192},
		{"small_queue", "small", "few queue pairs where the device has short queues", 1 << 16, 4096, 16, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			p, d, r, err := fakeProgram(t, row.how, Options{GIDIndex: -1, Address: netip.MustParseAddr("192.0.2.1"), Region: row.region})
			if err != nil {
				t.Fatal(err)
			}
			if d.Name != "fake0" || d.GID != netip.MustParseAddr("192.0.2.1") || d.GIDIndex != 1 || d.MTU != 1024 {
				t.Errorf("device %+v", d)
			}
			a, b := pair(t, p, d)
			if err := p.Post(Range{QP: a.QP, Message: 77, UpTo: row.length, Segment: row.segment, Immediate: 0xfffffe}); err != nil {
				t.Fatal(err)
			}
			all := r.until(t, "all octets", func(all []Report) bool {
				n, _ := octets(all, b.QP)
				acked := uint64(0)
				for _, x := range all {
					if x.Kind == Acked && x.Message == 77 {
						acked = x.UpTo
					}
				}
				return n >= row.length && acked == row.length
			})
			n, rdma := octets(all, b.QP)
			if n != row.length || rdma != row.wantRDMA {
				t.Errorf("%d octets in %d RDMA messages arrived, want %d in %d", n, rdma, row.length, row.wantRDMA)
			}
			last := uint32(0)
			for _, x := range all {
				switch x.Kind {
				case Failed, Complaint, Ended:
					t.Errorf("%v", x.Err)
				case Arrived:
					last = x.Last
				}
			}
			if want := uint32(0xfffffe+row.wantRDMA-1) & 0xffffff; last != want {
				t.Errorf("last immediate %#x, want %#x: they count RDMA messages in 24 bits", last, want)
			}
		})
	}
}

// TestProgram_emptyMessages: a message that ends early keeps the sequence numbers that were promised.
func TestProgram_emptyMessages(t *testing.T) {
	p, d, r, err := fakeProgram(t, "", Options{GIDIndex: 1})
	if err != nil {
		t.Fatal(err)
	}
	a, b := pair(t, p, d)
	err = errors.Join(
		p.Post(Range{QP: a.QP, Message: 1, UpTo: 5000, Segment: 4096, Immediate: 10}),
		p.Post(Range{QP: a.QP, Message: 1, From: 5000, UpTo: 5000, Segment: 4096, Immediate: 12, Empty: 30}),
		p.Post(Range{QP: a.QP, Message: 2, UpTo: 100, Segment: 4096, Immediate: 42}))
	if err != nil {
		t.Fatal(err)
	}
	all := r.until(t, "33 RDMA messages", func(all []Report) bool { _, rdma := octets(all, b.QP); return rdma >= 33 })
	if n, rdma := octets(all, b.QP); n != 5100 || rdma != 33 {
		t.Errorf("%d octets in %d RDMA messages, want 5100 in 33", n, rdma)
	}
}

// TestProgram_paces: at no time has more left than the window in the time that it takes at the rate.
func TestProgram_paces(t *testing.T) {
	const unit = 1024
	for _, row := range []struct {
		name    string
		segment uint32
		why     string
	}{
		{"five_units", 5 * unit, "two segments fill the window"},
		{"eight_units", 8 * unit, "a second one does not fit: decision 18 allows them all the same"},
		{"one_unit", unit, "ten"},
		{"parts", 100, "more than the window's memory has entries"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p, d, r, err := fakeProgram(t, "", Options{GIDIndex: 1})
			if err != nil {
				t.Fatal(err)
			}
			a, b := pair(t, p, d)
			const rate, window = 400e6, 10 * unit
			nic, err := p.PaceAsk(t.Context(), a.QP, window, rate)
			if err != nil || nic {
				t.Fatalf("NIC %v, %v", nic, err)
			}
			const length = 100 * unit
			if err := p.Post(Range{QP: a.QP, Message: 1, UpTo: length, Segment: row.segment}); err != nil {
				t.Fatal(err)
			}
			all := r.until(t, "all octets", func(all []Report) bool { n, _ := octets(all, b.QP); return n >= length })
			var posts []Report
			for _, x := range all {
				if x.Kind == Posted {
					posts = append(posts, x)
				}
			}
			took := time.Duration(window * 8 * 1e9 / rate)
			for i := range posts {
				from := uint64(0)
				if i > 0 {
					from = posts[i-1].UpTo
				}
				for j := i; j < len(posts) && posts[j].At < posts[i].At+took; j++ {
					if n := posts[j].UpTo - from; n > window {
						t.Fatalf("%d octets within %v: the window has %d", n, posts[j].At-posts[i].At, window)
					}
				}
			}
		})
	}
}

// TestProgram_nicRate: a NIC that can hold the rate does, unless it was told not to; what it refuses is paced here.
func TestProgram_nicRate(t *testing.T) {
	for _, row := range []struct {
		name   string
		rate   int64
		no     bool
		want   bool
		reason string
	}{
		{"within", 50e6, false, true, "10 kbit/s to 100 Gbit/s"},
		{"below", 1000, false, false, "less than the NIC's least"},
		{"refused", 13000, false, false, "the NIC says EINVAL"},
		{"not_wanted", 50e6, true, false, "Options.NoRate"},
		{"none", 0, false, false, "no rate"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p, d, _, err := fakeProgram(t, "rate", Options{GIDIndex: 1, NoRate: row.no})
			if err != nil {
				t.Fatal(err)
			}
			if (d.RateMax == 100e9) == row.no {
				t.Errorf("the NIC's rates are %d to %d", d.RateMin, d.RateMax)
			}
			a, _ := pair(t, p, d)
			if nic, err := p.PaceAsk(t.Context(), a.QP, 10240, row.rate); err != nil || nic != row.want {
				t.Errorf("NIC %v, %v, want %v: %s", nic, err, row.want, row.reason)
			}
		})
	}
}

// TestProgram_closes: a queue pair that is closed while it has work leaves the others alone.
func TestProgram_closes(t *testing.T) {
	p, d, r, err := fakeProgram(t, "", Options{GIDIndex: 1, MaxQPs: 4})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := pair(t, p, d)
	c, e := pair(t, p, d)
	if _, err := p.Make(t.Context(), d); err == nil || !strings.Contains(err.Error(), "4 queue pairs are all") {
		t.Errorf("a fifth queue pair: %v", err)
	}
	if _, err := p.PaceAsk(t.Context(), a.QP, 1024, 1000); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Post(Range{QP: a.QP, Message: 1, UpTo: 1 << 20, Segment: 1024}), p.CloseQP(t.Context(), a.QP)); err != nil {
		t.Fatal(err)
	}
	if err := p.CloseQP(t.Context(), a.QP); err == nil || !strings.Contains(err.Error(), "no queue pair") {
		t.Errorf("closed twice: %v", err)
	}
	if err := p.Post(Range{QP: c.QP, Message: 1, UpTo: 4096, Segment: 1024}); err != nil {
		t.Fatal(err)
	}
	r.until(t, "the other pair's octets", func(all []Report) bool { n, _ := octets(all, e.QP); return n == 4096 })
	if _, err := p.Make(t.Context(), d); err != nil {
		t.Errorf("there is room again: %v", err)
	}
}

// TestProgram_errors: each names the device, the call, the errno and what to do.
func TestProgram_errors(t *testing.T) {
	at := netip.MustParseAddr("192.0.2.1")
	for _, row := range []struct {
		name, how string
		o         Options
		errno     syscall.Errno
		want      string
	}{
		{"no_device", "nodevice", Options{GIDIndex: 1}, syscall.ENODEV, "no RDMA device on this host"},
		{"other_device", "", Options{Device: "mlx5_0", GIDIndex: 1}, syscall.ENODEV, `no RDMA device "mlx5_0": this host has fake0`},
		{"not_allowed", "noopen", Options{GIDIndex: 1}, syscall.EACCES, "fake0: ibv_open_device: Permission denied (errno 13): may this user open /dev/infiniband/uverbs*?"},
		{"no_such_address", "", Options{GIDIndex: -1, Address: netip.MustParseAddr("192.0.2.9")}, syscall.ENODEV, "no RDMA device has the address"},
		{"no_such_address_there", "", Options{Device: "fake0", GIDIndex: -1, Address: netip.MustParseAddr("192.0.2.9")}, syscall.EADDRNOTAVAIL, "fake0: port 1 has no RoCE v2 GID of the address"},
		{"nothing_said", "", Options{GIDIndex: -1}, syscall.EINVAL, "neither a GID index nor an address"},
		{"no_such_index", "", Options{GIDIndex: 9}, syscall.ENODATA, "fake0: ibv_query_gid_ex: No data available (errno 61): is there a GID of that index?"},
		{"version_one", "", Options{GIDIndex: 0}, syscall.EPROTOTYPE, "fake0: GID index 0 is not of RoCE v2"},
		{"down", "down", Options{GIDIndex: 1}, syscall.ENETDOWN, "fake0: port 1 is PORT_DOWN: is its interface up"},
		{"port", "", Options{GIDIndex: 1, Port: 2}, syscall.EINVAL, "fake0: ibv_query_gid_ex"},
		{"memory", "noreg", Options{GIDIndex: -1, Address: at}, syscall.ENOMEM, "fake0: ibv_reg_mr: Cannot allocate memory (errno 12): may so much memory be locked? ulimit -l"},
		{"completions", "nocq", Options{GIDIndex: 1}, syscall.ENOMEM, "fake0: ibv_create_cq: Cannot allocate memory"},
		{"region", "", Options{GIDIndex: 1, Region: 1}, syscall.EBADMSG, "region not 4096 octets to 64 GiB"},
		{"long_name", "", Options{Device: strings.Repeat("x", 64), GIDIndex: 1}, 0, "the name is too long"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, _, _, err := fakeProgram(t, row.how, row.o)
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("%v: want an Error", err)
			}
			if e.Errno != row.errno || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v (%d): want %q (%d)", err, e.Errno, row.want, row.errno)
			}
		})
	}
}

func TestProgram_errorsOfQueuePairs(t *testing.T) {
	p, d, _, err := fakeProgram(t, "noqp", Options{GIDIndex: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Make(t.Context(), d); err == nil || !strings.Contains(err.Error(), "fake0: ibv_create_qp: Invalid argument (errno 22): too many queue pairs") {
		t.Errorf("%v", err)
	}
	p, d, _, err = fakeProgram(t, "noroute", Options{GIDIndex: 1})
	if err != nil {
		t.Fatal(err)
	}
	a, err := p.Make(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Connect(t.Context(), a, a, Path{}); !errors.Is(err, syscall.ETIMEDOUT) || !strings.Contains(err.Error(), "ibv_modify_qp to RTR") || !strings.Contains(err.Error(), "ping") {
		t.Errorf("%v", err)
	}
}

// TestProgram_failures: a completion or a post that fails is told once, the queue pair is dead, the others go on.
func TestProgram_failures(t *testing.T) {
	for _, row := range []struct{ name, how, want string }{
		{"completion", "badwc=5", "fake0: completion on queue pair 0x11: transport retry counter exceeded (status 12, vendor 0x0): the peer does not answer"},
		{"post", "badpost=2", "fake0: ibv_post_send on queue pair 0x11: Bad address (errno 14)"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p, d, r, err := fakeProgram(t, row.how, Options{GIDIndex: 1})
			if err != nil {
				t.Fatal(err)
			}
			a, _ := pair(t, p, d)
			if err := p.Post(Range{QP: a.QP, Message: 1, UpTo: 1 << 20, Segment: 1024}); err != nil {
				t.Fatal(err)
			}
			r.until(t, "FAILED", func(all []Report) bool { return count(all, Failed) > 0 })
			if err := p.Post(Range{QP: a.QP, Message: 1, UpTo: 1 << 20, Segment: 1024}); err != nil {
				t.Fatal(err)
			}
			all := r.until(t, "the refusal", func(all []Report) bool { return count(all, Complaint) > 0 })
			for _, x := range all {
				if x.Kind == Failed && (x.QP != a.QP || !strings.Contains(x.Err.Error(), row.want)) {
					t.Errorf("queue pair %#x: %v, want %q", x.QP, x.Err, row.want)
				}
				if x.Kind == Complaint && !strings.Contains(x.Err.Error(), "has failed") {
					t.Errorf("%v", x.Err)
				}
			}
			c, e := pair(t, p, d)
			if err := p.Post(Range{QP: c.QP, Message: 2, UpTo: 3000, Segment: 1024}); err != nil {
				t.Fatal(err)
			}
			all = r.until(t, "the other pair's octets", func(all []Report) bool { n, _ := octets(all, e.QP); return n == 3000 })
			if n := count(all, Failed); n != 1 {
				t.Errorf("FAILED %d times", n)
			}
		})
	}
}

func count(all []Report, k ReportKind) (n int) {
	for _, r := range all {
		if r.Kind == k {
			n++
		}
	}
	return n
}
