package fabric

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
)

// TestRun_gatheringForgetsNothing: a closed loop of bursts and answers, so that nothing wakes the fabric but the packets
// under way. A packet that arrives while the fabric goes to sleep must not lie there until the next one comes.
func TestRun_gatheringForgetsNothing(t *testing.T) {
	hosts := newHosts(t, 3, KindTAP)
	r := start(t, Config{Name: "g", IO: IOUring, Quantum: 50 * time.Microsecond, Ports: ports(hosts, 500*units.MbitPerSec, 50*time.Microsecond, KindTAP)})
	a, b, c := udp(t, hosts[0], 4791), udp(t, hosts[1], 4791), udp(t, hosts[2], 4791)
	rng := rand.New(rand.NewPCG(1, 2))
	payload, buf := make([]byte, 1000), make([]byte, 2000)
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	var slowest time.Duration
	for i := range rounds {
		began := time.Now()
		burst := 1 + rng.IntN(4)
		for k := range burst {
			from := a
			if k%2 == 1 {
				from = c
			}
			if _, err := from.WriteTo(payload[:1+rng.IntN(len(payload))], b.LocalAddr()); err != nil {
				t.Fatal(err)
			}
			for spin := time.Now(); time.Since(spin) < time.Duration(rng.IntN(150))*time.Microsecond; { // another moment of the fabric's wait each time
			}
		}
		for range burst {
			if err := b.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Read(buf); err != nil {
				t.Fatalf("round %d: a packet lies in the fabric: %v; lateness %+v", i, err, r.counters(t).Lateness)
			}
		}
		if _, err := b.WriteTo(payload[:1], a.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		if err := a.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Read(buf); err != nil {
			t.Fatalf("round %d: the answer lies in the fabric: %v", i, err)
		}
		slowest = max(slowest, time.Since(began))
	}
	t.Logf("%d rounds, slowest %v", rounds, slowest)
}
