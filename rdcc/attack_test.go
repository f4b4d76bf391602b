package rdcc_test

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/rdcctest/world"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
	"github.com/pcmlab/pcmlab/rdcc/sender"
)

// Attacks from off the path (Security Considerations): the attacker sends datagrams from any address and port, those of others
// included, and hears what is sent to addresses of his own. He does not see what passes between others, so that nonces, Association IDs,
// the Epoch and sequence numbers are unknown to him, unless a test says that he has a capture. Whoever is on the path can read all of them
// and forge anything: that is out of reach for RDCC alone, and why the specification demands ESP or ingress filtering.

// honest is a world of four senders with 9 MB for one receiver, which takes some 8 ms at full rate.
func honest(mods ...func(*world.Scenario)) *world.Scenario {
	s := world.Calm(4)
	for k := range 24 {
		s.Messages = append(s.Messages, world.Message{
			At: time.Duration(k/4) * 800 * time.Microsecond, From: k % 4, Length: 375000, Weight: 1, Other: k%3 == 0, SelfPaced: k%5 == 0,
		})
		s.Messages = append(s.Messages, world.Message{At: time.Duration(k) * 200 * time.Microsecond, From: (k + 1) % 4, Length: 2000, Weight: 1})
	}
	for _, f := range mods {
		f(&s)
	}
	return &s
}

// long makes the messages of the honest world longer. Who hoards has to wait longer each time he does, which takes some tenths of a second
// until it costs others little.
func long(s *world.Scenario) {
	for k := range s.Messages {
		s.Messages[k].Length *= 20
	}
}

// attack runs the honest world with and without the attacker: nobody may break a rule, all messages are done, and the rate is at least
// 95 % of what it was.
func attack(t *testing.T, s *world.Scenario, a *world.Attack) {
	t.Helper()
	calm, bad := world.Run(s, world.Seeded(1), rdcc.RuleSet{})
	if bad != nil {
		t.Fatalf("without an attacker: %v", bad)
	}
	a.Until = time.Second
	st, bad := world.RunAttacked(s, world.Seeded(1), a)
	if bad != nil {
		t.Fatal(bad)
	}
	rate := float64(calm.End) / float64(st.End)
	t.Logf("%d messages done in %v, without the attacker in %v: %.1f %% of the rate", st.Done, st.End, calm.End, 100*rate)
	if st.Done != len(s.Messages) || st.Done != calm.Done {
		t.Errorf("%d of %d messages are done, %d aborted", st.Done, len(s.Messages), st.Aborted)
	}
	if rate < 0.95 {
		t.Errorf("honest senders keep %.1f %% of their rate", 100*rate)
	}
}

func someone(d world.Dice) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, byte(d(256)), byte(d(256))}), uint16(1+d(65535)))
}

// TestAttack_forgeries: 2 million datagrams of every type a second, with whatever the attacker has to guess drawn at random.
func TestAttack_forgeries(t *testing.T) {
	for _, spoofs := range []bool{false, true} {
		d := world.Seeded(11)
		attack(t, honest(), &world.Attack{Every: 500 * time.Nanosecond, Next: func(time.Duration) (world.Target, netip.AddrPort, []byte) {
			to, peer := world.Target{Receiver: d(2) == 0}, world.Target{}
			if to.Receiver {
				peer.Host = d(4)
			} else {
				to.Host, peer.Receiver = d(4), true
			}
			from := someone(d)
			if spoofs { // the address and port of the one whom the target speaks with
				from = peer.Addr()
			}
			b := world.Forged(d)
			if to.Receiver && spoofs && rdcc.Type(b[1]) == rdcc.TypeAssocRequest {
				b = nil // asks for an association in somebody's name: TestAttack_floodOneAddress
			}
			return to, from, b
		}})
	}
}

