package capture

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// tap is a running capture. One goroutine owns it: the one that called RunTap, in whose network namespace the socket lives.
type tap struct {
	o      TapOptions
	ring   *ring
	file   *os.File
	w      *Writer
	wakeFD int // eventfd that ends poll when ctx is done
	stats  TapStats

	statsRead time.Time // when the kernel's counters were read last; they have 32 bits
	flushed   time.Time

	done              []tapFile // closed and still there
	number            int       // of the open file
	received, dropped uint64    // of stats, as told in the statistics of closed files
}

// tapFile is a file of a ring.
type tapFile struct {
	path    string
	packets uint64
	bytes   int64
}

// RunTap captures from an interface into a pcapng file until ctx is done or o.For has passed. It blocks, in the network
// namespace of the calling thread, and owns everything that it opens. Stopping loses nothing that arrived before: it waits one
// retire time, closes the filter, reads the ring to its end, and writes the drop statistics. Being stopped is no error.
//
// On an error (a full disk, an interface that vanished) the file holds what was captured so far, in whole blocks, and the returned
// TapStats say how much that is.
func RunTap(ctx context.Context, o TapOptions) (TapStats, error) {
	o, err := o.withDefaults()
	if err != nil {
		return TapStats{}, err
	}
	r, err := openRing(o)
	if err != nil {
		return TapStats{}, err
	}
	defer r.close()
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return TapStats{}, fmt.Errorf("capture on %s: eventfd: %w", o.Iface, err)
	}
	t := &tap{o: o, ring: r, wakeFD: wake, stats: TapStats{Schema: "pcmlab/tap/v1", Iface: o.Iface, File: o.File,
		LinkType: r.link, Snaplen: o.Snaplen, Filter: o.Filter, RingBytes: r.block * r.blocks}}
	if err := t.open(); err != nil {
		unix.Close(wake)
		return TapStats{}, err
	}
	if o.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.For)
		defer cancel()
	}
	// The callback writes to wakeFD, so that it must have ended before the descriptor is closed and its number reused.
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_, _ = unix.Write(wake, binary.NativeEndian.AppendUint64(nil, 1))
	})
	err = t.run(ctx)
	if !stop() {
		<-woken
	}
	unix.Close(wake)
	err = t.finish(err)
	line, jerr := json.Marshal(t.stats)
	if jerr == nil {
		_, jerr = o.Stats.Write(append(line, '\n'))
	}
	return t.stats, errors.Join(err, jerr)
}

// run goes from the file header to the last packet.
func (t *tap) run(ctx context.Context) error {
	if err := t.header(); err != nil {
		return err
	}
	t.statsRead = time.Now()
	if err := t.ring.bind(); err != nil {
		return err
	}
	fmt.Fprintf(t.o.Ready, "listening on %s\n", t.o.Iface)
	for ctx.Err() == nil {
		if err := t.step(time.Second); errors.Is(err, errVanished) {
			return errors.Join(err, t.drain()) // its last packets are still in the ring
		} else if err != nil {
			return err
		}
	}
	return t.drain()
}

// open makes the next file.
func (t *tap) open() (err error) {
	t.number++
	if t.file, err = os.Create(t.path()); err != nil {
		return fmt.Errorf("capture on %s: %w", t.o.Iface, err)
	}
	return nil
}

// path is the name of the open file.
func (t *tap) path() string {
	if t.o.FileSize == 0 {
		return t.o.File
	}
	ext := filepath.Ext(t.o.File)
	return fmt.Sprintf("%s_%05d%s", strings.TrimSuffix(t.o.File, ext), t.number, ext)
}

// header writes it into the open file, before the first packet.
func (t *tap) header() (err error) {
	host, _ := os.Hostname()
	t.w, err = NewWriter(t.file, WriterOptions{Buffer: t.o.Buffer, OS: "Linux", Hardware: host, Interfaces: []Interface{
		{Name: t.o.Iface, Description: t.o.Description, LinkType: t.ring.link, Snaplen: t.o.Snaplen}}})
	if err != nil {
		return err
	}
	return t.flush()
}

