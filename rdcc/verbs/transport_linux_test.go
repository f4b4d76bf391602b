package verbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/domain"
	"github.com/pcmlab/pcmlab/rdcc/endpoint"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
	"github.com/pcmlab/pcmlab/rdcc/sender"
)

const testPort = 52031

// long is a lifetime that a busy machine can keep.
var long = domain.Time(50 * time.Millisecond)

var patience = 60 * time.Second

// duo is two endpoints whose transports share one program with the fake library, whose queue pairs reach only their own
// process.
type duo struct {
	from, to     *endpoint.Endpoint
	sends, takes *Transport
	at           netip.AddrPort
	got          chan endpoint.Incoming
}

func newDuo(t *testing.T, how string, sends, receives domain.Config, c Config) *duo {
	t.Helper()
	fabric := receiver.Fabric{LineRate: 1e9, BaseRTT: 2 * time.Millisecond, DMax: 20 * time.Millisecond, Payload: 1024, Wire: 1024 + 82}
	return newDuoOver(t, how, sends, receives, c, fabric, fabric)
}

// newDuoOver is newDuo where each has a link of its own.
func newDuoOver(t *testing.T, how string, sends, receives domain.Config, c Config, from, to receiver.Fabric) *duo {
	t.Helper()
	d := &duo{at: netip.MustParseAddrPort("127.0.0.1:52031"), got: make(chan endpoint.Incoming, 1000)}
	var mu sync.Mutex
	var all []*Transport
	program, fake := compiled(t)
	mu.Lock()
	p, dev, err := Start(t.Context(), Options{GIDIndex: 1, Command: []string{program}, Env: []string{"LD_PRELOAD=" + fake, "PCMLAB_FAKE_VERBS=" + how}}, func(r Report) {
		mu.Lock()
		defer mu.Unlock()
		for _, x := range all {
			x.report(r)
		}
	})
	if err != nil {
		mu.Unlock()
		t.Fatal(err)
	}
	transport := func(listen bool) *Transport {
		x := newTransport(c)
		x.p, x.d = p, dev
		x.defaults()
		if listen {
			x.c.Listen = d.at
		}
		all = append(all, x)
		return x
	}
	d.sends, d.takes = transport(false), transport(true)
	mu.Unlock()
	start := func(o endpoint.Options, x *Transport, fabric receiver.Fabric) *endpoint.Endpoint {
		o.Domain.Port, o.Fabric, o.Listen, o.Transports = testPort, fabric, d.at.Addr(), []endpoint.Transport{x}
		e, err := endpoint.New(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		go e.Run(ctx)
		t.Cleanup(func() { cancel(); <-e.Done() })
		return e
	}
	d.to = start(endpoint.Options{Domain: receives, NoSender: true, Arrived: func(in endpoint.Incoming, err error) {
		if err == nil {
			d.got <- in
		}
	}}, d.takes, to)
	d.from = start(endpoint.Options{Domain: sends, NoReceiver: true, AnyPort: true}, d.sends, from)
	return d
}

// send sends messages together and waits until all are at their end.
func (d *duo) send(t *testing.T, all ...*endpoint.Outgoing) []endpoint.Result {
	t.Helper()
	results := make([]endpoint.Result, len(all))
	var wait sync.WaitGroup
	for i, m := range all {
		m.To, m.Kind = d.at, rdcc.BindingRoCEv2
		wait.Add(1)
		m.Ended = func(r endpoint.Result) { results[i] = r; wait.Done() }
		if err := d.from.Send(m); err != nil {
			results[i].Err = err
			wait.Done()
		}
	}
	done := make(chan struct{})
	go func() { wait.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		d.to.Call(func(time.Duration) { t.Logf("receiver: %+v %+v", d.to.Receiver().Counters, d.takes.Counters()) })
		d.from.Call(func(time.Duration) {
			t.Logf("sender: %+v %+v", d.from.Sender().Counters(), d.sends.Counters())
			for _, q := range d.sends.queues {
				for _, s := range q.waiting {
					upTo, rate := d.sends.h.Allowance(d.sends.h.Now(), s.m)
					t.Logf("queue %+v: message of %d octets, handed %d, allowed %d at %d bit/s", q.key, s.m.Length, s.handed, upTo, rate)
				}
			}
		})
		t.Fatal("the messages have not ended within 60 s")
	}
	return results
}

func (d *duo) obeyed(t *testing.T) {
	t.Helper()
	d.to.Call(func(time.Duration) {
		if k := d.to.Receiver().Counters; k.InvariantViolations != 0 || k.ExcessOctets != 0 {
			t.Errorf("%d violations of the budget, %d octets beyond credit", k.InvariantViolations, k.ExcessOctets)
		}
		if n := d.takes.Counters().OutOfOrder; n != 0 {
			t.Errorf("%d immediates out of order", n)
		}
	})
	d.from.Call(func(time.Duration) {
		if k := d.from.Sender().Counters(); k.BeyondCredit != 0 {
			t.Errorf("%d octets sent beyond credit", k.BeyondCredit)
		}
	})
}

// TestTransport_carries: messages of several classes and lengths, in one budget, arrive whole and within credit.
func TestTransport_carries(t *testing.T) {
	for _, row := range []struct {
		name, how string
		pool      bool
	}{{"per_message", "", false}, {"nic_rate", "rate", false}, {"pool", "", true}} {
		t.Run(row.name, func(t *testing.T) {
			d := newDuo(t, row.how, domain.Config{}, domain.Config{Pool: row.pool, Lifetime: long}, Config{})
			var all []*endpoint.Outgoing
			sum := uint64(0)
			for i, n := range []uint64{1, 200, 5121, 300000} {
				for class := range uint8(2) {
					all = append(all, &endpoint.Outgoing{Length: n, Class: class, Weight: uint8(i + 1)})
					sum += n
				}
			}
			for i, r := range d.send(t, all...) {
				if r.Err != nil || r.Octets != all[i].Length {
					t.Errorf("message %d of %d octets: %d, %v", i, all[i].Length, r.Octets, r.Err)
				}
			}
			for range all {
				select {
				case in := <-d.got:
					sum -= in.Length
				case <-time.After(patience):
					t.Fatal("the receiver does not say that they arrived")
				}
			}
			if sum != 0 {
				t.Errorf("%d octets less arrived", sum)
			}
			d.obeyed(t)
			if want := map[bool]string{true: "nic", false: "segment"}[row.how == "rate"]; d.sends.Pacing() != want {
				t.Errorf("pacing %q, want %q", d.sends.Pacing(), want)
			}
		})
	}
}

// TestTransport_together: of several messages on one queue pair those behind have no credit while the first has none, since that would
// be of no use to anyone.
func TestTransport_together(t *testing.T) {
	for _, pool := range []bool{false, true} {
		t.Run(fmt.Sprintf("pool_%v", pool), func(t *testing.T) {
			d := newDuo(t, "", domain.Config{}, domain.Config{Pool: pool, Lifetime: domain.Time(5 * time.Second)}, Config{})
			var all []*endpoint.Outgoing
			for range 6 {
				all = append(all, &endpoint.Outgoing{Length: 400000, Scheduled: true})
			}
			sent := make(chan []endpoint.Result, 1)
			go func() { sent <- d.send(t, all...) }()
			looks, idle := 0, ""
			look := func(time.Duration) {
				for _, q := range d.sends.queues {
					looks++
					for i, s := range q.waiting {
						first, _ := d.from.Sender().State(q.waiting[0].m.ID)
						if state, _ := d.from.Sender().State(s.m.ID); i > 0 && first == sender.StateWaiting && state == sender.StateScheduled {
							idle = fmt.Sprintf("the %d. message has credit while the first has none", i+1)
						}
					}
				}
			}
			for results := []endpoint.Result(nil); results == nil; {
				select {
				case results = <-sent:
					for i, r := range results {
						if r.Err != nil {
							t.Errorf("message %d: %v", i, r.Err)
						}
					}
				default:
					d.from.Call(look)
				}
			}
			if idle != "" || looks == 0 {
				t.Errorf("%d looks: %s", looks, idle)
			}
			d.obeyed(t)
		})
	}
}

// TestTransport_longSegments: a segment that takes a NIC which keeps the Pacing Rate longer than a grant lives leaves in a burst.
func TestTransport_longSegments(t *testing.T) {
	from := receiver.Fabric{LineRate: 1e9, BaseRTT: 2 * time.Millisecond, DMax: 20 * time.Millisecond, Payload: 1024, Wire: 1024 + 82}
	to := from
	to.LineRate = 2e6 // 5120 octets take 23 ms
	d := newDuoOver(t, "rate", domain.Config{}, domain.Config{Lifetime: domain.Time(20 * time.Millisecond), G: domain.Octets(128 << 10)}, Config{}, from, to)
	for _, r := range d.send(t, &endpoint.Outgoing{Length: 30000, Scheduled: true}) {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}
	d.obeyed(t)
}

// TestTransport_cancelled: a message that is cancelled on its way does not hold up those behind it, whose sequence numbers
// were promised with it.
func TestTransport_cancelled(t *testing.T) {
	d := newDuo(t, "", domain.Config{}, domain.Config{Lifetime: long}, Config{})
	long := &endpoint.Outgoing{To: d.at, Kind: rdcc.BindingRoCEv2, Length: 64 << 20}
	ended := make(chan endpoint.Result, 1)
	long.Ended = func(r endpoint.Result) { ended <- r }
	if err := d.from.Send(long); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; {
		if p, ok := d.from.Progress(long); ok && p.Transmitted > 0 {
			break
		} else if !ok || time.Now().After(end) {
			t.Fatalf("nothing is transmitted: %+v", p)
		}
	}
	behind := &endpoint.Outgoing{Length: 50000}
	go d.from.Cancel(long)
	for _, r := range d.send(t, behind) {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}
	if r := <-ended; r.Err == nil {
		t.Error("the cancelled message arrived")
	}
	d.from.Call(func(time.Duration) {
		if d.sends.Counters().Empty == 0 {
			t.Error("no empty RDMA messages: the numbers promised do not hold")
		}
	})
	d.obeyed(t)
}

// TestTransport_fails: a queue pair that fails ends its messages with the reason, and the next one gets a new queue pair.
// (Both messages are longer than what twenty completions can tell of, in whatever order the receiver grants.)
func TestTransport_fails(t *testing.T) {
	d := newDuo(t, "badwc=20", domain.Config{}, domain.Config{Lifetime: long}, Config{})
	r := d.send(t, &endpoint.Outgoing{Length: 4 << 20}, &endpoint.Outgoing{Length: 4 << 20})
	for i := range r {
		if r[i].Err == nil || !strings.Contains(r[i].Err.Error(), "transport retry counter exceeded") {
			t.Errorf("message %d: %v", i, r[i].Err)
		}
	}
	if r := d.send(t, &endpoint.Outgoing{Length: 100000}); r[0].Err != nil {
		t.Errorf("the next message: %v", r[0].Err)
	}
	d.obeyed(t)
}

// TestTransport_refuses: what a message cannot have is said when it is bound.
func TestTransport_refuses(t *testing.T) {
	d := newDuo(t, "", domain.Config{}, domain.Config{Lifetime: long}, Config{})
	for _, row := range []struct {
		name string
		m    endpoint.Outgoing
		want string
	}{
		{"content", endpoint.Outgoing{Length: 5, Data: bytes.NewReader([]byte("hello"))}, "octets without content"},
		{"short_segments", endpoint.Outgoing{Length: 1 << 30, Segment: 1024}, "segments of at least 16385 octets"},
		{"long_segments", endpoint.Outgoing{Length: 1 << 30, Segment: 5 << 20}, "do not fit into the region of 4194304"},
		{"class", endpoint.Outgoing{Length: 1, Class: 8}, "class 8 is above 7"},
	} {
		if r := d.send(t, &row.m); r[0].Err == nil || !strings.Contains(r[0].Err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, r[0].Err, row.want)
		}
	}
}

