package verbs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/inventory/remote"
)

// TestBuild: compiled once, found again, and said what to install where something is missing.
func TestBuild(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	file, err := Build(t.Context())
	var missing *BuildError
	if errors.As(err, &missing) && missing.Fix != "" {
		t.Skip(err)
	}
	if err != nil || file != cachedPath(home) {
		t.Fatalf("%q, %v", file, err)
	}
	first, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "") // no compiler is needed any more
	if _, err := Build(t.Context()); err != nil {
		t.Error(err)
	}
	if again, err := os.Stat(file); err != nil || !os.SameFile(first, again) {
		t.Errorf("it was built again: %v", err)
	}
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "build-*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestBuild_missing(t *testing.T) {
	for _, row := range []struct{ name, cc, want string }{
		{"compiler", "", "no C compiler: apt-get install --no-install-recommends gcc libc6-dev libibverbs-dev"},
		{"header", "nic.h:5:10: fatal error: infiniband/verbs.h: No such file or directory", "infiniband/verbs.h is missing: apt-get install --no-install-recommends gcc libc6-dev libibverbs-dev"},
		{"library", "/usr/bin/ld: cannot find -libverbs: No such file or directory", "libibverbs.so is missing: apt-get install"},
		{"other", "steer.c:1: error: this is no C", "the compiler refuses it: steer.c:1: error: this is no C"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Setenv("HOME", t.TempDir())
			bin := t.TempDir()
			if row.cc != "" {
				if err := os.WriteFile(filepath.Join(bin, "cc"), []byte("#!/bin/sh\necho '"+row.cc+"' >&2\nexit 1\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", bin)
			if _, err := Build(t.Context()); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v: want %q", err, row.want)
			}
		})
	}
}

// localHost is a Host whose commands run here, in a home of its own.
type localHost struct {
	remote.Host // what BuildOn must not use
	home, path  string
	uname       string
}

func (localHost) Name() string { return "h1" }

func (h localHost) Run(ctx context.Context, c remote.Cmd) (remote.Result, error) {
	args := c.Args
	if h.uname != "" {
		args = []string{"/bin/sh", "-c", "uname() { echo '" + h.uname + "'; }\n" + args[2]}
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", args[1:]...)
	cmd.Env = []string{"HOME=" + h.home, "PATH=" + h.path}
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return remote.Result{}, err
	}
	return remote.Result{Code: cmd.ProcessState.ExitCode(), Stdout: []byte(out.String()), Stderr: []byte(errOut.String())}, nil
}

func (h localHost) Put(ctx context.Context, file string, mode fs.FileMode, r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, data, mode)
}

// TestBuildOn: on a host with a compiler, on one without, and on those where it cannot be.
func TestBuildOn(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	if _, err := Build(t.Context()); err != nil {
		t.Skip(err)
	}
	bare := t.TempDir()
	for _, tool := range []string{"uname", "mkdir", "mv"} {
		p, err := exec.LookPath(tool)
		if err != nil {
			t.Skip(err)
		}
		if err := os.Symlink(p, filepath.Join(bare, tool)); err != nil {
			t.Fatal(err)
		}
	}
	broken := t.TempDir()
	script := "#!/bin/sh\necho 'fatal error: infiniband/verbs.h: No such file' >&2; exit 1\n"
	if err := os.WriteFile(filepath.Join(broken, "cc"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ name, path, uname, how, want string }{
		{"compiler", os.Getenv("PATH"), "", "compiled there", ""},
		{"no_compiler", bare, "", "compiled here: the host has no compiler", ""},
		{"no_headers", broken + ":" + bare, "", "", "host h1: build the program for libibverbs: infiniband/verbs.h is missing: apt-get install"},
		{"other_machine", bare, "Linux s390x", "", "host h1: build the program for libibverbs: no C compiler, and this machine is no Linux on s390x: apt-get install"},
		{"no_linux", bare, "Darwin arm64", "", "host h1: build the program for libibverbs: Darwin arm64 has no libibverbs"},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := localHost{home: t.TempDir(), path: row.path, uname: row.uname}
			file, how, err := BuildOn(t.Context(), h)
			if row.want != "" {
				if err == nil || !strings.Contains(err.Error(), row.want) {
					t.Errorf("%v: want %q", err, row.want)
				}
				return
			}
			if err != nil || how != row.how || file != cachedPath(h.home) {
				t.Fatalf("%q, %q, %v", file, how, err)
			}
			if _, how, err := BuildOn(t.Context(), h); err != nil || how != "was there" {
				t.Errorf("again: %q, %v", how, err)
			}
		})
	}
}