// rotate closes the open file, with its share of the statistics, and goes on in the next. One too many goes first.
func (t *tap) rotate() error {
	if err := t.count(); err != nil {
		return err
	}
	if err := t.writeStats(); err != nil {
		return t.writeError(err)
	}
	if err := t.file.Close(); err != nil {
		return t.writeError(err)
	}
	t.done = append(t.done, tapFile{t.path(), t.w.WrittenPackets(), t.w.Written()})
	if t.o.Files > 0 && len(t.done) >= t.o.Files {
		old := t.done[0]
		if err := os.Remove(old.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return t.writeError(err)
		}
		t.done = t.done[1:]
		t.stats.Packets -= old.packets
		t.stats.Overwritten += old.packets
	}
	if err := t.open(); err != nil {
		return err
	}
	return t.header()
}

// writeStats ends the open file with what the kernel counted since the file before it.
func (t *tap) writeStats() error {
	s := &t.stats
	if err := t.w.WriteStats(0, time.Now().UnixNano(), s.Received-t.received, s.Dropped-t.dropped); err != nil {
		return err
	}
	t.received, t.dropped = s.Received, s.Dropped
	return t.w.Flush()
}

// errVanished: the interface was deleted, or moved to another network namespace.
var errVanished = errors.New("the interface vanished")

// drain takes what had arrived when the tap was stopped: what the kernel holds back is handed over after one retire time.
func (t *tap) drain() error {
	for end := time.Now().Add(t.o.Retire); time.Now().Before(end); {
		if err := t.step(time.Until(end)); err != nil {
			return err
		}
	}
	if err := t.ring.deafen(); err != nil {
		return err
	}
	// The block that is open now is handed over after at most one more retire time; a busy machine may be late.
	for end := time.Now().Add(10*t.o.Retire + time.Second); time.Now().Before(end); {
		if err := t.step(t.o.Retire); err != nil {
			return err
		}
		if err := t.count(); err != nil {
			return err
		}
		if t.stats.Packets+t.stats.Overwritten+t.stats.Dropped >= t.stats.Received {
			return nil
		}
	}
	return nil
}

// step takes the blocks that are ready, at most a ring full; when there are none it waits for the next or for wait.
func (t *tap) step(wait time.Duration) error {
	took := 0
	for ; took < t.ring.blocks; took++ {
		ok, err := t.ring.read(t.packet)
		if err != nil {
			return t.writeError(err)
		}
		if !ok {
			break
		}
	}
	now := time.Now()
	if now.Sub(t.statsRead) > time.Second {
		if err := t.count(); err != nil {
			return err
		}
	}
	if took > 0 {
		return nil
	}
	if t.w.Buffered() > 0 && now.Sub(t.flushed) > time.Second { // a reader of the growing file sees the last second
		if err := t.flush(); err != nil {
			return err
		}
	}
	return t.wait(wait)
}

// wait sleeps until a block is ready, the tap is stopped, the interface changes or d has passed.
func (t *tap) wait(d time.Duration) error {
	fds := [2]unix.PollFd{{Fd: int32(t.ring.fd), Events: unix.POLLIN}, {Fd: int32(t.wakeFD), Events: unix.POLLIN}}
	ms := int((d + time.Millisecond - 1) / time.Millisecond)
	if _, err := unix.Poll(fds[:], max(ms, 0)); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("capture on %s: poll: %w", t.o.Iface, err)
	}
	if fds[1].Revents != 0 { // so that the waits while draining are waits again
		var b [8]byte
		_, _ = unix.Read(t.wakeFD, b[:])
	}
	if fds[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) == 0 {
		return nil
	}
	switch err := t.ring.socketError(); {
	case err == nil:
	case errors.Is(err, unix.ENETDOWN) && t.ring.present():
		t.stats.InterfaceDown++ // the kernel binds the socket again when the interface comes up
	case errors.Is(err, unix.ENETDOWN):
		return fmt.Errorf("capture on %s: %w: %w", t.o.Iface, errVanished, err)
	default:
		return fmt.Errorf("capture on %s: %w", t.o.Iface, err)
	}
	return nil
}

