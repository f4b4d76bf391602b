package locks_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/guard"
	"github.com/pcmlab/pcmlab/inventory/remote/locks"
	"github.com/pcmlab/pcmlab/inventory/remote/remotetest"
	"github.com/pcmlab/pcmlab/inventory/remote/sshserver"
)

// TestMain lets the test binary be pcmlab on the hosts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "guard":
			os.Exit(guard.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case "locks":
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			os.Exit(locks.Main(ctx, os.Args[2:], os.Stdout, os.Stderr))
		}
	}
	flag.Parse()
	os.Unsetenv("SSH_AUTH_SOCK")
	os.Exit(m.Run())
}

// hosts are two hosts, reached by two who know nothing of each other; they share the folder of locks, being one machine.
func hosts(t *testing.T) (alice, bob remote.Host) {
	t.Helper()
	t.Setenv("PCMLAB_LOCK_DIR", t.TempDir())
	s := remotetest.Start(t, t.TempDir(), sshserver.Options{SFTP: true})
	dial := func(run string) remote.Host {
		lab := s.Lab(t)
		h, err := remote.Dial(t.Context(), lab, lab.Hosts[0].Name, remote.Options{Run: fmt.Sprintf("test-%s-%d", run, time.Now().UnixNano()), Home: t.TempDir(), ConfigFiles: []string{}, SameMachine: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		return h
	}
	return dial("alice"), dial("bob")
}

func want(h remote.Host, id, owner string) []locks.Want {
	return []locks.Want{{Host: h, Lock: locks.Lock{ID: id, Run: true, Owner: owner, Reason: "playbook x", Since: time.Now(), Expires: time.Now().Add(time.Minute),
		Resources: []locks.Resource{{Kind: locks.Use}, {Kind: locks.NIC, Name: "eth0"}}}}}
}

func TestHold_oneAfterTheOther(t *testing.T) {
	alice, bob := hosts(t)
	release, err := locks.Hold(t.Context(), want(alice, "run-a", "alice@a"), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = locks.Hold(t.Context(), want(bob, "run-b", "bob@b"), 0, nil)
	var busy *locks.BusyError
	if !errors.As(err, &busy) || !strings.Contains(err.Error(), "run run-a of alice@a holds "+bob.Name()+" nic eth0 until ") {
		t.Fatalf("a second run: %v", err)
	}
	waiting := make(chan string, 1)
	got := make(chan error, 1)
	go func() {
		release, err := locks.Hold(t.Context(), want(bob, "run-b", "bob@b"), time.Minute, func(s string) { waiting <- s })
		if err == nil {
			err = release(context.WithoutCancel(t.Context()))
		}
		got <- err
	}()
	if text := <-waiting; !strings.Contains(text, "run-a") {
		t.Errorf("waits for %q", text)
	}
	if err := release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatalf("after the first gave it back: %v", err)
	}
	if all, err := locks.List(t.Context(), alice); err != nil || len(all) != 0 {
		t.Errorf("left: %+v, %v", all, err)
	}
}

// A run's lock is gone with the run, however it ends.
func TestHold_endsWithItsOwner(t *testing.T) {
	alice, bob := hosts(t)
	if _, err := locks.Hold(t.Context(), want(alice, "run-a", "alice@a"), 0, nil); err != nil {
		t.Fatal(err)
	}
	alice.Close()
	release, err := locks.Hold(t.Context(), want(bob, "run-b", "bob@b"), 20*time.Second, func(string) {})
	if err != nil {
		t.Fatalf("after the owner was lost: %v", err)
	}
	release(t.Context())
}

// All hosts or none.
func TestHold_allOrNone(t *testing.T) {
	alice, bob := hosts(t)
	if _, err := locks.Take(t.Context(), alice, locks.Lock{ID: "alice@a", Owner: "alice@a", Reason: "hers", Expires: time.Now().Add(time.Minute), Resources: []locks.Resource{{Kind: locks.NIC, Name: "eth1"}}}); err != nil {
		t.Fatal(err)
	}
	two := append(want(bob, "run-b", "bob@b"), want(bob, "run-c", "bob@b")...)
	two[1].Lock.Resources = []locks.Resource{{Kind: locks.NIC, Name: "eth1"}}
	if _, err := locks.Hold(t.Context(), two, 0, nil); err == nil || !strings.Contains(err.Error(), "alice@a") || !strings.Contains(err.Error(), "hers") {
		t.Fatalf("%v", err)
	}
	all, err := locks.List(t.Context(), bob)
	if err != nil || len(all) != 1 || all[0].Owner != "alice@a" {
		t.Errorf("left: %+v, %v", all, err)
	}
	if err := locks.Drop(t.Context(), bob, "alice@a"); err != nil {
		t.Error(err)
	}
}
