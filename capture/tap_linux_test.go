package capture

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/internal/testwait"
)

// numbered is a frame for the RoCE port of size bytes with a number in it, tagged in the data as given.
func numbered(i, size int, v6 bool, tags ...uint16) []byte {
	b := frameTo(v6, roce.Port, tags...)
	b = append(b, make([]byte, max(0, size-len(b)))...)
	binary.BigEndian.PutUint32(b[len(b)-4:], uint32(i))
	at := 12 + 4*len(tags) + 2
	if !v6 {
		binary.BigEndian.PutUint16(b[at+2:], uint16(len(b)-at))
		binary.BigEndian.PutUint32(b[at+24+16:], uint32(i)) // BTH's PSN and so on: inside every snap length
	} else {
		binary.BigEndian.PutUint16(b[at+4:], uint16(len(b)-at-40))
	}
	return b
}

func readFile(t testing.TB, path string) ([]rec, Reader) {
	t.Helper()
	r := must[Reader](t)(Open(path))
	defer r.Close()
	recs, err := readAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return recs, r
}

// Every packet for RoCE that was sent is in the file, in order, tagged as it was on the wire, cut to the snap length with its
// original length, at times that do not go back; everything else is not.
func TestRunTap_capturesWhatTheFilterAsks(t *testing.T) {
	if !inNetns(t) {
		return
	}
	vethPair(t, "tap0", "peer0")
	s := newSender(t, "peer0")
	var frames, want [][]byte
	for i := range 4000 {
		f := numbered(i, 60+i%3000, i%4 == 1)
		switch i % 5 {
		case 1:
			f = numbered(i, 60+i%3000, i%4 == 1, 0x8100) // the kernel moves this tag out of the packet
		case 2:
			f = numbered(i, 60+i%3000, i%4 == 1, 0x88a8, 0x8100)
		case 3:
			f = frameTo(i%2 == 0, 53)
		}
		frames = append(frames, f)
		if i%5 != 3 {
			want = append(want, f)
		}
	}
	const snap = 128
	var out bytes.Buffer
	o := TapOptions{Iface: "tap0", File: filepath.Join(t.TempDir(), "tap.pcapng"), Snaplen: snap, Filter: "roce", Stats: &out, Description: "towards peer0"}
	stats, err := runTap(t, o, func(ctx context.Context) error { return s.send(frames) })
	if err != nil {
		t.Fatal(err)
	}
	got, r := readFile(t, o.File)
	if len(got)+int(stats.Dropped) != len(want) || stats.Dropped != 0 {
		t.Fatalf("%d packets in the file, %d dropped, %d sent", len(got), stats.Dropped, len(want))
	}
	bytesOnWire := 0
	for i, g := range got {
		bytesOnWire += len(want[i])
		if w := want[i]; g.Data != string(w[:min(len(w), snap)]) || g.OrigLen != len(w) {
			t.Fatalf("packet %d: %d of %d bytes: %x, want %x (%d)", i, len(g.Data), g.OrigLen, g.Data, w[:min(len(w), snap)], len(w))
		}
		if i > 0 && g.TimeNS < got[i-1].TimeNS {
			t.Errorf("packet %d: time goes back by %d ns", i, got[i-1].TimeNS-g.TimeNS)
		}
	}
	if d := time.Since(time.Unix(0, got[0].TimeNS)); d < 0 || d > time.Minute {
		t.Errorf("first packet was %v ago", d)
	}
	if diff := cmp.Diff([]Interface{{"tap0", "towards peer0", roce.LinkEthernet, snap, 0}}, r.Interfaces()); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
	st := r.Stats()
	if len(st) != 1 || *st[0].Received != uint64(len(want)) || *st[0].Dropped != 0 {
		t.Errorf("statistics block %+v", st)
	}
	info := must[os.FileInfo](t)(os.Stat(o.File))
	wantStats := TapStats{Schema: "pcmlab/tap/v1", Iface: "tap0", File: o.File, LinkType: 1, Snaplen: snap, Filter: "roce", Packets: uint64(len(want)),
		Bytes: uint64(bytesOnWire), CapturedBytes: stats.CapturedBytes, Received: uint64(len(want)), FirstNS: &got[0].TimeNS,
		LastNS: &got[len(got)-1].TimeNS, FileBytes: info.Size(), RingBytes: 32 << 20}
	var printed TapStats
	if err := json.Unmarshal(out.Bytes(), &printed); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantStats, printed); diff != "" {
		t.Errorf("printed statistics (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(printed, stats); diff != "" {
		t.Errorf("returned statistics (-printed +returned):\n%s", diff)
	}
}

