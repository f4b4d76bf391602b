package cpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Compile makes out of the C file unit in dir with the flags of the shells: another shared object with their interface, or a program. The
// error holds what the compiler said.
func Compile(ctx context.Context, dir, unit, out string, program bool, o Options) error {
	args := append(slices.Clone(flags), "-I", dir)
	if program {
		args = slices.DeleteFunc(args, func(f string) bool { return f == "-shared" || f == "-fPIC" || f == "-fvisibility=hidden" })
	}
	args = append(append(args, o.Flags...), "-DPCM_SHELL_EXPORT=__attribute__((visibility(\"default\")))", "-o", out, filepath.Join(dir, unit), "-lm", "-ldl", "-lpthread")
	cc := o.CC
	if cc == "" {
		cc = "cc"
	}
	cmd := exec.CommandContext(ctx, cc, args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return fmt.Errorf("compile %s: no C compiler %q (install gcc, or name one with --cc)", unit, cc)
		}
		return fmt.Errorf("compile %s: %s: %w\n%s", unit, cc, err, strings.TrimSpace(said.String()))
	}
	return nil
}
