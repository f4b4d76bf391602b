package domain

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
	"github.com/pcmlab/pcmlab/rdcc/sender"
)

// The ports of which operators choose one (Port Configuration).
const (
	FirstDynamicPort = 49152
	LastDynamicPort  = 65535
)

// Mistake is something wrong with one key.
type Mistake struct {
	Key       string // as in a file: dscp.control
	Text, Fix string
}

func (m Mistake) Error() string {
	if m.Fix == "" {
		return fmt.Sprintf("rdcc: %s: %s", m.Key, m.Text)
	}
	return fmt.Sprintf("rdcc: %s: %s (%s)", m.Key, m.Text, m.Fix)
}

// Validate names all mistakes at once. What depends on the path is found by Check.
func (c Config) Validate() error {
	var errs []error
	for _, m := range c.mistakes() {
		errs = append(errs, m)
	}
	return errors.Join(errs...)
}

// Check is Validate, and the same for a path: that the amounts make a receiver and a sender on it.
func (c Config) Check(f receiver.Fabric) error {
	if err := c.Validate(); err != nil || c.Off {
		return err
	}
	_, err := receiver.New(c.Receiver(f))
	_, err2 := sender.New(c.Sender(f))
	return errors.Join(err, err2)
}

// CheckIn adds the mistakes of a Config that was read as part of a file, beneath at, to the document.
func (c Config) CheckIn(doc *spec.Doc, at spec.Path) {
	for _, m := range c.mistakes() {
		p := at.With(keyPath(m.Key)...)
		if !doc.Bad(p) {
			doc.Errorf(p, m.Fix, "%s", m.Text)
		}
	}
}

// Read is a file that holds a Config and nothing else.
func Read(path string) (Config, error) {
	var c Config
	doc, err := spec.ReadFile(path, &c)
	if doc == nil {
		return c, err
	}
	c.CheckIn(doc, nil)
	return c, doc.Err()
}

// Set changes one key, such as "dscp.control", as if text stood there in a file.
func (c *Config) Set(key, text string) error {
	fresh := *c
	var path []string
	for _, k := range keyPath(key) {
		path = append(path, k.(string))
	}
	if err := spec.Set(&fresh, path, text); err != nil {
		return fmt.Errorf("rdcc.%s=%s: %w", key, text, err)
	}
	// Once more as a file, since that is where the limits are looked at.
	written, err := spec.Marshal(&fresh)
	if err != nil {
		return err
	}
	var again Config
	if len(written) > 0 {
		if _, err := spec.Decode("rdcc", written, &again); err != nil {
			var all *spec.Errors
			if errors.As(err, &all) && len(all.Problems) > 0 {
				p := all.Problems[0]
				return fmt.Errorf("rdcc.%s=%s: %s (%s)", key, text, p.Message, p.Fix)
			}
			return err
		}
	}
	*c = again
	return nil
}

func keyPath(key string) (path spec.Path) {
	for len(key) > 0 {
		i := slices.Index([]byte(key), '.')
		if i < 0 {
			return append(path, key)
		}
		path, key = append(path, key[:i]), key[i+1:]
	}
	return path
}

// Warnings are what is allowed and not recommended.
func (c Config) Warnings() (all []Mistake) {
	if c.Off {
		return nil
	}
	if w := PortWarning(c.Port); w != nil {
		all = append(all, *w)
	}
	if c.Protection == "" {
		all = append(all, Mistake{"protection", "nothing is said about what keeps datagrams from outside away from the port; the specification demands one of the two", "esp or filtered"})
	}
	if c.DSCP.Control == nil {
		all = append(all, Mistake{"dscp.control", "grants are not marked, so that they may wait behind the data that they schedule", "a code point with at least the priority of the data"})
	}
	if s := c.Idle.Of(0, 1); c.Idle.Given() && s < 10*time.Second {
		all = append(all, Mistake{"idle", fmt.Sprintf("associations are removed after %v, the specification asks for 10 s at least", s), "10s"})
	}
	return all
}

// PortWarning is the warning about a port that operators should not choose (Port Configuration, decision 27); nil: none.
func PortWarning(port uint16) *Mistake {
	if port == 0 || port >= FirstDynamicPort {
		return nil
	}
	return &Mistake{"port", fmt.Sprintf("%d is outside the dynamic ports, so that another service may be given it", port), fmt.Sprintf("%d to %d", FirstDynamicPort, LastDynamicPort)}
}

