package softnic

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/internal/testwait"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

func TestServe_leavesNothingBehind(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	dir := t.TempDir()
	c := Config{Device: "softnic0", Netdev: "lo", IP: netip.MustParsePrefix("127.77.1.1/8"), MAC: "02:00:00:00:00:01", MTU: 1500,
		RateBps: 1e9, Socket: filepath.Join(dir, "softnic0.sock"), Sysfs: filepath.Join(dir, "sys")}
	if l, err := net.Listen("unix", filepath.Join(dir, "warm")); err == nil { // the runtime opens its poller once
		l.Close()
	}
	before := openFiles(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, c, nil) }()
	var d perftest.Device
	testwait.For(t, 20*time.Second, "the NIC", func() (ok bool) { // its socket is there a moment before it listens
		var err error
		d, err = Verbs{Dir: dir}.Open("softnic0")
		return err == nil
	})
	q, err := d.CreateQP(perftest.QPOptions{BufferSize: 4096, GIDIndex: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Connect(perftest.QPInfo{QPN: 5, GID: netip.MustParseAddr("::ffff:127.77.1.9").As16()}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	// The client sees the death as an error, not as silence.
	if _, err := q.Completions(t.Context(), 10*time.Second); err == nil || !strings.Contains(err.Error(), "stopped or died") {
		t.Errorf("Completions after the NIC's death: %v", err)
	}
	if err := q.Close(); err != nil {
		t.Errorf("Close after the NIC's death: %v", err)
	}
	d.Close()
	if _, err := os.Stat(c.Socket); err == nil {
		t.Error("the socket is still there")
	}
	if _, err := os.Stat(filepath.Join(c.Sysfs, "softnic0")); err == nil {
		t.Error("the sysfs view is still there")
	}
	goleak.VerifyNone(t, ignore)
	if after := openFiles(t); after > before {
		t.Errorf("%d open files, %d before", after, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	e, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(e)
}

func TestClient_deathDestroysItsQueuePairs(t *testing.T) {
	dir := t.TempDir()
	c := startNIC(t, dir, "softnic0", "127.77.2.1", nil)
	d := openDevice(t, dir, "softnic0")
	for range 3 {
		if _, err := d.CreateQP(perftest.QPOptions{BufferSize: 4096, GIDIndex: 1}); err != nil {
			t.Fatal(err)
		}
	}
	count := func() int {
		k, err := DialControl(c.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		s, err := k.Show()
		if err != nil {
			t.Fatal(err)
		}
		return s.QPCount
	}
	if n := count(); n != 3 {
		t.Errorf("%d queue pairs, want 3", n)
	}
	d.(*device).conn.c.Close() // what the kernel does when a process is killed
	testwait.For(t, 20*time.Second, "no queue pairs", func() bool { return count() == 0 })
}

func TestWrites_failAsOnRealNICs(t *testing.T) {
	dir := t.TempDir()
	startNIC(t, dir, "softnic0", "127.77.3.1", nil)
	cb := startNIC(t, dir, "softnic1", "127.77.3.2", nil)
	a, b := openDevice(t, dir, "softnic0"), openDevice(t, dir, "softnic1")
	o := perftest.QPOptions{BufferSize: 8192, Timeout: 8, RetryCount: 2, GIDIndex: 1}
	for _, tc := range []struct {
		name   string
		change func(remote *perftest.QPInfo)
		want   perftest.WCStatus
	}{
		{"wrong_key", func(r *perftest.QPInfo) { r.RKey ^= 1 }, perftest.WCRemAccessErr},
		{"beyond_the_region", func(r *perftest.QPInfo) { r.VA += 4097 }, perftest.WCRemAccessErr},
		{"no_such_queue_pair", func(r *perftest.QPInfo) { r.QPN ^= 0x800000 }, perftest.WCRetryExcErr},
		{"no_such_host", func(r *perftest.QPInfo) { r.GID = netip.MustParseAddr("::ffff:127.77.3.77").As16() }, perftest.WCRetryExcErr},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x, err := a.CreateQP(o)
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			y, err := b.CreateQP(o)
			if err != nil {
				t.Fatal(err)
			}
			defer y.Close()
			remote := y.Local()
			tc.change(&remote)
			if err := errors.Join(x.Connect(remote), y.Connect(x.Local())); err != nil {
				t.Fatal(err)
			}
			if err := x.PostWrites(2, 4096); err != nil {
				t.Fatal(err)
			}
			_, err = x.Completions(t.Context(), 20*time.Second)
			var wc *perftest.WCError
			if !errors.As(err, &wc) || wc.Status != tc.want {
				t.Errorf("completion: %v, want status %d", err, tc.want)
			}
		})
	}
	if m := counters(t, cb); m["resp_remote_access_errors"] != 2 || m["rx_unknown_qp_packets"] == 0 || m["rx_payload_bytes"] != 0 {
		t.Errorf("counters %v", m)
	}
}

func TestClient_refusals(t *testing.T) {
	dir := t.TempDir()
	c := startNIC(t, dir, "softnic0", "127.77.4.1", nil)
	v := Verbs{Dir: dir}
	var missing *perftest.NoDeviceError
	if _, err := v.Open("mlx5_0"); !errors.As(err, &missing) || len(missing.Known) != 1 {
		t.Errorf("Open of no device: %v", err)
	}
	if names, err := v.Devices(); err != nil || len(names) != 1 || names[0] != "softnic0" {
		t.Errorf("Devices() = %v, %v", names, err)
	}
	d := openDevice(t, dir, "softnic0")
	if i := d.Info(); i.ActiveMTU != 4096 || len(i.GIDs) != 2 || i.GIDs[1].GID != netip.MustParseAddr("::ffff:127.77.4.1") {
		t.Errorf("Info() = %+v", i)
	}
	for _, tc := range []struct {
		name string
		o    perftest.QPOptions
		want string
	}{
		{"gid_index", perftest.QPOptions{BufferSize: 1, GIDIndex: 9}, "GID index 9"},
		{"mtu_odd", perftest.QPOptions{BufferSize: 1, MTU: 1500}, "MTU 1500"},
		{"mtu_large", perftest.QPOptions{BufferSize: 1, MTU: 8192}, "at most 4096"},
		{"no_buffer", perftest.QPOptions{}, "at least one byte"},
		{"retry_count", perftest.QPOptions{BufferSize: 1, RetryCount: 8}, "retry count 8"},
		{"timeout", perftest.QPOptions{BufferSize: 1, Timeout: 32}, "timeout 32"},
	} {
		if _, err := d.CreateQP(tc.o); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: CreateQP: %v, want %q in it", tc.name, err, tc.want)
		}
	}
	q, err := d.CreateQP(perftest.QPOptions{BufferSize: 4096, TxDepth: 4})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.PostWrites(1, 1); err == nil {
		t.Error("PostWrites before Connect passed")
	}
	if err := q.Connect(perftest.QPInfo{GID: netip.MustParseAddr("fe80::1").As16()}); err == nil || !strings.Contains(err.Error(), "GID index 1") {
		t.Errorf("Connect to a link-local GID: %v", err)
	}
	if err := q.Connect(perftest.QPInfo{GID: netip.MustParseAddr("::ffff:127.77.4.9").As16()}); err != nil {
		t.Fatal(err)
	}
	if err := q.PostWrites(5, 1); err == nil {
		t.Error("more than the queue's depth passed")
	}
	if err := q.PostWrites(1, 4097); err == nil {
		t.Error("more than the buffer passed")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Completions(ctx, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("Completions with a cancelled context: %v", err)
	}
	if n, err := q.Completions(t.Context(), time.Millisecond); n != 0 || err != nil {
		t.Errorf("Completions at the timeout: %d, %v", n, err)
	}
	waiting := make(chan error)
	go func() { _, err := q.Completions(t.Context(), time.Minute); waiting <- err }()
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	if err := <-waiting; err == nil {
		t.Error("Close did not end a waiting Completions")
	}
	err = Serve(t.Context(), c, nil)
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a second NIC on the address: %v", err)
	}
	c.IP = netip.MustParsePrefix("127.77.4.2/8")
	c.Sysfs = ""
	if err = Serve(t.Context(), c, nil); err == nil || !strings.Contains(err.Error(), "another NIC listens there") {
		t.Errorf("a second NIC on the socket: %v", err)
	}
}

// TestServe_survivesHostileClients: what a client sends cannot end the NIC.
func TestServe_survivesHostileClients(t *testing.T) {
	dir := t.TempDir()
	c := startNIC(t, dir, "softnic0", "127.77.5.1", nil)
	dialRaw := func() *net.UnixConn {
		u, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: c.Socket, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { u.Close() })
		return u
	}
	ask := func(msg []byte, oob []byte) string {
		u := dialRaw()
		if _, _, err := u.WriteMsgUnix(msg, oob, nil); err != nil {
			t.Fatal(err)
		}
		_ = u.SetReadDeadline(time.Now().Add(5 * time.Second))
		b := make([]byte, 1<<16)
		n, _ := u.Read(b)
		return string(b[:n])
	}
	create, _ := json.Marshal(request{Op: "create_qp", CreateQP: &createRequest{Size: 1 << 20, SendDepth: 1}})
	plain, err := os.Create(filepath.Join(dir, "plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	small, mem, err := sharedMemory(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(small)
	defer unix.Munmap(mem)
	for _, tc := range []struct {
		name string
		msg  []byte
		oob  []byte
		want string
	}{
		{"no_json", []byte("hello"), nil, "request:"},
		{"unknown_op", []byte(`{"op":"format_disk"}`), nil, "unknown"},
		{"without_arguments", []byte(`{"op":"connect"}`), nil, "without its arguments"},
		{"no_memory", create, nil, "one memory descriptor"},
		{"a_plain_file", create, unix.UnixRights(int(plain.Fd())), "sealed"},
		{"memory_too_small", create, unix.UnixRights(small), "4096 bytes"},
		{"negative_size", []byte(`{"op":"create_qp","create_qp":{"size":-1}}`), unix.UnixRights(small), "-1 bytes"},
		{"destroy_of_another", []byte(`{"op":"destroy_qp","qpn":17}`), nil, "not on this connection"},
		{"rate_zero", []byte(`{"op":"set","set":{"rate_bps":0}}`), nil, "rate_bps 0"},
	} {
		if got := ask(tc.msg, tc.oob); !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q in it", tc.name, got, tc.want)
		}
	}
	u := dialRaw()
	_, _ = u.Write(postMessage{qpn: 99, count: 1 << 31, size: 1}.append(nil)) // no such queue pair
	if counters(t, c)["rx_roce_packets"] != 0 {
		t.Error("packets from nowhere")
	}
}

func TestControl_set(t *testing.T) {
	dir := t.TempDir()
	c := startNIC(t, dir, "softnic0", "127.77.6.1", nil)
	k, err := DialControl(c.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	off, rate := false, int64(123456789)
	if err := k.Set(Settings{DCQCN: &off, RateBps: &rate}); err != nil {
		t.Fatal(err)
	}
	s, err := k.Show()
	if err != nil {
		t.Fatal(err)
	}
	if s.DCQCN || s.RateBps != rate || s.Schema != "pcmlab/nic/v1" || s.PathMTU != 4096 {
		t.Errorf("show after set: %+v", s)
	}
	if err := k.Set(Settings{ResetLateness: true}); err != nil {
		t.Error(err)
	}
	if l, err := k.Lateness(); err != nil || l.Samples != 0 {
		t.Errorf("lateness of an idle NIC: %+v, %v: want no samples", l, err)
	}
	if _, err := DialControl(filepath.Join(dir, "nobody.sock")); err == nil || !strings.Contains(err.Error(), "pcmlab nic serve") {
		t.Errorf("no NIC: %v", err)
	}
}
