package endpoint_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/testwait"
	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/domain"
	"github.com/pcmlab/pcmlab/rdcc/endpoint"
	"github.com/pcmlab/pcmlab/rdcc/opaque"
	"github.com/pcmlab/pcmlab/rdcc/udp"
)

// TestNoDefaultPort: without a port there is no endpoint.
func TestNoDefaultPort(t *testing.T) {
	_, err := endpoint.New(endpoint.Options{Fabric: fabric})
	if err == nil || !strings.Contains(err.Error(), "port: no port: the specification assigns none") {
		t.Errorf("%v", err)
	}
	if _, err := opaque.New(opaque.Options{}); err == nil || !strings.Contains(err.Error(), "no port for data") {
		t.Errorf("%v", err)
	}
}

// TestControlDSCP: RDCC datagrams carry the domain's code point, and those of a domain without one carry none.
func TestControlDSCP(t *testing.T) {
	for _, at := range []string{"127.0.0.2", "::1"} {
		for _, dscp := range []*uint8{nil, u8(48)} {
			n := newNode(t, at, endpoint.Options{Domain: domain.Config{DSCP: domain.DSCP{Control: dscp}}, NoSender: true})
			s := raw(t, at)
			say(s, n.Addr(), (&rdcc.AssocRequest{SenderNonce: 7, LineRate: 1000}).Append(nil, rdcc.Header{Seq: 1}))
			p, b := hear(t, s)
			var d rdcc.Datagram
			if err := d.Decode(b); err != nil || d.Type != rdcc.TypeAssocAccept {
				t.Fatalf("%v %v", d.Type, err)
			}
			want := uint8(0)
			if dscp != nil {
				want = *dscp << 2
			}
			if p.TOS != want {
				t.Errorf("%s: code point %d, want %d", at, p.TOS>>2, want>>2)
			}
			n.stop()
		}
	}
}

// TestDataDSCP: data carries the code point of its class or of unscheduled data, and says that it is ECN-capable.
func TestDataDSCP(t *testing.T) {
	c := domain.Config{DSCP: domain.DSCP{Unscheduled: u8(26), Class0: u8(46), Class2: u8(18)}, U: domain.Octets(4096), Gu: domain.Octets(32768)}
	r := newNode(t, "127.0.0.2", endpoint.Options{Domain: c})
	s := newNode(t, "127.0.0.1", endpoint.Options{Domain: c, AnyPort: true})
	tap := raw(t, "127.0.0.2")
	for _, row := range []struct {
		class  uint8
		length uint64
		want   uint8
		reason string
	}{
		{0, 1000, 26, "unscheduled"}, {0, 20_000, 46, "class 0"}, {2, 20_000, 18, "class 2"}, {5, 20_000, 0, "a class that has none"},
	} {
		m := &endpoint.Outgoing{To: r.Addr(), Kind: rdcc.BindingOpaque, Length: row.length, Class: row.class, Target: tap.Addr()}
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
		if p, _ := hear(t, tap); p.TOS>>2 != row.want || p.TOS&3 != 2 {
			t.Errorf("%s: code point %d, ECN %d, want %d and 2", row.reason, p.TOS>>2, p.TOS&3, row.want)
		}
		s.Cancel(m)
		testwait.For(t, patience, "the message's packets have gone", func() bool { n, _ := tap.Recv(func(*udp.Packet) {}); return n == 0 })
	}
}

