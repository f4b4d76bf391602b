package vlab

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRootless runs the lab's tests once more as user nobody, who has no rights, and here no /dev/net/tun either.
func TestRootless(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("already a plain user: all tests here are rootless")
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Skipf("no user nobody: %v", err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	// The folders of go test are closed to other users.
	dir, err := os.MkdirTemp("/tmp", "pcmlab-rootless-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "vlab.test")
	if err := copyFile(binary, "/proc/self/exe"); err != nil {
		t.Fatal(err)
	}
	asNobody := func(ctx context.Context, args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, binary, args...)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "TMPDIR=" + dir}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		return cmd.CombinedOutput()
	}
	if out, err := asNobody(t.Context(), "try-userns"); err != nil {
		t.Skipf("a plain user gets no user namespace here: %s", out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	out, err := asNobody(ctx, "-test.v", "-test.run", "^(TestUp|TestSelfTest|TestDown_afterLabProcesses)")
	t.Logf("as nobody:\n%s", out)
	if err != nil {
		t.Errorf("as nobody: %v", err)
	}
	if !strings.Contains(string(out), "--- PASS: TestUp_hostsAreHosts") {
		t.Error("as nobody: no lab came up")
	}
}

func copyFile(dst, src string) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
