package locks

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/process"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func person(owner string, r ...Resource) Lock {
	return Lock{ID: owner, Owner: owner, Reason: "a test", Since: noon, Expires: noon.Add(time.Hour), Resources: r}
}

func ofRun(id, owner string, r ...Resource) Lock {
	return Lock{ID: id, Run: true, Owner: owner, Since: noon, Expires: noon.Add(time.Hour), Process: process.This(), Resources: r}
}

func nic(name string) Resource       { return Resource{Kind: NIC, Name: name} }
func ports(first, last int) Resource { return Resource{Kind: Ports, First: first, Last: last} }
func store(t *testing.T, at time.Time) *Store {
	return &Store{Dir: filepath.Join(t.TempDir(), "locks"), Now: func() time.Time { return at }}
}

func TestTake_table(t *testing.T) {
	whole, use := Resource{Kind: Host}, Resource{Kind: Use}
	for _, c := range []struct {
		name        string
		first, then Lock
		busy        string // "": goes together
	}{
		{"a host of others", person("alice@a", whole), person("bob@b", whole), "alice@a holds host"},
		{"one's own again", person("alice@a", whole), person("alice@a", whole), ""},
		{"the same user elsewhere", person("alice@a", whole), person("alice@b", whole), "alice@a holds host"},
		{"a run on a locked host", person("alice@a", whole), ofRun("r1", "bob@b", use), "alice@a holds host"},
		{"a run on one's own locked host", person("alice@a", whole), ofRun("r1", "alice@a", use, nic("eth0")), ""},
		{"locking a host with a run of others", ofRun("r1", "bob@b", use, nic("eth0")), person("alice@a", whole), "run r1 of bob@b holds nic eth0"},
		{"two runs on one NIC", ofRun("r1", "alice@a", use, nic("eth0")), ofRun("r2", "alice@a", use, nic("eth0")), "run r1 of alice@a holds nic eth0"},
		{"two runs on two NICs", ofRun("r1", "alice@a", use, nic("eth0")), ofRun("r2", "bob@b", use, nic("eth1")), ""},
		{"two runs that use a switch", ofRun("r1", "alice@a", use), ofRun("r2", "bob@b", use), ""},
		{"ports side by side", ofRun("r1", "a@a", ports(100, 109)), ofRun("r2", "b@b", ports(110, 119)), ""},
		{"ports that touch", ofRun("r1", "a@a", ports(100, 110)), ofRun("r2", "b@b", ports(110, 119)), "run r1 of a@a holds ports 100-110"},
		{"ports within ports", ofRun("r1", "a@a", ports(100, 200)), ofRun("r2", "b@b", ports(110, 119)), "holds ports 100-200"},
		// The reaction point is one for a whole NIC: handlers cannot go into its two ports at once, though traffic can.
		{"two ports of one NIC with handlers", ofRun("r1", "a@a", nic("eth0"), Resource{Kind: PCCRP, Name: "0c42"}), ofRun("r2", "b@b", nic("eth1"), Resource{Kind: PCCRP, Name: "0c42"}), "run r1 of a@a holds pcc-rp 0c42"},
		{"handlers on one port, traffic on the other", ofRun("r1", "a@a", nic("eth0"), Resource{Kind: PCCRP, Name: "0c42"}), ofRun("r2", "b@b", nic("eth1")), ""},
		{"reaction and notification point", ofRun("r1", "a@a", Resource{Kind: PCCRP, Name: "0c42"}), ofRun("r2", "b@b", Resource{Kind: PCCNP, Name: "0c42"}), ""},
		{"two owners of e-switches of one NIC", ofRun("r1", "a@a", Resource{Kind: PCCNP, Name: "0000:17:00.0"}), ofRun("r2", "b@b", Resource{Kind: PCCNP, Name: "0000:17:00.1"}), ""},
		{"a person named as a run", person("r1", whole), ofRun("r1", "bob@b", use), "r1 holds host"},
	} {
		s := store(t, noon)
		if _, err := s.Take(c.first); err != nil {
			t.Fatalf("%s: the first: %v", c.name, err)
		}
		_, err := s.Take(c.then)
		var busy *BusyError
		switch {
		case c.busy == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.busy != "" && (!errors.As(err, &busy) || !strings.Contains(err.Error(), c.busy)):
			t.Errorf("%s: %v, want busy: %q", c.name, err, c.busy)
		}
		all, err := s.List()
		want := 2
		if c.busy != "" || c.first.ID == c.then.ID && c.first.Run == c.then.Run {
			want = 1
		}
		if err != nil || len(all) != want {
			t.Errorf("%s: then there are %+v, %v; want %d", c.name, all, err, want)
		}
	}
}

