package endpoint_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/rdcc/domain"
	"github.com/pcmlab/pcmlab/rdcc/endpoint"
)

// asUser marks the process that the test of Drop starts.
const asUser = "PCMLAB_TEST_DROP"

func TestMain(m *testing.M) {
	if name := os.Getenv(asUser); name != "" {
		dropped(name)
		return
	}
	os.Exit(m.Run())
}

// dropped opens a port below 1024, becomes another user, and prints what it then is in each of its threads.
func dropped(name string) {
	e, err := endpoint.New(endpoint.Options{Domain: domain.Config{Port: 1013}, Fabric: fabric, Listen: netip.MustParseAddr("127.0.0.9")})
	if err == nil {
		err = endpoint.Drop(name)
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go e.Run(ctx)
	defer func() { cancel(); <-e.Done() }()
	files, _ := filepath.Glob("/proc/self/task/*/status")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		for line := range strings.Lines(string(b)) {
			for _, key := range []string{"Uid:", "Gid:", "Groups:", "CapEff:", "CapPrm:", "NoNewPrivs:"} {
				if strings.HasPrefix(line, key) {
					fmt.Print(line)
				}
			}
		}
	}
	_, err = os.ReadFile("/etc/shadow")
	fmt.Println("shadow:", os.IsPermission(err))
	_, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 9), Port: 1014})
	fmt.Println("another port below 1024:", err == nil)
}

// TestDrop: with its port open the process becomes another user in all threads, and cannot come back.
func TestDrop(t *testing.T) {
	if os.Getuid() != 0 {
		err := endpoint.Drop("root")
		if err == nil || !strings.Contains(err.Error(), "only root may become another") {
			t.Errorf("a plain user becomes root: %v", err)
		}
		return
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), asUser+"=nobody")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	threads := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "Uid:":
			threads++
			fallthrough
		case "Gid:":
			if strings.Join(fields[1:], " ") != "65534 65534 65534 65534" {
				t.Errorf("%s", line)
			}
		case "Groups:":
			if strings.Join(fields[1:], " ") != "65534" {
				t.Errorf("%s", line)
			}
		case "CapEff:", "CapPrm:":
			if strings.Trim(fields[1], "0") != "" {
				t.Errorf("%s", line)
			}
		}
	}
	if threads < 2 || !strings.Contains(string(out), "NoNewPrivs:\t1") || !strings.Contains(string(out), "shadow: true") {
		t.Errorf("%d threads:\n%s", threads, out)
	}
}

// TestDrop_unknown names the user.
func TestDrop_unknown(t *testing.T) {
	if err := endpoint.Drop("no-such-user-here"); err == nil || !strings.Contains(err.Error(), `user "no-such-user-here"`) {
		t.Errorf("%v", err)
	}
}
