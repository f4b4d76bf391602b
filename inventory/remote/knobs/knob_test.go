package knobs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func file(t *testing.T, content string) string {
	t.Helper()
	f := filepath.Join(t.TempDir(), "knob")
	if err := os.WriteFile(f, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return f
}

func content(t *testing.T, f string) string {
	t.Helper()
	data, err := os.ReadFile(f)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// selector is a knob of commands over a file, as a vendor's tool is.
func selector(f, value string) Knob {
	return Knob{Show: []string{"cat", f}, Do: []string{"sh", "-c", "echo " + value + " > " + f}, Undo: []string{"sh", "-c", "echo first > " + f}}
}

func apply(t *testing.T, dir string, list ...Knob) *Journal {
	t.Helper()
	j, err := Apply(t.Context(), dir, "run-1", "alice@desk", list)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func left(t *testing.T, dir string) []*Journal {
	t.Helper()
	all, err := List(dir)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestApply_andRestore(t *testing.T) {
	dir, a, b := t.TempDir(), file(t, "1\n"), file(t, "first\n")
	j := apply(t, dir, Knob{File: a, Value: "2"}, selector(b, "second"), Knob{File: a, Value: "3"})
	if content(t, a) != "3" || content(t, b) != "second" {
		t.Fatalf("changed to %q, %q", content(t, a), content(t, b))
	}
	all := left(t, dir)
	if len(all) != 1 || all[0].Run != "run-1" || all[0].Owner != "alice@desk" || len(all[0].Steps) != 3 || !all[0].Holder.Alive() {
		t.Fatalf("journals: %+v", all)
	}
	if err := j.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if content(t, a) != "1" || content(t, b) != "first" || len(left(t, dir)) != 0 {
		t.Errorf("put back to %q, %q; journals %+v", content(t, a), content(t, b), left(t, dir))
	}
}

// Whatever fails, what was changed before it is put back, and the error says which knob and why.
func TestApply_failures(t *testing.T) {
	for _, c := range []struct {
		name string
		knob func(f string) Knob
		want string
	}{
		{"no such file", func(string) Knob { return Knob{File: "/nonexistent/knob", Value: "1"} }, "/nonexistent/knob: cannot be read before it is changed"},
		{"refused", func(f string) Knob {
			k := selector(f, "x")
			k.Do = []string{"sh", "-c", "echo not supported >&2; exit 3"}
			return k
		}, "exit status 3 (not supported)"},
		{"no effect", func(f string) Knob { k := selector(f, "x"); k.Do = []string{"true"}; return k }, "changed nothing"},
		{"no such tool", func(f string) Knob { k := selector(f, "x"); k.Show = []string{"no-such-tool-xyz"}; return k }, "no-such-tool-xyz"},
		{"not all of it", func(f string) Knob { return Knob{File: f} }, "file and value belong together"},
		{"two kinds", func(f string) Knob { return Knob{File: f, Value: "1", Dev: "eth0", TC: "pfifo"} }, "need one of"},
		{"nothing", func(string) Knob { return Knob{} }, "need one of"},
		{"no show", func(string) Knob { return Knob{Do: []string{"true"}, Undo: []string{"true"}} }, "show, do and undo belong together"},
		{"a relative file", func(string) Knob { return Knob{File: "knob", Value: "1"} }, "absolute path"},
	} {
		dir, a, b := t.TempDir(), file(t, "1\n"), file(t, "first\n")
		_, err := Apply(t.Context(), dir, "run-1", "alice@desk", []Knob{{File: a, Value: "2"}, c.knob(b)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if content(t, a) != "1" || content(t, b) != "first" || len(left(t, dir)) != 0 {
			t.Errorf("%s: left %q, %q, %+v", c.name, content(t, a), content(t, b), left(t, dir))
		}
	}
}

// A kernel that takes a value and means another, as it does when it clamps.
func TestApply_readBack(t *testing.T) {
	f := file(t, "5\n")
	if err := os.Remove(f); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", f); err != nil { // takes anything, keeps nothing
		t.Fatal(err)
	}
	_, err := Apply(t.Context(), t.TempDir(), "run-1", "a@b", []Knob{{File: f, Value: "7"}})
	if err == nil || !strings.Contains(err.Error(), `"7" was written, "" is read back`) {
		t.Errorf("%v", err)
	}
}

// What somebody else changed meanwhile is not ours to undo; the journal keeps it, and the rest is put back.
func TestRestore_ofWhatOthersChanged(t *testing.T) {
	dir, a, b := t.TempDir(), file(t, "1\n"), file(t, "10\n")
	j := apply(t, dir, Knob{File: a, Value: "2"}, Knob{File: b, Value: "20"})
	os.WriteFile(b, []byte("30\n"), 0o644)
	err := j.Restore(t.Context())
	for _, want := range []string{b, `is now "30"`, `"20"`, `"10"`, "by hand: echo 10 | sudo tee " + b} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if content(t, a) != "1" || content(t, b) != "30" {
		t.Errorf("%q, %q", content(t, a), content(t, b))
	}
	all := left(t, dir)
	if len(all) != 1 || len(all[0].Steps) != 1 || all[0].Steps[0].Knob.File != b {
		t.Fatalf("journal: %+v", all)
	}
	os.WriteFile(b, []byte("10\n"), 0o644) // done by hand
	if err := all[0].Restore(t.Context()); err != nil || len(left(t, dir)) != 0 {
		t.Errorf("%v, %+v", err, left(t, dir))
	}
}

// An undo that does not bring back what was, or fails, is said with what to type.
func TestRestore_failures(t *testing.T) {
	for _, c := range []struct{ undo, want string }{
		{"true", `is "second" after it was put back, it was "first"`},
		{"echo device busy >&2; exit 5", "exit status 5 (device busy)"},
	} {
		dir, b := t.TempDir(), file(t, "first\n")
		k := selector(b, "second")
		k.Undo = []string{"sh", "-c", c.undo}
		j := apply(t, dir, k)
		if err := j.Restore(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "by hand: sudo sh -c "+quote(c.undo)) {
			t.Errorf("%v, want %q", err, c.want)
		}
		if len(left(t, dir)) != 1 {
			t.Errorf("the journal is gone")
		}
	}
}

// A host that died at any moment: the journal tells whoever comes next, and what was never changed is left alone.
func TestRestore_fromEveryMoment(t *testing.T) {
	for moment := range 3 {
		dir, a := t.TempDir(), file(t, "1\n")
		j := apply(t, dir, Knob{File: a, Value: "2"})
		switch moment {
		case 0: // after the journal, before the change
			j.Steps[0].After = nil
			os.WriteFile(a, []byte("1\n"), 0o644)
		case 1: // after the change, before it was noted
			j.Steps[0].After = nil
		case 2: // a reboot after all of it
			os.WriteFile(a, []byte("1\n"), 0o644)
		}
		if err := j.save(); err != nil {
			t.Fatal(err)
		}
		again, err := load(dir, "run-1")
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Restore(t.Context()); err != nil || content(t, a) != "1" || len(left(t, dir)) != 0 {
			t.Errorf("moment %d: %v, %q, %+v", moment, err, content(t, a), left(t, dir))
		}
	}
}

func TestApply_twice(t *testing.T) {
	dir, a := t.TempDir(), file(t, "1\n")
	apply(t, dir, Knob{File: a, Value: "2"})
	if _, err := Apply(t.Context(), dir, "run-1", "x@y", []Knob{{File: a, Value: "3"}}); err == nil || !strings.Contains(err.Error(), "run-1") {
		t.Errorf("%v", err)
	}
}

func TestChosen(t *testing.T) {
	for in, want := range map[string]string{
		"1\n": "1", "always [madvise] never\n": "madvise", "[cubic]\n": "[cubic]", "noop\n[a] [b]": "noop\n[a] [b]", "": "", "[x] y\nz": "[x] y\nz", "performance": "performance",
	} {
		if got := chosen(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestMadeRoot(t *testing.T) {
	for show, want := range map[string]bool{
		"qdisc noqueue 0: root refcnt 2":                                           false,
		"qdisc fq_codel 0: root refcnt 2 limit 10240p flows 1024":                  false,
		"qdisc tbf 8001: root refcnt 2 rate 1Mbit burst 10Kb lat 10ms":             true,
		"qdisc mq 0: root\nqdisc fq_codel 0: parent :1 limit 10240p":               false,
		"qdisc clsact ffff: parent ffff:fff1\nqdisc prio 1: root refcnt 2 bands 3": true,
		"": false,
	} {
		if _, made := madeRoot(show); made != want {
			t.Errorf("%q: made %v", show, made)
		}
	}
}

// quote gives words that a shell reads as they are.
func TestQuote(t *testing.T) {
	for _, s := range []string{"", "plain", "two words", "a'b", "$HOME;`x`", "-n", "a\\b", `"`} {
		out, err := exec.Command("sh", "-c", "printf %s "+quote(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("%q is read as %q, %v", s, out, err)
		}
	}
	if got := (Knob{Undo: []string{"tc", "qdisc", "del", "dev", "p r1", "root"}}).byHand(""); got != "sudo tc qdisc del dev 'p r1' root" {
		t.Error(got)
	}
	if !slices.Equal(Knob{Dev: "x", TC: "y"}.show(), []string{"tc", "qdisc", "show", "dev", "x"}) {
		t.Error("show of a qdisc")
	}
}
