package receiver

import (
	"testing"
	"time"
	"unsafe"

	"github.com/pcmlab/pcmlab/rdcc"
)

// crowd is many associations with many pending messages each, in bare datagrams.
type crowd struct {
	r       *Receiver
	now     time.Duration
	clients []crowdClient
	byID    map[uint32]int32
	b       []byte
	d       rdcc.Datagram
}

type crowdClient struct {
	id    uint32
	seq   uint32
	next  uint64
	first uint64 // oldest that is pending
}

const crowdLength = 4096

func newCrowd(b testing.TB, associations, pending int, mods ...func(*Config)) *crowd {
	b.Helper()
	c := testConfig(append([]func(*Config){func(c *Config) {
		c.MaxAssociations, c.MaxPerAddress, c.MaxMessages = associations, associations, 2*pending
		c.Idle = time.Hour
	}}, mods...)...)
	r, err := New(c)
	if err != nil {
		b.Fatal(err)
	}
	w := &crowd{r: r, now: time.Second, b: make([]byte, 0, 256), byID: map[uint32]int32{}}
	for n := range associations {
		m := rdcc.AssocRequest{SenderNonce: uint64(n), Capabilities: rdcc.CapStatus}
		r.Receive(w.now, clientAddr(n), m.Append(w.b, rdcc.Header{Seq: 1}))
		for o, ok := r.Poll(w.b); ok; o, ok = r.Poll(w.b) {
			var d rdcc.Datagram
			if err := d.Decode(o.Data); err == nil && d.Flags == 0 {
				w.clients = append(w.clients, crowdClient{id: d.Assoc, seq: 1, next: 1, first: 1})
				w.byID[d.Assoc] = int32(n)
			}
		}
	}
	if len(w.clients) != associations {
		b.Fatalf("%d associations, want %d", len(w.clients), associations)
	}
	for n := range pending {
		w.request(n % associations)
	}
	return w
}

func (w *crowd) request(n int) {
	c := &w.clients[n]
	c.seq++
	m := rdcc.CreditRequest{MessageID: c.next, MessageLength: crowdLength, Class: uint8(c.next & 7), Weight: 4, BindingKind: rdcc.BindingOpaque, BindingValue: c.next}
	c.next++
	w.r.Receive(w.now, clientAddr(n), m.Append(w.b, rdcc.Header{Assoc: c.id, Epoch: 3, Seq: c.seq}))
}

// run carries n messages: each grant is answered with the message's data, each MSG_DONE with the request for another message
// of the same sender, so that as many stay pending. All messages are scheduled and go through the whole exchange. It
// returns how many different associations took part.
func (w *crowd) run(n int) (active int) { return w.carry(n, make([]bool, len(w.clients))) }

func (w *crowd) carry(n int, seen []bool) (active int) {
	d := &w.d
	for done := 0; done < n; {
		o, ok := w.r.Poll(w.b)
		if !ok {
			w.now += time.Microsecond
			if at, due := w.r.Deadline(); due && at <= w.now {
				w.r.Advance(w.now)
			}
			continue
		}
		if d.Decode(o.Data) != nil {
			panic("the receiver sent what cannot be read")
		}
		switch d.Type {
		case rdcc.TypeCreditGrant:
			w.r.Data(w.now, d.Assoc, Arrival{Message: d.CreditGrant.MessageID, Octets: crowdLength, Packets: 1})
		case rdcc.TypeMsgDone:
			done++
			i := w.byID[d.Assoc]
			if !seen[i] {
				seen[i] = true
				active++
			}
			w.request(int(i))
		}
		if done&63 == 0 {
			w.now += time.Microsecond
		}
	}
	return active
}

// BenchmarkReceiver: messages per second of the whole exchange (request, grant, data, MSG_DONE) with 10,000 associations
// and 100,000 pending messages, on one core.
func BenchmarkReceiver(b *testing.B) {
	for _, x := range []struct {
		name string
		a    Allocator
	}{{"aimd", AIMD{}}, {"bbr", BBR{}}} {
		b.Run("allocator="+x.name+"/associations=10000/pending=100000", func(b *testing.B) {
			w := newCrowd(b, 10000, 100000, func(c *Config) { c.Allocator = x.a })
			w.run(200000) // heaps and tables reach their size
			b.ReportAllocs()
			b.ResetTimer()
			active := w.run(b.N)
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			b.ReportMetric(float64(active), "active-associations")
			b.ReportMetric(float64(w.r.pending), "pending")
			if v := w.r.Counters.InvariantViolations; v != 0 {
				b.Fatalf("%d invariant violations", v)
			}
			assoc, message := footprint()
			b.ReportMetric(float64(assoc), "B/association")
			b.ReportMetric(float64(message), "B/message")
		})
	}
}

// footprint is what one association and one pending message cost, tables and timers included. Maps are counted with half
// their room filled.
func footprint() (association1, message1 uintptr) {
	association1 = unsafe.Sizeof(association{}) + unsafe.Sizeof(timer{}) + unsafe.Sizeof(readyEntry{}) + unsafe.Sizeof(peer{}) +
		2*(unsafe.Sizeof(binding{})+4) + 2*8 + 2*(24+4)
	message1 = unsafe.Sizeof(message{}) + unsafe.Sizeof(timer{}) + 2*unsafe.Sizeof(entry{}) + 4 + 4
	return association1, message1
}

// BenchmarkFlood: forged datagrams per second that are turned away.
func BenchmarkFlood(b *testing.B) {
	w := newCrowd(b, 10000, 100000)
	forged := (&rdcc.CreditRequest{MessageID: 1, MessageLength: 1 << 20}).Append(nil, rdcc.Header{Assoc: 1, Epoch: 3, Seq: 1})
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		forged[4], forged[5], forged[6], forged[7] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
		w.r.Receive(w.now, node, forged)
		w.r.Poll(w.b)
	}
}