// TestMark: a packet that arrives marked is told to the receiver's machine and echoed to the sender.
func TestMark(t *testing.T) {
	c := domain.Config{}
	r := newNode(t, "127.0.0.2", endpoint.Options{Domain: c})
	s := raw(t, "127.0.0.1")
	data := raw(t, "127.0.0.1")
	say(s, r.Addr(), (&rdcc.AssocRequest{SenderNonce: 7, LineRate: 1000}).Append(nil, rdcc.Header{Seq: 1}))
	_, b := hear(t, s)
	var d rdcc.Datagram
	if err := d.Decode(b); err != nil {
		t.Fatal(err)
	}
	say(s, r.Addr(), (&rdcc.CreditRequest{MessageID: 1, MessageLength: 3000, BindingKind: rdcc.BindingOpaque, BindingValue: 99}).Append(nil,
		rdcc.Header{Assoc: d.Assoc, Epoch: d.Epoch, Seq: 2}))
	hear(t, s) // the grant
	p := opaque.Packet{Assoc: d.Assoc, Value: 99, Length: 3000, Stamp: 5}
	packet := append(p.AppendHeader(nil), make([]byte, 1000)...)
	opaque.Seal(packet)
	data.Put(copy(data.Next()[:len(packet)], packet), addrPort("127.0.0.2", dataPort), netip.Addr{}, 3) // CE
	data.Flush()
	_, b = hear(t, data)
	var a opaque.Packet
	if err := a.Decode(b); err != nil || a.Data || a.Cumulative != 1000 || a.Packets != 1 || a.CE != 1 || a.Stamp != 5 {
		t.Errorf("acknowledgement %+v, %v", a, err)
	}
}

// TestAnswersFromWhereItWasAsked: an endpoint on all addresses answers from the one that was written to.
func TestAnswersFromWhereItWasAsked(t *testing.T) {
	for _, listen := range []string{"::", "0.0.0.0"} {
		n := newNode(t, listen, endpoint.Options{NoSender: true})
		for _, at := range []string{"127.0.0.5", "127.0.0.6"} {
			s := raw(t, "127.0.0.1")
			to := addrPort(at, port)
			say(s, to, (&rdcc.AssocRequest{SenderNonce: 7, LineRate: 1000}).Append(nil, rdcc.Header{Seq: 1}))
			if p, _ := hear(t, s); p.From != to {
				t.Errorf("listening on %s: asked at %v, answered from %v", listen, to, p.From)
			}
		}
		n.stop()
	}
}

// TestGoodbye: an endpoint that ends tells its peers in both directions, so that nobody waits for it.
func TestGoodbye(t *testing.T) {
	// The receiver goes: its senders' messages end at once, not when their patience does.
	r := newNode(t, "127.0.0.2", endpoint.Options{})
	s := newNode(t, "127.0.0.1", endpoint.Options{AnyPort: true})
	nowhere := raw(t, "127.0.0.2")
	done := make(chan endpoint.Result, 1)
	m := &endpoint.Outgoing{To: r.Addr(), Kind: rdcc.BindingOpaque, Length: 1 << 20, Target: nowhere.Addr(), Ended: func(r endpoint.Result) { done <- r }}
	if err := s.Send(m); err != nil {
		t.Fatal(err)
	}
	hear(t, nowhere) // data flows: the message is granted
	r.stop()
	var aborted *endpoint.AbortedError
	if res := <-done; !errors.As(res.Err, &aborted) || aborted.Reason != rdcc.ReasonApplicationAbort {
		t.Errorf("the sender of a receiver that has ended: %v", res.Err)
	}
	// The sender goes: the receiver hears CANCEL, and has its credit back.
	r = newNode(t, "127.0.0.2", endpoint.Options{})
	s = newNode(t, "127.0.0.1", endpoint.Options{AnyPort: true})
	elsewhere := raw(t, "127.0.0.2") // what went nowhere is still there
	m = &endpoint.Outgoing{To: r.Addr(), Kind: rdcc.BindingOpaque, Length: 1 << 20, Target: elsewhere.Addr(), Ended: func(r endpoint.Result) { done <- r }}
	if err := s.Send(m); err != nil {
		t.Fatal(err)
	}
	hear(t, elsewhere)
	s.stop()
	if res := <-done; !errors.Is(res.Err, endpoint.ErrClosed) {
		t.Errorf("the message of an endpoint that has ended: %v", res.Err)
	}
	testwait.For(t, patience, "the receiver has heard CANCEL", func() (ok bool) {
		r.Call(func(time.Duration) { ok = r.Receiver().Counters.CancelsReceived == 1 })
		return ok
	})
	if s.Do(func(time.Duration) {}) || s.Send(m) != endpoint.ErrClosed {
		t.Error("an endpoint that has ended takes orders")
	}
}

