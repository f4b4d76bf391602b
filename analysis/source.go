package analysis

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/capture/roce"
)

// source is one input while it is read.
type source struct {
	in     Input
	index  int
	reader capture.Reader // nil when not even the file header was there
	ended  bool
	count  int64 // packets read

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
		s.ended = true
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

// read fills b with the next packets; ok is false at the end of the good part. base is how many came before. One
// goroutine at a time.
func (s *source) read(b *capture.Batch) (base int64, ok bool, err error) {
	if s.ended {
		return 0, false, nil
	}
	err = s.reader.ReadBatch(b)
	if err == nil {
		s.put(b)
		base = s.count
		s.count += int64(len(b.Packets))
		return base, true, nil
	}
	s.ended = true
	var cut *capture.IncompleteError
	var format *capture.FormatError
	switch {
	case err == io.EOF:
	case errors.As(err, &cut):
		s.cutAt(cut.Path, cut.Offset, cut.Detail)
	case errors.As(err, &format) && s.count > 0:
		s.cutAt(format.Path, format.Offset, format.Detail)
	default:
		return 0, false, err
	}
	return 0, false, nil
}

// parsed is what one batch of a source came to. It does not need the batch's bytes.
type parsed struct {
	records []record // in file order
	sorted  bool

	packets, bytes, roce int64
	truncated            int64 // RoCE packets cut before the end of their headers
	noTime, outOfOrder   int64
	snapped, timed       bool
	firstNS, lowNS       int64 // of the first packet in file order, and the lowest
	lastNS, highNS       int64
	ifacePkts            []int64
}

// parser decodes batches. Each goroutine has its own.
type parser struct {
	port      uint16
	checkICRC bool
	pairs     pairCache
	sides     *sideStore
	usual     roce.Usual
	frame     roce.Frame
	batch     capture.Batch
	rdcc      *rdccBook // nil: not asked for
}

// parse turns x's batch into records.
func (x *parser) parse(s *source, base int64, p *parsed) error {
	*p = parsed{records: p.records[:0], ifacePkts: p.ifacePkts[:0], sorted: true}
	f := &x.frame
	u := &x.usual
	for i := range x.batch.Packets {
		k := &x.batch.Packets[i]
		p.packets++
		p.bytes += int64(k.OrigLen)
		if k.OrigLen > len(k.Data) {
			p.snapped = true
		}
		if len(p.ifacePkts) <= k.Iface {
			p.ifacePkts = append(p.ifacePkts, make([]int64, k.Iface+1-len(p.ifacePkts))...)
		}
		p.ifacePkts[k.Iface]++
		if k.NoTime {
			p.noTime++
			continue
		}
		p.time(k.TimeNS)
		if k.LinkType == roce.LinkEthernet && u.Decode(k.Data, k.OrigLen, x.port) && u.QP&0xffffff != 1 {
			pair, ok := x.pairs.id4(u.Src, u.Dst)
			if !ok {
				return fmt.Errorf("capture %s: packet %d: %w", s.in.Path, base+p.packets, errPairs)
			}
			p.roce++
			r := p.add(k.TimeNS)
			r.encodeUsual(k.TimeNS, u, max(k.OrigLen, len(k.Data)), pair, s.index<<16|k.Iface)
			if x.checkICRC {
				good, checked := u.CheckICRC(k.Data)
				r.checked(good, checked)
			}
			continue
		}
		if err := f.Decode(k.LinkType, k.Data, k.OrigLen, x.port); err != nil {
			return fmt.Errorf("capture %s: packet %d: %w", s.in.Path, base+p.packets, err)
		}
		switch f.Kind {
		case roce.KindRoCE:
			if err := x.roce(p, k, s.index<<16|k.Iface); err != nil {
				return fmt.Errorf("capture %s: packet %d: %w", s.in.Path, base+p.packets, err)
			}
		case roce.KindTruncated:
			p.truncated++
		case roce.KindOther:
			if x.rdcc == nil {
				continue
			}
			if err := x.rdcc.take(k); err != nil {
				return fmt.Errorf("capture %s: packet %d: %w", s.in.Path, base+p.packets, err)
			}
		case roce.KindPFC, roce.KindPause:
			r := p.add(k.TimeNS)
			*r = record{ts: k.TimeNS, key: k.TimeNS, recFlags: recPause, word: x.sides.put(side{kind: f.Kind, pause: f.Pause})}
		}
	}
	return nil
}

// time notes the time of a packet.
func (p *parsed) time(ts int64) {
	switch {
	case !p.timed:
		p.timed = true
		p.firstNS, p.lowNS, p.highNS = ts, ts, ts
	case ts < p.lastNS:
		p.outOfOrder++
		p.lowNS = min(p.lowNS, ts)
	default:
		p.highNS = max(p.highNS, ts)
	}
	p.lastNS = ts
}

// add makes room for another record.
func (p *parsed) add(ts int64) *record {
	n := len(p.records)
	if n > 0 && ts < p.records[n-1].ts {
		p.sorted = false
	}
	if n == cap(p.records) {
		p.records = append(p.records, record{})
		if n == 0 {
			p.records = make([]record, 1, 2048)
		}
	} else {
		p.records = p.records[:n+1]
	}
	return &p.records[n]
}

// checked notes what the ICRC says. A packet with a wrong one is analysed as it is: the receiver drops it.
func (r *record) checked(good, checked bool) {
	switch {
	case !checked:
	case good:
		r.recFlags |= recICRCGood
	default:
		r.recFlags |= recICRCBad
	}
}

var errPairs = fmt.Errorf("more than %d pairs of addresses: a scan, or not RoCE on this port (analyse a filtered capture: tcpdump -r IN -w OUT host ADDRESS)", maxPairs)

func (x *parser) roce(p *parsed, k *capture.Packet, iface int) error {
	f := &x.frame
	pair, ok := x.pairs.id(&f.Src, &f.Dst)
	if !ok {
		return errPairs
	}
	p.roce++
	r := p.add(k.TimeNS)
	r.encode(k.TimeNS, f, pair, iface)
	if x.checkICRC {
		good, checked := f.CheckICRC(k.Data)
		r.checked(good, checked)
	}
	if f.BTH.Opcode == roce.CNP {
		mac := sourceMAC(k, f)
		r.aeth, r.word = uint32(mac>>32), uint32(mac)
	}
	if f.BTH.DestQP == 1 && f.IsMAD() {
		if mad, _, err := roce.ParseMAD(f.Payload); err == nil {
			if m, ok, err := roce.ParseCM(mad, f.Payload); ok && err == nil {
				r.recFlags |= recSide
				r.word = x.sides.put(side{cm: m})
			}
		}
	}
	return nil
}

// sourceMAC is the source address of an Ethernet frame that was not taken out of a mirror's wrapping; 0 for others.
func sourceMAC(k *capture.Packet, f *roce.Frame) (mac uint64) {
	if k.LinkType != roce.LinkEthernet || f.Mirrored || len(k.Data) < 12 {
		return 0
	}
	for _, b := range k.Data[6:12] {
		mac = mac<<8 | uint64(b)
	}
	return mac
}

// side is what does not fit into a record and is rare.
type side struct {
	kind  roce.Kind
	pause roce.Pause
	cm    roce.CM
}

// sideStore keeps sides between the parser and whoever takes them, by token.
type sideStore struct {
	mu   sync.Mutex
	next uint32
	m    map[uint32]side
}

func (s *sideStore) put(v side) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[uint32]side{}
	}
	s.next++
	s.m[s.next] = v
	return s.next
}

func (s *sideStore) take(token uint32) side {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.m[token]
	delete(s.m, token)
	return v
}

// account adds a batch's counts to the file's, batches in file order.
func (s *source) account(p *parsed) {
	f := &s.file
	f.Packets += p.packets
	f.RoCEPackets += p.roce
	f.Bytes += p.bytes
	f.SnaplenLimited = f.SnaplenLimited || p.snapped
	s.noTime += p.noTime
	for len(s.ifacePkts) < len(p.ifacePkts) {
		s.ifacePkts = append(s.ifacePkts, 0)
	}
	for i, n := range p.ifacePkts {
		s.ifacePkts[i] += n
	}
	if !p.timed {
		return
	}
	if f.FirstNS == nil {
		f.FirstNS, f.LastNS = new(int64), new(int64)
		*f.FirstNS, *f.LastNS = p.lowNS, p.highNS
	} else {
		if p.firstNS < s.lastNS {
			f.OutOfOrder++
		}
		*f.FirstNS, *f.LastNS = min(*f.FirstNS, p.lowNS), max(*f.LastNS, p.highNS)
	}
	f.OutOfOrder += p.outOfOrder
	s.lastNS = p.lastNS
}
