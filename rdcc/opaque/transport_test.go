package opaque_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/domain"
	"github.com/pcmlab/pcmlab/rdcc/endpoint"
	"github.com/pcmlab/pcmlab/rdcc/opaque"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
)

// patience is for machines that are busy with other tests.
const patience = time.Minute

var fabric = receiver.Fabric{LineRate: 2e9, BaseRTT: 200 * time.Microsecond, DMax: time.Millisecond, Payload: 1400, Wire: 1500}

// sink keeps a message.
type sink struct {
	mu   sync.Mutex
	data []byte
	end  error
	done bool
}

func (s *sink) WriteAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return copy(s.data[off:], p), nil
}

func (s *sink) Close(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done, s.end = true, err
	return nil
}

// host is an endpoint that runs until the test's end.
type host struct {
	*endpoint.Endpoint
	t     *testing.T
	tr    *opaque.Transport
	sinks chan *sink
}

func start(t *testing.T, at string, c domain.Config, data uint16, any bool) *host {
	t.Helper()
	h := &host{t: t, sinks: make(chan *sink, 1000)}
	addr := netip.MustParseAddr(at)
	tr, err := opaque.New(opaque.Options{Listen: addr, Port: data, AnyPort: any})
	if err != nil {
		t.Fatal(err)
	}
	h.tr = tr
	h.Endpoint, err = endpoint.New(endpoint.Options{
		Domain: c, Fabric: fabric, Listen: addr, AnyPort: any, Transports: []endpoint.Transport{tr},
		Accept: func(in endpoint.Incoming) (endpoint.Sink, error) {
			s := &sink{data: make([]byte, in.Length)}
			h.sinks <- s
			return s, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go h.Run(ctx)
	t.Cleanup(func() {
		cancel()
		<-h.Done()
	})
	return h
}

func (h *host) send(to netip.AddrPort, data []byte, class uint8) endpoint.Result {
	h.t.Helper()
	got := make(chan endpoint.Result, 1)
	m := &endpoint.Outgoing{
		To: to, Kind: rdcc.BindingOpaque, Length: uint64(len(data)), Data: bytes.NewReader(data), Class: class,
		Ended: func(r endpoint.Result) { got <- r },
	}
	if err := h.Send(m); err != nil {
		return endpoint.Result{Err: err}
	}
	select {
	case r := <-got:
		return r
	case <-time.After(patience):
		p, _ := h.Progress(m)
		h.t.Fatalf("a message of %d octets is at %+v after %v", len(data), p, patience)
		return endpoint.Result{}
	}
}

func random(n int) []byte {
	b := make([]byte, n)
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// TestMessages: short ones without credit and long ones with, each whole at the other end.
func TestMessages(t *testing.T) {
	c := domain.Config{Port: 52001, U: domain.Octets(8 << 10), Gu: domain.Octets(16 << 10), ExpectedSenders: 2}
	r := start(t, "127.0.0.2", c, 52002, false)
	s := start(t, "127.0.0.1", c, 52002, true)
	for _, n := range []int{1, 1400, 1401, 8 << 10, 100_000, 4 << 20} {
		data := random(n)
		res := s.send(r.Addr(), data, 2)
		if res.Err != nil {
			t.Fatalf("%d octets: %v", n, res.Err)
		}
		got := <-r.sinks
		got.mu.Lock()
		if !got.done || got.end != nil || !bytes.Equal(got.data, data) {
			t.Errorf("%d octets arrived otherwise: done %v, %v", n, got.done, got.end)
		}
		got.mu.Unlock()
		if small := n <= 8<<10; small != (res.Unscheduled == uint64(n)) || !small && res.Waited == 0 {
			t.Errorf("%d octets: %d went without credit, %v waited for it", n, res.Unscheduled, res.Waited)
		}
		t.Logf("%d octets in %v, %v waited, %d again, RTT %v", n, res.Elapsed, res.Waited, *res.Retransmitted, res.RTT)
	}
	r.Call(func(time.Duration) {
		k := r.Receiver().Counters
		if k.InvariantViolations != 0 || k.ExcessOctets != 0 {
			t.Errorf("the receiver counts %d violations, %d octets beyond credit", k.InvariantViolations, k.ExcessOctets)
		}
	})
	s.Call(func(time.Duration) {
		if k := s.Sender().Counters(); k.BeyondCredit != 0 {
			t.Errorf("%d octets were sent beyond credit", k.BeyondCredit)
		}
	})
}

// TestNobodyThere: a host without RDCC is told apart.
func TestNobodyThere(t *testing.T) {
	s := start(t, "127.0.0.1", domain.Config{Port: 52001}, 52002, true)
	if res := s.send(netip.MustParseAddrPort("127.0.0.3:52001"), random(100), 0); !errors.Is(res.Err, endpoint.ErrWithout) {
		t.Errorf("a host where nobody listens: %v", res.Err)
	}
	if res := s.send(netip.MustParseAddrPort("127.0.0.3:52001"), random(100), 0); !errors.Is(res.Err, endpoint.ErrWithout) {
		t.Errorf("once more: %v", res.Err)
	}
}

type failing struct{ io.ReaderAt }

func (failing) ReadAt([]byte, int64) (int, error) { return 0, errors.New("the disk is gone") }

// TestSourceFails: what cannot be read is given up at both ends.
func TestSourceFails(t *testing.T) {
	c := domain.Config{Port: 52001}
	r := start(t, "127.0.0.2", c, 52002, false)
	s := start(t, "127.0.0.1", c, 52002, true)
	got := make(chan endpoint.Result, 1)
	err := s.Send(&endpoint.Outgoing{To: r.Addr(), Kind: rdcc.BindingOpaque, Length: 1 << 20, Data: failing{}, Ended: func(r endpoint.Result) { got <- r }})
	if err != nil {
		t.Fatal(err)
	}
	if res := <-got; res.Err == nil || res.Err.Error() != "read octets 0 to 1400 of the message: the disk is gone" {
		t.Errorf("result %v", res.Err)
	}
	k := <-r.sinks
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		k.mu.Lock()
		done, end := k.done, k.end
		k.mu.Unlock()
		if done {
			if end == nil {
				t.Error("the receiver takes it for whole")
			}
			return
		}
		r.Call(func(time.Duration) {})
	}
	t.Error("the receiver still waits")
}
