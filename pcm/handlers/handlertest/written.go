// Package handlertest makes handler packages for tests.
package handlertest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/handlers"
)

// Written is a package of a test's own, from its texts, for the fabric of the library.
func Written(t testing.TB, name, yaml, c string) *pcm.Package {
	t.Helper()
	dir := t.TempDir()
	for ext, text := range map[string]string{".yaml": yaml, ".c": c} {
		if err := os.WriteFile(filepath.Join(dir, name+ext), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p, err := pcm.Load(filepath.Join(dir, name+".yaml"), pcm.Deployment{Fabric: handlers.Fabric()})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