// packet writes one packet of the ring, with its VLAN tag back in place.
func (t *tap) packet(p *ringPacket) error {
	a, b, c, orig := p.data, []byte(nil), []byte(nil), p.origLen
	if p.tagged && len(a) >= 12 && t.ring.link == roce.LinkEthernet {
		keep := min(len(a), max(12, t.o.Snaplen-4)) // the tag must not push the packet over the snap length
		a, b, c, orig = a[:12], p.tag[:], a[12:keep], orig+4
	}
	const block = 36 // an enhanced packet block around the data, its padding included
	if n := int64(len(a) + len(b) + len(c) + block); t.o.FileSize > 0 && t.w.WrittenPackets() > 0 && t.w.Written()+int64(t.w.Buffered())+n > t.o.FileSize {
		if err := t.rotate(); err != nil {
			return err
		}
	}
	if err := t.w.write(0, p.timeNS, orig, a, b, c); err != nil {
		return err
	}
	s := &t.stats
	if h := t.ring.nic; h != nil && p.byNIC {
		h.clock.Stamped++
	} else if h != nil {
		h.clock.Others++
	}
	s.Packets++
	s.Bytes += uint64(orig)
	s.CapturedBytes += uint64(len(a) + len(b) + len(c))
	if s.FirstNS == nil {
		s.FirstNS, s.LastNS = new(int64), new(int64)
		*s.FirstNS, *s.LastNS = p.timeNS, p.timeNS
	}
	*s.FirstNS = min(*s.FirstNS, p.timeNS)
	*s.LastNS = max(*s.LastNS, p.timeNS)
	return nil
}

// count adds the kernel's counters to ours: reading resets them.
func (t *tap) count() error {
	packets, drops, freezes, err := t.ring.statistics()
	if err != nil {
		return err
	}
	t.statsRead = time.Now()
	t.stats.Received += packets
	t.stats.Dropped += drops
	t.stats.RingFreezes += freezes
	return nil
}

func (t *tap) flush() error {
	t.flushed = time.Now()
	if err := t.w.Flush(); err != nil {
		return t.writeError(err)
	}
	return nil
}

// finish writes the statistics and closes the file; after an error it cuts the file behind the last whole block.
func (t *tap) finish(err error) error {
	if cerr := t.count(); err == nil {
		err = cerr
	}
	if h := t.ring.nic; h != nil {
		clock, herr := h.stop()
		if t.stats.Clock = clock; err == nil {
			err = herr
		}
	}
	if t.w != nil && t.w.err == nil {
		if werr := t.writeStats(); werr != nil && err == nil {
			err = t.writeError(werr)
		}
	}
	if t.w != nil {
		packets := t.w.WrittenPackets()
		t.stats.FileBytes = t.w.Written()
		for _, f := range t.done {
			packets += f.packets
			t.stats.FileBytes += f.bytes
			t.stats.Files = append(t.stats.Files, filepath.Base(f.path))
		}
		if t.o.FileSize > 0 {
			t.stats.Files = append(t.stats.Files, filepath.Base(t.path()))
		}
		if t.w.err != nil {
			// What did not reach the file is no captured packet.
			t.stats.Packets = packets
			_ = t.file.Truncate(t.w.Written())
		}
	}
	if cerr := t.file.Close(); err == nil && cerr != nil {
		err = t.writeError(cerr)
	}
	if s := &t.stats; s.Received > s.Packets+s.Overwritten+s.Dropped {
		s.Unaccounted = s.Received - s.Packets - s.Overwritten - s.Dropped
	}
	return err
}

func (t *tap) writeError(err error) error {
	hint := ""
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		hint = "; free some space, or keep less of each packet with --snaplen"
	}
	return fmt.Errorf("capture on %s: %w (kept %d packets in %d bytes%s)", t.o.Iface, err, t.w.WrittenPackets(), t.w.Written(), hint)
}
