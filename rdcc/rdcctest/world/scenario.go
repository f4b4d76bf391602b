package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
)

// Scenario is all that happens in a world, beside the fate of each datagram, which is drawn while it runs.
type Scenario struct {
	Scale     int // of all times of the protocol, as a virtual lab has it
	Fabric    receiver.Fabric
	Senders   []Sender
	Receivers []Receiver
	Messages  []Message
	Faults    []Fault
	Acts      []Act
	GiveUp    time.Duration
	ECN       int64 // octets in the queue of a receiver's port above which packets are marked; 0: never
}

// Host is what each has.
type Host struct {
	Offset time.Duration // of its clock
	PPM    int64         // by which its clock is fast
	Delay  time.Duration // to the switch
}

// Sender is a host that sends.
type Sender struct {
	Host
	LineRate int64
	Pool     bool // it can use pool grants
	Backlog  uint64
}

// Receiver is a host that receives.
type Receiver struct {
	Host
	G, Gu    int64
	Expected int
	Lifetime time.Duration
	Pool     bool
	BBR      bool
	Idle     time.Duration
	Pending  int // most messages of an association
}

// Message is one that is to be sent.
type Message struct {
	At        time.Duration
	From, To  int
	Length    uint64
	Class     uint8
	Weight    uint8
	Hint      rdcc.Hint
	Deadline  time.Duration
	Scheduled bool
	Segment   uint64
	SelfPaced bool
	Other     bool // its binding value is not its Message ID
}

// FaultKind is what goes wrong.
type FaultKind uint8

// Faults. Each lasts from At to Until.
const (
	Drop    FaultKind = iota // control datagrams are lost, How of 256
	Double                   // they come twice, the second time perhaps much later
	Delay                    // they take up to D_max, so that they overtake each other
	Damage                   // they come with octets changed, as far as a checksum lets such through
	Loss                     // data is lost, How of 256
	Shuffle                  // data takes up to D_max
	CutSender
	CutReceiver
	CutControl // only control datagrams of a sender
	Restart    // a receiver loses all that it knows, and is away until Until
	Forge      // somebody off the path sends datagrams of all kinds
	Report     // on-path nodes report congestion
	numFaults
)

func (k FaultKind) String() string {
	return [...]string{"drop", "double", "delay", "damage", "loss", "shuffle", "cut sender", "cut receiver", "cut control", "restart", "forge", "report"}[k]
}

// Fault is something that goes wrong for a while.
type Fault struct {
	Kind      FaultKind
	At, Until time.Duration
	Host      int // of those that concern one
	How       int
}

// ActKind is what an application, an operator or a link does.
type ActKind uint8

// Acts.
const (
	CancelSender ActKind = iota
	CancelReceiver
	Return // credit, How of 256 of what is left
	SetParams
	Pause // of the sender's link
	SetRate
	numActs
)

func (k ActKind) String() string {
	return [...]string{"cancel at the sender", "cancel at the receiver", "return credit", "set parameters", "pause", "set rate"}[k]
}

// Act is one of them.
type Act struct {
	Kind ActKind
	At   time.Duration
	Of   int // message, receiver or sender
	How  int
}

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// Dice draws a number below n.
type Dice func(n int) int

// Seeded draws from a seed.
func Seeded(seed uint64) Dice {
	r := rand.New(rand.NewPCG(seed, 0x72646363))
	return r.IntN
}

// Bytes draws from a fuzzer's bytes, and zeros when they are over.
func Bytes(b []byte) Dice {
	return func(n int) int {
		v, most := 0, 1
		for ; most < n && len(b) > 0; most <<= 8 {
			v, b = v<<8|int(b[0]), b[1:]
		}
		return v % n
	}
}

func (d Dice) of(n int) bool { return d(n) == 0 }
func (d Dice) within(from, to time.Duration) time.Duration {
	return from + time.Duration(d(int(max(to-from, 0)/100)+1))*100
}

func pick[T any](d Dice, of ...T) T { return of[d(len(of))] }