// On loopback every packet passes twice; it is taken once.
func TestRunTap_loopback(t *testing.T) {
	if !inNetns(t) {
		return
	}
	setLink(t, "lo", true)
	c := must[net.Conn](t)(net.Dial("udp", "127.0.0.1:4791"))
	defer c.Close()
	o := TapOptions{Iface: "lo", File: filepath.Join(t.TempDir(), "tap.pcapng"), Filter: "roce"}
	stats, err := runTap(t, o, func(context.Context) error {
		for range 3 { // nobody listens: the answer to a packet is an error of the next
			_, _ = c.Write(make([]byte, 100))
		}
		return nil
	})
	if err != nil || stats.Packets < 1 || stats.Packets > 3 {
		t.Fatalf("%+v, %v", stats, err)
	}
	got, _ := readFile(t, o.File)
	seen := map[string]bool{}
	for _, g := range got {
		id := g.Data[18:20] // IPv4 identification
		if seen[id] {
			t.Errorf("a packet was taken twice")
		}
		seen[id] = true
	}
}

// The same without any privilege outside: root only inside a user namespace.
func TestRunTap_rootless(t *testing.T) {
	if os.Getenv(inUserNamespace) == "" {
		againInUserNamespace(t)
		return
	}
	vethPair(t, "tap0", "peer0")
	s := newSender(t, "peer0")
	o := TapOptions{Iface: "tap0", File: filepath.Join(t.TempDir(), "tap.pcapng")}
	stats, err := runTap(t, o, func(ctx context.Context) error {
		return s.send([][]byte{numbered(0, 64, false), numbered(1, 4096, false)})
	})
	if err != nil || stats.Packets != 2 || stats.Bytes != uint64(len(numbered(0, 64, false)))+4096 {
		t.Errorf("%+v, %v", stats, err)
	}
}

// O17: whatever arrived before the stop is in the file, however soon after the last packet the stop comes.
func TestRunTap_stopLosesNothing(t *testing.T) {
	if !inNetns(t) {
		return
	}
	vethPair(t, "tap0", "peer0")
	s := newSender(t, "peer0")
	for _, n := range []int{0, 1, 2, 63, 500, 5000, 1, 17} {
		var frames [][]byte
		for i := range n {
			frames = append(frames, numbered(i, 200, false))
		}
		o := TapOptions{Iface: "tap0", File: filepath.Join(t.TempDir(), "tap.pcapng"), Filter: "roce", Blocks: 4, Retire: 50 * time.Millisecond}
		stats, err := runTap(t, o, func(ctx context.Context) error { return s.send(frames) })
		got, r := readFile(t, o.File)
		if err != nil || len(got) != n || stats.Packets != uint64(n) || stats.Unaccounted != 0 || len(r.Stats()) != 1 {
			t.Errorf("%d sent, %d in the file, %+v, %v", n, len(got), stats, err)
		}
		if (stats.FirstNS == nil) != (n == 0) {
			t.Errorf("%d sent, first packet at %v", n, stats.FirstNS)
		}
	}
}

