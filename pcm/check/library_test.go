package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/handlers"
)

// TestLibrary_hasNoFinding: every package of the library is proven, under --strict.
func TestLibrary_hasNoFinding(t *testing.T) {
	for _, name := range handlers.Names() {
		t.Run(name, func(t *testing.T) {
			p, err := handlers.Load(name, pcm.Deployment{})
			if err != nil {
				t.Fatal(err)
			}
			r, err := Package(t.Context(), p, Options{Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range r.Findings {
				t.Error(f)
			}
		})
	}
}

// TestLibrary_pathsUnderAsynchronousShells: of the library, those that learn paths from acknowledgements are warned about, and nothing else is.
func TestLibrary_pathsUnderAsynchronousShells(t *testing.T) {
	warned := map[string]bool{"reps": true, "strack": true, "strack_light": true}
	for _, name := range handlers.Names() {
		p, err := handlers.Load(name, pcm.Deployment{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := Package(t.Context(), p, Options{Snapshot: pcm.Relaxed})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Findings {
			if f.Rule != "last-path" || f.Severity != Warning {
				t.Error(f)
			}
		}
		if (len(r.Findings) > 0) != warned[name] {
			t.Errorf("%s: %v", name, r.Findings)
		}
	}
}

// TestSDK_hasWarningsOnly checks the packages of the published SDK, which are no part of the project: PCMLAB_PCM_SDK names it, unpacked.
func TestSDK_hasWarningsOnly(t *testing.T) {
	root := os.Getenv("PCMLAB_PCM_SDK")
	if root == "" {
		t.Skip("PCMLAB_PCM_SDK does not name the published SDK, unpacked")
	}
	sdk := filepath.Join(root, "algorithms")
	fabric, err := pcm.LoadFabric(filepath.Join(sdk, "fabric.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(sdk, "*.yaml"))
	more, _ := filepath.Glob(filepath.Join(sdk, "v2", "*.yaml"))
	checked := 0
	for _, f := range append(files, more...) {
		name := strings.TrimSuffix(filepath.Base(f), ".yaml")
		if name == "fabric" {
			continue
		}
		checked++
		t.Run(name, func(t *testing.T) {
			d := pcm.Deployment{Fabric: fabric}
			if strings.HasPrefix(name, "newreno") || strings.HasPrefix(name, "dctcp") {
				d.Sources = []string{filepath.Join(sdk, "tcp_utils.c")}
			}
			r, err := File(t.Context(), f, d, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range r.Findings {
				if f.Severity == Warning {
					t.Log(f)
				} else {
					t.Error(f)
				}
			}
		})
	}
	if checked < 22 {
		t.Errorf("%d packages in %s, want all 22", checked, sdk)
	}
}
