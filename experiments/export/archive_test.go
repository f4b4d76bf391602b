package export

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/pcmlab/pcmlab/experiments"
)

// files are all files below a folder with their contents.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(p)
		rel, _ := filepath.Rel(dir, p)
		all[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestArchive_comesBack(t *testing.T) {
	root := t.TempDir()
	sweep := filepath.Join(root, "a-sweep")
	write(t, sweep, experiments.SweepFile, map[string]int{"x": 1})
	tableRun(t, filepath.Join(sweep, "c1", "01"), 3, nil)
	tableRun(t, filepath.Join(sweep, "c1", "02"), 3, nil)
	write(t, sweep, "c1/01/"+strings.Repeat("long", 40)+"/"+strings.Repeat("né", 60), "é")
	want := files(t, sweep)
	write(t, sweep, ".unfinished/x/timeline.jsonl", "left out")
	write(t, sweep, "c1/01/.tmp-1", "left out")
	var one, two bytes.Buffer
	m, err := Archive(t.Context(), &one, sweep, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.Kind != "sweep" || len(m.Files) != len(want) {
		t.Errorf("manifest %+v, want %d files of a sweep", m, len(want))
	}
	// The same contents, made later elsewhere in another order, are the same bytes.
	other := filepath.Join(t.TempDir(), "a-sweep")
	if err := os.CopyFS(other, os.DirFS(sweep)); err != nil {
		t.Fatal(err)
	}
	os.Chtimes(filepath.Join(other, experiments.SweepFile), time.Unix(1, 0), time.Unix(1, 0))
	os.Chmod(filepath.Join(other, experiments.SweepFile), 0o600)
	if _, err := Archive(t.Context(), &two, other, nil); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("the same folder gave other bytes")
	}
	out := t.TempDir()
	dir, _, err := Import(t.Context(), bytes.NewReader(one.Bytes()), out, DefaultMaxBytes)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, files(t, dir)); diff != "" {
		t.Errorf("(-exported +imported):\n%s", diff)
	}
	if _, _, err := Import(t.Context(), bytes.NewReader(one.Bytes()), out, DefaultMaxBytes); !errors.Is(err, experiments.ErrInput) || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("a second import: %v", err)
	}
	if left, _ := os.ReadDir(out); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestArchive_refuses(t *testing.T) {
	root := t.TempDir()
	tableRun(t, filepath.Join(root, "run"), 1, nil)
	if _, err := Archive(t.Context(), &bytes.Buffer{}, root, nil); !errors.Is(err, experiments.ErrInput) {
		t.Errorf("a folder of runs: %v", err)
	}
	b, err := experiments.CreateBundle(root, "live")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Archive(t.Context(), &bytes.Buffer{}, b.Dir, nil); !errors.Is(err, experiments.ErrBusy) {
		t.Errorf("a run that goes on: %v", err)
	}
	b.Close(experiments.StateComplete, "", "test")
	if _, err := Archive(t.Context(), &bytes.Buffer{}, b.Dir, nil); err != nil {
		t.Error(err)
	}
	os.Symlink("/etc/passwd", filepath.Join(root, "run", "link"))
	if _, err := Archive(t.Context(), &bytes.Buffer{}, filepath.Join(root, "run"), nil); err == nil || !strings.Contains(err.Error(), "no plain file") {
		t.Errorf("a link: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	file := filepath.Join(root, "x.tar.zst")
	if _, err := ArchiveFile(ctx, file, b.Dir, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("half an archive was left")
	}
}

type rawEntry struct {
	name, data string
	kind       byte
	size       int64 // -1: that of data
}

// craft packs what somebody with bad intent might.
func craft(t testing.TB, manifest any, entries ...rawEntry) []byte {
	t.Helper()
	var b bytes.Buffer
	z, _ := zstd.NewWriter(&b)
	out := tar.NewWriter(z)
	head, ok := manifest.(string)
	if !ok {
		data, err := json.Marshal(manifest)
		if err != nil {
			t.Fatal(err)
		}
		head = string(data)
	}
	for _, e := range append([]rawEntry{{manifestName, head, tar.TypeReg, -1}}, entries...) {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: 0o644}
		if e.kind == tar.TypeReg {
			h.Size = int64(len(e.data))
		} else {
			h.Linkname = e.data
		}
		if err := out.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if e.kind == tar.TypeReg {
			out.Write([]byte(e.data))
		}
	}
	if err := errors.Join(out.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestImport_refuses(t *testing.T) {
	file := func(p, data string) experiments.ManifestFile {
		sum := sha256.Sum256([]byte(data))
		return experiments.ManifestFile{Path: p, Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
	}
	of := func(files ...experiments.ManifestFile) Manifest {
		return Manifest{Schema: ArchiveSchema, Name: "run", Kind: "run", Files: files}
	}
	reg := func(name, data string) rawEntry { return rawEntry{name, data, tar.TypeReg, -1} }
	named := func(name string) Manifest { m := of(file("a", "x")); m.Name = name; return m }
	big := file("a", "x")
	big.Bytes = 1 << 40
	long := file("a", "x")
	long.Bytes = 2
	negative := file("a", "x")
	negative.Bytes = -1
	good := craft(t, of(file("a", "x")), reg("run/a", "x"))
	for _, c := range []struct {
		name, want string
		archive    []byte
	}{
		{"no_zstd", "archive", []byte("PK no archive of ours at all")},
		{"empty", "archive", nil},
		{"cut", "EOF", good[:len(good)/2]},
		{"another_tar", "begins with", craftFirst(t, "x")},
		{"no_json", "pcmlab-archive.json", craft(t, "{")},
		{"another_schema", "this pcmlab reads", craft(t, Manifest{Schema: "pcmlab/archive/v9"})},
		{"up", "plain names", craft(t, of(file("../a", "x")), reg("run/../a", "x"))},
		{"up_within", "plain names", craft(t, of(file("b/../../a", "x")), reg("a", "x"))},
		{"absolute", "plain names", craft(t, of(file("/etc/x", "x")), reg("/etc/x", "x"))},
		{"dot", "plain names", craft(t, of(file("./a", "x")), reg("run/a", "x"))},
		{"hidden", "plain names", craft(t, of(file(".ssh/a", "x")), reg("run/.ssh/a", "x"))},
		{"backslash", "plain names", craft(t, of(file(`b\..\a`, "x")), reg(`run/b\..\a`, "x"))},
		{"control", "plain names", craft(t, of(file("a\nb", "x")), reg("run/a\nb", "x"))},
		{"empty_path", "plain names", craft(t, of(file("", "x")), reg("run/x", "x"))},
		{"name_up", "name of a folder", craft(t, named(".."), reg("../a", "x"))},
		{"name_two", "name of a folder", craft(t, named("a/b"), reg("a/b/a", "x"))},
		{"name_absolute", "name of a folder", craft(t, named("/tmp"), reg("/tmp/a", "x"))},
		{"twice", "once, in order", craft(t, of(file("a", "x"), file("a", "y")), reg("run/a", "x"), reg("run/a", "y"))},
		{"disorder", "once, in order", craft(t, of(file("b", "x"), file("a", "y")), reg("run/b", "x"), reg("run/a", "y"))},
		{"file_and_folder", "a file and a folder", craft(t, of(file("a", "x"), file("a/b", "y")), reg("run/a", "x"), reg("run/a/b", "y"))},
		{"bomb_that_says_so", "more than", craft(t, of(big), reg("run/a", "x"))},
		{"negative", "more than", craft(t, of(negative), reg("run/a", "x"))},
		{"longer_than_said", "the manifest says 1", craft(t, of(file("a", "x")), reg("run/a", strings.Repeat("x", 1000)))},
		{"shorter_than_said", "the manifest says 2", craft(t, of(long), reg("run/a", "x"))},
		{"another_content", "SHA-256", craft(t, of(file("a", "x")), reg("run/a", "y"))},
		{"link", "where the manifest has", craft(t, of(file("a", "x")), rawEntry{"run/a", "/etc/passwd", tar.TypeSymlink, -1})},
		{"hard_link", "where the manifest has", craft(t, of(file("a", "x")), rawEntry{"run/a", "/etc/passwd", tar.TypeLink, -1})},
		{"link_before", "where the manifest has", craft(t, of(file("d/a", "x")), rawEntry{"run/d", "/tmp", tar.TypeSymlink, -1}, reg("run/d/a", "x"))},
		{"device", "where the manifest has", craft(t, of(file("a", "x")), rawEntry{"run/a", "", tar.TypeChar, -1})},
		{"another_name", "where the manifest has", craft(t, of(file("a", "x")), reg("run/b", "x"))},
		{"missing", "unexpected EOF", craft(t, of(file("a", "x"), file("b", "y")), reg("run/a", "x"))},
		{"more_than_said", "not in the manifest", craft(t, of(file("a", "x")), reg("run/a", "x"), reg("run/b", "y"))},
		{"manifest_twice", "where the manifest has", craft(t, of(file("a", "x")), reg(manifestName, "{}"), reg("run/a", "x"))},
	} {
		t.Run(c.name, func(t *testing.T) {
			outer := t.TempDir()
			out := filepath.Join(outer, "runs")
			if _, _, err := Import(t.Context(), bytes.NewReader(c.archive), out, 1<<30); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			} else if !errors.Is(err, experiments.ErrInput) && !errors.Is(err, experiments.ErrData) {
				t.Errorf("error %v has no class", err)
			}
			if left := files(t, outer); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	if _, _, err := Import(t.Context(), bytes.NewReader(good), t.TempDir(), 1<<30); err != nil {
		t.Errorf("the good one: %v", err)
	}
}

// craftFirst is a tar that begins with another file.
func craftFirst(t testing.TB, name string) []byte {
	t.Helper()
	var b bytes.Buffer
	z, _ := zstd.NewWriter(&b)
	out := tar.NewWriter(z)
	err := out.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 1, Mode: 0o644})
	if _, e := out.Write([]byte("x")); errors.Join(err, e, out.Close(), z.Close()) != nil {
		t.Fatal(err, e)
	}
	return b.Bytes()
}

// TestImport_damaged: an archive with any byte changed is refused, or gives the very files.
func TestImport_damaged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	tableRun(t, dir, 3, nil)
	want := files(t, dir)
	var b bytes.Buffer
	if _, err := Archive(t.Context(), &b, dir, nil); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i := 0; i < b.Len(); i += max(1, b.Len()/300) {
		bad := bytes.Clone(b.Bytes())
		bad[i] ^= 0x10
		out := t.TempDir()
		got, _, err := Import(t.Context(), bytes.NewReader(bad), out, 1<<30)
		if err != nil {
			refused++
			if left := files(t, out); len(left) != 0 {
				t.Errorf("byte %d: left behind %v", i, left)
			}
			continue
		}
		if diff := cmp.Diff(want, files(t, got)); diff != "" {
			t.Errorf("byte %d: taken, with other contents:\n%s", i, diff)
		}
	}
	if refused < 250 {
		t.Errorf("%d were refused", refused)
	}
}