// TestAttack_replay: the attacker has a capture of all that was said so far, and sends it again, from where it came. All but ASSOC_REQUEST and
// ASSOC_ACCEPT is old by its Sequence Number; those two say nothing new. After a restart the old Epoch is no longer known.
func TestAttack_replay(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		d := world.Seeded(12)
		s := honest()
		if restarts {
			s.Faults = append(s.Faults, world.Fault{Kind: world.Restart, At: 4 * time.Millisecond, Until: 4100 * time.Microsecond, How: 1})
		}
		type datagram struct {
			at   int // in steps of the attack
			to   world.Target
			from netip.AddrPort
			b    []byte
		}
		var capture []datagram
		step := 0
		a := &world.Attack{Every: 2 * time.Microsecond}
		a.Sees = func(from, to netip.AddrPort, b []byte) {
			x := datagram{at: step, from: from, b: b}
			for h := range 4 {
				if to == (world.Target{Host: h}).Addr() {
					x.to = world.Target{Host: h}
				}
			}
			if to == (world.Target{Receiver: true}).Addr() {
				x.to = world.Target{Receiver: true}
			}
			capture = append(capture, x)
		}
		a.Next = func(time.Duration) (world.Target, netip.AddrPort, []byte) {
			step++
			old := 0 // not faster than the network: what he sends again has come
			for old < len(capture) && capture[old].at < step-50 {
				old++
			}
			if old == 0 {
				return world.Target{}, netip.AddrPort{}, nil
			}
			x := capture[d(old)]
			return x.to, x.from, x.b
		}
		attack(t, s, a)
	}
}

// amplifies gives a datagram to a machine and counts what it answers to whom.
func amplifies(t *testing.T, what string, b []byte, from netip.AddrPort, poll func() (netip.AddrPort, []byte, bool)) {
	t.Helper()
	n := 0
	for to, answer, ok := poll(); ok; to, answer, ok = poll() {
		if to != from {
			t.Errorf("%s from %v makes the machine send to %v", what, from, to)
		}
		if n++; n > 1 || len(answer) > len(b) {
			t.Errorf("%s of %d octets: answer %d has %d", what, len(b), n, len(answer))
		}
	}
}

