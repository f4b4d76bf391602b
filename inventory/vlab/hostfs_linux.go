package vlab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// binDir is the first folder of PATH in every host.
const binDir = "/run/pcmlab/bin"

// toolNames are what the one binary is called in a host.
var toolNames = []string{"ib_write_bw", "ib_send_bw", "ib_read_bw"}

// clone is a detached copy of a mount, to be put elsewhere later. It keeps the flags that the original has now.
type clone struct {
	fd     int
	target string
}

// view builds what a host sees of the file system, in its own mount namespace, from /dev down to its NIC's folder.
//
// Order: everything to be shown is cloned first, then all that was there before becomes read-only, then the clones and
// fresh file systems go on top. So nothing that a host does reaches the machine's files, except in its own folders.
func view(spec *hostSpec) (notes []string, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	clones, err := cloneSources(spec)
	if err != nil {
		return nil, err
	}
	ro := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, ro); err != nil {
		return nil, fmt.Errorf("make the machine's files read-only: mount_setattr: %w (needs Linux 5.12)", err)
	}
	tmpfs := []struct{ path, options string }{
		{"/run", "mode=755,size=64m"},
		{"/dev/shm", "mode=1777,size=256m"},
	}
	for _, m := range tmpfs {
		if err := mount("tmpfs", m.path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, m.options); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{"/run/lock", "/run/user", "/run/pcmlab", binDir, nicRunDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir("/run/user/0", 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(binDir+"/pcmlab", nil, 0o755); err != nil {
		return nil, err
	}
	for _, name := range toolNames {
		if err := os.Symlink("pcmlab", filepath.Join(binDir, name)); err != nil {
			return nil, err
		}
	}
	for _, c := range clones {
		if c.target == binDir+"/pcmlab-nic" {
			if err := os.WriteFile(c.target, nil, 0o755); err != nil {
				return nil, err
			}
		}
		if err := unix.MoveMount(c.fd, "", unix.AT_FDCWD, c.target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return nil, fmt.Errorf("mount %s: %w", c.target, err)
		}
		unix.Close(c.fd)
	}
	if err := identity(spec); err != nil {
		return nil, err
	}
	for _, dir := range spec.Hide {
		if _, err := os.Stat(dir); err == nil {
			if err := mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=4k"); err != nil {
				return nil, err
			}
		}
	}
	if err := proc(); err != nil {
		return nil, err
	}
	if err := terminals(); err != nil {
		notes = append(notes, "no terminals of its own: "+err.Error())
	}
	return notes, sysfs(spec)
}

func mount(source, target, kind string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", kind, target, err)
	}
	return nil
}

// siblingNIC is the program that runs NICs with handlers, beside pcmlab; "" where it is not there.
func siblingNIC(binary string) string {
	path := filepath.Join(filepath.Dir(binary), "pcmlab-nic")
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
		return ""
	}
	return path
}

func cloneSources(spec *hostSpec) ([]clone, error) {
	wanted := []struct {
		source, target string
		optional       bool // where the target does not exist on this machine
	}{
		{spec.Binary, binDir + "/pcmlab", false},
		{filepath.Join(spec.Data, "tmp"), "/tmp", false},
		{filepath.Join(spec.Data, "var-tmp"), "/var/tmp", true},
		{filepath.Join(spec.Data, "log"), "/var/log", true},
		{filepath.Join(spec.Data, "home"), hostHome, false},
		{spec.SSH, hostHome + "/.ssh", false},
		{spec.EtcHost, "/etc/hosts", true},
	}
	if nic := siblingNIC(spec.Binary); nic != "" {
		wanted = append(wanted, wanted[0])
		wanted[len(wanted)-1].source, wanted[len(wanted)-1].target = nic, binDir+"/pcmlab-nic"
	}
	var out []clone
	for _, w := range wanted {
		if w.optional {
			if _, err := os.Stat(w.target); err != nil {
				continue
			}
		}
		fd, err := openTree(w.source)
		if err != nil {
			return nil, err
		}
		if w.source == spec.Binary || w.target == binDir+"/pcmlab-nic" || w.source == spec.SSH || w.source == spec.EtcHost { // shared by all hosts
			ro := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
			if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, ro); err != nil {
				return nil, fmt.Errorf("make %s read-only: %w", w.source, err)
			}
		}
		out = append(out, clone{fd: fd, target: w.target})
	}
	return out, nil
}

