package export

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"

	"github.com/pcmlab/pcmlab/experiments"
)

// Limits of what Import takes, whatever an archive says of itself.
const (
	maxManifest = 64 << 20
	maxWindow   = 128 << 20 // memory of the decoder
	// DefaultMaxBytes is the most that an archive may unpack to.
	DefaultMaxBytes = 64 << 30
)

// Import unpacks an archive into a new folder below out, and returns it. The folder appears when every file has been found to have
// the size and hash that the manifest says, and not at all otherwise. Nothing is overwritten, and nothing is written elsewhere.
func Import(ctx context.Context, archive io.Reader, out string, maxBytes int64) (dir string, m *Manifest, err error) {
	unpacked, err := zstd.NewReader(archive, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return "", nil, fmt.Errorf("%w: archive: %w", experiments.ErrInput, err)
	}
	defer unpacked.Close()
	in := tar.NewReader(unpacked)
	m, err = readManifest(in, maxBytes)
	if err != nil {
		return "", nil, fmt.Errorf("%w: archive: %w", experiments.ErrInput, err)
	}
	dir = filepath.Join(out, m.Name)
	if _, err := os.Lstat(dir); err == nil {
		return "", nil, fmt.Errorf("%w: %s is there already: nothing is overwritten; give another --out", experiments.ErrInput, dir)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return "", nil, err
	}
	tmp, err := os.MkdirTemp(out, ".import-")
	if err != nil {
		return "", nil, err
	}
	defer os.RemoveAll(tmp)
	if err := unpackFiles(ctx, in, m, tmp); err != nil {
		return "", nil, err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", nil, err
	}
	if err := os.Rename(tmp, dir); err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("%w: %s is there already", experiments.ErrInput, dir)
		}
		return "", nil, err
	}
	return dir, m, nil
}

// readManifest reads the first entry, and refuses what must not become files.
func readManifest(in *tar.Reader, maxBytes int64) (*Manifest, error) {
	h, err := in.Next()
	if err != nil {
		return nil, fmt.Errorf("not one of pcmlab export --archive: %w", err)
	}
	if h.Name != manifestName || h.Typeflag != tar.TypeReg || h.Size > maxManifest {
		return nil, fmt.Errorf("not one of pcmlab export --archive: it begins with %q, not with %s", h.Name, manifestName)
	}
	data, err := io.ReadAll(io.LimitReader(in, maxManifest))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", manifestName, err)
	}
	m := &Manifest{}
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("%s: %w", manifestName, err)
	}
	if m.Schema != ArchiveSchema {
		return nil, fmt.Errorf("%s: schema %q: this pcmlab reads %s", manifestName, m.Schema, ArchiveSchema)
	}
	if err := checkPath(m.Name); err != nil || strings.Contains(m.Name, "/") {
		return nil, fmt.Errorf("%s: name %q: need the name of a folder", manifestName, m.Name)
	}
	left := maxBytes
	last := ""
	folders := map[string]bool{}
	for _, f := range m.Files {
		if err := checkPath(f.Path); err != nil {
			return nil, fmt.Errorf("%s: %w", manifestName, err)
		}
		if f.Path <= last {
			return nil, fmt.Errorf("%s: %q behind %q: need each path once, in order", manifestName, f.Path, last)
		}
		if folders[f.Path] {
			return nil, fmt.Errorf("%s: %q is a file and a folder", manifestName, f.Path)
		}
		for at := path.Dir(f.Path); at != "."; at = path.Dir(at) {
			folders[at] = true
		}
		last = f.Path
		if f.Bytes < 0 || f.Bytes > left {
			return nil, fmt.Errorf("it unpacks to more than %d bytes (at %q); raise --max-size if that is meant", maxBytes, f.Path)
		}
		left -= f.Bytes
	}
	for _, f := range m.Files {
		if folders[f.Path] {
			return nil, fmt.Errorf("%s: %q is a file and a folder", manifestName, f.Path)
		}
	}
	return m, nil
}

// checkPath refuses paths that would not lie where they say, or that other programs would take for something else.
func checkPath(p string) error {
	bad := p == "" || len(p) > 4096 || !utf8.ValidString(p) || path.IsAbs(p) || path.Clean(p) != p || !filepath.IsLocal(filepath.FromSlash(p)) ||
		strings.Contains(p, `\`)
	for _, name := range strings.Split(p, "/") {
		bad = bad || strings.HasPrefix(name, ".") || len(name) > 255
	}
	bad = bad || strings.ContainsFunc(p, unicode.IsControl)
	if bad {
		return fmt.Errorf("path %q: need one below the archive's folder, of plain names", p)
	}
	return nil
}

// unpackFiles writes the files into dir, each as the manifest says it.
func unpackFiles(ctx context.Context, in *tar.Reader, m *Manifest, dir string) error {
	root, err := os.OpenRoot(dir) // whatever a path says, nothing is written outside
	if err != nil {
		return err
	}
	defer root.Close()
	wrong := func(format string, a ...any) error {
		return fmt.Errorf("%w: archive: %w", experiments.ErrData, fmt.Errorf(format, a...))
	}
	for _, f := range m.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := in.Next()
		if err != nil {
			return wrong("%s: %w", f.Path, noEOF(err))
		}
		if h.Name != path.Join(m.Name, f.Path) || h.Typeflag != tar.TypeReg {
			return wrong("entry %q (type %q) where the manifest has the file %q", h.Name, h.Typeflag, path.Join(m.Name, f.Path))
		}
		if h.Size != f.Bytes {
			return wrong("%s: %d bytes, the manifest says %d", f.Path, h.Size, f.Bytes)
		}
		sum, err := unpackFile(in, root, f.Path, f.Bytes)
		if err != nil {
			return wrong("%s: %w", f.Path, err)
		}
		if sum != f.SHA256 {
			return wrong("%s: its SHA-256 is not that of the manifest: the archive was damaged or changed", f.Path)
		}
	}
	if h, err := in.Next(); err == nil {
		return wrong("entry %q is not in the manifest", h.Name)
	} else if !errors.Is(err, io.EOF) {
		return wrong("behind the last file: %w", err)
	}
	return nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func unpackFile(in io.Reader, root *os.Root, name string, size int64) (sum string, err error) {
	if err := root.MkdirAll(filepath.FromSlash(path.Dir(name)), 0o755); err != nil {
		return "", err
	}
	f, err := root.OpenFile(filepath.FromSlash(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), io.LimitReader(in, size))
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	return hex.EncodeToString(h.Sum(nil)), errors.Join(err, f.Close())
}