// Generate draws a scenario.
func Generate(d Dice) Scenario {
	s := Scenario{Scale: 1, GiveUp: pick(d, time.Second, 3*time.Second)}
	if d.of(8) {
		s.Scale = 10
	}
	f := &s.Fabric
	switch d(3) {
	case 0:
		*f = receiver.Fabric{LineRate: 10e9, BaseRTT: 40 * us, Payload: 1000, Wire: 1082}
	case 1:
		*f = receiver.Fabric{LineRate: 1e9, BaseRTT: 100 * us, Payload: 1000, Wire: 1082}
	case 2:
		*f = receiver.Fabric{LineRate: 25e9, BaseRTT: 25 * us, Payload: 4096, Wire: 4178}
	}
	f.LineRate /= int64(s.Scale)
	f.BaseRTT *= time.Duration(s.Scale)
	bdp := f.BDP()
	active := pick[time.Duration](d, 1, 1, 4, 10, 100, 1000) * f.BaseRTT * 10
	for range pick(d, 1, 1, 1, 2) {
		g := bdp * pick[int64](d, 2, 2, 1, 4)
		s.Receivers = append(s.Receivers, Receiver{
			Host: drawHost(d, f), G: g, Gu: pick(d, g/4, g/4, g/2, -1), Expected: pick(d, 1, 2, 4, 8),
			Lifetime: pick[time.Duration](d, 0, 0, 2, 20) * f.BaseRTT, Pool: d.of(3), BBR: d.of(4),
			Idle: pick(d, time.Second, 10*time.Second), Pending: pick(d, 0, 0, 3),
		})
		if r := &s.Receivers[len(s.Receivers)-1]; r.Pool {
			r.Pending = 0 // what a refused message had of the pool is found out with its requests, at 100 ms: too slow for what is held here
		}
	}
	for range 1 + d(pick(d, 1, 3, 6)) {
		s.Senders = append(s.Senders, Sender{
			Host: drawHost(d, f), LineRate: f.LineRate / pick[int64](d, 1, 1, 4), Pool: !d.of(4),
			Backlog: uint64(pick[int64](d, 0, 0, bdp/2)),
		})
	}
	octets := uint64(1500 * f.Payload)
	for range 1 + d(pick(d, 2, 6, 30)) {
		m := drawMessage(d, &s, active)
		m.Length = min(m.Length, octets)
		if octets -= m.Length; m.Length > 0 {
			s.Messages = append(s.Messages, m)
		}
	}
	slices.SortStableFunc(s.Messages, func(a, b Message) int { return int(a.At - b.At) })
	if d.of(3) {
		s.ECN = bdp / 2
	}
	for range d(pick(d, 1, 3, 6)) {
		s.Faults = append(s.Faults, drawFault(d, &s, active))
	}
	for range d(pick(d, 1, 3, 6)) {
		s.Acts = append(s.Acts, drawAct(d, &s, active))
	}
	s.settle()
	return s
}

// settle sets D_max to what the network can take: the way, the overtaking, the queue of the budget and the longest segment.
func (s *Scenario) settle() {
	f := &s.Fabric
	d := f.BaseRTT
	for _, r := range s.Receivers {
		d = max(d, time.Duration(r.G*8*int64(f.Wire)/int64(f.Payload)*int64(time.Second)/f.LineRate))
	}
	f.DMax = 2*f.BaseRTT + 2*d
}

func drawHost(d Dice, f *receiver.Fabric) Host {
	return Host{
		Offset: pick(d, 0, time.Second, time.Hour, 40*24*time.Hour), PPM: int64(d(101) - 50),
		Delay: f.BaseRTT/4 - time.Duration(d(int(f.BaseRTT/8))),
	}
}

func drawMessage(d Dice, s *Scenario, active time.Duration) Message {
	unit, f := uint64(s.Fabric.Payload), &s.Fabric
	m := Message{
		At: d.within(0, active), From: d(len(s.Senders)), To: d(len(s.Receivers)), Class: uint8(pick(d, 0, 0, 1, 7)),
		Weight: uint8(pick(d, 1, 1, 3, 200)), Hint: rdcc.Hint(d(3)), Scheduled: d.of(4), SelfPaced: d.of(4), Other: d.of(3),
		Length: pick(d, 1+uint64(d(2000)), unit, unit*uint64(1+d(8)), unit*uint64(1+d(100)), unit*uint64(1+d(600)), uint64(f.BDP()/8)),
	}
	if d.of(3) {
		m.At = 0
	}
	if d.of(4) {
		m.Deadline = d.within(0, 20*f.BaseRTT)
	}
	if d.of(5) {
		m.Segment = unit * uint64(pick(d, 2, 4))
		for _, r := range s.Receivers { // more than that could not be had by all
			if m.Segment > uint64(r.G-max(r.Gu, 0))/16 {
				m.Segment = 0
			}
		}
	}
	return m
}