// TestCancel: a message that is given up ends at both ends.
func TestCancel(t *testing.T) {
	broken := make(chan error, 1)
	r := newNode(t, "127.0.0.2", endpoint.Options{Arrived: func(_ endpoint.Incoming, err error) { broken <- err }})
	s := newNode(t, "127.0.0.1", endpoint.Options{AnyPort: true})
	nowhere := raw(t, "127.0.0.2")
	done := make(chan endpoint.Result, 1)
	m := &endpoint.Outgoing{To: r.Addr(), Kind: rdcc.BindingOpaque, Length: 1 << 20, Target: nowhere.Addr(), Ended: func(r endpoint.Result) { done <- r }}
	if err := s.Send(m); err != nil {
		t.Fatal(err)
	}
	hear(t, nowhere)
	s.Cancel(m)
	if res := <-done; !errors.Is(res.Err, endpoint.ErrCancelled) {
		t.Errorf("a message that was cancelled: %v", res.Err)
	}
	if err := <-broken; err == nil || !strings.Contains(err.Error(), "its sender gave it up") {
		t.Errorf("the receiver: %v", err)
	}
}

// TestSinkFails: what cannot be kept is refused, and its sender told.
func TestSinkFails(t *testing.T) {
	r := newNode(t, "127.0.0.2", endpoint.Options{Accept: func(endpoint.Incoming) (endpoint.Sink, error) { return nil, errors.New("the disk is full") }})
	s := newNode(t, "127.0.0.1", endpoint.Options{AnyPort: true})
	var aborted *endpoint.AbortedError
	if res := s.send(r.Addr(), 100_000); !errors.As(res.Err, &aborted) {
		t.Errorf("%v", res.Err)
	}
}

// TestFolder: files are whole and have their name, or are not there.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	in := endpoint.Incoming{From: netip.MustParseAddrPort("[2001:db8::1]:52001"), Assoc: 0x5a17c0de, Message: 7}
	take := endpoint.Folder(dir)
	for _, end := range []error{nil, errors.New("cut")} {
		s, err := take(in)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.WriteAt([]byte("whole"), 0); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(end); err != nil {
			t.Fatal(err)
		}
		found, _ := filepath.Glob(filepath.Join(dir, "*"))
		want := filepath.Join(dir, "2001-db8--1-52001-5a17c0de-7")
		if len(found) != 1 || found[0] != want {
			t.Errorf("after %v: %v", end, found)
		}
		in.Message++
		if end != nil {
			continue
		}
		if b, _ := os.ReadFile(want); string(b) != "whole" {
			t.Errorf("%q", b)
		}
	}
	if err := endpoint.Writable(filepath.Join(dir, "none")); err == nil {
		t.Error("a folder that is not there can be written to")
	}
}

