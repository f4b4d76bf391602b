package analysis

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/capture/roce"
)

// Run reads the inputs once, merged by time, and returns the document. What is wrong with a capture (cut, corrupt,
// dropped packets, blind) is said in the document's quality; an error means that there is no document: an option is
// wrong, a file cannot be opened or is no capture, or ctx ended.
func Run(ctx context.Context, inputs []Input, o Options) (*Document, error) {
	if len(inputs) == 0 {
		return nil, errors.New("analysis: no capture given")
	}
	o, err := o.resolved()
	if err != nil {
		return nil, fmt.Errorf("analysis: %w", err)
	}
	r := run{o: o, engine: newEngine(o)}
	defer r.close()
	for i, in := range inputs {
		s, err := openSource(in, i)
		if err != nil {
			return nil, fmt.Errorf("analysis: %w", err)
		}
		r.sources = append(r.sources, s)
	}
	if err := r.judged(ctx); err != nil {
		return nil, fmt.Errorf("analysis: %w", err)
	}
	up, err := r.upstream(ctx)
	if err != nil {
		return nil, fmt.Errorf("analysis: %w", err)
	}
	doc := &Document{Schema: Schema, Files: []File{}}
	r.engine.finish(doc)
	if up != nil {
		doc.Path = r.engine.path(up)
	}
	r.quality(doc)
	doc.Checks = checks(doc, &o)
	return doc, nil
}

type run struct {
	o       Options
	engine  *engine
	sources []*source
}

func (r *run) close() {
	for _, s := range r.sources {
		if s.reader != nil {
			s.reader.Close()
		}
	}
}

// contextEvery is how many packets are read between two looks at the context.
const contextEvery = 1 << 12

// judged feeds the engine from all judged captures, oldest packet first.
func (r *run) judged(ctx context.Context) error {
	var live []*source
	for _, s := range r.sources {
		if s.in.Role != Judged {
			continue
		}
		ok, err := s.next()
		if err != nil {
			return err
		}
		if ok {
			live = append(live, s)
		}
	}
	var f roce.Frame
	for n := 0; len(live) > 0; n++ {
		if n%contextEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		first := 0
		for i := 1; i < len(live); i++ {
			if live[i].packet.TimeNS < live[first].packet.TimeNS {
				first = i
			}
		}
		s := live[first]
		if err := s.decode(&f, r.o.UDPPort); err != nil {
			return err
		}
		if !s.packet.NoTime {
			r.engine.frame(s.packet.TimeNS, &f, s.packet.Data, s.index<<16|s.packet.Iface)
		}
		ok, err := s.next()
		if err != nil {
			return err
		}
		if !ok {
			live = append(live[:first], live[first+1:]...)
		}
	}
	return nil
}

// upstream counts the packets of the upstream taps, file by file; nil when there are none.
func (r *run) upstream(ctx context.Context) (*tapCounter, error) {
	var c *tapCounter
	var f roce.Frame
	for _, s := range r.sources {
		if s.in.Role == Judged {
			continue
		}
		if c == nil {
			c = &tapCounter{}
		}
		for n := 0; ; n++ {
			if n%contextEvery == 0 && ctx.Err() != nil {
				return nil, ctx.Err()
			}
			ok, err := s.next()
			if err != nil {
				return nil, err
			}
			if !ok {
				break
			}
			if err := s.decode(&f, r.o.UDPPort); err != nil {
				return nil, err
			}
			c.frame(&f, s.index)
		}
	}
	return c, nil
}

// source is one input while it is read.
type source struct {
	in     Input
	index  int
	reader capture.Reader // nil when not even the file header was there
	packet capture.Packet

	file       File
	lastNS     int64
	ifacePkts  []int64
	incomplete string // why, when the file ended early
	noTime     int64
}

func openSource(in Input, index int) (*source, error) {
	if in.Role != Judged && in.Role != Upstream {
		return nil, fmt.Errorf("capture %s: role %q: must be empty (judged) or %q", in.Path, in.Role, Upstream)
	}
	s := &source{in: in, index: index}
	r, err := capture.OpenSequence(append([]string{in.Path}, in.More...)...)
	var cut *capture.IncompleteError
	switch {
	case errors.As(err, &cut):
		s.cutAt(cut.Path, cut.Offset, cut.Detail)
	case err != nil:
		return nil, err
	}
	s.reader = r
	return s, nil
}

// cutAt notes where reading ended; path is that of the file of the sequence which was being read.
func (s *source) cutAt(path string, offset int64, why string) {
	s.file.TruncatedAt = &offset
	if len(s.in.More) > 0 {
		why = "of " + path + ": " + why
	}
	s.incomplete = why
}

// next reads a packet; ok is false at the end of the good part.
func (s *source) next() (ok bool, err error) {
	if s.reader == nil {
		return false, nil
	}
	p := &s.packet
	if err := s.reader.Next(p); err != nil {
		var cut *capture.IncompleteError
		var format *capture.FormatError
		switch {
		case err == io.EOF:
		case errors.As(err, &cut):
			s.cutAt(cut.Path, cut.Offset, cut.Detail)
		case errors.As(err, &format) && s.file.Packets > 0:
			s.cutAt(format.Path, format.Offset, format.Detail)
		default:
			return false, err
		}
		return false, nil
	}
	f := &s.file
	f.Packets++
	f.Bytes += int64(p.OrigLen)
	if p.OrigLen > len(p.Data) {
		f.SnaplenLimited = true
	}
	for len(s.ifacePkts) <= p.Iface {
		s.ifacePkts = append(s.ifacePkts, 0)
	}
	s.ifacePkts[p.Iface]++
	if p.NoTime {
		s.noTime++
		return true, nil
	}
	switch {
	case f.FirstNS == nil:
		f.FirstNS, f.LastNS = new(int64), new(int64)
		*f.FirstNS, *f.LastNS = p.TimeNS, p.TimeNS
	case p.TimeNS < s.lastNS:
		f.OutOfOrder++
		*f.FirstNS = min(*f.FirstNS, p.TimeNS)
	default:
		*f.LastNS = max(*f.LastNS, p.TimeNS)
	}
	s.lastNS = p.TimeNS
	return true, nil
}

func (s *source) decode(f *roce.Frame, port uint16) error {
	p := &s.packet
	if err := f.Decode(p.LinkType, p.Data, p.OrigLen, port); err != nil {
		return fmt.Errorf("capture %s: packet %d: %w", s.in.Path, s.file.Packets, err)
	}
	if f.Kind == roce.KindRoCE {
		s.file.RoCEPackets++
	}
	return nil
}
