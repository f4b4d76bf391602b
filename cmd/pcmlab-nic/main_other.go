//go:build !linux

// pcmlab-nic is the software NIC with handlers, which needs Linux.
package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	fmt.Fprintf(os.Stderr, "error: the software NIC runs on Linux, not on %s\n", runtime.GOOS)
	os.Exit(3)
}
