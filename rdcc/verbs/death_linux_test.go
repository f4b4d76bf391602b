package verbs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// parent starts a program, says which process it is, and waits to be killed.
func parent() {
	p, d, err := Start(context.Background(), Options{GIDIndex: 1, Command: []string{os.Getenv("PCMLAB_VERBS_PARENT")}}, func(Report) {})
	if err != nil {
		fmt.Println(err)
		return
	}
	h, err := p.Make(context.Background(), d)
	fmt.Println(p.cmd.Process.Pid, h.QP, err)
	select {}
}

// TestProgram_diesWithItsEndpoint: killed without a chance to say anything, an endpoint leaves no program.
func TestProgram_diesWithItsEndpoint(t *testing.T) {
	program, fake := compiled(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PCMLAB_VERBS_PARENT="+program, "LD_PRELOAD="+fake)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var pid, qp int
	if n, _ := fmt.Sscan(line, &pid, &qp); n != 2 || err != nil {
		cmd.Process.Kill()
		t.Fatalf("the parent says %q, %v", line, err)
	}
	fd, err := pidfd(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	cmd.Process.Kill()
	cmd.Wait()
	if !gone(fd, 60*time.Second) {
		t.Errorf("process %d lives 60 s after its endpoint", pid)
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// TestProgram_closed: Close returns when the program has ended, and a command after it says so.
func TestProgram_closed(t *testing.T) {
	p, d, r, err := fakeProgram(t, "", Options{GIDIndex: 1})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := pair(t, p, d)
	p.Close()
	if p.cmd.ProcessState == nil || p.cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("the program ended with %v", p.cmd.ProcessState)
	}
	if _, err := p.Make(t.Context(), d); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("Make after Close: %v", err)
	}
	if err := p.Post(Range{QP: a.QP, UpTo: 1, Segment: 1}); err == nil {
		t.Error("Post after Close succeeds")
	}
	if n := count(r.list(), Ended); n != 0 {
		t.Error("an end that was wanted was reported")
	}
}

// TestProgram_ends: a program that ends by itself is told, with what it said.
func TestProgram_ends(t *testing.T) {
	p, d, r, err := fakeProgram(t, "", Options{GIDIndex: 1})
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Process.Kill()
	all := r.until(t, "its end", func(all []Report) bool { return count(all, Ended) == 1 })
	if e := all[len(all)-1].Err; !strings.Contains(e.Error(), "killed") || !strings.Contains(e.Error(), "fake libibverbs") {
		t.Errorf("%v: want the signal and what was on its standard error", e)
	}
	<-p.Done()
	if _, err := p.Make(t.Context(), d); err == nil {
		t.Error("Make succeeds without a program")
	}
}

// TestStart_missingLibrary: what the dynamic linker says is put into words.
func TestStart_missingLibrary(t *testing.T) {
	for _, row := range []struct{ name, script, want string }{
		{"library", "echo '/x/pcmlab-verbs: error while loading shared libraries: libibverbs.so.1: cannot open shared object file' >&2; exit 127", "apt-get install"},
		{"other", "echo hello >&2; exit 3", "exit status 3 (stderr: \"hello\")"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, _, err := Start(t.Context(), Options{GIDIndex: 1, Command: []string{"/bin/sh", "-c", row.script}}, func(Report) {})
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v: want %q", err, row.want)
			}
		})
	}
	_, _, err := Start(t.Context(), Options{GIDIndex: 1, Command: []string{"/nowhere/pcmlab-verbs"}}, func(Report) {})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestProgram_garbled: what is no command is refused with the reason, and the program goes on.
func TestProgram_garbled(t *testing.T) {
	p, d, r, err := fakeProgram(t, "", Options{GIDIndex: 1})
	if err != nil {
		t.Fatal(err)
	}
	a, b := pair(t, p, d)
	good := encode(typePost, 0, postMsg{QP: a.QP, Message: 1, UpTo: 5, Segment: 5})
	edit := func(at int, v byte) []byte { b := append([]byte(nil), good...); b[at] = v; return b }
	rows := []struct {
		name string
		b    []byte
		want string
	}{
		{"empty", nil, "shorter than a head"},
		{"short", good[:7], "shorter than a head"},
		{"version", edit(0, 2), "another version"},
		{"type", edit(1, 99), "no command of that type"},
		{"answer", edit(1, byte(typeOK)), "no command of that type"},
		{"cut", good[:len(good)-1], "another length"},
		{"too_long", append(good[:len(good):len(good)], 0), "another length"},
		{"huge", make([]byte, 5000), "another version"},
		{"lying_length", edit(2, 3), "another length"},
		{"second_open", encode(typeOpen, 0, openMsg{GIDIndex: 1, Port: 1, Region: 4096, MaxQPs: 1}), "a device is open"},
		{"unknown_qp", encode(typePost, 0, postMsg{QP: 0xabcdef, UpTo: 5, Segment: 5}), "no queue pair 0xabcdef"},
		{"segment_beyond_region", encode(typePost, 0, postMsg{QP: a.QP, UpTo: 5 << 20, Segment: 5 << 20}), "longer than a region"},
		{"connected_twice", encode(typeConnect, 0, connectMsg{QP: a.QP, MTU: 1024, Region: 1}), "is connected"},
		{"wide_qp", encode(typePace, 0, paceMsg{QP: 1 << 24}), "more than 24 bits"},
		{"backwards", encode(typePost, 0, postMsg{QP: a.QP, From: 9, UpTo: 5, Segment: 5}), "ends before it begins"},
		{"many_rdma_messages", encode(typePost, 0, postMsg{QP: a.QP, UpTo: 70000, Segment: 1}), "more than 65535"},
	}
	for i, row := range rows {
		if _, err := p.conn.Write(row.b); err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		all := r.until(t, row.name, func(all []Report) bool { return count(all, Complaint) == i+1 })
		var last Report
		for _, x := range all {
			if x.Kind == Complaint {
				last = x
			}
		}
		if !strings.Contains(last.Err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, last.Err, row.want)
		}
	}
	if err := p.send(typePost, 0, postMsg{QP: a.QP, Message: 1, UpTo: 5, Segment: 5}); err != nil {
		t.Fatal(err)
	}
	r.until(t, "the good one", func(all []Report) bool { n, _ := octets(all, b.QP); return n == 5 })
}

// TestProgram_commandsBeforeOpen: nothing but OPEN works, and it may be tried again.
func TestProgram_commandsBeforeOpen(t *testing.T) {
	program, fake := compiled(t)
	r := newReports()
	p := &Program{report: r.add, done: make(chan struct{}), waiting: map[uint32]*answer{}}
	if err := p.start([]string{program}, []string{"LD_PRELOAD=" + fake}); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, f := range []func() error{
		func() error { _, err := p.Make(t.Context(), Device{}); return err },
		func() error { return p.CloseQP(t.Context(), 1) },
		func() error { _, err := p.PaceAsk(t.Context(), 1, 1, 1); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), "OPEN comes first") {
			t.Errorf("%v", err)
		}
	}
	if _, err := p.open(t.Context(), Options{GIDIndex: 0}); err == nil {
		t.Fatal("GID index 0 is not of RoCE v2")
	}
	d, err := p.open(t.Context(), Options{GIDIndex: 1})
	if err != nil {
		t.Fatalf("a second try: %v", err)
	}
	if _, err := p.Make(t.Context(), d); err != nil {
		t.Error(err)
	}
}
