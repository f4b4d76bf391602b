package verbs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"runtime"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/inventory/remote"
)

var machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64", "riscv64": "riscv64"}

// BuildOn puts the program onto another host, where Build then finds it, and returns its path there. It is compiled there.
// Where there is no compiler but a machine of this kind and libibverbs, it takes the program that was compiled here; how says which.
func BuildOn(ctx context.Context, h remote.Host) (file, how string, err error) {
	sh := func(step, script string) (remote.Result, error) {
		return h.Run(ctx, remote.Cmd{Args: []string{"sh", "-c", script}, Deadline: 2 * time.Minute, Step: step})
	}
	r, err := sh("look for the program for libibverbs", `printf '%s\n' "$HOME"; uname -sm; command -v cc || command -v gcc || command -v clang || echo none`)
	if err != nil {
		return "", "", err
	}
	f := strings.Split(strings.TrimSpace(string(r.Stdout)), "\n")
	if r.Code != 0 || len(f) != 3 {
		return "", "", &BuildError{Host: h.Name(), Why: fmt.Sprintf("sh says %q, exit status %d", tail(string(r.Stdout)+string(r.Stderr), 200), r.Code)}
	}
	home, machine, cc := f[0], f[1], f[2]
	if !strings.HasPrefix(machine, "Linux ") {
		return "", "", &BuildError{Host: h.Name(), Why: machine + " has no libibverbs", Fix: "the transport verbs needs Linux"}
	}
	file = cachedPath(home)
	if works(sh, file) == nil {
		return file, "was there", nil
	}
	if cc != "none" {
		err = compileOn(ctx, h, sh, cc, path.Dir(file))
		how = "compiled there"
	} else {
		err = pushTo(ctx, h, strings.TrimPrefix(machine, "Linux "), file)
		how = "compiled here: the host has no compiler"
	}
	if err != nil {
		return "", "", err
	}
	if err := works(sh, file); err != nil {
		return "", "", diagnose(h.Name(), err.Error())
	}
	return file, how, nil
}

// works starts the program without a socket: it must say that it is not to be started like this.
func works(sh func(step, script string) (remote.Result, error), file string) error {
	r, err := sh("try the program for libibverbs", quote(file)+" 3<&-")
	if err != nil {
		return err
	}
	if r.Code == 2 && strings.Contains(string(r.Stderr), "SEQPACKET") {
		return nil
	}
	return fmt.Errorf("%s, exit status %d", tail(string(r.Stderr), 300), r.Code)
}

func compileOn(ctx context.Context, h remote.Host, sh func(step, script string) (remote.Result, error), cc, dir string) error {
	names, text := sourceFiles()
	if r, err := sh("make a folder for the program for libibverbs", "mkdir -p "+quote(dir)); err != nil || r.Code != 0 {
		return &BuildError{Host: h.Name(), Why: fmt.Sprintf("mkdir -p %s: %s %v", dir, tail(string(r.Stderr), 200), err)}
	}
	for _, n := range names {
		if err := h.Put(ctx, path.Join(dir, n), 0o644, bytes.NewReader(text[n])); err != nil {
			return err
		}
	}
	// The name of the shell's process keeps two builds at the same time apart.
	script := "cd " + quote(dir) + " && " + quote(cc)
	for _, a := range compileArgs("build.$$") {
		if a == "build.$$" {
			script += " build.$$"
		} else {
			script += " " + quote(a)
		}
	}
	script += " && mv build.$$ " + programName
	r, err := sh("compile the program for libibverbs", script)
	if err != nil {
		return err
	}
	if r.Code != 0 {
		return diagnose(h.Name(), string(r.Stderr))
	}
	return nil
}

func pushTo(ctx context.Context, h remote.Host, machine, file string) error {
	if machines[runtime.GOARCH] != machine || runtime.GOOS != "linux" {
		return &BuildError{Host: h.Name(), Why: "no C compiler, and this machine is no Linux on " + machine, Fix: installLine}
	}
	own, err := Build(ctx)
	if err != nil {
		return &BuildError{Host: h.Name(), Why: "no C compiler there, and here: " + err.Error(), Fix: installLine}
	}
	data, err := os.ReadFile(own)
	if err != nil {
		return err
	}
	return h.Put(ctx, file, 0o755, bytes.NewReader(data))
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