// A ring that is too small loses packets, and says exactly how many.
func TestRunTap_countsDrops(t *testing.T) {
	if !inNetns(t) {
		return
	}
	vethPair(t, "tap0", "peer0")
	s := newSender(t, "peer0")
	const n = 60000
	frames := make([][]byte, n)
	for i := range frames {
		frames[i] = numbered(i, 1500, false)
	}
	o := TapOptions{Iface: "tap0", File: filepath.Join(t.TempDir(), "tap.pcapng"), Filter: "roce", Snaplen: 1000, BlockSize: 4096, Blocks: 2, Buffer: 4096}
	stats, err := runTap(t, o, func(ctx context.Context) error { return s.send(frames) })
	if err != nil {
		t.Fatal(err)
	}
	got, r := readFile(t, o.File)
	if stats.Received != n || stats.Packets+stats.Dropped != n || stats.Unaccounted != 0 || uint64(len(got)) != stats.Packets {
		t.Errorf("%d sent, %d in the file: %+v", n, len(got), stats)
	}
	if st := r.Stats(); len(st) != 1 || *st[0].Received != n || *st[0].Dropped != stats.Dropped {
		t.Errorf("statistics block %+v, dropped %d", st, stats.Dropped)
	}
	if stats.Dropped == 0 {
		t.Error("a ring of 8 KiB dropped nothing: the test shows nothing")
	}
	last := -1
	for _, g := range got {
		if i := int(binary.BigEndian.Uint32([]byte(g.Data)[54:])); i <= last {
			t.Fatalf("packet %d after %d", i, last)
		} else {
			last = i
		}
	}
}

// A ring holds what a tap does not read for seconds, though each of its blocks goes over, nearly empty, when its time is up. (On a machine with
// little memory the ring is smaller; this one has more.)
func TestRing_outlastsAPause(t *testing.T) {
	if !inNetns(t) {
		return
	}
	vethPair(t, "tap0", "peer0")
	s := newSender(t, "peer0")
	o := must[TapOptions](t)(TapOptions{Iface: "tap0", File: "none", Filter: "roce", Snaplen: 128}.withDefaults())
	r := must[*ring](t)(openRing(o))
	defer r.close()
	if err := r.bind(); err != nil {
		t.Fatal(err)
	}
	const n = 100
	tick := time.NewTicker(o.Retire + 5*time.Millisecond) // each packet finds the block of the one before handed over
	defer tick.Stop()
	for i := range n {
		<-tick.C
		if err := s.send([][]byte{numbered(i, 100, false)}); err != nil {
			t.Fatal(err)
		}
	}
	got := 0
	testwait.For(t, 10*time.Second, "the packets in the ring", func() bool {
		for {
			ok, err := r.read(func(*ringPacket) error { got++; return nil })
			if err != nil || !ok {
				return err != nil || got >= n
			}
		}
	})
	if _, drops, _, err := r.statistics(); err != nil || drops != 0 || got != n {
		t.Errorf("%d of %d packets, %d dropped, %v", got, n, drops, err)
	}
}

func TestRunTap_interfaceGoesDownAndVanishes(t *testing.T) {
	if !inNetns(t) {
		return
	}
	vethPair(t, "tap0", "peer0")
	s := newSender(t, "peer0")
	ns := must[*netlink.Handle](t)(netlink.NewHandle()) // its socket belongs to this namespace, whichever goroutine uses it
	defer ns.Close()
	link := must[netlink.Link](t)(ns.LinkByName("tap0"))
	o := TapOptions{Iface: "tap0", File: filepath.Join(t.TempDir(), "tap.pcapng"), Filter: "roce"}
	stats, err := runTap(t, o, func(ctx context.Context) error {
		if err := s.send([][]byte{numbered(0, 100, false)}); err != nil {
			return err
		}
		if err := errors.Join(ns.LinkSetDown(link), ns.LinkSetUp(link)); err != nil {
			return err
		}
		for ctx.Err() == nil { // the peer's carrier comes back a little later
			if l, err := ns.LinkByName("peer0"); err != nil || l.Attrs().OperState == netlink.OperUp {
				return errors.Join(err, s.send([][]byte{numbered(1, 100, false)}))
			}
		}
		return ctx.Err()
	})
	if err != nil || stats.Packets != 2 || stats.InterfaceDown == 0 {
		t.Errorf("down and up: %+v, %v", stats, err)
	}
	stats, err = runTap(t, o, func(ctx context.Context) error {
		if err := s.send([][]byte{numbered(0, 100, false)}); err != nil {
			return err
		}
		if err := ns.LinkDel(link); err != nil {
			return err
		}
		<-ctx.Done() // the tap must end by itself
		return nil
	})
	if err == nil || !errors.Is(err, unix.ENETDOWN) || !strings.Contains(err.Error(), "tap0: the interface vanished") {
		t.Errorf("vanished: %+v, %v", stats, err)
	}
	if got, _ := readFile(t, o.File); len(got) != 1 || stats.Packets != 1 {
		t.Errorf("%d packets kept, %+v", len(got), stats)
	}
}

