package opaque

import "time"

// Path is what all messages to one receiver share: its round-trip time and the congestion window.
type Path struct {
	Srtt, rttvar time.Duration
	backoff      uint // doublings of the timeout
	minRTO       time.Duration
	packet       uint64 // octets of a full one

	window, threshold uint64 // octets
	inFlight          uint64
	largest           uint64 // the window's bound

	order     uint64 // of transmissions
	roundEnd  uint64 // the order at which a round of the marks ends
	seen, ce  uint64 // packets in this round
	marked    float64
	recovery  uint64 // losses of what was sent before are one
	reduction uint64 // counts windows that were made smaller
}

const (
	firstWindow = 32 // packets; credit bounds what all senders begin with together
	leastWindow = 2
	markGain    = 1.0 / 16 // of DCTCP
	firstRTO    = 50 * time.Millisecond
	mostRTO     = time.Second
)

// NewPath is a path of which nothing is known. packet is the payload of a full packet, most the largest window in packets;
// minRTO bounds the timeout from below.
func NewPath(packet, most int, minRTO time.Duration) *Path {
	p := uint64(packet)
	return &Path{packet: p, window: firstWindow * p, threshold: 1 << 60, largest: uint64(most) * p, minRTO: minRTO}
}

// Room is how many octets may be transmitted now.
func (p *Path) Room() uint64 { return p.window - min(p.window, p.inFlight) }

// Window is the congestion window in octets.
func (p *Path) Window() uint64 { return p.window }

// rto is the timeout.
func (p *Path) rto() time.Duration {
	t := firstRTO
	if p.Srtt > 0 {
		t = max(p.Srtt+4*p.rttvar, p.minRTO)
	}
	return min(t<<min(p.backoff, 10), max(mostRTO, p.minRTO))
}

func (p *Path) sample(rtt time.Duration) {
	rtt = max(rtt, time.Microsecond)
	if p.Srtt == 0 {
		p.Srtt, p.rttvar = rtt, rtt/2
		return
	}
	p.rttvar += ((p.Srtt - rtt).Abs() - p.rttvar) / 4
	p.Srtt += (rtt - p.Srtt) / 8
}

// acked grows the window, and once a round adjusts it to the marks.
func (p *Path) acked(octets, packets, ce, order uint64) {
	p.backoff = 0
	if p.window < p.threshold {
		p.window += octets
	} else {
		p.window += max(p.packet*octets/p.window, 1)
	}
	p.window = min(p.window, p.largest)
	p.seen, p.ce = p.seen+packets, p.ce+ce
	if order < p.roundEnd || p.seen == 0 {
		return
	}
	p.marked += markGain * (float64(p.ce)/float64(p.seen) - p.marked)
	if p.ce > 0 {
		p.reduce(1 - p.marked/2)
	}
	p.seen, p.ce, p.roundEnd = 0, 0, p.order
}

// lost halves the window once for what was in flight together.
func (p *Path) lost(order uint64) {
	if order < p.recovery {
		return
	}
	p.recovery = p.order
	p.reduce(0.5)
}

func (p *Path) reduce(by float64) {
	p.window = max(uint64(float64(p.window)*by), leastWindow*p.packet)
	p.threshold = p.window
	p.reduction++
}

// timeout begins anew.
func (p *Path) timeout() {
	p.backoff++
	p.threshold = max(p.window/2, leastWindow*p.packet)
	p.window = leastWindow * p.packet
	p.recovery = p.order
	p.reduction++
}
