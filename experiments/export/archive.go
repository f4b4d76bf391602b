package export

import (
	"archive/tar"
	"bufio"
	"bytes"
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
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/pcmlab/pcmlab/experiments"
)

// ArchiveSchema names the version of Manifest.
const ArchiveSchema = "pcmlab/archive/v1"

// manifestName is the first entry of an archive.
const manifestName = "pcmlab-archive.json"

// Manifest is the first entry of an archive: all that is in it.
type Manifest struct {
	Schema   string                     `json:"schema"`
	Name     string                     `json:"name"` // the folder: a run's or a sweep's
	Kind     string                     `json:"kind"` // run or sweep
	Redacted bool                       `json:"redacted"`
	LeftOut  []LeftOut                  `json:"left_out"` // of the folder
	Kept     []string                   `json:"kept"`     // names of hosts and users that were not replaced, and why
	Files    []experiments.ManifestFile `json:"files"`    // below Name, in the order of the archive
}

// LeftOut is a file that is not in the archive, and why.
type LeftOut struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// fixedTime is that of all entries: an archive depends on what is in it alone.
var fixedTime = time.Unix(0, 0)

// Archive writes the folder of a run or a sweep as tar within zstd: the manifest, then all files in the order of their paths. The same
// folder gives the same bytes. Files whose names begin with a dot are left out, as everywhere; a run that goes on is refused.
// redacted says how dir was made by Redact; nil: it was not.
func Archive(ctx context.Context, w io.Writer, dir string, redacted *Redacted) (*Manifest, error) {
	m, err := describe(ctx, dir)
	if err != nil {
		return nil, err
	}
	if redacted != nil {
		m.Redacted, m.LeftOut, m.Kept = true, append(m.LeftOut, redacted.LeftOut...), append(m.Kept, redacted.Kept...)
	}
	packed, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1)) // more would not change the bytes today; one never will
	if err != nil {
		return nil, err
	}
	out := tar.NewWriter(packed)
	head, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, err
	}
	if err := addEntry(out, manifestName, int64(len(head)), bytes.NewReader(head)); err != nil {
		return nil, err
	}
	for _, f := range m.Files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := addFile(out, m.Name, dir, f); err != nil {
			return nil, err
		}
	}
	return m, errors.Join(out.Close(), packed.Close())
}

func addFile(out *tar.Writer, name, dir string, f experiments.ManifestFile) error {
	in, err := os.Open(filepath.Join(dir, filepath.FromSlash(f.Path)))
	if err != nil {
		return err
	}
	defer in.Close()
	h := sha256.New()
	if err := addEntry(out, path.Join(name, f.Path), f.Bytes, io.TeeReader(in, h)); err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != f.SHA256 {
		return fmt.Errorf("%s: %s changed while it was read", dir, f.Path)
	}
	return nil
}

func addEntry(out *tar.Writer, name string, size int64, from io.Reader) error {
	err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: fixedTime, Format: tar.FormatPAX})
	if err != nil {
		return fmt.Errorf("archive: %s: %w", name, err)
	}
	n, err := io.Copy(out, from)
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes, expected %d: it changed while it was read", n, size)
	}
	if err != nil {
		return fmt.Errorf("archive: %s: %w", name, err)
	}
	return nil
}

// kindOf says what a folder is.
func kindOf(dir string) (string, error) {
	if st, err := os.Stat(filepath.Join(dir, experiments.SweepFile)); err == nil && st.Mode().IsRegular() {
		return "sweep", nil
	}
	if experiments.IsRun(dir) {
		return "run", nil
	}
	return "", fmt.Errorf("%w: %s is no folder of a run or sweep", experiments.ErrInput, dir)
}

// describe hashes the files of a folder.
func describe(ctx context.Context, dir string) (*Manifest, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	kind, err := kindOf(abs)
	if err != nil {
		return nil, err
	}
	if err := checkQuiet(abs); err != nil {
		return nil, err
	}
	m := &Manifest{Schema: ArchiveSchema, Name: filepath.Base(abs), Kind: kind, LeftOut: []LeftOut{}, Kept: []string{}, Files: []experiments.ManifestFile{}}
	err = eachFile(abs, func(rel string) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		f, err := os.Open(filepath.Join(abs, filepath.FromSlash(rel)))
		if err != nil {
			return err
		}
		defer f.Close()
		h := sha256.New()
		n, err := io.Copy(h, f)
		m.Files = append(m.Files, experiments.ManifestFile{Path: rel, Bytes: n, SHA256: hex.EncodeToString(h.Sum(nil))})
		return err
	})
	slices.SortFunc(m.Files, func(a, b experiments.ManifestFile) int { return strings.Compare(a.Path, b.Path) })
	return m, err
}

// checkQuiet refuses folders in which a run goes on.
func checkQuiet(dir string) error {
	runs, err := experiments.FindRuns(dir)
	if err != nil {
		return err
	}
	for _, run := range append(runs, dir) {
		if experiments.GoesOn(run) {
			return fmt.Errorf("%w: %s goes on: export it when it has ended", experiments.ErrBusy, run)
		}
	}
	return nil
}

// eachFile calls f with the path of every file below dir, but those whose names, or folders' names, begin with a dot.
func eachFile(dir string, f func(rel string) error) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p != dir && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			return fmt.Errorf("%w: %s is no plain file: put the file itself in the place of a link to it", experiments.ErrInput, p)
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		return f(filepath.ToSlash(rel))
	})
}

// ArchiveFile is Archive into a file, which appears whole or not at all.
func ArchiveFile(ctx context.Context, file, dir string, redacted *Redacted) (m *Manifest, err error) {
	err = WriteFile(file, func(w io.Writer) error {
		m, err = Archive(ctx, w, dir, redacted)
		return err
	})
	return m, err
}

// WriteFile makes a file by what f writes: all of it, or nothing.
func WriteFile(file string, f func(io.Writer) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-")
	if err != nil {
		if e := (*os.PathError)(nil); errors.As(err, &e) {
			err = e.Err // without the temporary name
		}
		return fmt.Errorf("write %s: %w", file, err)
	}
	defer os.Remove(tmp.Name())
	buffered := bufio.NewWriterSize(tmp, 1<<20)
	err = f(buffered)
	if err == nil {
		err = errors.Join(buffered.Flush(), tmp.Chmod(0o644), tmp.Sync())
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}
