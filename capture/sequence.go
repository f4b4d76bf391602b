package capture

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// sequenceOverlap is how far the first packet of a file may lie before the last one of the file before it. The packets of
// several receive queues are a few milliseconds out of order at a change of files; more is another tap's file.
const sequenceOverlap = 100 * time.Millisecond

// sequence reads the files of one tap that follow each other in time as one capture.
type sequence struct {
	paths []string // in the order of reading
	next  int      // index of the path after the open one
	cur   Reader   // nil before the first file and when all were read

	ifaces  []Interface
	alike   map[ifaceKey][]int // indexes into ifaces
	index   []int              // interface of the open file to one of ifaces
	kinds   map[ifaceKey]int   // how many of the open file's interfaces are alike
	stats   []Stats
	seen    int           // statistics of the open file that are in stats
	last    map[int]Stats // per interface: the newest of stats
	sums    map[int]Stats // what last was when the open file began
	lastNS  int64         // newest packet so far
	checked bool          // the open file's first packet was held against lastNS
	offset  int64         // of the last file, when it is closed
	ended   error
}

var _ Reader = (*sequence)(nil)

// ifaceKey is what makes interfaces of two files the same one.
type ifaceKey struct {
	name    string
	link    roce.LinkType
	snaplen int
}

// OpenSequence reads several files of one tap, as a ring buffer of dumpcap or tcpdump leaves them, as one capture. They may
// be given in any order: the time of the first packet orders them, and files without a packet come last. One file is
// open at a time.
//
// Interfaces of the same name, link type and snap length are one interface in Interfaces, and its statistics are the
// sum over the files. Offset and errors are those of the file that is being read; a file that was cut ends the sequence,
// and the error says how many files after it were not read. A file that begins more than 100 ms before the one before it
// ended belongs to another tap and ends the sequence with a *FormatError.
func OpenSequence(paths ...string) (Reader, error) {
	if len(paths) == 0 {
		return nil, errors.New("capture: a sequence of no files")
	}
	if len(paths) == 1 {
		return Open(paths[0])
	}
	type member struct {
		path  string
		first int64
	}
	members := make([]member, len(paths))
	var mistakes []error
	for i, p := range paths {
		switch {
		case p == Stdin:
			mistakes = append(mistakes, errors.New("capture stdin: cannot be one of several files in sequence (it cannot be read twice)"))
			continue
		case slices.ContainsFunc(members[:i], func(m member) bool { return m.path != "" && filepath.Clean(m.path) == filepath.Clean(p) }):
			mistakes = append(mistakes, fmt.Errorf("capture %s: given twice", p))
			continue
		}
		first, err := firstTime(p)
		if err != nil {
			mistakes = append(mistakes, err)
		}
		members[i] = member{p, first}
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	slices.SortStableFunc(members, func(a, b member) int { return cmp.Compare(a.first, b.first) })
	s := &sequence{alike: map[ifaceKey][]int{}, kinds: map[ifaceKey]int{}, last: map[int]Stats{}, sums: map[int]Stats{}, lastNS: math.MinInt64}
	for _, m := range members {
		s.paths = append(s.paths, m.path)
	}
	if err := s.open(); err != nil {
		return nil, err
	}
	return s, nil
}

// firstTime is the time of a file's first packet that has one; the end of time when there is none. A cut file is no error
// here: reading it will tell.
func firstTime(path string) (int64, error) {
	r, err := Open(path)
	var cut *IncompleteError
	if errors.As(err, &cut) {
		return math.MaxInt64, nil
	} else if err != nil {
		return 0, err
	}
	defer r.Close()
	var p Packet
	for {
		err := r.Next(&p)
		switch {
		case err == nil && !p.NoTime:
			return p.TimeNS, nil
		case err == io.EOF, errors.As(err, &cut):
			return math.MaxInt64, nil
		case err != nil:
			return 0, err
		}
	}
}

// open goes to the next file; io.EOF when there is none.
func (s *sequence) open() error {
	if s.next == len(s.paths) {
		return io.EOF
	}
	r, err := Open(s.paths[s.next])
	s.next++
	if err != nil {
		return s.unread(err)
	}
	s.cur, s.index, s.seen, s.checked = r, s.index[:0], 0, false
	clear(s.kinds)
	maps.Copy(s.sums, s.last)
	return s.follow()
}

// unread adds to a file's error what it costs.
func (s *sequence) unread(err error) error {
	left := len(s.paths) - s.next
	var cut *IncompleteError
	if left == 0 || !errors.As(err, &cut) {
		return err
	}
	more := *cut
	more.Detail += fmt.Sprintf("; %d files of the sequence after it were not read", left)
	return &more
}

// follow takes over the interfaces and statistics that the open file has shown since.
func (s *sequence) follow() error {
	for _, in := range s.cur.Interfaces()[len(s.index):] {
		key := ifaceKey{in.Name, in.LinkType, in.Snaplen}
		n := s.kinds[key] // the n-th of its like in this file is the n-th of its like in all
		s.kinds[key]++
		if n == len(s.alike[key]) {
			if len(s.ifaces) >= maxInterfaces {
				return &IncompleteError{s.paths[s.next-1], s.cur.Offset(), fmt.Sprintf("more than %d interfaces in the sequence", maxInterfaces)}
			}
			s.alike[key] = append(s.alike[key], len(s.ifaces))
			s.ifaces = append(s.ifaces, in)
		}
		s.index = append(s.index, s.alike[key][n])
	}
	stats := s.cur.Stats()
	if s.seen > len(stats) { // the file has so many that its reader forgot the older half
		s.seen = 0
	}
	for ; s.seen < len(stats); s.seen++ {
		st := stats[s.seen]
		st.Iface = s.index[st.Iface]
		st = st.plus(s.sums[st.Iface])
		s.stats = appendStats(s.stats, st)
		s.last[st.Iface] = st
	}
	return nil
}

// plus adds the counts of earlier files; a count that only one of both has stays what it is.
func (st Stats) plus(o Stats) Stats {
	add := func(a, b *uint64) *uint64 {
		if a == nil || b == nil {
			return cmp.Or(a, b)
		}
		sum := *a + *b
		return &sum
	}
	st.Received, st.Dropped = add(st.Received, o.Received), add(st.Dropped, o.Dropped)
	st.FilterAccepted, st.OSDropped = add(st.FilterAccepted, o.FilterAccepted), add(st.OSDropped, o.OSDropped)
	st.Delivered = add(st.Delivered, o.Delivered)
	return st
}

// end rates an error of the open file: nil when reading goes on in the next one.
func (s *sequence) end(err error) error {
	if followErr := s.follow(); followErr != nil {
		err = followErr
	}
	s.offset = s.cur.Offset()
	if err != io.EOF {
		s.ended = s.unread(err)
		return s.ended
	}
	s.cur.Close()
	s.cur = nil
	s.ended = s.open()
	return s.ended
}

// check holds the first packet of a file against the files before it.
func (s *sequence) check(p *Packet) error {
	if p.NoTime {
		return nil
	}
	if !s.checked && s.lastNS != math.MinInt64 && p.TimeNS < s.lastNS-int64(sequenceOverlap) {
		s.ended = &FormatError{s.paths[s.next-1], 0, fmt.Sprintf("begins %v before the end of %s: not the next file of the same tap (give captures of several taps without a sequence)",
			time.Duration(s.lastNS-p.TimeNS), s.paths[s.next-2])}
		return s.ended
	}
	s.checked = true
	s.lastNS = max(s.lastNS, p.TimeNS)
	return nil
}

// Next implements Reader.
func (s *sequence) Next(p *Packet) error {
	for s.ended == nil {
		if err := s.cur.Next(p); err != nil {
			if err = s.end(err); err != nil {
				return err
			}
			continue
		}
		if len(s.index) <= p.Iface {
			if s.ended = s.follow(); s.ended != nil {
				return s.ended
			}
		}
		p.Iface = s.index[p.Iface]
		return s.check(p)
	}
	return s.ended
}

// ReadBatch implements Reader. A batch ends with its file.
func (s *sequence) ReadBatch(b *Batch) error {
	for s.ended == nil {
		if err := s.cur.ReadBatch(b); err != nil {
			if err = s.end(err); err != nil {
				return err
			}
			continue
		}
		if s.ended = s.follow(); s.ended != nil {
			return s.ended
		}
		for i := range b.Packets {
			p := &b.Packets[i]
			p.Iface = s.index[p.Iface]
			if err := s.check(p); err != nil {
				b.Packets = b.Packets[:0]
				return err
			}
		}
		return nil
	}
	return s.ended
}

// appendStats forgets the older half when there are very many: the newest count.
func appendStats(all []Stats, st Stats) []Stats {
	if len(all) >= maxInterfaces {
		all = append(all[:0], all[len(all)/2:]...)
	}
	return append(all, st)
}

func (s *sequence) Interfaces() []Interface { return s.ifaces }
func (s *sequence) Stats() []Stats          { return s.stats }

// Offset is where the next record of the open file starts.
func (s *sequence) Offset() int64 {
	if s.cur == nil {
		return s.offset
	}
	return s.cur.Offset()
}

// Close closes the open file; further calls do nothing.
func (s *sequence) Close() error {
	if s.cur == nil {
		return nil
	}
	c := s.cur
	s.offset, s.cur = c.Offset(), nil
	if s.ended == nil {
		s.ended = fmt.Errorf("capture %s: read after Close", s.paths[s.next-1])
	}
	return c.Close()
}
