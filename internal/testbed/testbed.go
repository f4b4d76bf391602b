// Package testbed finds the testbed for tests: five small machines with real kernels, rdma_rxe, OpenSSH and perftest,
// which ../shared/testbed raises beside the repository.
package testbed

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Bed is a testbed that is up.
type Bed struct {
	State string         // folder with its keys and consoles
	Ports map[string]int // TCP port of each machine's SSH server on 127.0.0.1
	PIDs  map[string]int // of each machine's kernel: killing it is a power cut
}

// Find is the testbed whose state folder PCMLAB_TESTBED names, or the one in the user's cache. The error says why there
// is none.
func Find() (*Bed, error) {
	b := &Bed{State: os.Getenv("PCMLAB_TESTBED")}
	if b.State == "" {
		cache, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		b.State = filepath.Join(cache, ".cache", "pcmlab-testbed")
	}
	var state struct {
		PID   int            `json:"pid"`
		Ports map[string]int `json:"ports"`
		PIDs  map[string]int `json:"pids"`
	}
	data, err := os.ReadFile(filepath.Join(b.State, "lab.json"))
	if err == nil {
		err = json.Unmarshal(data, &state)
	}
	if err == nil {
		err = syscall.Kill(state.PID, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("the testbed is not up (raise it with ../shared/testbed/testbed up, or name its state folder with PCMLAB_TESTBED): %w", err)
	}
	b.Ports, b.PIDs = state.Ports, state.PIDs
	return b, nil
}

// Need is Find for a test, which is skipped where there is no testbed.
func Need(t testing.TB) *Bed {
	t.Helper()
	b, err := Find()
	switch {
	case err == nil:
	case os.Getenv("PCMLAB_TESTBED_NEEDED") != "": // who raised it wants no skip
		t.Fatal(err)
	default:
		t.Skip(err)
	}
	return b
}

var portKey = regexp.MustCompile(`(?m)^(\s*)(\w+): *\{ssh: \{port: \d+\}`)

// Lab writes labs/testbed.yaml for this testbed, whose ports and keys may lie elsewhere, and returns the file's name. Each
// edit is a pair of texts, the first of which must occur and is replaced by the second.
func (b *Bed) Lab(t testing.TB, edits ...[2]string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(Root(), "labs", "testbed.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(data), "~/.cache/pcmlab-testbed", b.State)
	text = portKey.ReplaceAllStringFunc(text, func(s string) string {
		m := portKey.FindStringSubmatch(s)
		return m[1] + m[2] + ": {ssh: {port: " + strconv.Itoa(b.Ports[m[2]]) + "}"
	})
	for _, e := range edits {
		if !strings.Contains(text, e[0]) {
			t.Fatalf("labs/testbed.yaml has no %q", e[0])
		}
		text = strings.ReplaceAll(text, e[0], e[1])
	}
	file := filepath.Join(t.TempDir(), "testbed.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// Run runs a shell script on a machine, past pcmlab, and gives its standard output.
func (b *Bed) Run(t testing.TB, host, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ssh", "-F", filepath.Join(b.State, "ssh_config"), "-o", "ConnectTimeout=20", host, script)
	var failed strings.Builder
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %s: %v: %s", host, script, err, failed.String())
	}
	return string(out)
}

// Clean runs a script that takes back what a test changed, also when the test is over.
func (b *Bed) Clean(host, script string) {
	cmd := exec.Command("ssh", "-F", filepath.Join(b.State, "ssh_config"), "-o", "ConnectTimeout=20", host, script)
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s: %v: %s\n", host, script, err, out)
	}
}

// Place copies a file to all machines at once, past SSH: these kernels can mount a folder of this machine, while 20 MB over an
// encrypted connection take them two minutes each. A relative path begins in root's home.
func (b *Bed) Place(t testing.TB, file, at string) {
	t.Helper()
	file, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("set -e; m=$(mktemp -d); mount -t hostfs none $m -o '%s'; mkdir -p '%s'; cp $m/'%s' '%s.new'; umount $m; rmdir $m; chmod 755 '%[4]s.new'; mv '%[4]s.new' '%[4]s'; "+
		"for d in '%[5]s'/*/; do d=${d%%/}; [ ${#d} = %[6]d ] && [ $d != '%[2]s' ] && rm -rf $d; done; true", // those of earlier builds
		filepath.Dir(file), filepath.Dir(at), filepath.Base(file), at, filepath.Dir(filepath.Dir(at)), len(filepath.Dir(at)))
	var wg sync.WaitGroup
	failed := make([]error, len(b.Ports))
	i := 0
	for host := range b.Ports {
		at := &failed[i]
		i++
		wg.Go(func() {
			out, err := exec.CommandContext(t.Context(), "ssh", "-F", filepath.Join(b.State, "ssh_config"), "-o", "ConnectTimeout=60", host, script).CombinedOutput()
			if err != nil {
				*at = fmt.Errorf("%s: %s: %w: %s", host, script, err, out)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Fatal(err)
	}
}

// Root is the repository.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}
