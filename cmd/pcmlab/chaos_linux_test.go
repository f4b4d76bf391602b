package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/internal/testwait"
)

// gone is how long after its orchestrator was killed a run may have things on hosts: guards wait 5 s for it to come
// back, 2 s between TERM and KILL, and for what they restore. On an idle machine all is gone within 10 s.
const gone = 40 * time.Second

// TestRun_chaos: kill -9 of the orchestrator at random moments of a short run, and at some chosen ones. No process,
// setting, lock, namespace or file of the run is left, the folder says truly what happened, and the next run starts.
// PCMLAB_CHAOS says how often (make chaos: 200), PCMLAB_CHAOS_SEED which moments.
func TestRun_chaos(t *testing.T) {
	newHome(t).needLab()
	kills, seed := 20, rand.Uint64()
	if s := os.Getenv("PCMLAB_CHAOS"); s != "" {
		kills = numeral(t, s)
	}
	if s := os.Getenv("PCMLAB_CHAOS_SEED"); s != "" {
		seed = uint64(numeral(t, s))
	}
	t.Logf("%d kills, PCMLAB_CHAOS_SEED=%d", kills, seed)
	// Waiting for guards takes no time of the machine, so that several labs go side by side. Every fourth one is raised
	// by the run itself, and must be gone with it.
	const labs = 4
	chosen := []string{`"host_reached"`, `"setting_changed"`, `"traffic_ready"`, `"capture_ready"`, `"phase_start"`, `"phases_end"`, `"capture_stopped"`, `"analysing"`}
	for k := range labs {
		t.Run(fmt.Sprint("lab", k), func(t *testing.T) {
			t.Parallel()
			c := newChaos(t, "testdata/chaos/short.yaml", k == 0, rand.New(rand.NewPCG(seed, uint64(k))))
			for i := k; i < len(chosen); i += labs {
				c.kill(chosen[i], 0)
			}
			for n := k; n < kills-len(chosen); {
				if c.kill("", time.Duration(c.rand.Float64()*float64(c.whole))) {
					n += labs
				}
			}
			c.stories()
			c.wholeRun()
		})
	}
}

