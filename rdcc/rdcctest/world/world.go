package world

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
)

// World is a scenario that runs. All its times are of no host, but of whoever looks at all of them.
type World struct {
	s    *Scenario
	draw Dice
	off  rdcc.RuleSet
	now  time.Duration
	todo agenda
	n    uint64

	senders   []*shost
	receivers []*rhost
	byAddr    map[netip.AddrPort]int // receivers as they are, senders as what they are below -1
	messages  []*message
	left      int           // messages that are not at their end
	quiet     []window      // of faults, merged
	end       time.Duration // by which all must be over
	attack    *Attack

	stats Stats
	trace func(format string, args ...any)
	bad   *Failure
}

// Stats are what a run measured.
type Stats struct {
	Events, Datagrams, Lost, Packets int
	Octets                           uint64 // payload that arrived, once
	Done, Aborted, Without           int
	Gap                              time.Duration // longest time without traffic after all faults had ended, over the time scale
	Bound                            time.Duration // that the specification's timers allow for it
	Used                             float64       // Gap / Bound
	Flight                           float64       // most that was on its way to a receiver, of its G
	End                              time.Duration
	Faults                           [numFaults]int
	Acts                             [numActs]int
	Converted, Lives                 int
	BySender                         []uint64 // octets that arrived
}

// Failure is what an oracle found.
type Failure struct {
	Kind string // which oracle
	Text string
	At   time.Duration
}

func (f *Failure) Error() string { return fmt.Sprintf("at %v: %s: %s", f.At, f.Kind, f.Text) }

// fail notes the first failure and ends the run.
func (w *World) fail(kind, format string, args ...any) {
	if w.bad == nil {
		w.bad = &Failure{kind, fmt.Sprintf(format, args...), w.now}
		w.note("FAIL %s: %s", kind, w.bad.Text)
	}
}

func (w *World) note(format string, args ...any) {
	if w.trace != nil {
		w.trace("%12v  %s\n", w.now, fmt.Sprintf(format, args...))
	}
}

type event struct {
	at time.Duration
	n  uint64
	do func()
}

// agenda is a heap of events, those of one instant in the order in which they were put there.
type agenda []event

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].n < a[j].n
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(event)) }
func (a *agenda) Pop() any {
	n := len(*a) - 1
	e := (*a)[n]
	(*a)[n] = event{}
	*a = (*a)[:n]
	return e
}

func (w *World) at(t time.Duration, do func()) {
	w.n++
	heap.Push(&w.todo, event{max(t, w.now), w.n, do})
}

// clock is a host's.
type clock struct {
	off time.Duration
	ppm int64
}

func (c clock) local(t time.Duration) time.Duration { return c.off + t + t*time.Duration(c.ppm)/1e6 }

// when is the first instant at which the clock shows l.
func (c clock) when(l time.Duration) time.Duration {
	t := l - c.off
	t -= t * time.Duration(c.ppm) / 1e6
	for c.local(t) < l {
		t++
	}
	for t > 0 && c.local(t-1) >= l {
		t--
	}
	return t
}

// window is a time in which something is wrong.
type window struct{ from, to time.Duration }

// Run runs a scenario to its end. What is drawn on the way comes from d, and off are rules that the machines do without.
func Run(s *Scenario, d Dice, off rdcc.RuleSet) (Stats, *Failure) {
	return newWorld(s, d, off).run()
}

// Attack is somebody who sends datagrams of his own, one each time Every has passed, while honest senders do what the scenario has.
type Attack struct {
	Every time.Duration
	Until time.Duration
	// Next is his next datagram: for the receiver, or the sender, of that number.
	Next func(now time.Duration) (to Target, from netip.AddrPort, datagram []byte)
	// Answer is told what is sent to addresses that are nobody's. Nil means that he does not hear it.
	Answer func(to netip.AddrPort, datagram []byte)
	// Sees is told all honest datagrams: who replays has a capture. Nil means that he has none.
	Sees func(from, to netip.AddrPort, datagram []byte)
	// Check is called each millisecond with what receivers hold.
	Check func(r *receiver.Receiver)
}

// Target is a host.
type Target struct {
	Receiver bool
	Host     int
}

// Addr is the address and port of a host's RDCC endpoint.
func (t Target) Addr() netip.AddrPort {
	if t.Receiver {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 2, 0, byte(t.Host + 1)}), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(t.Host + 1)}), port)
}

// RunAttacked is Run with an attacker.
func RunAttacked(s *Scenario, d Dice, a *Attack) (Stats, *Failure) {
	w := newWorld(s, d, rdcc.RuleSet{})
	w.attack = a
	w.at(0, w.strike)
	return w.run()
}

func (w *World) strike() {
	a := w.attack
	if w.now >= a.Until || w.left == 0 {
		return
	}
	if a.Check != nil && w.now/ms != (w.now-a.Every)/ms {
		for _, r := range w.receivers {
			if r.m != nil {
				a.Check(r.m)
			}
		}
	}
	to, from, b := a.Next(w.now)
	if b != nil {
		if to.Receiver {
			w.receivers[to.Host].receive(from, b)
		} else {
			w.senders[to.Host].receive(from, b, false)
		}
	}
	w.at(w.now+a.Every, w.strike)
}

