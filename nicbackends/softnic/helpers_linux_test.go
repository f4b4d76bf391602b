package softnic

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/testwait"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

// startNIC runs a NIC on a loopback address until the test ends and returns the directory of its socket.
func startNIC(t testing.TB, dir, device, ip string, change func(*Config)) Config {
	t.Helper()
	c := Config{Device: device, Netdev: "lo", IP: netip.MustParsePrefix(ip + "/8"), MAC: "02:00:00:00:00:01", MTU: 4200,
		// So little is in flight that even the smallest receive buffer holds it while the machine is busy elsewhere.
		MaxOutstanding: 32, RateBps: 2_000_000_000, ECN: true, DSCP: 26, DCQCN: DCQCNConfig{Enabled: true},
		Socket: filepath.Join(dir, device+".sock"), Sysfs: filepath.Join(dir, "sys", device)}
	if change != nil {
		change(&c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, c, nil) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	testwait.For(t, 20*time.Second, "the NIC's socket", func() bool {
		select {
		case err := <-done:
			done <- err
			t.Fatalf("Serve: %v", err)
		default:
		}
		k, err := DialControl(c.Socket)
		if err != nil {
			return false
		}
		k.Close()
		return true
	})
	return c
}

func openDevice(t testing.TB, dir, name string) perftest.Device {
	t.Helper()
	d, err := Verbs{Dir: dir}.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// joined makes two connected queue pairs.
func joined(t testing.TB, a, b perftest.Device, o perftest.QPOptions) (x, y *clientQP) {
	t.Helper()
	o.GIDIndex = 1
	for _, side := range []struct {
		d perftest.Device
		q **clientQP
	}{{a, &x}, {b, &y}} {
		q, err := side.d.CreateQP(o)
		if err != nil {
			t.Fatal(err)
		}
		*side.q = q.(*clientQP)
	}
	if err := x.Connect(y.Local()); err != nil {
		t.Fatal(err)
	}
	if err := y.Connect(x.Local()); err != nil {
		t.Fatal(err)
	}
	return x, y
}

func counters(t testing.TB, c Config) map[string]uint64 {
	t.Helper()
	k, err := DialControl(c.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	m, err := k.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// await takes completions until n have come.
func await(t testing.TB, q perftest.QP, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for n > 0 {
		k, err := q.Completions(ctx, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		n -= k
	}
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