func openTree(path string) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("clone %s: %w", path, err)
	}
	return fd, nil
}

// hostHome is HOME in every host: that of root in the machine's passwd file.
const hostHome = "/root"

const bootIDFile = "/run/pcmlab/boot_id"

// identity says who this host is where programs look for it. The kernel's own hostname is set already.
func identity(spec *hostSpec) error {
	const name = "/run/pcmlab/hostname"
	for path, text := range map[string]string{name: spec.Name, bootIDFile: spec.BootID} {
		if err := os.WriteFile(path, []byte(text+"\n"), 0o444); err != nil {
			return err
		}
	}
	if _, err := os.Stat("/etc/hostname"); err != nil {
		return nil // not every system has one
	}
	return bind(name, "/etc/hostname")
}

func bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	return nil
}

// proc shows the host's own processes, and its boot id in place of the machine's.
func proc() error {
	if err := mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	return bind(bootIDFile, "/proc/sys/kernel/random/boot_id")
}

// terminals gives the host its own pseudo-terminals.
func terminals() error {
	if err := mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"); err != nil {
		return err
	}
	return bind("/dev/pts/ptmx", "/dev/ptmx")
}

// sysfs shows this network namespace's interfaces, and under /sys/class/infiniband plain folders that the NIC daemon
// fills. Nothing can be made in sysfs itself, so /sys/class becomes a file system of its own with the real classes in it.
func sysfs(spec *hostSpec) error {
	// sysfs shows the network namespace of whoever mounts it; the one that was here shows the machine's.
	if err := mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	entries, err := os.ReadDir("/sys/class")
	if err != nil {
		return err
	}
	classes := make([]clone, 0, len(entries))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "infiniband") || !e.IsDir() {
			continue // the machine's own RDMA devices are not this host's
		}
		path := "/sys/class/" + e.Name()
		fd, err := openTree(path)
		if err != nil {
			return err
		}
		classes = append(classes, clone{fd: fd, target: path})
	}
	if err := mount("tmpfs", "/sys/class", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=16m"); err != nil {
		return err
	}
	for _, c := range classes {
		if err := os.Mkdir(c.target, 0o755); err != nil {
			return err
		}
		if err := unix.MoveMount(c.fd, "", unix.AT_FDCWD, c.target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("mount %s: %w", c.target, err)
		}
		unix.Close(c.fd)
	}
	if err := os.Mkdir(sysfsDir, 0o755); err != nil {
		return err
	}
	for _, n := range spec.NICs {
		if n.Device != "" {
			if err := deviceFolder(n); err != nil {
				return fmt.Errorf("device %s: %w", n.Device, err)
			}
		}
	}
	return nil
}

// deviceFolder is what of an RDMA device is not the daemon's to know: its place in the machine.
func deviceFolder(n nicPlan) error {
	dir := filepath.Join(sysfsDir, n.Device, "device")
	if err := os.MkdirAll(filepath.Join(dir, "net"), 0o755); err != nil {
		return err
	}
	if err := os.Symlink("/sys/class/net/"+n.Netdev, filepath.Join(dir, "net", n.Netdev)); err != nil {
		return err
	}
	cpus, err := os.ReadFile("/sys/devices/system/cpu/online")
	if errors.Is(err, os.ErrNotExist) {
		cpus, err = []byte("0\n"), nil
	}
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "local_cpulist"), cpus, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "numa_node"), []byte("-1\n"), 0o644) // as hardware says without NUMA
}
