package perftest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pcmlab/pcmlab/inventory/remote"
)

// toolFix is what to do about a tool that cannot be run.
const toolFix = "install perftest on the host (Debian: apt install perftest), or give the path of the tool"

// finding is what one side's own words say.
type finding struct {
	side *Side
	rule rule
	line string
}

// Classify says why a run failed, or nil when both sides ended by themselves with 0. Either side may be nil: it was
// never started. What a side says of itself outweighs what it says of its peer; of two such, the side that ended first
// is the cause.
func Classify(client, server *Side) *Failure {
	f := classify(client, server)
	if f == nil {
		return nil
	}
	f.ClientTail, f.ServerTail = tail(client), tail(server)
	return f
}

func classify(client, server *Side) *Failure {
	sides := present(client, server)
	if !slices.ContainsFunc(sides, failed) {
		return nil
	}
	var roots, consequences []finding
	for _, s := range sides {
		if !failed(s) {
			continue
		}
		if errors.Is(s.Transport, remote.ErrNotStarted) {
			return fail(s, ToolMissing, s.Transport.Error(), toolFix)
		}
		if s.Transport != nil {
			return fail(s, Lost, s.Transport.Error(), "see whether the host answers")
		}
		if fd, ok := find(s); ok && fd.rule.consequence {
			consequences = append(consequences, fd)
		} else if ok {
			roots = append(roots, fd)
		} else if s.Code == 127 || s.Code == 126 {
			return fail(s, ToolMissing, fmt.Sprintf("exit status %d", s.Code), toolFix)
		}
	}
	differ := diffFlags(client, server)
	// A refused connection manager says nothing of why; flags that differ do.
	if d := fatal(differ); d != nil && !slices.ContainsFunc(roots, func(f finding) bool { return f.rule.class != ConnManager }) {
		return mismatch(d, sides[0])
	}
	killed := gone(sides)
	if len(roots) > 0 {
		// A completion that fails when the other side was killed says only that its queue pair is gone.
		if first := earliest(roots); first.rule.class != Completion || killed == nil || killed == first.side {
			return rooted(first)
		}
	}
	// No side says that it failed itself: one went away, or never was there.
	if s := killed; s != nil {
		fix := "find out who ended it: the run itself, a user, or the kernel (dmesg: out of memory)"
		return fail(s, PeerLost, "ended by "+signalName(s), fix)
	}
	for _, c := range consequences {
		if c.rule.class == StartRace {
			return notConnected(c, server)
		}
	}
	if s := hung(sides); s != nil {
		what := "it did not end by itself"
		if s.Role == Server && (client == nil || !failed(client)) {
			what = "no client came, or none that ended its test"
		}
		return fail(s, Timeout, what+" before its deadline", "see whether the link stayed up and the path carries UDP 4791; a retry count of 7 can mean for ever (rxe)")
	}
	if len(consequences) > 0 {
		c := earliest(consequences)
		f := fail(c.side, PeerLost, c.line, c.rule.fix)
		return f
	}
	for _, s := range sides {
		if failed(s) {
			return fail(s, ExitStatus, fmt.Sprintf("exit status %d", s.Code), "read its last lines")
		}
	}
	return nil
}

func present(sides ...*Side) []*Side {
	return slices.DeleteFunc(sides, func(s *Side) bool { return s == nil })
}

func failed(s *Side) bool {
	return s.Transport != nil || s.Code != 0 || s.TimedOut
}

func fail(s *Side, c Class, cause, fix string) *Failure {
	return &Failure{Class: c, Side: s.Role, Host: s.Host, Cause: cause, Fix: fix}
}

// find gives the side's own finding: the first rule that any of its lines matches.
func find(s *Side) (finding, bool) {
	var lines []string
	for _, text := range [][]byte{s.Stderr, s.Stdout} {
		for _, l := range strings.Split(string(text), "\n") {
			if l = strings.TrimSpace(l); l != "" {
				lines = append(lines, l)
			}
		}
	}
	for _, r := range rules {
		// The most telling line: one with the rule's number in it before one without.
		best := ""
		for _, l := range lines {
			m := r.pattern.FindStringSubmatch(l)
			if m == nil {
				continue
			}
			if best == "" || len(m) > 1 && m[1] != "" {
				best = l
			}
		}
		if best != "" {
			return finding{s, r, best}, true
		}
	}
	return finding{}, false
}