// TestAttack_amplification: whoever has no association gets at most one answer, no larger than what he sent, and nobody else gets any,
// whatever the type, the flags and the length.
func TestAttack_amplification(t *testing.T) {
	d := world.Seeded(13)
	newReceiver := func() *receiver.Receiver {
		r, err := receiver.New(receiver.Config{Fabric: receiver.Fabric{LineRate: 1e10, BaseRTT: 20 * time.Microsecond}, Pool: true})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := newReceiver()
	x, err := sender.New(sender.Config{LineRate: 1e10})
	if err != nil {
		t.Fatal(err)
	}
	peer := world.Target{Receiver: true}.Addr()
	if _, err := x.Submit(0, sender.Message{To: peer, Length: 1000, Binding: rdcc.BindingOpaque}); err != nil {
		t.Fatal(err)
	}
	for _, ok := x.Poll(nil); ok; _, ok = x.Poll(nil) {
	}
	answered := map[rdcc.Type]bool{}
	for n := range 60000 {
		if n%1000 == 0 {
			r = newReceiver() // before it has too many associations to answer
		}
		b := world.Forged(d)
		switch d(6) {
		case 0:
			b[1] = byte(d(256))
		case 1:
			b = b[:d(len(b)+1)]
		case 2:
			b = append(b, make([]byte, d(100))...)
		case 3:
			binary.BigEndian.PutUint16(b[2:], uint16(d(1<<16)))
		}
		from := someone(d)
		what := "nothing"
		if len(b) > 1 {
			what = rdcc.Type(b[1]).String()
		}
		r.Receive(0, from, b)
		amplifies(t, what+" to the receiver", b, from, func() (netip.AddrPort, []byte, bool) {
			o, ok := r.Poll(nil)
			if ok {
				answered[rdcc.Type(b[1])] = true
			}
			return o.To, o.Data, ok
		})
		if d(2) == 0 {
			from = peer // in the name of the receiver that it asks for an association
		}
		x.Receive(0, from, b)
		if o, ok := x.Poll(nil); ok {
			t.Fatalf("%s makes a sender send %x to %v", what, o.Data, o.To)
		}
	}
	if !answered[rdcc.TypeAssocRequest] || !answered[rdcc.TypeCreditRequest] || len(answered) != 2 {
		t.Errorf("answered are %v, want ASSOC_REQUEST and CREDIT_REQUEST alone", answered)
	}
}

// heap is how many octets are in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestAttack_floodManyAddresses: associations from everywhere. What is there stays within the bounds of the configuration and takes a stated
// amount of memory; new ones are refused, none is evicted.
func TestAttack_floodManyAddresses(t *testing.T) {
	const bound, each = 4000, 1500 // associations, octets
	before := heap()
	r, err := receiver.New(receiver.Config{
		Fabric: receiver.Fabric{LineRate: 1e11, BaseRTT: 16 * time.Microsecond}, MaxAssociations: bound, MaxMessages: 1000, OutQueue: 256,
	})
	if err != nil {
		t.Fatal(err)
	}
	d := world.Seeded(14)
	now := time.Duration(0)
	flood := func(n int) {
		for range n {
			now += time.Microsecond
			b := (&rdcc.AssocRequest{SenderNonce: uint64(d(1 << 62)), LineRate: 100000}).Append(nil, rdcc.Header{Seq: 1})
			r.Receive(now, someone(d), b)
			for _, ok := r.Poll(nil); ok; _, ok = r.Poll(nil) {
			}
		}
	}
	flood(20000)
	full := heap() - before
	flood(200000)
	after := heap() - before
	c := &r.Counters
	t.Logf("%d associations, %d refused, %d removed; %d octets in use, %d after ten times as many", c.Associations, c.AssocRefused, c.AssocRemoved, full, after)
	if c.Associations != bound || c.AssocRemoved != 0 || c.AssocRefused != 220000-bound {
		t.Errorf("%d associations, %d refused, %d removed", c.Associations, c.AssocRefused, c.AssocRemoved)
	}
	if after > bound*each || after > full+full/10 {
		t.Errorf("%d octets in use, later %d: more than %d for each of %d", full, after, each, bound)
	}
	runtime.KeepAlive(r)
}

// TestAttack_floodOneAddress: one address, though its ports are many, gets no more than its share, and honest senders go on.
func TestAttack_floodOneAddress(t *testing.T) {
	d := world.Seeded(15)
	mine := netip.MustParseAddr("10.200.0.1")
	most, joined := uint64(0), map[uint32]bool{}
	attack(t, honest(), &world.Attack{
		Every: 2 * time.Microsecond,
		Next: func(time.Duration) (world.Target, netip.AddrPort, []byte) {
			b := (&rdcc.AssocRequest{SenderNonce: uint64(d(1 << 62)), LineRate: 10000}).Append(nil, rdcc.Header{Seq: 1})
			return world.Target{Receiver: true}, netip.AddrPortFrom(mine, uint16(1+d(65000))), b
		},
		Answer: func(_ netip.AddrPort, b []byte) {
			var a rdcc.Datagram
			if a.Decode(b) == nil && a.Type == rdcc.TypeAssocAccept {
				joined[a.Assoc] = true
			}
		},
		Check: func(r *receiver.Receiver) { most = max(most, r.Counters.Associations) },
	})
	if len(joined) != 16 || most != 20 { // the world's bound for an address, and the four honest ones
		t.Errorf("%d associations for the attacker, %d in all", len(joined), most)
	}
}

// member is an attacker with associations of his own: he answers what he must, and misuses the rest.
type member struct {
	d    world.Dice
	who  []netip.AddrPort
	ids  map[netip.AddrPort]rdcc.Header
	next int
	ask  func(m *member, i int) rdcc.Message // what he says next
	id   uint64
}

func newMember(n int, ask func(m *member, i int) rdcc.Message) *member {
	m := &member{d: world.Seeded(16), ids: map[netip.AddrPort]rdcc.Header{}, ask: ask}
	for i := range n {
		m.who = append(m.who, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, 1, byte(i)}), 999))
	}
	return m
}

func (m *member) answer(to netip.AddrPort, b []byte) {
	var d rdcc.Datagram
	if d.Decode(b) == nil && d.Type == rdcc.TypeAssocAccept {
		if _, ok := m.ids[to]; !ok {
			m.ids[to] = rdcc.Header{Assoc: d.Assoc, Epoch: d.Epoch, Seq: 1}
		}
	}
}

