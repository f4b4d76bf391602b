package vlab

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// IO says how the wires of a lab are made.
type IO string

// The zero value takes TAP devices where /dev/net/tun can be opened and veth pairs otherwise.
const (
	IOAuto   IO = ""
	IOTap    IO = "tap"    // TAP devices, read and written by the fabric
	IOPacket IO = "packet" // veth pairs, the fabric holds an AF_PACKET socket on the far end
)

// Options are the zero value unless said otherwise.
type Options struct {
	// Binary is the pcmlab that hosts, fabric and NIC daemons are started from; empty means this program.
	Binary string
	// StateDir holds one folder per lab with its state, keys and logs; empty means DefaultStateDir.
	StateDir string
	// DataDir holds the hosts' HOME, /tmp and logs, which can grow large; empty means a folder of the user's cache.
	DataDir string
	// ID names the lab; empty means the lab's name and six random digits. Two labs up at a time never share one.
	ID string
	// Ephemeral takes the lab down when the calling process dies or drops the Instance, folders included.
	Ephemeral bool
	// Seed is that of the draws that the switches make (RED marks); labs of the same seed and packets mark the same ones.
	Seed uint64
	// Progress is told of each step; nil discards. It may be called from other goroutines, one call at a time.
	Progress func(Step)
	// IO forces a kind of wire.
	IO IO
	// Rootless takes a user namespace even when the caller could do without.
	Rootless bool
	// NoSelfTest skips the UDP exchange between the hosts before the lab is said to be ready.
	NoSelfTest bool
	// NoNIC starts no NIC daemons.
	NoNIC bool
	// Timeout is for the whole of Up; 0 means 60 s.
	Timeout time.Duration

	keepOffloads bool // tests: leave the checksum offloads on, so that the self-test must fail
}

// Step is one thing done on the way up or down.
type Step struct {
	What string        // such as "host h1", "fabric sw", "self-test"
	At   time.Duration // since Up began
}

// DefaultStateDir is $XDG_RUNTIME_DIR/pcmlab/labs, or pcmlab/labs in the user's cache folder.
func DefaultStateDir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		if err := checkPrivate(dir); err == nil {
			return filepath.Join(dir, "pcmlab", "labs")
		}
	}
	return filepath.Join(cacheDir(), "labs")
}

func defaultDataDir() string { return filepath.Join(cacheDir(), "lab-data") }

// cacheDir is the user's cache folder, or a private one in the folder for temporary files for users without a home.
func cacheDir() string {
	if dir, err := os.UserCacheDir(); err == nil && filepath.IsAbs(dir) {
		base := filepath.Join(dir, "pcmlab")
		if os.MkdirAll(base, 0o700) == nil && writable(base) {
			return base
		}
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("pcmlab-%d", os.Getuid()))
}

func writable(dir string) bool {
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return false
	}
	f.Close()
	os.Remove(f.Name())
	return true
}

// makePrivate makes dir for this user alone. Someone else's folder of that name is refused: it would hold our keys.
func makePrivate(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return checkPrivate(dir)
}

func checkPrivate(dir string) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	}
	if owner, ok := ownerOf(fi); ok && owner != os.Getuid() {
		return fmt.Errorf("%s: belongs to user %d, not to you (%d)", dir, owner, os.Getuid())
	}
	if fi.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s: other users can write there (fix: chmod 700 %s)", dir, dir)
	}
	return nil
}

func (o Options) withDefaults() (Options, error) {
	if o.Binary == "" {
		exe, err := os.Executable()
		if err != nil {
			return o, err
		}
		o.Binary = exe
	}
	bin, err := filepath.Abs(o.Binary)
	if err != nil {
		return o, err
	}
	if o.Binary, err = filepath.EvalSymlinks(bin); err != nil {
		return o, fmt.Errorf("binary: %w", err)
	}
	if o.StateDir == "" {
		o.StateDir = DefaultStateDir()
	}
	if o.StateDir, err = filepath.Abs(o.StateDir); err != nil {
		return o, err
	}
	if o.DataDir == "" {
		o.DataDir = defaultDataDir()
	}
	if o.DataDir, err = filepath.Abs(o.DataDir); err != nil {
		return o, err
	}
	if o.Progress == nil {
		o.Progress = func(Step) {}
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	switch o.IO {
	case IOAuto, IOTap, IOPacket:
	default:
		return o, fmt.Errorf("io %q: need %s, %s or nothing", o.IO, IOTap, IOPacket)
	}
	return o, nil
}
