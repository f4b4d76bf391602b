package vlab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDiagnose_namesTheFix(t *testing.T) {
	noTun := &fs.PathError{Op: "open", Path: tunDevice, Err: unix.ENOENT}
	closedTun := &fs.PathError{Op: "open", Path: tunDevice, Err: unix.EACCES}
	tests := []struct {
		name, why string
		got       error
		want      []string
	}{
		{"apparmor", "Ubuntu from 23.10", machine{uid: 1000, maxUserNS: "1000", apparmor: "1"}.namespaceError(true, unix.EACCES),
			[]string{"AppArmor", "kernel.apparmor_restrict_unprivileged_userns=0"}},
		{"switched_off", "hardened machines", machine{uid: 1000, maxUserNS: "0"}.namespaceError(true, unix.ENOSPC),
			[]string{"switched off", "user.max_user_namespaces=15000"}},
		{"debian_switch", "old Debian kernels", machine{uid: 1000, unprivClone: "0"}.namespaceError(true, unix.EPERM),
			[]string{"kernel.unprivileged_userns_clone=1"}},
		{"container_root", "root in docker without privileges", machine{uid: 0}.namespaceError(true, unix.EPERM),
			[]string{"missing capability CAP_SYS_ADMIN", "--privileged"}},
		{"seccomp", "a container of a plain user", machine{uid: 1000, maxUserNS: "1000"}.namespaceError(true, unix.EPERM),
			[]string{"seccomp", "--privileged"}},
		{"no_tun", "asked for TAP, module absent", second(machine{tap: noTun}.wires(IOTap)), []string{tunDevice, "modprobe tun"}},
		{"closed_tun", "asked for TAP, closed to users", second(machine{tap: closedTun}.wires(IOTap)), []string{tunDevice, "chmod 0666"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if tc.got == nil {
				t.Fatal("no error")
			}
			text := tc.got.Error()
			for _, want := range tc.want {
				if !strings.Contains(text, want) {
					t.Errorf("%s: %q lacks %q", tc.why, text, want)
				}
			}
			if strings.Contains(text, "\n") {
				t.Errorf("more than one line: %q", text)
			}
			var errno unix.Errno
			if !errors.As(tc.got, &errno) {
				t.Errorf("the cause is lost: %v", tc.got)
			}
		})
	}
	if io, err := (machine{tap: noTun}).wires(IOAuto); io != IOPacket || err != nil {
		t.Errorf("without TAP: %s, %v: want veth pairs", io, err)
	}
	if io, err := (machine{}).wires(IOAuto); io != IOTap || err != nil {
		t.Errorf("with TAP: %s, %v", io, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestListen_labsDoNotMeet(t *testing.T) {
	taken := map[string]bool{}
	for i := range 3 {
		files, addrs, err := listen("same-id", 3) // the same first choice each time
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeFiles(files) })
		for _, a := range addrs {
			if taken[a.String()] || !a.Addr().IsLoopback() {
				t.Errorf("lab %d: address %s is taken or no loopback address", i, a)
			}
			taken[a.String()] = true
		}
	}
	if got := loopbackAddr(7, 251).String(); got != "127.7.1.2" {
		t.Errorf("the 252nd host is at %s", got)
	}
}

func TestDown_ofAFolderWithoutState(t *testing.T) {
	o := testOptions(t)
	if err := os.MkdirAll(filepath.Join(o.StateDir, "halfmade"), 0o700); err != nil {
		t.Fatal(err)
	}
	infos, err := List(o)
	if err != nil || len(infos) != 1 || infos[0].Status != StatusDead {
		t.Errorf("list: %+v, %v", infos, err)
	}
	if _, err := Down(t.Context(), "halfmade", o); err != nil {
		t.Error(err)
	}
	nothingLeft(t, lookAround(t), o)
}

func TestDown_afterTheMachineWasRestarted(t *testing.T) {
	o := testOptions(t)
	dir := filepath.Join(o.StateDir, "old")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	self, err := identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	// The recorded number is that of this very test: killing by it would show.
	s := &state{Schema: stateSchema, ID: "old", Phase: phaseReady, Machine: newBootID(), Keeper: self, DataDir: filepath.Join(o.DataDir, "old")}
	if err := s.save(dir); err != nil {
		t.Fatal(err)
	}
	if infos, err := List(o); err != nil || len(infos) != 1 || infos[0].Status != StatusDead || fmt.Sprint(infos[0].Problems) != "[the machine was restarted]" {
		t.Errorf("list: %+v, %v", infos, err)
	}
	if _, err := Down(t.Context(), "old", o); err != nil {
		t.Error(err)
	}
}
