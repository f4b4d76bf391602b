package remote

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// errNoBinary says that a host cannot take the binary: it gets plain commands.
var errNoBinary = errors.New("no guard on this host")

// binaryState is what is known about pcmlab on one host.
type binaryState struct {
	mu     sync.Mutex // held while finding out
	path   string     // on the host
	reason error      // why it cannot be there; conclusive
	done   bool
}

// executables are the local binaries with their hashes.
type executables struct {
	mu  sync.Mutex
	sum map[string]string // file -> SHA-256

	packing sync.Mutex
	packed  map[string][]byte // file -> its content, gzipped
}

// goarch maps what uname -m says.
var goarch = map[string]string{
	"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64", "armv7l": "arm", "i686": "386", "i386": "386",
	"ppc64le": "ppc64le", "riscv64": "riscv64", "s390x": "s390x",
}

// find returns the binary for an architecture and its hash.
func (e *executables) find(o Options, arch string) (file, sum string, err error) {
	file = o.Binaries[arch]
	if file == "" && arch == runtime.GOARCH && runtime.GOOS == "linux" {
		file = "/proc/self/exe" // the running program, also when its file has been replaced
	}
	if file == "" {
		return "", "", fmt.Errorf("%w: no pcmlab built for linux/%s", errNoBinary, arch)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s, ok := e.sum[file]; ok {
		return file, s, nil
	}
	sum, err = FileSHA256(file)
	if err != nil {
		return "", "", fault(Usage, "", "pcmlab for linux/%s: %w", arch, err)
	}
	if e.sum == nil {
		e.sum = map[string]string{}
	}
	e.sum[file] = sum
	return file, sum, nil
}

// FileSHA256 is the hash of a file, in hex: with it CachePath names the place of a pushed binary.
func FileSHA256(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	d := sha256.New()
	if _, err := io.Copy(d, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(d.Sum(nil)), nil
}

// CachePath is where the binary with that SHA-256 lies in a home directory. Whoever puts it there beforehand (a
// virtual lab shares one file among its hosts) saves the push.
func CachePath(home, sum string) string {
	return path.Join(home, ".cache", "pcmlab", sum, "pcmlab")
}

// Binary is the path of pcmlab on the host, pushed on first use.
func (h *sshHost) Binary(ctx context.Context) (string, error) {
	p, err := h.binary(ctx)
	if errors.Is(err, errNoBinary) {
		err = fault(Infrastructure, "", "push pcmlab: %w", err)
	}
	return p, wrap(h.name, "push pcmlab", err)
}

// Guarded reports whether commands run under a guard on the host, and if not, why not. It is known after the first
// command.
func (h *sshHost) Guarded() (ok bool, reason string) {
	h.bin.mu.Lock()
	defer h.bin.mu.Unlock()
	if h.bin.reason != nil {
		return false, h.bin.reason.Error()
	}
	return h.bin.path != "", ""
}

func (h *sshHost) binary(ctx context.Context) (string, error) {
	h.bin.mu.Lock()
	defer h.bin.mu.Unlock()
	if h.bin.done {
		return h.bin.path, h.bin.reason
	}
	p, err := h.placeBinary(ctx)
	switch {
	case err == nil:
		h.bin.path, h.bin.done = p, true
	case errors.Is(err, errNoBinary):
		h.bin.reason, h.bin.done = err, true
		h.pool.o.Log.Info("host gets plain commands without a guard", "host", h.name, "reason", err.Error())
	}
	return p, err
}

func (h *sshHost) placeBinary(ctx context.Context) (string, error) {
	if h.pool.o.NoGuard {
		return "", fmt.Errorf("%w: switched off", errNoBinary)
	}
	out, err := h.probe(ctx, `uname -s; uname -m; printf '%s\n' "$HOME"`)
	if err != nil {
		return "", h.plainOnly(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out.stdout)), "\n")
	if n := len(lines); n > 3 {
		lines = lines[n-3:] // a login shell's greeting comes first
	}
	if out.code != 0 || len(lines) < 3 {
		return "", fmt.Errorf("%w: no POSIX shell: uname gave status %d, %q", errNoBinary, out.code, lastLine(append(out.stdout, out.stderr...)))
	}
	system, machine, home := lines[0], strings.TrimSpace(lines[1]), lines[2]
	arch, ok := goarch[machine]
	if strings.TrimSpace(system) != "Linux" || !ok {
		return "", fmt.Errorf("%w: it is %s %s", errNoBinary, system, machine)
	}
	if !strings.HasPrefix(home, "/") {
		return "", fmt.Errorf("%w: HOME is %q", errNoBinary, home)
	}
	file, sum, err := h.pool.exe.find(h.pool.o, arch)
	if err != nil {
		return "", err
	}
	dst := CachePath(home, sum)
	if h.checkBinary(ctx, dst, sum) == nil {
		return dst, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return "", fault(Usage, "", "push pcmlab: %w", err)
	}
	defer f.Close()
	// A host without SFTP gives no files either, and stays with plain commands.
	if err := h.sftp(ctx, func(_ context.Context, c *sftp.Client) error { return c.MkdirAll(path.Dir(remotePath(dst))) }); errors.Is(err, errNoSFTP) {
		return "", fmt.Errorf("%w: %w", errNoBinary, err)
	}
	// A third of the bytes, where the host has gzip; what goes wrong with it says SFTP more precisely.
	if h.putPacked(ctx, dst, sum, f) == nil {
		return dst, h.checkBinary(ctx, dst, sum)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", fault(Usage, "", "push pcmlab: %w", err)
	}
	if err := h.put(ctx, dst, 0o755, f); err != nil {
		if errors.Is(err, errNoSFTP) {
			return "", fmt.Errorf("%w: %w", errNoBinary, err)
		}
		return "", wrap("", "push pcmlab to "+dst, err)
	}
	return dst, h.checkBinary(ctx, dst, sum)
}

// unpackScript writes what comes on standard input to file $1 by way of $2, if its SHA-256 is $3.
const unpackScript = `set -e; mkdir -p "${1%/*}"; trap 'rm -f "$2"' EXIT; gzip -dc >"$2"; s=$(sha256sum "$2"); [ "${s%% *}" = "$3" ]; chmod 755 "$2"; mv "$2" "$1"`

// putPacked writes an executable on the host from its gzipped content.
func (h *sshHost) putPacked(ctx context.Context, dst, sum string, f *os.File) error {
	packed, err := h.pool.exe.pack(f)
	if err != nil {
		return err
	}
	s, err := h.session(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	s.Stdin = bytes.NewReader(packed)
	words := []string{"sh", "-c", unpackScript, "sh", dst, dst + ".tmp-" + randomHex(6), sum}
	for i := range words {
		words[i] = quote(words[i])
	}
	return s.Run(strings.Join(words, " "))
}

// pack is the content of a file, gzipped once for all hosts.
func (e *executables) pack(f *os.File) ([]byte, error) {
	e.packing.Lock()
	defer e.packing.Unlock()
	if b := e.packed[f.Name()]; b != nil {
		return b, nil
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.Copy(z, f); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	if e.packed == nil {
		e.packed = map[string][]byte{}
	}
	e.packed[f.Name()] = b.Bytes()
	return b.Bytes(), nil
}

// checkBinary runs the binary at its place on the host, having checked its hash.
func (h *sshHost) checkBinary(ctx context.Context, dst, sum string) error {
	out, err := h.probe(ctx, fmt.Sprintf(`f=%s; [ -f "$f" ] || exit 44; s=$(sha256sum "$f") || exit 45; [ "${s%%%% *}" = %s ] || exit 46; exec "$f" guard list --run probe`, quote(dst), sum))
	switch {
	case err != nil:
		return err
	case out.code == 0:
		return nil
	case out.code == 126:
		return fmt.Errorf("%w: %s cannot be executed (is its file system mounted noexec?): %s", errNoBinary, dst, lastLine(out.stderr))
	case out.code == 46:
		return fault(Infrastructure, "", "%s has another SHA-256 than it should", dst)
	}
	return fmt.Errorf("%w: %s: status %d: %s", errNoBinary, dst, out.code, lastLine(out.stderr))
}

// plainOnly makes a probe's error that comes from the server's own refusal conclusive.
func (h *sshHost) plainOnly(err error) error {
	var missing *ssh.ExitMissingError
	if errors.As(err, &missing) {
		return fmt.Errorf("%w: no shell: %w", errNoBinary, err)
	}
	return err
}