// What has expired, or whose process is gone, is in nobody's way, and is removed.
func TestTake_overDeadLocks(t *testing.T) {
	gone := ofRun("r1", "bob@b", Resource{Kind: Host})
	gone.Process.Start++
	rebooted := ofRun("r2", "bob@b", Resource{Kind: Host})
	rebooted.Process.Boot = "the boot before"
	old := person("carol@c", Resource{Kind: Host})
	old.Expires = noon
	for _, dead := range []Lock{gone, rebooted, old} {
		s := store(t, noon)
		if err := os.MkdirAll(s.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := s.write(dead); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Take(person("alice@a", Resource{Kind: Host})); err != nil {
			t.Errorf("over %+v: %v", dead, err)
		}
		if all, err := s.List(); err != nil || len(all) != 1 || all[0].ID != "alice@a" {
			t.Errorf("over %s: %+v, %v", dead.ID, all, err)
		}
		files, _ := os.ReadDir(s.Dir)
		if len(files) != 2 { // the lock and .lock
			t.Errorf("left: %v", files)
		}
	}
}

func TestTake_tellsWhatItReplaced(t *testing.T) {
	s := store(t, noon)
	first := person("alice@a", Resource{Kind: Host})
	if before, err := s.Take(first); err != nil || before != nil {
		t.Fatal(before, err)
	}
	second := first
	second.Reason = "another"
	if before, err := s.Take(second); err != nil || before == nil || before.Reason != first.Reason {
		t.Fatal(before, err)
	}
	if err := s.Drop("alice@a", false); err != nil {
		t.Fatal(err)
	}
	if err := s.Drop("alice@a", false); err != nil {
		t.Errorf("a lock that is not there: %v", err)
	}
}

// A file that is no lock is not overlooked: it might be somebody's.
func TestTake_damagedFile(t *testing.T) {
	s := store(t, noon)
	s.Take(person("alice@a", Resource{Kind: Host}))
	file := s.file("alice@a", false)
	if err := os.WriteFile(file, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Take(person("bob@b", Resource{Kind: Host})); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v, want an error that names %s", err, file)
	}
}

// Names of any kind are files of the folder, and no two share one.
func TestStore_files(t *testing.T) {
	s := store(t, noon)
	seen := map[string]string{}
	for _, id := range []string{"a/b", "../x", "a%2Fb", "é@ü", ".", "-x", "a b"} {
		for _, run := range []bool{false, true} {
			f := s.file(id, run)
			if filepath.Dir(f) != s.Dir {
				t.Errorf("%q: %s", id, f)
			}
			if other, ok := seen[f]; ok {
				t.Errorf("%q and %q share %s", id, other, f)
			}
			seen[f] = id
		}
	}
}

func TestResource_roundTrip(t *testing.T) {
	for _, r := range []Resource{{Kind: Host}, {Kind: Use}, nic("eth0"), ports(1, 65535)} {
		if got, err := Parse(r.String()); err != nil || got != r {
			t.Errorf("%v: %v, %v", r, got, err)
		}
	}
	for _, bad := range []string{"", "nic ", "nic", "host x", "ports 5", "ports 9-5", "ports 1-65536", "ports -1-5", "tap x"} {
		if r, err := Parse(bad); err == nil {
			t.Errorf("%q: %v", bad, r)
		}
	}
}

// Overlap is symmetric, and what the model of single ports and names says.
func TestResource_overlaps(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	draw := func() Resource {
		switch rng.IntN(4) {
		case 0:
			return Resource{Kind: Host}
		case 1:
			return Resource{Kind: Use}
		case 2:
			return nic(string(rune('a' + rng.IntN(3))))
		}
		first := 1 + rng.IntN(12)
		return ports(first, first+rng.IntN(6))
	}
	units := func(r Resource) map[string]bool { // what it is made of
		m := map[string]bool{}
		switch r.Kind {
		case NIC:
			m[r.Name] = true
		case Ports:
			for p := r.First; p <= r.Last; p++ {
				m[string(rune(1000+p))] = true
			}
		}
		return m
	}
	for range 20000 {
		a, b := draw(), draw()
		want := a.Kind == Host || b.Kind == Host
		for u := range units(a) {
			want = want || units(b)[u]
		}
		if a.overlaps(b) != want || b.overlaps(a) != want {
			t.Fatalf("%v and %v: %v, %v, want %v", a, b, a.overlaps(b), b.overlaps(a), want)
		}
	}
}