func numeral(t *testing.T, s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// chaos is one lab, what it looks like without a run, and the runs that were killed on it.
type chaos struct {
	*home
	playbook string
	raises   bool   // each run raises the lab itself
	file     string // the lab's
	lab      string
	rand     *rand.Rand
	whole    time.Duration                              // that a run took which was left alone
	gone     time.Duration                              // how long after a kill things of the run may be there
	via      func(c *chaos, host, script string) string // what a script prints on a host, past the run
	hosts    map[string]string                          // picture of each host
	here     []string                                   // picture of this machine
	killed   []string                                   // folders
	dirty    bool                                       // something of a run may be left
}

// newChaos is a virtual lab that is up, or that each run raises.
func newChaos(t *testing.T, playbook string, raises bool, r *rand.Rand) *chaos {
	c := (&chaos{raises: raises, lab: "up", rand: r, gone: gone, via: labExec}).begin(t, playbook)
	lab, err := filepath.Abs("testdata/chaos/lab.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c.file = lab
	if raises {
		c.lab = lab
		c.settle()
		return c
	}
	if out := c.run("lab", "up", lab, "--id", "up"); out.code != 0 {
		t.Fatalf("lab up: %+v", out)
	}
	c.settle("h1", "h2", "r1", "sw")
	return c
}

func labExec(c *chaos, host, script string) string {
	c.t.Helper()
	out := c.run("lab", "exec", "--lab", "up", host, "--", "sh", "-c", script)
	if out.code != 0 {
		c.t.Fatalf("%s: %s: %+v", host, script, out)
	}
	return out.stdout
}

func (c *chaos) ask(host, script string) string {
	c.t.Helper()
	return c.via(c, host, script)
}

func (c *chaos) begin(t *testing.T, playbook string) *chaos {
	var err error
	if c.playbook, err = filepath.Abs(playbook); err != nil {
		t.Fatal(err)
	}
	c.home = newHome(t)
	// A program of its own: its processes are told from those of other labs by their file, in all namespaces.
	for _, name := range []string{"pcmlab", "pcmlab-nic"} {
		copyFile(t, filepath.Join(filepath.Dir(binary), name), filepath.Join(c.dir, name))
	}
	c.program = filepath.Join(c.dir, "pcmlab")
	return c
}

// settle takes the pictures that all later ones must be like.
func (c *chaos) settle(hosts ...string) {
	c.t.Helper()
	c.wholeRun() // what stays for good on hosts (the program) is there after it
	c.hosts = map[string]string{}
	for _, host := range hosts {
		c.hosts[host] = c.picture(host, "", 0)
		for _, part := range []string{"/run/lock", "tcp_retries2 15", "qdisc", ".cache/pcmlab"} {
			if !strings.Contains(c.hosts[host], part) {
				c.t.Fatalf("the picture of %s shows no %s and would prove nothing:\n%s", host, part, c.hosts[host])
			}
		}
	}
	c.here = c.look()
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (c *chaos) args(out string) []string {
	return []string{"run", c.playbook, "-i", c.lab, "--out", out}
}

// wholeRun is a run that nobody kills.
func (c *chaos) wholeRun() {
	c.t.Helper()
	began := time.Now()
	if out := c.run(c.args("whole")...); out.code != exitOK && out.code != exitCheckFailed && out.code != exitData { // a busy machine has no figures
		c.t.Fatalf("a run that was left alone: exit %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	c.whole = time.Since(began)
}

// kill kills a run when its timeline has a word, or after a time, and holds all that must be so then. False: it had
// ended before.
func (c *chaos) kill(event string, after time.Duration) bool {
	t := c.t
	t.Helper()
	out := fmt.Sprintf("killed/%d", len(c.killed))
	s := c.start(c.args(out)...)
	ended := make(chan struct{})
	go func() { s.cmd.Wait(); close(ended) }()
	if event != "" {
		c.awaits(filepath.Join(c.dir, out), event, ended)
	} else {
		timer := time.NewTimer(after)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ended:
		}
	}
	s.cmd.Process.Kill()
	<-ended
	if s.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		if code := s.cmd.ProcessState.ExitCode(); code != exitOK && code != exitCheckFailed && code != exitData {
			t.Errorf("run %s, not killed: exit %d\n%s%s", out, code, &s.out, &s.err)
		}
		return false
	}
	began := time.Now()
	what := fmt.Sprintf("killed after %v, last words %q", after.Round(time.Millisecond), lastWords(s.err.Bytes()))
	if event != "" {
		what = "killed at " + event
	}
	for host, want := range c.hosts {
		if got := c.picture(host, want, c.gone); got != "" {
			t.Errorf("%s: left on %s after %v (-before +now):\n%s", what, host, time.Since(began).Round(time.Second), cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
		}
	}
	var here []string
	defer func() { // also when it is waited for in vain
		if d := cmp.Diff(c.here, here); d != "" {
			t.Errorf("%s: left here (-before +now):\n%s", what, d)
		}
	}()
	testwait.For(t, c.gone, what+": the machine as it was", func() bool { here = c.look(); return slices.Equal(here, c.here) })
	if t.Failed() {
		t.FailNow() // what is left now is left at all later kills
	}
	took := time.Since(began)
	c.killed = append(c.killed, filepath.Join(c.dir, out))
	t.Logf("%s: all gone %v later; %s", what, took.Round(10*time.Millisecond), c.folder(what, filepath.Join(c.dir, out)))
	return true
}

// awaits waits until the timeline of the run below out has a word, or the run has ended.
func (c *chaos) awaits(out, word string, ended <-chan struct{}) {
	c.t.Helper()
	testwait.For(c.t, 5*time.Minute, "timeline: "+word, func() bool {
		select {
		case <-ended:
			return true
		default:
		}
		return c.has(out, word)
	})
}

// has says that the timeline of the run below out has a word.
func (c *chaos) has(out, word string) bool {
	files, _ := filepath.Glob(filepath.Join(out, "*", "timeline.jsonl"))
	if len(files) == 0 {
		return false
	}
	data, _ := os.ReadFile(files[0])
	return bytes.Contains(data, []byte(word))
}

func lastWords(text []byte) string {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(lines[len(lines)-1])
}

// folder holds what a run that was killed left here against what happened.
func (c *chaos) folder(what, out string) string {
	t := c.t
	t.Helper()
	dirs, _ := filepath.Glob(filepath.Join(out, "[0-9]*"))
	if len(dirs) == 0 {
		return "no folder yet"
	}
	dir := dirs[0]
	if experiments.GoesOn(dir) {
		t.Errorf("%s: %s is said to go on", what, dir)
	}
	last := ""
	if f, err := os.Open(filepath.Join(dir, "timeline.jsonl")); err == nil {
		defer f.Close()
		sc := bufio.NewScanner(f)
		for sc.Scan() {
			var e experiments.Event
			if err := json.Unmarshal(sc.Bytes(), &e); err != nil || e.Event == "" {
				t.Errorf("%s: timeline has %q: %v", what, sc.Text(), err)
			}
			last = e.Event
		}
	}
	want := experiments.LiveDied
	if _, differences, err := experiments.CheckManifest(dir); err == nil { // it was killed when all was written
		want = experiments.LiveEnded
		if len(differences) > 0 {
			t.Errorf("%s: the manifest is there, and not all that it names: %v", what, differences)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, experiments.StatusFile)); err == nil {
		if s, err := experiments.LoadStatus(dir); err != nil || s.State != want {
			t.Errorf("%s: status %+v, %v; want %s", what, s, err, want)
		}
	}
	if !experiments.IsRun(dir) {
		return "only a status"
	}
	s, err := experiments.LoadSummary(dir)
	if err != nil {
		t.Errorf("%s: %v", what, err)
	} else if unfinished := s.State == experiments.StateUnfinished; unfinished != (want == experiments.LiveDied) {
		t.Errorf("%s: summary says %s (%s)", what, s.State, s.Reason)
	}
	return "last event " + last
}

// stories: what the verbs tell of the runs that were killed.
func (c *chaos) stories() {
	for _, out := range c.killed {
		dirs, _ := filepath.Glob(filepath.Join(out, "[0-9]*"))
		if len(dirs) == 0 || !experiments.IsRun(dirs[0]) {
			continue
		}
		_, _, err := experiments.CheckManifest(dirs[0])
		word := "unfinished"
		if err == nil {
			word = "complete"
		}
		if o := c.run("runs", "show", dirs[0]); !strings.Contains(o.stdout, word) || word == "unfinished" && !strings.Contains(o.stdout, "killed") {
			c.t.Errorf("runs show of a run that was killed (manifest: %v): %+v", err, o)
		}
		if o := c.run("status", dirs[0]); word == "unfinished" && !strings.Contains(o.stdout, "died") {
			c.t.Errorf("status of a run that was killed: %+v", o)
		}
	}
	if o := c.run("cleanup"); !strings.Contains(o.stderr, "nothing of yours is left behind") {
		c.t.Errorf("cleanup: %+v", o)
	}
}

// pictureScript prints all of a host that a run may change: processes, files, mounts, links, queues, a setting; until
// it is as wanted, or the time is over. It prints nothing when it is as wanted.
const pictureScript = `: pcmlab-picture
look() {
	for d in /proc/[0-9]*; do
		[ "$d" = "/proc/$$" ] && continue
		c=$(tr '\0' ' ' <"$d/cmdline" 2>/dev/null) || continue
		case "$c" in "" | *pcmlab-picture* | "tr "* | "sort "* | sshd* | "sleep 2 ") ;; *) echo "process $c" ;; esac
	done | sort
	find ~ /run /tmp /var/tmp /dev/shm -name systemd -prune -o -path '*/.cache/pcmlab/guards.log*' -o -print | sort
	cut -d' ' -f4- /proc/self/mountinfo | sort
	ip -o link | sed 's/^[0-9]*: //'
	tc qdisc show
	echo "tcp_retries2 $(cat /proc/sys/net/ipv4/tcp_retries2)"
}
end=$(($(date +%s) + $2))
while got=$(look) && [ "$got" != "$1" ] && [ $(date +%s) -lt $end ]; do sleep 1; done
[ "$got" = "$1" ] || printf '%s\n' "$got"`

func (c *chaos) picture(host, want string, within time.Duration) string {
	c.t.Helper()
	script := fmt.Sprintf("set -- '%s' %d\n", strings.ReplaceAll(want, "'", `'\''`), int(within.Seconds())) + pictureScript
	return strings.TrimSuffix(c.ask(host, script), "\n")
}

// look is what this machine has of the lab: processes by their file, in whatever namespace, and files beside the runs.
func (c *chaos) look() (found []string) {
	c.t.Helper()
	var own []os.FileInfo
	for _, name := range []string{"pcmlab", "pcmlab-nic"} {
		st, err := os.Stat(filepath.Join(c.dir, name))
		if err != nil {
			c.t.Fatal(err)
		}
		own = append(own, st)
	}
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range procs {
		exe, err := os.Stat(d + "/exe") // the file, whatever path a mount namespace shows it under
		if err != nil || !slices.ContainsFunc(own, func(o os.FileInfo) bool { return os.SameFile(o, exe) }) {
			continue
		}
		args, _ := os.ReadFile(d + "/cmdline")
		found = append(found, "process "+strings.ReplaceAll(string(args), "\x00", " "))
	}
	filepath.WalkDir(c.dir, func(p string, e os.DirEntry, err error) error {
		rel, _ := filepath.Rel(c.dir, p)
		switch {
		case err != nil: // going on
		case rel == "killed" || rel == "whole":
			return filepath.SkipDir
		case strings.HasPrefix(filepath.Base(rel), "guards.log"): // what guards did, of all runs
		default:
			found = append(found, "file "+rel)
		}
		return nil
	})
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		c.t.Fatal(err)
	}
	defer mounts.Close()
	text, _ := io.ReadAll(mounts)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, c.dir) {
			found = append(found, "mount "+line)
		}
	}
	slices.Sort(found)
	return found
}
