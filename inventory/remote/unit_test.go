package remote

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func itoa(n int) string { return strconv.Itoa(n) }

// lookSSH returns a function that asks the ssh client what it would use.
func lookSSH(t *testing.T) func(config, host string) map[string]string {
	t.Helper()
	client, err := exec.LookPath("ssh")
	if err != nil {
		t.Skip("no ssh client on this machine")
	}
	return func(config, host string) map[string]string {
		t.Helper()
		out, err := exec.Command(client, "-G", "-F", config, host).Output()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, line := range strings.Split(string(out), "\n") {
			k, v, _ := strings.Cut(line, " ")
			if slices.Contains([]string{"hostname", "port", "user", "hostkeyalias", "proxyjump"}, k) {
				got[k] = v
			}
		}
		return got
	}
}

func TestQuote_survivesAShell(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[ -~\n\tä]{0,12}`), 1, 6).Draw(t, "words")
		out, err := exec.Command("sh", "-c", quoteAll(append([]string{"printf", `%s\0`}, words...))).Output()
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.Join(words, "\x00") + "\x00"; string(out) != want {
			t.Fatalf("words %q came out as %q", words, out)
		}
	})
}

func TestWildcard_isAsRegular(t *testing.T) {
	for _, tc := range []struct {
		pattern, s string
		want       bool
	}{
		{"*", "", true}, {"?", "", false}, {"h?", "h3", true}, {"h?", "h33", false}, {"*.org", "a.b.org", true},
		{"a*b*c", "aXbYbZc", true}, {"a*b*c", "aXbYbZ", false}, {"", "", true}, {"", "x", false}, {"**x", "yx", true},
	} {
		if got := wildcard(tc.pattern, tc.s); got != tc.want {
			t.Errorf("wildcard(%q, %q) = %v, want %v", tc.pattern, tc.s, got, tc.want)
		}
	}
}

func TestBackoff_growsAndIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 100).Draw(t, "n")
		u := rapid.Float64Range(0, 0.999).Draw(t, "u")
		if d := backoff(n, u); d < 100*time.Millisecond || d > 3*time.Second || backoff(n+1, u) < d {
			t.Fatalf("backoff(%d, %v) = %v, then %v", n, u, d, backoff(n+1, u))
		}
	})
}

func TestTail_keepsTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 50).Draw(t, "limit")
		tl := newTail(limit)
		all := ""
		for i, s := range rapid.SliceOf(rapid.StringN(0, 40, 40)).Draw(t, "writes") {
			fmt.Fprintf(tl, "%d%s", i, s)
			all += fmt.Sprintf("%d%s", i, s)
		}
		want := all[max(0, len(all)-limit):]
		if got := string(tl.bytes()); got != want || tl.droppedBytes() != int64(len(all)-len(want)) {
			t.Fatalf("kept %q and dropped %d, want %q and %d", got, tl.droppedBytes(), want, len(all)-len(want))
		}
	})
}

func TestSudoRefused_knowsItsTexts(t *testing.T) {
	for _, tc := range []struct {
		text    string
		refused bool
	}{
		{"sudo: a password is required\n", true},
		{"sudo: no tty present and no askpass program specified\n", true},
		{"sudo: a terminal is required to read the password; either use the -S option\nsudo: a password is required\n", true},
		{"sudo: sorry, you must have a tty to run sudo\n", true},
		{"lab is not in the sudoers file.\n", true},
		{"Sorry, user lab may not run sudo on h3.\n", true},
		{"ethtool: a password is required\n", false},
		{"", false},
	} {
		if _, _, got := sudoRefused([]byte(tc.text)); got != tc.refused {
			t.Errorf("%q: refused %v, want %v", tc.text, got, tc.refused)
		}
	}
}