func (m *member) send(time.Duration) (world.Target, netip.AddrPort, []byte) {
	i := m.next % len(m.who)
	m.next++
	from, to := m.who[i], world.Target{Receiver: true}
	h, ok := m.ids[from]
	if !ok {
		return to, from, (&rdcc.AssocRequest{SenderNonce: uint64(i + 1), LineRate: 10000, Capabilities: rdcc.CapPool}).Append(nil, rdcc.Header{Seq: 1})
	}
	h.Seq++
	m.ids[from] = h
	return to, from, m.ask(m, i).Append(nil, h)
}

func (m *member) request(length, unscheduled uint64) *rdcc.CreditRequest {
	m.id++
	return &rdcc.CreditRequest{MessageID: m.id, MessageLength: length, UnscheduledSent: unscheduled, Weight: 255, BindingKind: rdcc.BindingOpaque, BindingValue: m.id}
}

// TestAttack_hoarding: a member of the domain asks for credit all the time, in the highest class, and sends nothing. The specification bounds
// what he can hold by the grant's lifetime; here he has to wait longer and longer besides.
func TestAttack_hoarding(t *testing.T) {
	m := newMember(1, func(m *member, i int) rdcc.Message {
		q := m.request(1<<30, 0)
		if m.id > 400 { // bounded: later it asks again for what it has asked for
			q.MessageID = uint64(1 + m.d(400))
			q.BindingValue = q.MessageID
		}
		return q
	})
	attack(t, honest(long), &world.Attack{Every: 20 * time.Microsecond, Next: m.send, Answer: m.answer})
}

// TestAttack_lies: lengths and Unscheduled Sent of any size, statuses and returns without sense, cancels of everything. A liar gets no grants
// for what he lies about, and the budget holds.
func TestAttack_lies(t *testing.T) {
	edge := []uint64{0, 1, 999, 1 << 20, 1 << 40, 1<<40 + 1, 1 << 62, 1<<63 - 1, 1 << 63, 1<<64 - 1}
	most := uint64(0)
	m := newMember(4, func(m *member, i int) rdcc.Message {
		any := func() uint64 { return edge[m.d(len(edge))] }
		switch m.d(6) {
		case 0:
			return &rdcc.CreditReturn{MessageID: any(), NewLimit: any()}
		case 1:
			return &rdcc.Cancel{MessageID: uint64(m.d(int(m.id) + 2))}
		case 2:
			return &rdcc.SenderStatus{UnusedCredit: any(), CongestionLevel: 255, SuggestedRate: rdcc.Mbps(any())}
		}
		q := m.request(any(), any())
		if m.d(2) == 0 {
			q.MessageID = any()
		}
		return q
	})
	attack(t, honest(long), &world.Attack{Every: 20 * time.Microsecond, Next: m.send, Answer: m.answer, Check: func(r *receiver.Receiver) {
		most = max(most, r.Counters.Faults[receiver.LiedAboutUnscheduled]+r.Counters.Refused[rdcc.ReasonMessageTooLarge])
	}})
	if most == 0 {
		t.Error("nobody was taken for a liar")
	}
}

// TestAttack_epochs: ASSOC_ACCEPT of another incarnation and UNKNOWN_ASSOCIATION, from the receiver's own address and port, for Association IDs
// that the attacker has to guess; and requests of former Epochs at the receiver. Neither makes anybody drop credit.
func TestAttack_epochs(t *testing.T) {
	d := world.Seeded(17)
	recv := world.Target{Receiver: true}
	attack(t, honest(), &world.Attack{Every: time.Microsecond, Next: func(time.Duration) (world.Target, netip.AddrPort, []byte) {
		h := rdcc.Header{Assoc: uint32(d(1 << 32)), Epoch: uint16(d(1 << 16)), Seq: uint32(d(1 << 32))}
		to := world.Target{Host: d(4)}
		switch d(3) {
		case 0:
			return to, recv.Addr(), (&rdcc.AssocAccept{SenderNonce: uint64(d(1 << 62)), UnscheduledLimit: 1 << 30, CreditUnit: 1}).Append(nil, h)
		case 1:
			return to, recv.Addr(), (&rdcc.Error{Reason: rdcc.ReasonUnknownAssociation}).Append(nil, h)
		}
		return recv, to.Addr(), (&rdcc.CreditRequest{MessageID: 1, MessageLength: 1 << 30, BindingKind: rdcc.BindingOpaque}).Append(nil, h)
	}})
}