func TestRunTap_errors(t *testing.T) {
	if !inNetns(t) {
		return
	}
	vethPair(t, "tap0", "peer0")
	setLink(t, "peer0", false)
	dir := t.TempDir()
	ok := TapOptions{Iface: "tap0", File: filepath.Join(dir, "f")}
	for _, tt := range []struct {
		name, want string
		edit       func(*TapOptions)
	}{
		{"no_interface", `interface ""`, func(o *TapOptions) { o.Iface = "" }},
		{"absent", `interface "eth9": no such device (there are: lo`, func(o *TapOptions) { o.Iface = "eth9" }},
		{"long_name", `interface name "a-name-that-is-too-long"`, func(o *TapOptions) { o.Iface = "a-name-that-is-too-long" }},
		{"down", `"peer0" is down (bring it up: ip link set peer0 up)`, func(o *TapOptions) { o.Iface = "peer0" }},
		{"filter", `term "tcp"`, func(o *TapOptions) { o.Filter = "tcp" }},
		{"snaplen", "snap length 5: want 14", func(o *TapOptions) { o.Snaplen = 5 }},
		{"block", "ring block of 5000 bytes", func(o *TapOptions) { o.BlockSize = 5000 }},
		{"folder", "no such file or directory", func(o *TapOptions) { o.File = filepath.Join(dir, "absent", "f") }},
		{"full", "no space left on device (kept 0 packets in 0 bytes; free some space", func(o *TapOptions) { o.File = "/dev/full" }},
	} {
		o := ok
		tt.edit(&o)
		if _, err := RunTap(t.Context(), o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	o := ok
	o.For = time.Millisecond
	if stats, err := RunTap(context.Background(), o); err != nil || stats.Packets != 0 || stats.FirstNS != nil {
		t.Errorf("a tap for 1 ms: %+v, %v", stats, err)
	}
}

// A disk that fills up while packets come: the error says so, and the file is a whole one of what was kept.
func TestRunTap_diskFillsUp(t *testing.T) {
	if !inNetns(t) {
		return
	}
	vethPair(t, "tap0", "peer0")
	s := newSender(t, "peer0")
	dir := t.TempDir()
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k")); err != nil {
		t.Skipf("needs a small file system: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	frames := make([][]byte, 2000)
	for i := range frames {
		frames[i] = numbered(i, 1000, false)
	}
	o := TapOptions{Iface: "tap0", File: filepath.Join(dir, "tap.pcapng"), Buffer: 50_000}
	stats, err := runTap(t, o, func(ctx context.Context) error { return s.send(frames) })
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), fmt.Sprintf("kept %d packets in %d bytes", stats.Packets, stats.FileBytes)) {
		t.Errorf("%v", err)
	}
	got, _ := readFile(t, o.File)
	if info := must[os.FileInfo](t)(os.Stat(o.File)); uint64(len(got)) != stats.Packets || info.Size() != stats.FileBytes || len(got) < 100 {
		t.Errorf("%d packets in %d bytes, %+v", len(got), info.Size(), stats)
	}
}

func BenchmarkRunTap(b *testing.B) {
	for _, bb := range []struct{ size, snap int }{{64, 0}, {4096, 128}, {4096, 0}} {
		b.Run(fmt.Sprintf("size=%d/snaplen=%d", bb.size, bb.snap), func(b *testing.B) {
			if !inNetns(b) {
				return
			}
			vethPair(b, "tap0", "peer0")
			s := newSender(b, "peer0")
			frames := make([][]byte, 1024)
			for i := range frames {
				frames[i] = numbered(i, bb.size, false)[:max(bb.size, 60)]
			}
			o := TapOptions{Iface: "tap0", File: filepath.Join(b.TempDir(), "tap.pcapng"), Filter: "roce", Snaplen: bb.snap}
			sent := 0
			var took time.Duration
			stats, err := runTap(b, o, func(ctx context.Context) error {
				start := time.Now()
				for sent = 0; sent < b.N; sent += len(frames) {
					if err := s.send(frames); err != nil {
						return err
					}
				}
				took = time.Since(start)
				return nil
			})
			if err != nil || stats.Unaccounted != 0 || stats.Received != uint64(sent) {
				b.Fatalf("%d sent: %+v, %v", sent, stats, err)
			}
			b.ReportMetric(float64(stats.Packets)/took.Seconds()/1e3, "kpkts/s")
			b.ReportMetric(float64(stats.Dropped)/float64(sent)*100, "%dropped")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// A ring of files: each begins before it would become too long, the oldest goes, and what is left reads as one capture whose statistics, with
// what went, account for every packet.
func TestRunTap_ringOfFiles(t *testing.T) {
	if !inNetns(t) {
		return
	}
	vethPair(t, "tap0", "peer0")
	s := newSender(t, "peer0")
	for _, tt := range []struct {
		name        string
		files       int // 0: all stay
		most        int
		overwritten bool
	}{{"all", 0, 99, false}, {"four", 4, 4, true}} {
		var frames [][]byte
		for i := range 5000 {
			frames = append(frames, numbered(i, 200, false))
		}
		dir := t.TempDir()
		o := TapOptions{Iface: "tap0", File: filepath.Join(dir, "tap.pcapng"), Snaplen: 128, Filter: "roce", FileSize: 100_000, Files: tt.files}
		stats, err := runTap(t, o, func(ctx context.Context) error { return s.send(frames) })
		if err != nil {
			t.Fatal(err)
		}
		paths := must[[]string](t)(filepath.Glob(filepath.Join(dir, "*")))
		var names []string
		total := int64(0)
		for _, p := range paths {
			names = append(names, filepath.Base(p))
			st := must[os.FileInfo](t)(os.Stat(p))
			if total += st.Size(); st.Size() > o.FileSize+200 { // the statistics at its end
				t.Errorf("%s: %s has %d bytes", tt.name, p, st.Size())
			}
		}
		if diff := cmp.Diff(names, stats.Files); diff != "" || len(names) < 2 || len(names) > tt.most || total != stats.FileBytes {
			t.Errorf("%s: files %v of %d bytes, statistics say %v of %d bytes", tt.name, names, total, stats.Files, stats.FileBytes)
		}
		if stats.Received != 5000 || stats.Packets+stats.Overwritten+stats.Dropped != 5000 || stats.Unaccounted != 0 || (stats.Overwritten > 0) != tt.overwritten {
			t.Errorf("%s: %+v", tt.name, stats)
		}
		r := must[Reader](t)(OpenSequence(paths...))
		recs := must[[]rec](t)(readAll(r))
		if uint64(len(recs)) != stats.Packets || recs[len(recs)-1].Data != string(frames[4999][:128]) {
			t.Errorf("%s: %d packets read, %d in the statistics", tt.name, len(recs), stats.Packets)
		}
		if last := r.Stats()[len(r.Stats())-1]; !tt.overwritten && *last.Received != 5000 {
			t.Errorf("%s: statistics of all files say %d received", tt.name, *last.Received)
		}
		r.Close()
	}
}

func TestTapOptions_ring(t *testing.T) {
	for _, tt := range []struct {
		size  int64
		files int
		want  string
	}{{0, 0, ""}, {1 << 20, 0, ""}, {1 << 20, 2, ""}, {1000, 0, "files of 1000 bytes: want at least 65536"}, {0, 3, "with a file size"}, {1 << 20, 1, "want 2 to 99999"}} {
		_, err := TapOptions{Iface: "x", File: "y", FileSize: tt.size, Files: tt.files}.withDefaults()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%d bytes, %d files: %v, want %q", tt.size, tt.files, err, tt.want)
		}
	}
}
