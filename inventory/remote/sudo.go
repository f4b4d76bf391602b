package remote

import (
	"context"
	"fmt"
	"regexp"
	"strings"
)

// withSudo puts sudo -n before a command, in a language whose refusals are known, and before what undoes it.
func withSudo(c Cmd) Cmd {
	args := []string{"sudo", "-n", "--"}
	args = append(args, c.Env...) // sudo drops the environment; it takes assignments where sudoers allows SETENV
	c.Args = append(args, c.Args...)
	c.Env = []string{"LC_ALL=C"}
	if len(c.Restore) > 0 {
		c.Restore = append([]string{"sudo", "-n", "--"}, c.Restore...)
	}
	return c
}

var sudoRefusals = []struct {
	text *regexp.Regexp
	says string
	tty  bool
}{
	{text: regexp.MustCompile(`(?m)^sudo: .*must have a tty`), says: "sudo needs a terminal", tty: true},
	{text: regexp.MustCompile(`(?m)^sudo: sorry, you must have a tty`), says: "sudo needs a terminal", tty: true},
	{text: regexp.MustCompile(`(?m)^sudo: .*(a password is required|no tty present and no askpass program|a terminal is required)`), says: "sudo needs a password"},
	{text: regexp.MustCompile(`(?m)is not in the sudoers file|is not allowed to (execute|run)|may not run sudo`), says: "sudo does not allow it"},
	{text: regexp.MustCompile(`(?m)^sudo: .*you are not allowed to set the following environment variables`), says: "sudo does not allow to set the environment"},
	{text: regexp.MustCompile(`(?m)interactive authentication is required`), says: "sudo needs a password"},
}

// sudoRefused reports what sudo -n said when it refused, by what it printed.
func sudoRefused(stderr []byte) (says string, tty, ok bool) {
	for _, r := range sudoRefusals {
		if r.text.Match(stderr) {
			return r.says, r.tty, true
		}
	}
	return "", false, false
}

// sudoFault is the error for a refusal, with the line for sudoers: the tool with its path on the host and the user's
// name there.
func (h *sshHost) sudoFault(ctx context.Context, c Cmd, says string, tty bool, stderr []byte) error {
	tool, user := sudoTool(c), h.settings.User
	script := fmt.Sprintf(`PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"; command -v -- %s; id -un`, quote(tool))
	if out, err := h.probe(ctx, script); err == nil {
		lines := strings.Fields(string(out.stdout))
		if len(lines) == 2 && strings.HasPrefix(lines[0], "/") {
			tool = lines[0]
		}
		if len(lines) > 0 {
			user = lines[len(lines)-1]
		}
	}
	line := fmt.Sprintf("%s ALL=(root) NOPASSWD: %s", user, tool)
	if len(sudoEnv(c)) > 0 {
		line = fmt.Sprintf("%s ALL=(root) NOPASSWD:SETENV: %s", user, tool)
	}
	if tty {
		line = fmt.Sprintf("Defaults:%s !requiretty", user)
	}
	return &Error{
		Kind: Permission, Fix: fmt.Sprintf("add %q to sudoers on %s", line, h.name),
		Err: fmt.Errorf("%w: %s for %s (%q)", ErrNeedSudo, says, tool, lastLine(stderr)),
	}
}

// sudoTool is the command behind withSudo.
func sudoTool(c Cmd) string {
	rest := c.Args[3+len(sudoEnv(c)):]
	if len(rest) == 0 {
		return ""
	}
	return rest[0]
}

// sudoEnv are the assignments before the command behind withSudo.
func sudoEnv(c Cmd) []string {
	var env []string
	for _, a := range c.Args[3:] {
		if k, _, ok := strings.Cut(a, "="); !ok || strings.ContainsAny(k, "/ ") {
			break
		}
		env = append(env, a)
	}
	return env
}
