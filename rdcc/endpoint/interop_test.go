package endpoint_test

import (
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/domain"
	"github.com/pcmlab/pcmlab/rdcc/endpoint"
)

// TestInterop: two operators' configurations work with each other over real sockets, in both directions at once.
func TestInterop(t *testing.T) {
	no := false
	plain := domain.Config{}
	for _, row := range []struct {
		name, a, b string
		ca, cb     domain.Config
		wide       bool // the second listens on all addresses of both families
		pool       bool // of what goes from a to b
		reason     string
	}{
		{"v4", "127.0.0.1", "127.0.0.2", plain, plain, false, false, "the usual case"},
		{"v6", "::1", "::1", plain, plain, false, false, "the other family"},
		{"v4 to both families", "127.0.0.1", "127.0.0.2", plain, plain, true, false, "a socket of both families meets one of IPv4, on an address that is not its first"},
		{"v6 to both families", "::1", "::1", plain, plain, true, false, "and one of IPv6"},
		{"no unscheduled window", "127.0.0.1", "127.0.0.2", plain, domain.Config{U: domain.Octets(0)}, false, false, "U = 0 on one side: all that goes there waits for credit"},
		{"no unscheduled data", "127.0.0.1", "127.0.0.2", domain.Config{Unscheduled: &no}, plain, false, false, "a sender that uses no window"},
		{"pool on both sides", "127.0.0.1", "127.0.0.2", domain.Config{Pool: true}, domain.Config{Pool: true}, false, true, "pool grants"},
		{"pool not advertised", "127.0.0.1", "127.0.0.2", domain.Config{Advertise: []string{"status", "crn"}}, domain.Config{Pool: true}, false, false,
			"a receiver with pool grants gives a sender without POOL grants by message"},
		{"nothing advertised", "127.0.0.1", "127.0.0.2", domain.Config{Advertise: []string{"none"}}, domain.Config{Pool: true, Allocator: "bbr"}, false, false, "a sender without any capability"},
		{"pool not granted", "127.0.0.1", "127.0.0.2", domain.Config{Pool: true}, domain.Config{Pool: false}, false, false, "a sender that knows pools meets a receiver that does not"},
		{"other sizes", "127.0.0.1", "127.0.0.2", domain.Config{CreditUnit: 8192, G: domain.BDPs(1)}, domain.Config{CreditUnit: 512, G: domain.BDPs(4), Lifetime: domain.Time(20 * time.Millisecond)},
			false, false, "credit units of an operator that are no multiple of the other's packets"},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := newNode(t, row.a, endpoint.Options{Domain: row.ca, AnyPort: row.a == row.b || row.wide})
			listen := row.b
			if row.wide {
				listen = "::"
			}
			b := newNode(t, listen, endpoint.Options{Domain: row.cb})
			to := addrPort(row.b, b.Addr().Port())
			back := a.Addr()
			lengths := []uint64{700, 1400, 20_000, 300_000}
			both := make(chan endpoint.Result, 2*len(lengths))
			launch := func(from *node, to *node, at, data int, length uint64) {
				m := &endpoint.Outgoing{To: addrPort(row.b, uint16(at)), Kind: rdcc.BindingOpaque, Length: length, Ended: func(r endpoint.Result) { both <- r }}
				if to == a {
					m.To = back
					m.Target = addrPort(row.a, uint16(data))
				}
				if err := from.Send(m); err != nil {
					t.Fatal(err)
				}
			}
			for _, n := range lengths {
				launch(a, b, int(to.Port()), 0, n)
				launch(b, a, int(back.Port()), int(a.tr.Addr().Port()), n)
			}
			var unscheduled [2]uint64
			for range 2 * len(lengths) {
				select {
				case r := <-both:
					if r.Err != nil {
						t.Fatalf("%d octets to %v: %v", r.Octets, r.To, r.Err)
					}
					if r.To == to {
						unscheduled[0] += r.Unscheduled
					} else {
						unscheduled[1] += r.Unscheduled
					}
				case <-time.After(patience):
					t.Fatalf("not all messages have arrived after %v", patience)
				}
			}
			for range lengths {
				<-a.got
				<-b.got
			}
			if may := row.cb.MayUnschedule() && row.ca.MayUnschedule(); !may && unscheduled[0] > 0 {
				t.Errorf("%d octets went to the second without credit", unscheduled[0])
			}
			a.Call(func(time.Duration) {
				i, ok := a.Sender().Association(to)
				if !ok || !i.Open || i.Pool != row.pool {
					t.Errorf("association %+v, want pool %v", i, row.pool)
				}
			})
			a.obeyed()
			b.obeyed()
		})
	}
}
