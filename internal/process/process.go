// Package process names processes so that a number that was given away again is not taken for the one before.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// ID names a process for as long as the machine is up: a number that was given away again has another start.
type ID struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // in clock ticks since the machine came up
	Boot  string `json:"boot_id"`
	Host  string `json:"host"`
}

// This is the process that asks.
func This() ID {
	p := ID{PID: os.Getpid(), Boot: bootID()}
	p.Start, _ = startOf(p.PID)
	p.Host, _ = os.Hostname()
	return p
}

func bootID() string {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(data))
}

// startOf is field 22 of /proc/PID/stat; the command's name before it may hold blanks and brackets. A zombie has ended.
func startOf(pid int) (uint64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields))
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return 0, fs.ErrNotExist
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// Here says that the process is one of this machine.
func (p ID) Here() bool {
	host, _ := os.Hostname()
	return p.Host == host
}

// Alive says that the process is there, and is the same.
func (p ID) Alive() bool {
	if p.PID <= 0 || p.Boot != bootID() {
		return false
	}
	start, err := startOf(p.PID)
	if errors.Is(err, fs.ErrNotExist) && p.Start == 0 { // no /proc on this system
		return syscall.Kill(p.PID, 0) == nil
	}
	return err == nil && start == p.Start
}
