package vlab

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func statusText(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return "killed by " + unix.SignalName(ws.Signal())
	}
	return fmt.Sprintf("exit status %d", ws.ExitStatus())
}

// tail is the last lines of a log file, on one line.
func tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "no log: " + err.Error()
	}
	defer f.Close()
	const keep = 1 << 10
	if fi, err := f.Stat(); err == nil && fi.Size() > keep {
		f.Seek(-keep, io.SeekEnd)
	}
	b, _ := io.ReadAll(io.LimitReader(f, keep))
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return "it said nothing"
	}
	lines := strings.Split(string(b), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}