func newWorld(s *Scenario, d Dice, off rdcc.RuleSet) *World {
	w := &World{s: s, draw: d, off: off, byAddr: map[netip.AddrPort]int{}}
	for j := range s.Receivers {
		w.addReceiver(j)
	}
	for i := range s.Senders {
		w.addSender(i)
	}
	w.stats.BySender = make([]uint64, len(s.Senders))
	last := time.Duration(0)
	for i := range s.Messages {
		m := &message{Message: s.Messages[i], n: i}
		w.messages = append(w.messages, m)
		if m.Length == 0 {
			m.over = true
			continue
		}
		w.left++
		last = max(last, m.At)
		w.at(m.At, func() { w.senders[m.From].submit(m) })
	}
	for i := range s.Faults {
		if f := &s.Faults[i]; f.Until >= 0 {
			last = max(last, f.Until)
			w.stats.Faults[f.Kind]++
			w.begin(f)
		}
	}
	for i := range s.Acts {
		if a := &s.Acts[i]; a.At >= 0 {
			last = max(last, a.At)
			w.at(a.At, func() { w.act(a) })
		}
	}
	// A message that got nowhere is given up; what gets somewhere ends by itself. The second term is for what waits its turn.
	w.end = last + s.GiveUp + time.Duration(s.Scale)*5*time.Second
	return w
}

func (w *World) run() (Stats, *Failure) {
	for w.bad == nil && len(w.todo) > 0 {
		e := heap.Pop(&w.todo).(event)
		if e.at > w.end && w.left > 0 {
			w.now = e.at
			w.unended()
			break
		}
		if w.left == 0 && e.at > w.end {
			break
		}
		w.now = e.at
		w.stats.Events++
		if w.stats.Events > 2e6 {
			w.fail("spins", "%d events, and no end", w.stats.Events)
		}
		e.do()
		if w.left == 0 && w.stats.End == 0 {
			w.stats.End = w.now
			w.end = w.now + time.Duration(w.s.Scale)*100*ms // for what is on its way
		}
	}
	if w.bad == nil && w.left > 0 {
		w.unended() // nobody has anything to do any more
	}
	if w.bad == nil {
		w.finish()
	}
	return w.stats, w.bad
}

func (w *World) unended() {
	for _, m := range w.messages {
		if !m.over {
			s := w.senders[m.From]
			state, _ := s.m.State(m.id)
			info, _ := s.m.Association(w.receivers[m.To].addr)
			w.fail("ends", "m%d of %d octets is in %v, %d sent; %+v", m.n, m.Length, state, m.sent, info)
		}
	}
}

// finish looks at what must be true when all is over.
func (w *World) finish() {
	for _, m := range w.messages {
		if m.Length == 0 {
			continue
		}
		if m.done && m.arrived != m.Length {
			w.fail("whole", "m%d is done, of %d octets %d arrived", m.n, m.Length, m.arrived)
		}
	}
	for _, s := range w.senders {
		if n := s.m.Counters().BeyondCredit; n > 0 {
			w.fail("credit", "s%d counts %d octets beyond credit, which no oracle saw", s.i, n)
		}
		w.stats.Converted += int(s.m.Counters().Converted)
		w.stats.Lives += int(s.m.Counters().Associations)
	}
	for _, r := range w.receivers {
		r.atEnd()
	}
}

// progress says that traffic flows to a receiver: a packet came that had not been there, or a message ended.
func (w *World) progress(r *rhost) {
	if since, ok := w.waits(r); ok {
		gap := (w.now - max(since, r.progressAt)) / time.Duration(w.s.Scale)
		bound := 2*100*ms + (r.lifetime+4*w.s.Fabric.DMax)/time.Duration(w.s.Scale)
		if gap > w.stats.Gap {
			w.stats.Gap, w.stats.Bound = gap, bound
		}
		w.stats.Used = max(w.stats.Used, float64(gap)/float64(bound))
		if gap > bound {
			w.fail("flows", "nothing came to r%d for %v after the last fault, %v are allowed", r.i, gap, bound)
		}
	}
	r.progressAt = w.now
}

// waits says since when, without any fault since then, there has been something that should flow to the receiver.
func (w *World) waits(r *rhost) (since time.Duration, ok bool) {
	calm, ok := w.calm()
	if !ok || r.waiting == 0 {
		return 0, false
	}
	return max(calm, r.waitingAt), true
}

// calm is when the last fault ended; false when there is one.
func (w *World) calm() (since time.Duration, ok bool) {
	for _, f := range w.quiet {
		if f.from <= w.now && w.now < f.to {
			return 0, false
		}
		if f.to <= w.now {
			since = max(since, f.to)
		}
	}
	return since, true
}

// secrets is what random numbers of the hosts come from: they are not to be the world's decisions, of which a fuzzer has few.
type secrets struct{ x uint64 }

func (s *secrets) next() uint64 {
	s.x += 0x9e3779b97f4a7c15
	z := s.x
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (s *secrets) Uint64() uint64 { return s.next() }

func (s *secrets) Read(b []byte) (int, error) {
	for i := 0; i < len(b); i += 8 {
		var x [8]byte
		binary.LittleEndian.PutUint64(x[:], s.next())
		copy(b[i:], x[:])
	}
	return len(b), nil
}
