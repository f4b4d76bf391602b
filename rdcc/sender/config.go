package sender

import (
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
)

// Config is what a Machine needs to know. The zero value of each field but LineRate is its documented default.
type Config struct {
	LineRate     int64             // bit/s of the host's link; required
	Capabilities rdcc.Capabilities // advertised; NoCapabilities for none, 0 means POOL, STATUS and CRN

	// BacklogThreshold is a local Backlog Threshold in octets, that counts when it is smaller than each N_cu advertised by
	// a receiver; 0 means that theirs count alone.
	BacklogThreshold uint64
	// Shares are the parts of the host's rate that receivers are suggested, by the Service Hint of what waits for them:
	// none, latency-sensitive, throughput-oriented. All zero means 2, 4, 1.
	Shares [3]uint32

	CRNs  []netip.Prefix // whose reports count; none means that all are ignored (On-Path Congestion Reporting)
	Local []netip.Addr   // this host's data addresses, the Source Address of reports that are for it
	DSCP  DSCP           // of data packets

	OnRefused Refused // what becomes of messages to a receiver that refuses the association (decision 21)

	MaxAssociations int // 0 means 65536
	MaxMessages     int // that are not DONE or ABORTED; 0 means 1048576

	Timing Timing

	// Nonce draws Sender Nonces. Nil means crypto/rand, as the specification demands (Association Establishment).
	Nonce func() uint64
	// Rand draws the start delays. Nil means a PCG seeded by crypto/rand.
	Rand *rand.Rand

	off rdcc.RuleSet // rules that a test has switched off
}

// NoCapabilities in Config.Capabilities advertises nothing. It is a bit of no meaning, that is not sent.
const NoCapabilities rdcc.Capabilities = 1 << 31

// DSCP are the Differentiated Services Code Points of data packets in the domain. Nil is one that the domain does not
// configure: nothing is assumed (decision 27).
type DSCP struct {
	Unscheduled *uint8
	Class       [rdcc.MaxClass + 1]*uint8
}

// Refused says what becomes of messages when a receiver refuses an association twice.
type Refused uint8

// The options of decision 21.
const (
	RefusedFail    Refused = iota // they are ABORTED
	RefusedWithout                // the transport is told to send them without RDCC
)

// Timing has the sender's durations. Zero fields mean the defaults, which are the specification's where it has one.
type Timing struct {
	AssocRetry time.Duration // first wait for ASSOC_ACCEPT, doubled for each of eight attempts; 1 ms
	MinTimeout time.Duration // least request timeout; 100 µs
	MaxTimeout time.Duration // largest request timeout after doubling; 100 ms
	// FirstTimeout is the request timeout before there is any sample of the round trip; 1 ms.
	FirstTimeout time.Duration
	DMax         time.Duration // the domain's largest one-way delay; 1 ms

	// These are patience with people and machines, not with the network, and do not scale.

	GiveUp    time.Duration // without progress a message is cancelled (decision 24); 30 s
	Keepalive time.Duration // silence after which ASSOC_REQUEST keeps an association alive; 3 s, under the receiver's 10 s
	Idle      time.Duration // without messages an association is no longer kept alive; 60 s
	// Without is how long a receiver that never answered is not asked again; 60 s.
	Without time.Duration
}

// Scale multiplies by s what a virtual lab's time scale multiplies. Zero fields become the scaled defaults.
func (t Timing) Scale(s float64) Timing {
	t = t.defaults()
	for _, d := range []*time.Duration{&t.AssocRetry, &t.MinTimeout, &t.MaxTimeout, &t.FirstTimeout, &t.DMax} {
		*d = time.Duration(float64(*d) * s)
	}
	return t
}

func (t Timing) defaults() Timing {
	for _, f := range []struct {
		of *time.Duration
		or time.Duration
	}{
		{&t.AssocRetry, time.Millisecond}, {&t.MinTimeout, 100 * time.Microsecond}, {&t.MaxTimeout, 100 * time.Millisecond},
		{&t.FirstTimeout, time.Millisecond}, {&t.DMax, time.Millisecond}, {&t.GiveUp, 30 * time.Second},
		{&t.Keepalive, 3 * time.Second}, {&t.Idle, time.Minute}, {&t.Without, time.Minute},
	} {
		if *f.of == 0 {
			*f.of = f.or
		}
	}
	return t
}

// resolve checks a copy of the configuration and fills in what is not said.
func (c Config) resolve() (Config, error) {
	var errs []error
	if c.LineRate <= 0 {
		errs = append(errs, fmt.Errorf("line rate %d bit/s: must be more than zero", c.LineRate))
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"AssocRetry", c.Timing.AssocRetry}, {"MinTimeout", c.Timing.MinTimeout}, {"MaxTimeout", c.Timing.MaxTimeout},
		{"FirstTimeout", c.Timing.FirstTimeout}, {"DMax", c.Timing.DMax}, {"GiveUp", c.Timing.GiveUp},
		{"Keepalive", c.Timing.Keepalive}, {"Idle", c.Timing.Idle}, {"Without", c.Timing.Without},
	} {
		if f.d < 0 {
			errs = append(errs, fmt.Errorf("timing: %s %s: must not be less than zero", f.name, f.d))
		}
	}
	c.Timing = c.Timing.defaults()
	if c.Timing.MinTimeout > c.Timing.MaxTimeout {
		errs = append(errs, fmt.Errorf("timing: MinTimeout %s: more than MaxTimeout %s", c.Timing.MinTimeout, c.Timing.MaxTimeout))
	}
	if c.MaxAssociations < 0 || c.MaxAssociations > 1<<slotBits {
		errs = append(errs, fmt.Errorf("%d associations: 1 to %d are possible", c.MaxAssociations, 1<<slotBits))
	}
	if c.MaxMessages < 0 {
		errs = append(errs, fmt.Errorf("%d messages: must not be less than zero", c.MaxMessages))
	}
	if c.OnRefused > RefusedWithout {
		errs = append(errs, fmt.Errorf("on_refused %d: neither fail nor without", c.OnRefused))
	}
	for i, p := range c.CRNs {
		if !p.IsValid() {
			errs = append(errs, fmt.Errorf("address %d of the CRNs is not valid", i))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return c, fmt.Errorf("rdcc sender: %w", err)
	}
	if c.Capabilities == 0 {
		c.Capabilities = rdcc.CapPool | rdcc.CapStatus | rdcc.CapCRN
	}
	c.Capabilities &^= NoCapabilities
	if c.Shares == [3]uint32{} {
		c.Shares = [3]uint32{2, 4, 1}
	}
	if c.MaxAssociations == 0 {
		c.MaxAssociations = 1 << 16
	}
	if c.MaxMessages == 0 {
		c.MaxMessages = 1 << 20
	}
	c.CRNs = append([]netip.Prefix(nil), c.CRNs...)
	local := make([]netip.Addr, len(c.Local))
	for i, a := range c.Local {
		local[i] = a.Unmap()
	}
	c.Local = local
	if c.Rand == nil {
		c.Rand = rand.New(rand.NewPCG(secret(), secret()))
	}
	if c.Nonce == nil {
		c.Nonce = secret
		if c.off.Has(rdcc.RuleNonceSecret) {
			c.Nonce = c.Rand.Uint64
		}
	}
	return c, nil
}

// secret is a number that nobody can guess.
func secret() uint64 {
	var b [8]byte
	crand.Read(b[:]) // never fails (its documentation)
	return binary.BigEndian.Uint64(b[:])
}