// TestMetrics: all counters of both machines in Prometheus' form, on a loopback address and nowhere else.
func TestMetrics(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:9464", "localhost:0"} {
		if m, err := endpoint.OpenMetrics(addr); err == nil {
			m.Close()
			t.Errorf("counters are told on %s", addr)
		}
	}
	n := newNode(t, "127.0.0.2", endpoint.Options{})
	s := newNode(t, "127.0.0.1", endpoint.Options{AnyPort: true})
	if res := s.send(n.Addr(), 50_000); res.Err != nil {
		t.Fatal(res.Err)
	}
	m, err := endpoint.OpenMetrics("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- m.Serve(ctx, n.Endpoint) }()
	res, err := http.Get("http://" + m.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(res.Body)
	res.Body.Close()
	for _, want := range []string{ // what the specification asks for, and some more
		"\nrdcc_receiver_granted_octets_total 50000\n", "\nrdcc_receiver_reclaimed_octets_total ", "\nrdcc_receiver_returned_octets_total ",
		"\nrdcc_receiver_unscheduled_octets_total 0\n", "\nrdcc_receiver_reports_received_total 0\n", "\nrdcc_receiver_invariant_violations_total 0\n",
		"\nrdcc_receiver_received_by_type_total{type=\"CREDIT_REQUEST\"} ", "\nrdcc_receiver_messages_done_total 1\n", "\nrdcc_sender_credit_granted_total 0\n",
		"\nrdcc_receiver_rtt_samples_total ", "\nrdcc_transport_received_total ", "\nrdcc_endpoint_misbehaving_total 0\n", "\nrdcc_receiver_associations_alive 1\n",
	} {
		if !strings.Contains("\n"+string(text), want) {
			t.Errorf("no %q in\n%s", strings.TrimSpace(want), text)
		}
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			if names[name] {
				t.Errorf("twice: %s", name)
			}
			names[name] = true
		}
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestMisbehaviourIsLogged: a sender that does not obey is named, and cannot fill the log.
func TestMisbehaviourIsLogged(t *testing.T) {
	var mu sync.Mutex
	var log bytes.Buffer
	w := writer(func(p []byte) (int, error) { mu.Lock(); defer mu.Unlock(); return log.Write(p) })
	r := newNode(t, "127.0.0.2", endpoint.Options{Log: slog.New(slog.NewTextHandler(w, nil))})
	s, data := raw(t, "127.0.0.1"), raw(t, "127.0.0.1")
	say(s, r.Addr(), (&rdcc.AssocRequest{SenderNonce: 7, LineRate: 1000}).Append(nil, rdcc.Header{Seq: 1}))
	_, b := hear(t, s)
	var d rdcc.Datagram
	if err := d.Decode(b); err != nil {
		t.Fatal(err)
	}
	const messages = 50
	for i := range uint64(messages) {
		say(s, r.Addr(), (&rdcc.CreditRequest{MessageID: i + 1, MessageLength: 1 << 20, BindingKind: rdcc.BindingOpaque, BindingValue: 1000 + i, UnscheduledSent: 1<<20 + 1}).Append(nil,
			rdcc.Header{Assoc: d.Assoc, Epoch: d.Epoch, Seq: 2 + uint32(i)}))
		p := opaque.Packet{Assoc: d.Assoc, Value: 1000 + i, Length: 1 << 20}
		packet := append(p.AppendHeader(nil), make([]byte, 1000)...)
		opaque.Seal(packet)
		say(data, addrPort("127.0.0.2", dataPort), packet)
	}
	testwait.For(t, patience, "all are noticed", func() (ok bool) {
		r.Call(func(time.Duration) { ok = r.Stats().Misbehaving >= messages })
		return ok
	})
	r.stop()
	mu.Lock()
	defer mu.Unlock()
	lines := strings.Count(log.String(), "does not obey")
	if lines == 0 || lines >= messages || !strings.Contains(log.String(), "127.0.0.1:") {
		t.Errorf("%d lines about %d:\n%s", lines, messages, log.String())
	}
	if untold := r.Endpoint.Stats().Untold; untold < messages-uint64(lines) {
		t.Errorf("%d lines were left out by count, %d were written", untold, lines)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// TestPortInUse names what is taken.
func TestPortInUse(t *testing.T) {
	newNode(t, "127.0.0.2", endpoint.Options{})
	tr, err := opaque.New(opaque.Options{Listen: netip.MustParseAddr("127.0.0.2"), Port: dataPort})
	if err != nil {
		t.Fatal(err)
	}
	_, err = endpoint.New(endpoint.Options{Domain: domain.Config{Port: port}, Fabric: fabric, Listen: netip.MustParseAddr("127.0.0.2"), Transports: []endpoint.Transport{tr}})
	if err == nil || !strings.Contains(err.Error(), "UDP port 52011 of 127.0.0.2") {
		t.Errorf("%v", err)
	}
}

// TestFabricOfTheFile: what an endpoint's file says of the path is what its machines get.
func TestFabricOfTheFile(t *testing.T) {
	c := domain.Config{Port: port, LineRate: 1e9, BaseRTT: domain.Time(time.Millisecond)}
	e, err := endpoint.New(endpoint.Options{Domain: c, Listen: netip.MustParseAddr("127.0.0.3"), NoSender: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if p := e.Receiver().Params(); p.Jitter != time.Millisecond || p.Backlog != 250_000 {
		t.Errorf("%+v", p)
	}
}
