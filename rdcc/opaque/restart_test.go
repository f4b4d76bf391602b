package opaque

import (
	"net/netip"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc/endpoint"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
	"github.com/pcmlab/pcmlab/rdcc/udp"
)

// fakeHost is an endpoint whose association the test chooses.
type fakeHost struct {
	endpoint.Host
	assoc   uint32
	ended   []error
	arrived []receiver.Arrival
}

func (h *fakeHost) Wire(*endpoint.Outgoing) (uint32, uint64, bool) { return h.assoc, 1, true }
func (h *fakeHost) Allowance(_ time.Duration, m *endpoint.Outgoing) (uint64, int64) {
	return m.Length, 1e9
}
func (h *fakeHost) DSCP(*endpoint.Outgoing) (uint8, bool)                      { return 0, false }
func (h *fakeHost) Transmitted(time.Duration, *endpoint.Outgoing, uint64)      {}
func (h *fakeHost) RTTSample(time.Duration, *endpoint.Outgoing, time.Duration) {}
func (h *fakeHost) Abort(_ time.Duration, _ *endpoint.Outgoing, err error) {
	h.ended = append(h.ended, err)
}
func (h *fakeHost) Arrived(_ time.Duration, _ uint32, v receiver.Arrival) {
	h.arrived = append(h.arrived, v)
}
func (h *fakeHost) Now() time.Duration                               { return 0 }
func (h *fakeHost) Received(time.Duration, endpoint.Incoming, error) {}
func (h *fakeHost) Sink(endpoint.Incoming) (endpoint.Sink, error)    { return nowhere{}, nil }

type nowhere struct{}

func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (nowhere) Close(error) error                      { return nil }

func opened(t *testing.T) (*Transport, *fakeHost) {
	t.Helper()
	tr, err := New(Options{Listen: netip.MustParseAddr("127.0.0.1"), Port: 52002, AnyPort: true})
	if err != nil {
		t.Fatal(err)
	}
	h := &fakeHost{assoc: 7}
	if err := tr.Open(h); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr, h
}

// TestRestarted: a receiver that began anew while a message was on its way has lost what it had of it; one that had acknowledged all
// of it had it whole, although its MSG_DONE will not come.
func TestRestarted(t *testing.T) {
	const length = 5000
	for _, row := range []struct {
		name  string
		acked uint64
		want  error
	}{{"nothing_acknowledged", 0, ErrRestarted}, {"a_part", length - 1, ErrRestarted}, {"all", length, nil}} {
		t.Run(row.name, func(t *testing.T) {
			tr, h := opened(t)
			to := netip.MustParseAddrPort("127.0.0.1:9")
			m := &endpoint.Outgoing{To: to, Target: to, Length: length}
			var err error
			if m.Value, err = tr.Bind(0, m); err != nil {
				t.Fatal(err)
			}
			now := time.Second
			tr.Allowed(now, m)
			if row.acked > 0 {
				a := Packet{Assoc: h.assoc, Value: m.Value, Cumulative: row.acked, Stamp: Stamp(now), Packets: 1}
				tr.packet(now+time.Millisecond, &udp.Packet{Data: a.AppendAck(nil), From: to})
			}
			if len(h.ended) != 0 {
				t.Fatalf("it has ended before: %v", h.ended)
			}
			h.assoc = 8
			tr.Allowed(now+2*time.Millisecond, m)
			if len(h.ended) != 1 || h.ended[0] != row.want {
				t.Errorf("ended with %v, want %v", h.ended, row.want)
			}
		})
	}
}

// TestAnnounced_tellsBefore: the machine hears what of a message was there before it, which is nothing, so that nothing that was sent to
// an earlier incarnation is presumed to have arrived, and no MSG_DONE says so.
func TestAnnounced_tellsBefore(t *testing.T) {
	tr, h := opened(t)
	from := netip.MustParseAddrPort("127.0.0.1:52001")
	tr.Incoming(0, receiver.Event{Kind: receiver.AssociationMade, Assoc: 7, Addr: from})
	tr.Incoming(0, receiver.Event{Kind: receiver.MessageAnnounced, Assoc: 7, Message: 3, Length: 100, Binding: 2, Value: 9, Addr: from})
	if len(h.arrived) != 1 || !h.arrived[0].Before || h.arrived[0].Octets != 0 || h.arrived[0].Message != 3 {
		t.Errorf("told %+v", h.arrived)
	}
}
