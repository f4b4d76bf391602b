package docapcc

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends"
	"github.com/pcmlab/pcmlab/pcm"
)

// buildWait is how long DPACC and the host's compiler may take.
const buildWait = 10 * time.Minute

// asks tells which compiler a build host has: what it says is part of the name of what was built. The first line is the machine; what is built finds its libraries in the folder of the second.
const asks = `uname -m
d=${DOCA:-/opt/mellanox/doca}
echo "$d"
cat "$d/applications/VERSION" 2>/dev/null || pkg-config --modversion doca-common 2>/dev/null || echo "DOCA of no known version"
"$d/tools/dpacc" --version 2>/dev/null | head -n 1`

// building keeps two senders of one run from building the same thing on one host at once.
var building sync.Map // of *sync.Mutex, by host and folder

// built is a loader on the host with the NIC.
type built struct {
	loader   string
	on       string // host that built it
	compiler string
}

// build makes the loader of a program, or finds that it was made before, and brings it to the host with the NIC.
func (b Backend) build(ctx context.Context, d nicbackends.Deployment, p *pcm.Package) (out built, err error) {
	on := d.Build
	if on == nil {
		on = d.Host
	}
	out.on = on.Name()
	step := "build handler " + p.Name
	run := func(h remote.Host, within time.Duration, argv ...string) (remote.Result, error) {
		return h.Run(ctx, remote.Cmd{Args: argv, Env: b.Env, Step: step, Deadline: within})
	}
	wrong := func(h remote.Host, format string, args ...any) (built, error) {
		return out, &remote.Error{Host: h.Name(), Step: step, Err: fmt.Errorf(format, args...)}
	}

	dir, err := os.MkdirTemp("", "pcmlab-docapcc-")
	if err != nil {
		return out, err
	}
	defer os.RemoveAll(dir)
	files, err := Write(p, dir)
	if err != nil {
		return out, fmt.Errorf("%s: %w", step, err)
	}
	told, err := run(on, time.Minute, "sh", "-c", asks)
	if err != nil {
		return out, err
	}
	machine, compiler, _ := strings.Cut(strings.TrimSpace(string(told.Stdout)), "\n")
	out.compiler = strings.ReplaceAll(compiler, "\n", ", ")
	key, err := nameOf(dir, files, string(told.Stdout))
	if err != nil {
		return out, err
	}
	place, err := cache(ctx, on)
	if err != nil {
		return out, err
	}
	place = path.Join(place, key)
	mu, _ := building.LoadOrStore(out.on+":"+place, &sync.Mutex{})
	mu.(*sync.Mutex).Lock()
	defer mu.(*sync.Mutex).Unlock()
	out.loader = path.Join(place, "build", "pcm_load")
	whole := func(h remote.Host, place string) (bool, error) { // as it was built, to the byte
		res, err := run(h, time.Minute, "sh", "-c", `cd "$1/build" && sha256sum -c --status pcm_load.sha256`, "whole", place)
		return res.Code == 0, err
	}
	ok, err := whole(on, place)
	if err != nil {
		return out, err
	}
	if !ok {
		if d.Say != nil {
			d.Say(fmt.Sprintf("handler %s is built on %s (%s)", p.Name, out.on, out.compiler))
		}
		draft := place + "." + d.Run // nobody sees half of it
		for _, f := range files {
			name, err := filepath.Rel(dir, f)
			if err != nil {
				return out, err
			}
			if err := put(ctx, on, f, path.Join(draft, filepath.ToSlash(name))); err != nil {
				return out, err
			}
		}
		res, err := run(on, cmp.Or(b.Build, buildWait), "sh", "-c", `"$1/build.sh" && cd "$1/build" && sha256sum pcm_load >pcm_load.sha256 && rm -rf "$2" && mv "$1" "$2"`, "build", draft, place)
		if err == nil && res.Code != 0 {
			_, err = wrong(on, "exit status %d: %s", res.Code, buildSaid(res.Stderr))
		}
		if err != nil {
			_, _ = run(on, time.Minute, "rm", "-rf", draft)
			return out, err
		}
		if ok, err = whole(on, place); err != nil || !ok {
			return wrong(on, "build.sh ended well, but there is no %s as it was built (%v)", out.loader, err)
		}
	}
	if on == d.Host {
		return out, nil
	}
	res, err := run(d.Host, time.Minute, "uname", "-m")
	if err != nil {
		return out, err
	}
	if m := strings.TrimSpace(string(res.Stdout)); m != machine {
		return wrong(d.Host, "it is %s, and %s, which builds for it, is %s: name another host with build_on", m, out.on, machine)
	}
	return out, b.bring(ctx, d.Host, on, place, &out, whole)
}

// buildSaid is what a build's output says of its failure: the first lines that speak of an error, and the last of build.sh's own, each shortened.
func buildSaid(out []byte) string {
	var said []string
	last := ""
	for line := range strings.Lines(strings.ToValidUTF8(string(out), "?")) {
		line = strings.TrimSpace(line)
		const most = 200
		if len(line) > most {
			line = strings.ToValidUTF8(line[:most], "") + "..."
		}
		switch {
		case strings.HasPrefix(line, "build.sh: "):
			last = line
		case len(said) < 3 && (strings.Contains(strings.ToLower(line), "error") || strings.Contains(line, "No such file")):
			said = append(said, line)
		}
	}
	if last != "" {
		said = append(said, last)
	}
	if len(said) == 0 {
		return oneLine(out)
	}
	return strings.Join(said, "; ")
}

// bring copies a loader from where it was built. Both ways are checked by SHA-256.
func (b Backend) bring(ctx context.Context, to, from remote.Host, place string, out *built, whole func(remote.Host, string) (bool, error)) error {
	there, err := cache(ctx, to)
	if err != nil {
		return err
	}
	there = path.Join(there, path.Base(place))
	ours := out.loader
	out.loader = path.Join(there, "build", "pcm_load")
	if ok, err := whole(to, there); err != nil || ok {
		return err
	}
	for _, name := range []string{ours, ours + ".sha256"} {
		f, err := os.CreateTemp("", "pcm_load-*")
		if err != nil {
			return err
		}
		defer os.Remove(f.Name())
		if err := from.Get(ctx, name, f); err != nil {
			f.Close()
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
		if err := put(ctx, to, f.Name(), path.Join(there, "build", path.Base(name))); err != nil {
			return err
		}
	}
	if ok, err := whole(to, there); err != nil || !ok {
		return &remote.Error{Host: to.Name(), Step: "bring the loader of a handler", Err: fmt.Errorf("%s is not what %s built (%v)", out.loader, from.Name(), err)}
	}
	return nil
}

func put(ctx context.Context, h remote.Host, from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	mode := os.FileMode(0o644)
	if strings.HasSuffix(to, ".sh") || path.Base(to) == "pcm_load" {
		mode = 0o755
	}
	return h.Put(ctx, to, mode, f)
}

// nameOf is the name of what files and a compiler make.
func nameOf(dir string, files []string, compiler string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, compiler)
	for _, f := range files {
		name, err := filepath.Rel(dir, f)
		if err != nil {
			return "", err
		}
		data, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n", filepath.ToSlash(name), len(data))
		sum.Write(data)
	}
	return hex.EncodeToString(sum.Sum(nil))[:32], nil
}