// TestTransport_noReceiver: nobody there is told apart from a peer that is no such endpoint.
func TestTransport_noReceiver(t *testing.T) {
	d := newDuo(t, "", domain.Config{}, domain.Config{Lifetime: long}, Config{})
	if err := d.sends.Connect(t.Context(), netip.MustParseAddrPort("127.0.0.1:1"), 0); err == nil || !strings.Contains(err.Error(), "--transport verbs") {
		t.Errorf("%v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	answers := []string{"SSH-2.0-OpenSSH\r\n", `{"half":{"qp":0}}` + "\n", `{"error":"no room"}` + "\n", "{}\n", strings.Repeat("x", 5000), ""}
	wants := []string{"not the peer's half", "not of 24 bits", "no room", "it says", "a line of more than 4096", "EOF"}
	go func() {
		for _, a := range answers {
			c, err := l.Accept()
			if err != nil {
				return
			}
			hear(c, new(greeting))
			c.Write([]byte(a))
			c.Close()
		}
	}()
	for i, want := range wants {
		err := d.sends.Connect(t.Context(), l.Addr().(*net.TCPAddr).AddrPort(), 0)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("answer %q: %v, want %q", answers[i], err, want)
		}
	}
}

// TestTransport_strangers: what comes to the receiver's TCP port and is no half of a queue pair gets the reason, and no queue pair.
func TestTransport_strangers(t *testing.T) {
	d := newDuo(t, "", domain.Config{}, domain.Config{Lifetime: long}, Config{})
	good := `"half":{"qp":17,"psn":1,"gid":"192.0.2.1","address":4096,"region_bytes":4096,"rkey":1,"mtu_bytes":1024}`
	for _, row := range []struct{ say, want string }{
		{"GET / HTTP/1.0\r\n", "not the peer's half"},
		{`{"schema":"pcmlab/rdcc-verbs/v9",` + good + "}\n", `schema \"pcmlab/rdcc-verbs/v9\"`},
		{`{"schema":"pcmlab/rdcc-verbs/v1","class":9,` + good + "}\n", "class 9"},
		{`{"schema":"pcmlab/rdcc-verbs/v1"}` + "\n", "queue pair 0x0"},
		{`{"schema":"pcmlab/rdcc-verbs/v1",` + strings.Replace(good, "1024", "1000", 1) + "}\n", "an MTU of 1000"},
		{`{"schema":"pcmlab/rdcc-verbs/v1",` + strings.Replace(good, "192.0.2.1", "", 1) + "}\n", "no GID"},
		{`{"schema":"pcmlab/rdcc-verbs/v1",` + strings.Replace(good, `"address":4096`, `"address":18446744073709551615`, 1) + "}\n", "a region of"},
	} {
		c, err := net.Dial("tcp", d.at.String())
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(time.Minute))
		c.Write([]byte(row.say))
		var b [2000]byte
		n, _ := c.Read(b[:])
		if !strings.Contains(string(b[:n]), row.want) {
			t.Errorf("%q: the answer is %q, want %q", row.say, b[:n], row.want)
		}
		c.Close()
	}
	d.to.Call(func(time.Duration) {
		if len(d.takes.heard) != 0 {
			t.Errorf("%d queue pairs", len(d.takes.heard))
		}
	})
}

