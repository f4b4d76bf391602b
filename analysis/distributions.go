package analysis

// sampleKind says what a sample of a flow is of.
type sampleKind uint8

const (
	sampleRTT   sampleKind                           = iota
	sampleDelay                                      // from a CE mark to the CNP
	sampleBurst                                      // bytes
	sampleAcked                                      // messages until they were acknowledged or, for READs, answered; by msgKind
	sampleLast  = sampleAcked + sampleKind(msgKinds) // messages until their last packet, where no acknowledgements are seen
	sampleKinds = sampleLast + sampleKind(msgKinds)
)

// flowSamples are a flow's samples of all kinds: in one short list while there are few, then in histograms.
type flowSamples struct {
	few  []uint32 // the kind in the top bits
	hist *[sampleKinds]*histogram
}

const (
	fewSamples  = 32
	sampleBits  = 28 // a larger value, 0.27 s, is none for the list
	sampleValue = 1<<sampleBits - 1
)

func (s *flowSamples) add(kind sampleKind, v int64) {
	if s.hist == nil {
		if len(s.few) < fewSamples && v <= sampleValue {
			if s.few == nil {
				s.few = make([]uint32, 0, fewSamples/4)
			}
			s.few = append(s.few, uint32(kind)<<sampleBits|uint32(max(v, 0)))
			return
		}
		s.hist = new([sampleKinds]*histogram)
		for _, w := range s.few {
			add(&s.hist[w>>sampleBits], int64(w&sampleValue))
		}
		s.few = nil
	}
	add(&s.hist[kind], v)
}

// of is the distribution of a kind; nil without samples.
func (s *flowSamples) of(kind sampleKind) (h *histogram) {
	if s.hist != nil {
		return s.hist[kind]
	}
	for _, w := range s.few {
		if sampleKind(w>>sampleBits) == kind {
			add(&h, int64(w&sampleValue))
		}
	}
	return h
}

// drop forgets the samples of a kind.
func (s *flowSamples) drop(kind sampleKind) {
	if s.hist != nil {
		s.hist[kind] = nil
		return
	}
	n := 0
	for _, w := range s.few {
		if sampleKind(w>>sampleBits) != kind {
			s.few[n] = w
			n++
		}
	}
	s.few = s.few[:n]
}

// messages are the times of messages by kind, and until what they are.
func (s *flowSamples) messages() (byKind [msgKinds]*histogram, until string) {
	until = "ack"
	for k := range byKind {
		byKind[k] = s.of(sampleAcked + sampleKind(k))
	}
	if byKind == ([msgKinds]*histogram{}) {
		until = "last_packet"
		for k := range byKind {
			byKind[k] = s.of(sampleLast + sampleKind(k))
		}
	}
	return byKind, until
}

// sum is all of them together; nil without any.
func sum(parts []*histogram) (all *histogram) {
	for _, h := range parts {
		switch {
		case h == nil:
		case all == nil:
			all = h
		default:
			both := new(histogram)
			both.merge(all)
			both.merge(h)
			all = both
		}
	}
	return all
}
