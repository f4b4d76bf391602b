package check

import (
	"fmt"
	"testing"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/remotetest"
	"github.com/pcmlab/pcmlab/inventory/remote/sshserver"
)

// BenchmarkAsk checks a hundred hosts, all of them SSH servers of this process on this machine: each costs both ends of a
// login and all the commands that a host answers with. The goal is 5 s on two cores (docs/check.md).
func BenchmarkAsk(b *testing.B) {
	for _, way := range []string{"direct", "jump"} {
		b.Run("hosts=100/"+way, func(b *testing.B) {
			home := b.TempDir()
			lab := &inventory.Lab{Name: "hundred"}
			jump := "none"
			if way == "jump" {
				s := remotetest.Start(b, home, sshserver.Options{TCPForward: true, MaxStartups: 10})
				lab.Hosts = append(lab.Hosts, &inventory.Host{Name: "gateway", SSH: s.SSH(b)})
				jump = "gateway"
			}
			for i := range 100 {
				s := remotetest.Start(b, home, sshserver.Options{})
				h := &inventory.Host{Name: fmt.Sprintf("n%d", i), SSH: s.SSH(b)}
				h.SSH.Jump = jump
				lab.Hosts = append(lab.Hosts, h)
			}
			for b.Loop() {
				pool, err := remote.NewPool(lab, remote.Options{Home: home, ConfigFiles: []string{}, Handshakes: 32, Parallel: 128, SameMachine: true})
				if err != nil {
					b.Fatal(err)
				}
				answers := Ask(b.Context(), pool, lab, Options{Exchanges: 3})
				for _, a := range answers {
					if a.Err != nil || !a.Facts.Kernel.Known() || a.Facts.Offset.Why != "" {
						b.Fatalf("%s: %v, clock %+v", a.Host, a.Err, a.Facts.Offset)
					}
				}
				Judge(lab, answers)
				pool.Close()
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/check")
		})
	}
}
