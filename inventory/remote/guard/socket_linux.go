package guard

import (
	"bufio"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"
)

// openStore writes the guard's record and opens its socket. Where that cannot be done (a full disk, a read-only home)
// the guard works without: it says so, and its owner cannot re-attach.
func (g *inner) openStore(stderr io.Writer) net.Listener {
	ln, err := g.tryOpenStore()
	if err != nil {
		fmt.Fprintf(stderr, "guard: no record, no re-attach: %v\n", err)
		return nil
	}
	return ln
}

func (g *inner) tryOpenStore() (net.Listener, error) {
	base, err := Dir()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(base, g.cfg.Run)
	outer, err := readProc(os.Getppid())
	if err != nil {
		return nil, err
	}
	g.record = Record{
		Event: "guarding", At: time.Now().UTC(), Run: g.cfg.Run, ID: g.cfg.id, Host: g.ready.Host, BootID: g.ready.BootID,
		PID: outer.pid, Start: outer.start, Token: randomID(16), Args: g.cfg.Args, Restore: g.cfg.Restore,
	}
	until := g.begin.Add(g.cfg.Deadline).UTC()
	g.record.Deadline = &until
	file := filepath.Join(dir, g.cfg.id+".json")
	if err := openRecord(file, g.record); err != nil {
		return nil, err
	}
	g.file = file
	ln, err := listenIn(dir, g.cfg.id+".sock")
	if err != nil {
		return nil, err
	}
	g.ready.Token = g.record.Token
	return ln, nil
}

// openRecord makes the run's folder and a guard's file in it. A guard of the same run that ends at this moment may remove
// the folder in between, which was empty until then.
func openRecord(file string, r Record) (err error) {
	for range 20 {
		if err = os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		// Others may have made the folder, or its mode may be wider: the socket's safety hangs on it.
		if err = os.Chmod(filepath.Dir(file), 0o700); err == nil {
			err = appendRecord(file, r)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// listenIn listens on a socket in dir. The path of a socket may have 107 bytes only, so it is reached by way of the
// folder's descriptor.
func listenIn(dir, name string) (net.Listener, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name))
	if err != nil {
		d.Close()
		return nil, err
	}
	return &dirListener{Listener: ln, dir: d}, nil
}

type dirListener struct {
	net.Listener
	dir *os.File // closed after the socket has been removed through it
}

func (l *dirListener) Close() error {
	err := l.Listener.Close()
	l.dir.Close()
	return err
}

func closeStore(ln net.Listener) {
	ln.Close()
	if d, ok := ln.(*dirListener); ok {
		os.Remove(d.dir.Name()) // the run's folder, when it is empty
	}
}

func dialIn(dir, name string) (net.Conn, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return net.DialTimeout("unix", fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name), 2*time.Second)
}

// accept takes owners that come back, and cleanups.
func (g *inner) accept(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go g.greet(c)
	}
}

func (g *inner) greet(c net.Conn) {
	c.SetDeadline(time.Now().Add(5 * time.Second))
	br := bufio.NewReaderSize(c, MaxPayload)
	f, err := NewReader(br).Read()
	var a AttachInfo
	if err != nil || f.Type != Attach || json.Unmarshal(f.Payload, &a) != nil ||
		subtle.ConstantTimeCompare([]byte(a.Token), []byte(g.record.Token)) != 1 {
		io.WriteString(c, "wrong token\n")
		c.Close()
		return
	}
	c.SetDeadline(time.Time{})
	if a.Cleanup {
		g.postFunc(func() { g.step(event{kind: evStop, signal: "TERM", cause: CauseCleanup}) })
		c.Close()
		return
	}
	g.postFunc(func() {
		next, ok := g.out.rewind(a.Next)
		if !ok {
			io.WriteString(c, "output before that frame is gone\n")
			c.Close()
			return
		}
		g.adopt(&link{r: br, w: c, close: func() { c.Close() }}, next)
		g.step(event{kind: evAttached})
	})
}