func (c Config) mistakes() (all []Mistake) {
	if c.Off {
		return nil
	}
	bad := func(key, fix, format string, a ...any) {
		all = append(all, Mistake{key, fmt.Sprintf(format, a...), fix})
	}
	if c.Port == 0 {
		bad("port", fmt.Sprintf("one for the whole domain, from %d to %d", FirstDynamicPort, LastDynamicPort), "no port: the specification assigns none")
	}
	for _, s := range []struct {
		key       string
		of        Duration
		mayBeZero bool
	}{
		{"base_rtt", c.BaseRTT, false}, {"dmax", c.DMax, false}, {"J", c.J, true}, {"lifetime", c.Lifetime, false}, {"target_rtt", c.TargetRTT, false},
		{"idle", c.Idle, false}, {"give_up", c.GiveUp, false},
	} {
		if s.of.Given() && s.of.d == 0 && s.of.rtts == 0 && !s.mayBeZero {
			bad(s.key, "", "zero: must be more")
		}
	}
	for _, s := range []struct {
		key string
		of  Duration
	}{{"base_rtt", c.BaseRTT}, {"idle", c.Idle}, {"give_up", c.GiveUp}} {
		if s.of.relative() {
			bad(s.key, "such as 15us", "%v: must be a duration, not a multiple of the round-trip time", s.of)
		}
	}
	for _, a := range []struct {
		key string
		of  Size
	}{{"G", c.G}, {"backlog", c.Backlog}, {"max_credit", c.MaxCredit}, {"segment", c.Segment}, {"local_backlog", c.LocalBacklog}} {
		if a.of.Given() && a.of.Of(1<<30) == 0 {
			bad(a.key, "leave it out for the default", "zero: must be more")
		}
	}
	if g, gu := c.G, c.Gu; g.Given() && gu.Given() && (g.bdps != 0) == (gu.bdps != 0) && gu.Of(1<<30) >= g.Of(1<<30) {
		bad("Gu", "at most a quarter of G is recommended", "%v leaves nothing of G = %v for scheduled data", gu, g)
	}
	if gu, u := c.Gu, c.U; gu.Given() && u.Given() && (gu.bdps != 0) == (u.bdps != 0) && u.Of(1<<30) > gu.Of(1<<30) {
		bad("U", "Gu divided by the expected senders", "%v is more than Gu = %v, so that no sender could be given it", u, gu)
	}
	if c.Unscheduled != nil && !*c.Unscheduled && c.U.Of(1<<30) > 0 {
		bad("U", "leave one of the two out", "%v, and unscheduled: false", c.U)
	}
	if c.Wire != 0 && c.Payload != 0 && c.Wire < c.Payload {
		bad("wire", "payload and headers", "%v is less than the payload of %v", c.Wire, c.Payload)
	}
	if c.Class > rdcc.MaxClass {
		bad("class", "0 to 7", "%d", c.Class)
	}
	for i, name := range c.Advertise {
		if _, ok := capabilities[name]; !ok || name == "none" && len(c.Advertise) > 1 {
			bad("advertise", "pool, status, crn, or none alone", "%q at place %d", c.Advertise[i], i+1)
		}
	}
	for key, list := range map[string][]netip.Addr{"crns": c.CRNs, "local": c.Local} {
		for _, a := range list {
			if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() {
				bad(key, "the address of a host", "%v", a)
			}
		}
	}
	for _, w := range []struct {
		key, got string
		known    []string
	}{
		{"protection", c.Protection, []string{"esp", "filtered"}}, {"allocator", c.Allocator, []string{"aimd", "bbr"}},
		{"on_refused", c.OnRefused, []string{"fail", "without"}}, {"hint", c.Hint, []string{"none", "latency-sensitive", "throughput-oriented"}},
	} {
		if w.got != "" && !slices.Contains(w.known, w.got) {
			bad(w.key, spec.Suggest(w.got, w.known), "%q", w.got)
		}
	}
	if c.TimeScale != 0 && c.TimeScale < 1 {
		bad("time_scale", "1 or more", "%v", c.TimeScale)
	}
	points := map[string]*uint8{"dscp.control": c.DSCP.Control, "dscp.unscheduled": c.DSCP.Unscheduled}
	for i, p := range c.DSCP.Classes() {
		points[fmt.Sprintf("dscp.class%d", i)] = p
	}
	for key, p := range points {
		if p != nil && *p > 63 {
			bad(key, "0 to 63", "%d", *p)
		}
	}
	slices.SortStableFunc(all, func(a, b Mistake) int { return compare(a.Key, b.Key) })
	return all
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