func drawFault(d Dice, s *Scenario, active time.Duration) Fault {
	k := FaultKind(d(int(numFaults)))
	at := d.within(0, active)
	long := pick(d, s.Fabric.BaseRTT, 10*s.Fabric.BaseRTT, active, 40*ms, 150*ms, 1500*ms, 4*time.Second)
	f := Fault{Kind: k, At: at, Until: at + d.within(0, long), How: 1 + d(255)}
	switch k {
	case CutSender, CutControl:
		f.Host = d(len(s.Senders))
	case CutReceiver, Restart:
		f.Host = d(len(s.Receivers))
	case Forge, Report:
		f.Until = min(f.Until, f.At+200*s.Fabric.BaseRTT)
	}
	return f
}

func drawAct(d Dice, s *Scenario, active time.Duration) Act {
	a := Act{Kind: ActKind(d(int(numActs))), At: d.within(0, active), How: d(256)}
	switch a.Kind {
	case SetParams:
		a.Of = d(len(s.Receivers))
	case Pause, SetRate:
		a.Of = d(len(s.Senders))
	default:
		a.Of = d(max(len(s.Messages), 1))
	}
	return a
}

// parts are the names of what can be taken out, whole hosts first.
func (s *Scenario) parts() (names []string) {
	for _, k := range []struct {
		name string
		n    int
	}{{"s", len(s.Senders)}, {"f", len(s.Faults)}, {"m", len(s.Messages)}, {"a", len(s.Acts)}} {
		for i := range k.n {
			names = append(names, k.name+strconv.Itoa(i))
		}
	}
	return names
}

// without marks parts as not there: the others keep their numbers.
func (s Scenario) without(names []string) (Scenario, error) {
	s.Messages, s.Faults, s.Acts = slices.Clone(s.Messages), slices.Clone(s.Faults), slices.Clone(s.Acts)
	for _, name := range names {
		if name == "" {
			continue
		}
		i, err := strconv.Atoi(name[1:])
		n := map[byte]int{'s': len(s.Senders), 'f': len(s.Faults), 'm': len(s.Messages), 'a': len(s.Acts)}[name[0]]
		if err != nil || i < 0 || i >= n {
			return s, fmt.Errorf("world: no part %q", name)
		}
		switch name[0] {
		case 's':
			for k := range s.Messages {
				if s.Messages[k].From == i {
					s.Messages[k].Length = 0
				}
			}
		case 'm':
			s.Messages[i].Length = 0
		case 'f':
			s.Faults[i].Until = -1
		case 'a':
			s.Acts[i].At = -1
		}
	}
	return s, nil
}

// String tells what a scenario has, for who looks at a failure.
func (s *Scenario) String() string {
	var b strings.Builder
	f := &s.Fabric
	fmt.Fprintf(&b, "  link %d Mbit/s, base RTT %v, D_max %v, payload %d, time scale %d, give-up %v\n", f.LineRate/1e6, f.BaseRTT, f.DMax, f.Payload, s.Scale, s.GiveUp)
	for i, r := range s.Receivers {
		fmt.Fprintf(&b, "  r%d %+v\n", i, r)
	}
	for i, x := range s.Senders {
		if slices.ContainsFunc(s.Messages, func(m Message) bool { return m.From == i && m.Length > 0 }) {
			fmt.Fprintf(&b, "  s%d %+v\n", i, x)
		}
	}
	for i, m := range s.Messages {
		if m.Length > 0 {
			fmt.Fprintf(&b, "  m%d %+v\n", i, m)
		}
	}
	for i, f := range s.Faults {
		if f.Until >= 0 {
			fmt.Fprintf(&b, "  f%d %v %v to %v, host %d, %d\n", i, f.Kind, f.At, f.Until, f.Host, f.How)
		}
	}
	for i, a := range s.Acts {
		if a.At >= 0 {
			fmt.Fprintf(&b, "  a%d %v at %v of %d, %d\n", i, a.Kind, a.At, a.Of, a.How)
		}
	}
	return b.String()
}

// Calm is a world of n senders and one receiver in which nothing goes wrong and nothing is sent yet.
func Calm(n int) Scenario {
	s := Scenario{Scale: 1, GiveUp: 3 * time.Second, Fabric: receiver.Fabric{LineRate: 10e9, BaseRTT: 40 * us, Payload: 1000, Wire: 1082}}
	bdp := s.Fabric.BDP()
	s.Receivers = []Receiver{{Host: Host{Delay: 10 * us}, G: 2 * bdp, Gu: bdp / 2, Expected: n, Idle: 10 * time.Second}}
	for range n {
		s.Senders = append(s.Senders, Sender{Host: Host{Delay: 10 * us}, LineRate: s.Fabric.LineRate, Pool: true})
	}
	s.settle()
	return s
}
