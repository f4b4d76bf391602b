package capture

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/testwait"
)

// output is a stream that is read while it is written.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// The programs of others, as they are started and ended on hosts: every packet that the filter asks for is in their files, tagged ones too, and what they say they counted is what is there.
func TestProgram_loseNothing(t *testing.T) {
	if !inNetns(t) {
		return
	}
	vethPair(t, "tap0", "peer0")
	s := newSender(t, "peer0")
	for _, p := range []Program{Tcpdump, Dumpcap} {
		if _, err := exec.LookPath(string(p)); err != nil {
			t.Skipf("no %s on this machine (Debian packages tcpdump, tshark)", p)
		}
		for _, ring := range []int64{0, 1 << 20} {
			dir := t.TempDir()
			o := TapOptions{Iface: "tap0", File: filepath.Join(dir, "tap"+p.Ext()), Snaplen: 1000, Filter: "roce or udp port 50321", FileSize: ring}
			args := p.Args(o)
			cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
			var said output
			cmd.Stderr = &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			testwait.For(t, 20*time.Second, string(p)+" to listen: "+said.String(), func() bool { return strings.Contains(said.String(), p.Ready()) })
			var frames [][]byte
			want := 0
			for i := range 3000 {
				f := numbered(i, 1000, i%2 == 0)
				switch i % 3 {
				case 1:
					f = numbered(i, 1000, i%2 == 0, 0x8100)
				case 2:
					f = frameTo(false, 53)
					want--
				}
				want++
				frames = append(frames, f)
			}
			if err := s.send(frames); err != nil {
				t.Fatal(err)
			}
			files := func() (paths []string, size int64) {
				all, _ := os.ReadDir(dir)
				var names []string
				for _, e := range all {
					names = append(names, e.Name())
				}
				for _, n := range p.Files(o, names) {
					if st, err := os.Stat(filepath.Join(dir, n)); err == nil {
						size += st.Size()
					}
					paths = append(paths, filepath.Join(dir, n))
				}
				return paths, size
			}
			last, since := int64(-1), time.Now()
			testwait.For(t, 30*time.Second, "its files to rest", func() bool {
				_, size := files()
				if size != last {
					last, since = size, time.Now()
				}
				return time.Since(since) > p.Idle()
			})
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%s: %v\n%s", p, err, said.String())
			}
			counts, err := ParseToolCounts(said.String())
			if err != nil {
				t.Fatalf("%s: %v\n%s", p, err, said.String())
			}
			paths, _ := files()
			r, err := OpenSequence(paths...)
			if err != nil {
				t.Fatal(err)
			}
			recs, err := readAll(r)
			r.Close()
			if err != nil {
				t.Fatal(err)
			}
			unread := counts.Unread()
			if len(recs) != want || *counts.Captured != int64(want) || *counts.Dropped != 0 || unread != nil && *unread != 0 || ring > 0 && len(paths) < 2 {
				t.Errorf("%s, files of %d: %d packets in %d files, %d sent; it says %+v:\n%s", p, ring, len(recs), len(paths), want, counts, said.String())
			}
			if ring == 0 && !slices.ContainsFunc(recs, func(r rec) bool { return r.TimeNS%1000 != 0 }) {
				t.Errorf("%s writes microseconds", p)
			}
		}
	}
}
