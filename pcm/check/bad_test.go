package check

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pcmlab/pcmlab/pcm"
)

var update = flag.Bool("update", false, "write what was found into the golden files")

// optionsOf reads the line "options: strict platform=docapcc snapshot=relaxed" of a comment.
func optionsOf(t *testing.T, comment string) Options {
	t.Helper()
	var o Options
	for line := range strings.Lines(comment) {
		list, ok := strings.CutPrefix(strings.TrimSpace(line), "options: ")
		if !ok {
			continue
		}
		for _, word := range strings.Fields(list) {
			if policy, ok := strings.CutPrefix(word, "snapshot="); ok {
				var err error
				if o.Snapshot, err = pcm.ParseSnapshot(policy); err != nil {
					t.Fatal(err)
				}
				continue
			}
			name, ok := strings.CutPrefix(word, "platform=")
			if !ok {
				o.Strict = true
				continue
			}
			pl, err := pcm.PlatformNamed(name)
			if err != nil {
				t.Fatal(err)
			}
			o.Platform = pl
		}
	}
	return o
}

// unpack writes the files of an archive, but want, into a folder.
func unpack(t *testing.T, a *txtar.Archive) (dir, want string) {
	t.Helper()
	dir = t.TempDir()
	for _, f := range a.Files {
		if f.Name == "want" {
			want = string(f.Data)
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir, want
}

// TestBadPackages: each archive of testdata/bad is a package with mistakes and, in its last file, what the checker says of them.
func TestBadPackages(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.txtar")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d bad packages, %v", len(files), err)
	}
	if *update && os.Getenv("CI") != "" {
		t.Fatal("golden files are not written in CI")
	}
	fabric, err := pcm.ParseFabric("fabric.yaml", []byte("FABRIC_LINK_MSS: 4096\nFABRIC_LINK_MTU: 4150\nFABRIC_MIN_CWND: 4150\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dir, want := unpack(t, a)
			r, err := File(t.Context(), filepath.Join(dir, name+".yaml"), pcm.Deployment{Fabric: fabric}, optionsOf(t, string(a.Comment)))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, f := range r.Findings {
				got += fmt.Sprintln(strings.ReplaceAll(f.String(), dir+string(filepath.Separator), ""))
			}
			for _, n := range r.Notes {
				got += "note: " + n + "\n"
			}
			if got == "" {
				t.Error("nothing found")
			}
			if *update {
				for i := range a.Files {
					if a.Files[i].Name == "want" {
						a.Files[i].Data = []byte(got)
					}
				}
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}
