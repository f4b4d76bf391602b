package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// warnings are those of the compiler's that a build shows, less what the shell makes of a handler on purpose.
var warnings = []string{"-std=gnu11", "-fsyntax-only", "-Wall", "-Wno-unused-function", "-Wno-unknown-pragmas", "-fno-diagnostics-show-caret", "-fdiagnostics-color=never"}

// ofGCC place what is in a macro where it is used, and count columns in bytes.
var ofGCC = []string{"-ftrack-macro-expansion=0", "-fdiagnostics-column-unit=byte", "-fmax-errors=0", "-fno-diagnostics-show-labels"}

var message = regexp.MustCompile(`^(.+?):(\d+):(?:(\d+):)? (fatal error|error|warning|note): (.*)$`)

// compile has the host's compiler look at the package, and gives its messages their places in the package's files.
func (c *checker) compile(ctx context.Context, s *sources) error {
	said, err := c.runCompiler(ctx, s, append(append([]string{}, warnings...), ofGCC...))
	if err == nil && strings.Contains(said, "unknown argument") || strings.Contains(said, "unrecognized command") {
		said, err = c.runCompiler(ctx, s, warnings)
	}
	if err != nil {
		return err
	}
	placed := false
	for line := range strings.Lines(said) {
		m := message.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || m[4] == "note" {
			continue
		}
		n, _ := strconv.Atoi(m[2])
		col, _ := strconv.Atoi(m[3])
		at, ours := s.place(m[1], n, col)
		if !ours {
			continue
		}
		placed = true
		c.said(at, m[4] != "warning", m[5])
	}
	if !placed && strings.Contains(said, "error:") {
		return fmt.Errorf("check %s: the C compiler said: %s", c.p.Name, strings.TrimSpace(said))
	}
	return nil
}

var option = regexp.MustCompile(` \[(-W[^\]]*)\]$`)

// said turns a message of the compiler into a finding. What it says of the header's own names is about objects that do not
// exist, and is said better by the checks of accessors.
func (c *checker) said(at place, isError bool, text string) {
	if strings.Contains(text, "PCM_INDEX_") || strings.Contains(text, "each undeclared identifier is reported only once") {
		return
	}
	rule := "c"
	if m := option.FindStringSubmatch(text); m != nil {
		rule, text = "c"+m[1], strings.TrimSuffix(text, m[0])
	}
	text = strings.NewReplacer("‘", "'", "’", "'").Replace(text)
	if isError {
		c.mistake(at, rule, "", "C: %s", text)
	} else {
		c.doubt(at, rule, "", "C: %s", text)
	}
}

func (c *checker) runCompiler(ctx context.Context, s *sources, flags []string) (string, error) {
	cc := c.o.CC
	if cc == "" {
		cc = "cc"
	}
	args := append(append([]string{}, flags...), "-I", s.dir)
	cmd := exec.CommandContext(ctx, cc, append(args, s.dir+"/check.c")...)
	cmd.Env = append(cmd.Environ(), "LC_ALL=C")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("check %s: no C compiler %q (install gcc, or name one with --cc)", c.p.Name, cc)
	case err != nil && !errors.As(err, &exit):
		return "", fmt.Errorf("check %s: %s: %w", c.p.Name, cc, err)
	}
	return said.String(), ctx.Err()
}
