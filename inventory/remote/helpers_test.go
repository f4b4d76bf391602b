package remote_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
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

// proxy is a TCP path that can be cut or stalled.
type proxy struct {
	ln     net.Listener
	target string
	wg     sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]chan struct{} // of a stalled one: closed when it is cut
	refuse bool
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, target: target, conns: map[net.Conn]chan struct{}{}}
	p.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() { ln.Close(); p.cut(); p.wg.Wait() })
	return p
}

func (p *proxy) port() int { return p.ln.Addr().(*net.TCPAddr).Port }

func (p *proxy) serve(c net.Conn) {
	defer c.Close()
	p.mu.Lock()
	refuse := p.refuse
	p.mu.Unlock()
	if refuse {
		return
	}
	up, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer up.Close()
	p.mu.Lock()
	p.conns[c], p.conns[up] = nil, nil
	p.mu.Unlock()
	var wg sync.WaitGroup
	pipe := func(dst, src net.Conn) {
		buf := make([]byte, 32<<10)
		for {
			n, err := src.Read(buf)
			p.mu.Lock()
			stalled := p.conns[src]
			p.mu.Unlock()
			if stalled != nil {
				<-stalled
			}
			if n > 0 {
				if _, err := dst.Write(buf[:n]); err != nil {
					break
				}
			}
			if err != nil {
				break
			}
		}
		dst.Close()
		src.Close()
	}
	wg.Go(func() { pipe(up, c) })
	pipe(c, up)
	wg.Wait()
	p.mu.Lock()
	delete(p.conns, c)
	delete(p.conns, up)
	p.mu.Unlock()
}

// cut ends all present connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, stalled := range p.conns {
		c.Close()
		if stalled != nil {
			close(stalled)
			p.conns[c] = nil
		}
	}
}

// stall lets nothing more through on the present connections, and does not end them: a path that was cut.
func (p *proxy) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		p.conns[c] = make(chan struct{})
	}
}

// block ends all connections and lets no new ones through.
func (p *proxy) block(on bool) {
	p.mu.Lock()
	p.refuse = on
	p.mu.Unlock()
	if on {
		p.cut()
	}
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