// TestTransport_marksApart: a queue pair has one code point, so where unscheduled data has its own, messages wait for credit.
func TestTransport_marksApart(t *testing.T) {
	five, six := uint8(5), uint8(6)
	for _, row := range []struct {
		name               string
		unscheduled, class *uint8
		want               bool
	}{{"none", nil, nil, false}, {"same", &five, &five, false}, {"own", &five, &six, true}, {"class_unmarked", &five, nil, true}, {"class_only", nil, &six, false}} {
		t.Run(row.name, func(t *testing.T) {
			d := newDuo(t, "", domain.Config{}, domain.Config{Lifetime: long}, Config{Unscheduled: row.unscheduled, Class: [8]*uint8{row.class}})
			m := &endpoint.Outgoing{Length: 100}
			if r := d.send(t, m); r[0].Err != nil || m.Scheduled != row.want || (r[0].Unscheduled == 0) != row.want {
				t.Errorf("scheduled %v, %d octets without credit, %v", m.Scheduled, r[0].Unscheduled, r[0].Err)
			}
		})
	}
}

// TestTransport_programEnds: without its program a transport ends its messages with the reason.
func TestTransport_programEnds(t *testing.T) {
	d := newDuo(t, "", domain.Config{}, domain.Config{Lifetime: long}, Config{})
	if r := d.send(t, &endpoint.Outgoing{Length: 100}); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	d.sends.p.cmd.Process.Kill()
	<-d.sends.p.Done()
	if r := d.send(t, &endpoint.Outgoing{Length: 100}); r[0].Err == nil || errors.Is(r[0].Err, context.DeadlineExceeded) {
		t.Errorf("%v", r[0].Err)
	}
}
