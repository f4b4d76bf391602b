package handlers

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/pcm"
)

// TestLibrary_holdsEveryFile: what lies in the folders is in the program, and every package of it loads.
func TestLibrary_holdsEveryFile(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, ".go") {
			return err
		}
		want, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if got, err := fs.ReadFile(FS(), filepath.ToSlash(path)); err != nil || string(got) != string(want) {
			t.Errorf("%s is not in the program: %v", path, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(Names(), "swift") {
		t.Errorf("no swift among %v", Names())
	}
	for _, name := range Names() {
		p, err := Load(name, pcm.Deployment{})
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if p.Name != name {
			t.Errorf("folder %s holds %s", name, p.Name)
		}
	}
}

// TestLibrary_isTheSameFromAnywhere: a package of the program and its files on disk give the same hash.
func TestLibrary_isTheSameFromAnywhere(t *testing.T) {
	inside, err := Load("swift", pcm.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	outside, err := pcm.Load("swift", pcm.Deployment{Fabric: Fabric()})
	if err != nil {
		t.Fatal(err)
	}
	a, err := inside.Hash()
	if err != nil {
		t.Fatal(err)
	}
	b, err := outside.Hash()
	if err != nil {
		t.Fatal(err)
	}
	if a != b {
		t.Errorf("%s in the program, %s on disk", a, b)
	}
}

// TestLibrary_knowsEveryUnitOfTime: what is a time in a package follows the deployment's unit.
func TestLibrary_knowsEveryUnitOfTime(t *testing.T) {
	for unit, us := range map[string]int64{"ps": 1_000_000, "ns": 1000, "tick": 10} {
		text := strings.NewReplacer("time_unit: ns", "time_unit: "+unit, "14023", fmt.Sprint(14_023*us/1000), "24540", fmt.Sprint(24_540*us/1000)).Replace(string(FabricFile()))
		fabric, err := pcm.ParseFabric("fabric.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range Names() {
			p, err := Load(name, pcm.Deployment{Fabric: fabric})
			if err != nil {
				t.Errorf("in %s: %v", unit, err)
				continue
			}
			for object, ns := range map[string]int64{"ALPHA_TIMER": 55_000, "FAST_DELAY": 1000, "GAP": 10_000, "EXTRA_TIME": 100_000_000, "SECOND": 1_000_000_000} {
				for _, c := range p.Constants {
					if c.Name == object && c.Value.String() != fmt.Sprint(ns*us/1000) {
						t.Errorf("in %s: %s of %s is %s", unit, object, name, c.Value)
					}
				}
			}
		}
	}
}
