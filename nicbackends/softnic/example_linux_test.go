package softnic_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/pcmlab/pcmlab/nicbackends/perftest"
	"github.com/pcmlab/pcmlab/nicbackends/softnic"
)

// Two NICs on loopback addresses, a queue pair on each, and one RDMA WRITE between them.
func ExampleServe() {
	dir, err := os.MkdirTemp("", "nic")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	done := make(chan error, 2)
	for i, ip := range []string{"127.77.20.1/8", "127.77.20.2/8"} {
		device := fmt.Sprintf("softnic%d", i)
		go func() {
			done <- softnic.Serve(ctx, softnic.Config{Device: device, Netdev: "lo", MAC: "02:00:00:00:00:01", IP: netip.MustParsePrefix(ip),
				MTU: 4200, RateBps: 1_000_000_000, Socket: filepath.Join(dir, device+".sock")}, nil)
		}()
	}
	open := func(device string) perftest.QP {
		for ctx.Err() == nil {
			d, err := softnic.Verbs{Dir: dir}.Open(device)
			if err != nil {
				<-time.After(2 * time.Millisecond) // not up yet
				continue
			}
			q, err := d.CreateQP(perftest.QPOptions{BufferSize: 65536, GIDIndex: 1, Timeout: 14, RetryCount: 7})
			if err != nil {
				fmt.Println(err)
			}
			return q
		}
		return nil
	}
	client, server := open("softnic0"), open("softnic1")
	// The real tool exchanges these over TCP.
	fmt.Println(client.Connect(server.Local()), server.Connect(client.Local()))
	fmt.Println(client.PostWrites(1, 65536))
	fmt.Println(client.Completions(ctx, 10*time.Second))
	cancel()
	fmt.Println(<-done, <-done)
	// Output:
	// <nil> <nil>
	// <nil>
	// 1 <nil>
	// <nil> <nil>
}
