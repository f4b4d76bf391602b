package perftest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Who listens with the connection manager is asked of the kernel by rdma(8). This machine's kernel has no RDMA: a stand-in for that tool prints
// what the real one printed on the testbed, with the process of the case.
func TestListenCMScript(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { child.Process.Kill(); child.Wait() }()
	const line = "link rxe0/- cm-idn 0 state %s ps TCP pid %d comm ib_write_bw src-addr %s "
	here, its := os.Getpid(), child.Process.Pid
	for _, tt := range []struct {
		name, tool string
		pid        int
		want       string
	}{
		{"itself", fmt.Sprintf(line, "LISTEN", its, "0.0.0.0:18515"), its, fmt.Sprint("listening ", its)},
		{"a_child", fmt.Sprintf(line, "LISTEN", its, "0.0.0.0:18515"), here, fmt.Sprint("listening ", its)},
		{"ipv6", fmt.Sprintf(line, "LISTEN", its, "[::]:18515"), its, fmt.Sprint("listening ", its)},
		{"anyone", fmt.Sprintf(line, "LISTEN", its, "0.0.0.0:18515"), 0, "unknown"},
		{"somebody_else", fmt.Sprintf(line, "LISTEN", here, "0.0.0.0:18515"), its, "other"},
		{"another_port", fmt.Sprintf(line, "LISTEN", its, "0.0.0.0:8515"), its, "timeout"},
		{"no_listener", fmt.Sprintf(line, "CONNECT", its, "192.0.2.14:18515"), its, "timeout"},
		{"gone", "", 1 << 30, "gone"},
		{"no_tool_and_no_manager", "FAIL", its, "timeout"},
	} {
		dir := t.TempDir()
		tool := "cat <<'EOF'\n" + tt.tool + "\nEOF\n"
		if tt.tool == "FAIL" {
			tool = "exit 1\n"
		}
		if err := os.WriteFile(filepath.Join(dir, "rdma"), []byte("#!/bin/sh\n"+tool), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sh", "-c", listenCMScript, "sh", strconv.Itoa(tt.pid), "18515", "2", "0.01", "20")
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != tt.want {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
}

// A port on which somebody listens with the connection manager alone is not taken from the pool.
func TestClaimScript_connectionManager(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	tool := "#!/bin/sh\necho 'link rxe0/- cm-idn 0 state LISTEN ps TCP pid 192 comm ib_write_bw src-addr 0.0.0.0:28515 '\n"
	if err := os.WriteFile(filepath.Join(dir, "rdma"), []byte(tool), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", claimScript, "sh", "run", "1000", "2000", "owner", "1", "28515", "28516")
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+home)
	out, err := cmd.Output()
	if text := string(out); err != nil || !strings.Contains(text, "busy 28515") || !strings.Contains(text, "got 28516") {
		t.Errorf("%v: %s", err, text)
	}
}
