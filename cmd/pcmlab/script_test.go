package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// binary is pcmlab as a user builds it; every test here runs it as a process of its own.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "8") // what is parallel here waits for processes to die, and hardly computes
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "pcmlab-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		os.Chmod(dir, 0o755)
		binary = filepath.Join(dir, "pcmlab")
		for program, from := range map[string]string{"pcmlab": ".", "pcmlab-nic": "../pcmlab-nic"} {
			cmd := exec.Command("go", "build", "-o", filepath.Join(dir, program), from)
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			cmd.Stderr = os.Stderr
			if err := cmd.Run(); err != nil {
				fmt.Fprintf(os.Stderr, "build %s: %v\n", program, err)
				return 1
			}
		}
		return m.Run()
	}())
}

func TestScripts(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"))
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, "config"))
			e.Setenv("REPO", root)
			if err := os.Mkdir(filepath.Join(e.WorkDir, "alone"), 0o755); err != nil { // pcmlab without its sibling
				return err
			}
			if err := os.Link(binary, filepath.Join(e.WorkDir, "alone", "pcmlab")); err != nil {
				return err
			}
			port, data, err := rdccPorts()
			if err != nil {
				return err
			}
			e.Setenv("RDCC_PORT", fmt.Sprint(port))
			e.Setenv("RDCC_DATA", fmt.Sprint(data))
			return rdccFiles(e.WorkDir)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "mkruns": mkruns, "listens": scriptListens},
	})
}

// exits runs a command and compares its exit status: `exits 2 pcmlab validate x.yaml`.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS COMMAND [ARG...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := "0"
	if exit, ok := err.(*exec.ExitError); ok {
		code = fmt.Sprint(exit.ExitCode())
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if code != args[0] {
		ts.Fatalf("exit status %s, want %s", code, args[0])
	}
}
