// Package docapcctest has a DOCA for tests that is none: headers as far as the loader needs them, libraries with one device that is in no machine,
// and a DPACC that compiles nothing for a device. What each of them was made of stands in its head. They misbehave when they are told to.
package docapcctest

import (
	"embed"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

//go:embed fakes
var fakes embed.FS

// Install puts it into dir. The loader and DPACC look into the folder state for what the fakes of NVIDIA's tools share with them (package
// mfttest), unless PCM_FAKE names one. With state the device is that of a virtual host: its handler runs while the host's NIC sends.
func Install(t testing.TB, dir, state string) {
	t.Helper()
	Sources(t, filepath.Join(dir, "include"))
	write(t, filepath.Join(dir, "include", "doca_pcc_dev.h"), "/* a fake: nothing is compiled for a device */\n")
	dpacc, err := fakes.ReadFile("fakes/dpacc")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "tools", "dpacc"), strings.ReplaceAll(string(dpacc), "@STATE@", state))
	write(t, filepath.Join(dir, "applications", "VERSION"), "3.3.0\n")
	lib := filepath.Join(dir, "lib")
	if err := os.MkdirAll(lib, 0o755); err != nil {
		t.Fatal(err)
	}
	here := filepath.Join(dir, "include")
	args := []string{"-O1", "-fPIC", "-shared", "-I", here, filepath.Join(here, "fake.c"), "-o", lib + "/libdoca_pcc.so"}
	if state != "" {
		args = append(args, `-DPCM_FAKE="`+state+`"`)
	}
	cc(t, args...)
	for _, l := range []string{"doca_common", "flexio", "ibverbs", "mlx5", "stdc++"} {
		cc(t, "-fPIC", "-shared", "-x", "c", os.DevNull, "-o", lib+"/lib"+l+".so")
	}
}

// Sources writes the headers and the library's source alone.
func Sources(t testing.TB, dir string) {
	t.Helper()
	err := fs.WalkDir(fakes, "fakes", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fakes.ReadFile(path)
		if err == nil && !strings.HasSuffix(path, "dpacc") {
			write(t, filepath.Join(dir, filepath.Base(path)), string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func cc(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("cc %v: %v\n%s", args, err, out)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}
