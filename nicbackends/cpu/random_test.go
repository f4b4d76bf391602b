package cpu

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// injectRandom are the flags of a shell whose RAND is what inject gives it.
func injectRandom(t *testing.T) []string {
	t.Helper()
	header := filepath.Join(tempDir, "inject.h")
	if err := os.WriteFile(header, []byte("__attribute__((visibility(\"default\"))) unsigned long long pcm_injected;\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{"-include", header, "-DPCM_RAND=pcm_injected"}
}

// inject sets what RAND draws from now on.
func (r *run) inject(v uint64) {
	r.Helper()
	lib, err := purego.Dlopen(r.path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		r.Fatal(err)
	}
	at, err := purego.Dlsym(lib, "pcm_injected")
	if err != nil {
		r.Fatal(err)
	}
	**(**uint64)(unsafe.Pointer(&at)) = v
}
