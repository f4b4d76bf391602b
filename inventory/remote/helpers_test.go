package remote_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
)

func randomName() string {
	b := make([]byte, 6)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// orchestrate is a client of its own process, to be killed: it starts stubborn commands on a host and waits.
func orchestrate(args []string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	var ssh inventory.SSH
	if err := json.Unmarshal([]byte(args[1]), &ssh); err != nil {
		return fail(err)
	}
	ctx := context.Background()
	lab := &inventory.Lab{Name: "kill", Hosts: []*inventory.Host{{Name: "h3", SSH: ssh}}}
	h, err := remote.Dial(ctx, lab, "h3", remote.Options{Run: args[0], ConfigFiles: []string{}})
	if err != nil {
		return fail(err)
	}
	fmt.Println("connected")
	for _, script := range []string{
		`trap '' TERM HUP INT; while :; do sleep 1; done`,
		`(setsid sh -c 'trap "" TERM HUP; setsid sleep 301 & sleep 302' >/dev/null 2>&1 &); sleep 303`,
		`sleep 304 & sleep 305`,
		`yes`,
	} {
		if _, err := h.Start(ctx, remote.Cmd{Args: []string{"sh", "-c", script}}); err != nil {
			return fail(err)
		}
		fmt.Println("started")
	}
	if _, err := h.Start(ctx, remote.Cmd{Args: []string{"sleep", "306"}, Hold: true}); err != nil {
		return fail(err)
	}
	fmt.Println("all")
	select {}
}

// lines counts what a process prints.
type lines struct {
	mu sync.Mutex
	n  int
}

func (l *lines) count(r io.Reader) {
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		l.mu.Lock()
		l.n++
		l.mu.Unlock()
	}
}

func (l *lines) get() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// script writes an executable shell script into dir.
func script(t *testing.T, dir, name, body string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}
