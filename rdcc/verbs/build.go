package verbs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

//go:embed program/*.c program/*.h
var sources embed.FS

// cflags are what the program is compiled with, everywhere.
var cflags = []string{"-std=c11", "-D_DEFAULT_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-Werror"}

const programName = "pcmlab-verbs"

// Packages are the Debian packages that building and running the program needs.
const Packages = "gcc libc6-dev libibverbs-dev ibverbs-providers"

// BuildError says why the program could not be built or started on a host.
type BuildError struct {
	Host string // "" is this one
	Why  string
	Fix  string
}

func (e *BuildError) Error() string {
	s := "build the program for libibverbs: " + e.Why
	if e.Host != "" {
		s = "host " + e.Host + ": " + s
	}
	if e.Fix != "" {
		s += ": " + e.Fix
	}
	return s
}

// sourceFiles are the program's files by name, in order.
func sourceFiles() (names []string, text map[string][]byte) {
	text = map[string][]byte{}
	entries, err := fs.ReadDir(sources, "program")
	if err != nil {
		panic(err) // they are embedded
	}
	for _, e := range entries {
		data, err := sources.ReadFile("program/" + e.Name())
		if err != nil {
			panic(err)
		}
		names = append(names, e.Name())
		text[e.Name()] = data
	}
	return names, text
}

// sum names a version of the program: what its sources and flags say.
func sum() string {
	d := sha256.New()
	fmt.Fprintln(d, cflags)
	names, text := sourceFiles()
	for _, n := range names {
		fmt.Fprintln(d, n, len(text[n]))
		d.Write(text[n])
	}
	return hex.EncodeToString(d.Sum(nil))[:16]
}

// cachedPath is where a built program lies in a home directory.
func cachedPath(home string) string {
	return path.Join(home, ".cache", "pcmlab", "verbs-"+sum(), programName)
}

// compileArgs are the arguments of the compiler, to be run in the sources' folder.
func compileArgs(out string) []string {
	args := append([]string{}, cflags...)
	args = append(args, "-o", out)
	names, _ := sourceFiles()
	for _, n := range names {
		if strings.HasSuffix(n, ".c") {
			args = append(args, n)
		}
	}
	return append(args, "-libverbs")
}

// Build returns the path of the program on this host. It is compiled when it is not there yet.
func Build(ctx context.Context) (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", &BuildError{Why: err.Error(), Fix: "set HOME"}
	}
	file := cachedPath(home)
	if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() {
		return file, nil
	}
	cc, err := compiler()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", &BuildError{Why: err.Error()}
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), "build-")
	if err != nil {
		return "", &BuildError{Why: err.Error()}
	}
	defer os.RemoveAll(dir)
	if err := compile(ctx, cc, dir); err != nil {
		return "", err
	}
	// Two that build at the same time do not see half a program.
	if err := os.Rename(filepath.Join(dir, programName), file); err != nil {
		return "", &BuildError{Why: err.Error()}
	}
	return file, nil
}

func compiler() (string, error) {
	for _, cc := range []string{"cc", "gcc", "clang"} {
		if p, err := exec.LookPath(cc); err == nil {
			return p, nil
		}
	}
	return "", &BuildError{Why: "no C compiler", Fix: installLine}
}

const installLine = "apt-get install --no-install-recommends " + Packages

// compile writes the sources into a folder and compiles them there.
func compile(ctx context.Context, cc, dir string, more ...string) error {
	names, text := sourceFiles()
	for _, n := range names {
		if err := os.WriteFile(filepath.Join(dir, n), text[n], 0o644); err != nil {
			return &BuildError{Why: err.Error()}
		}
	}
	cmd := exec.CommandContext(ctx, cc, append(compileArgs(programName), more...)...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return &BuildError{Why: err.Error()}
	}
	return diagnose("", out.String())
}

// diagnose says what a compiler's messages mean.
func diagnose(host, out string) error {
	e := &BuildError{Host: host}
	for _, missing := range []struct{ sign, why string }{
		{"infiniband/verbs.h: No such file", "infiniband/verbs.h is missing"},
		{"infiniband/verbs.h' file not found", "infiniband/verbs.h is missing"},
		{"cannot find -libverbs", "libibverbs.so is missing"},
		{"unable to find library -libverbs", "libibverbs.so is missing"},
		{"stdio.h: No such file", "the C library's headers are missing"},
		{"libibverbs.so.1: cannot open shared object", "libibverbs.so.1 is missing"},
	} {
		if strings.Contains(out, missing.sign) {
			e.Why, e.Fix = missing.why, installLine
			return e
		}
	}
	e.Why = "the compiler refuses it: " + strings.TrimSpace(tail(out, 400))
	return e
}

func tail(s string, n int) string {
	if len(s) > n {
		s = "..." + s[len(s)-n:]
	}
	return s
}