func earliest(fs []finding) finding {
	first := fs[0]
	for _, f := range fs[1:] {
		if !f.side.Ended.IsZero() && (first.side.Ended.IsZero() || f.side.Ended.Before(first.side.Ended)) {
			first = f
		}
	}
	return first
}

func rooted(fd finding) *Failure {
	f := fail(fd.side, fd.rule.class, fd.line, fd.rule.fix)
	if f.Class != Completion {
		return f
	}
	if m := fd.rule.pattern.FindStringSubmatch(fd.line); m[1] != "" {
		n, _ := strconv.Atoi(m[1])
		f.WC = WCStatus(n)
		f.Cause = fmt.Sprintf("completion status %d: %s (%s)", n, f.WC, fd.line)
		f.Causes = wcCauses[f.WC]
	}
	return f
}

// gone finds the side that ended by a signal that was not ours.
func gone(sides []*Side) *Side {
	var first *Side
	for _, s := range sides {
		if bySignal(s) && !s.TimedOut && !s.Stopped && (first == nil || s.Ended.Before(first.Ended)) {
			first = s
		}
	}
	return first
}

// bySignal says whether a signal ended the process. A shell or a tool with handlers reports 128 + the signal.
func bySignal(s *Side) bool {
	switch s.Code {
	case -1, 128 + 1, 128 + 2, 128 + 9, 128 + 15:
		return true
	}
	return false
}

func signalName(s *Side) string {
	if s.Signal == "" {
		return "a signal"
	}
	return "signal " + s.Signal
}

// hung finds the side to blame when nothing but a deadline ended the run: the client, since it drives the test.
func hung(sides []*Side) *Side {
	for _, s := range sides {
		if s.TimedOut {
			return s
		}
	}
	return nil
}

func notConnected(c finding, server *Side) *Failure {
	if server != nil && server.Listened && !failedByItself(server) {
		return fail(c.side, Unreachable, c.line+", while the server listened", "the data address is not reachable over TCP from this host: check route, VLAN and firewall of the data network")
	}
	return fail(c.side, StartRace, c.line, c.rule.fix)
}

func failedByItself(s *Side) bool { return failed(s) && !s.TimedOut && !s.Stopped }

func mismatch(d *flagDiff, client *Side) *Failure {
	return fail(client, Mismatch, d.String(), "start both sides with the same flags")
}

// Judge decides whether a flow has a result. It has one only when both sides ended with 0 by themselves, the output of
// the side that measures could be read, and data moved. A one-way test is measured by the client: what the server
// prints is the client's number under the server's own heading, and wrong when their units differ. So Judge returns
// the client's output; of a bidirectional test that is the sum of both ways.
func Judge(client, server *Side, clientJSON []byte, version string) (*Output, *Failure) {
	var out *Output
	err := fmt.Errorf("the client was not started: %w", ErrNoResult)
	if client != nil {
		out, err = ParseRun(client.Stdout, client.Stderr, clientJSON, client.Argv, version)
	}
	if f := Classify(client, server); f != nil {
		return out, f
	}
	if client == nil {
		return out, &Failure{Class: NoResult, Side: Client, Cause: err.Error(), Fix: "start the client"}
	}
	differ := diffFlags(client, server)
	if d := fatal(differ); d != nil {
		return out, mismatch(d, client)
	}
	with := func(f *Failure) *Failure {
		f.ClientTail, f.ServerTail = tail(client), tail(server)
		return f
	}
	if err != nil {
		fix := "run the tool by hand and look at what it prints"
		if errors.Is(err, ErrUnknownUnit) {
			fix = "tell which command line was started, or use the table"
		}
		return out, with(fail(client, NoResult, err.Error(), fix))
	}
	if out.Cut {
		return out, with(fail(client, NoResult, "the output ends in the middle of a line", "see whether the host or the connection was lost"))
	}
	if !out.Flowed() {
		return out, with(fail(client, NoFlow, "the tool reports success and no data", "compare the counters of both NICs"))
	}
	for _, d := range differ {
		out.Notes = append(out.Notes, "flags differ: "+d.String())
	}
	for _, a := range slices.Concat(out.Local, out.Remote) {
		if strings.HasPrefix(a.GID, "fe80:") {
			out.Notes = append(out.Notes, fmt.Sprintf("GID %s is link-local: not the data address (choose another gid_index)", a.GID))
			break
		}
	}
	return out, nil
}
