package guard

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// proc is one line of the process table: /proc/PID/stat, see proc_pid_stat(5).
type proc struct {
	pid, ppid, pgid, sid int
	state                byte
	start                uint64 // clock ticks since boot: with pid, the identity of a process
	comm                 string
}

func (p proc) dead() bool { return p.state == 'Z' || p.state == 'X' }

func (p proc) String() string { return fmt.Sprintf("%s (pid %d)", p.comm, p.pid) }

func readProc(pid int) (proc, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, err
	}
	// The name is in parentheses and may itself hold spaces and parentheses.
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return proc{}, fmt.Errorf("/proc/%d/stat: no name in %q", pid, b)
	}
	f := strings.Fields(string(b[end+1:]))
	if len(f) < 20 {
		return proc{}, fmt.Errorf("/proc/%d/stat: %d fields after the name, need 20", pid, len(f))
	}
	p := proc{pid: pid, state: f[0][0], comm: string(b[open+1 : end])}
	for i, v := range map[int]*int{1: &p.ppid, 2: &p.pgid, 3: &p.sid} {
		if *v, err = strconv.Atoi(f[i]); err != nil {
			return proc{}, fmt.Errorf("/proc/%d/stat: field %d: %w", pid, i+3, err)
		}
	}
	if p.start, err = strconv.ParseUint(f[19], 10, 64); err != nil {
		return proc{}, fmt.Errorf("/proc/%d/stat: start time: %w", pid, err)
	}
	return p, nil
}

// children lists the direct children of a process from the files that the kernel keeps per thread.
func children(pid int) ([]int, error) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	tasks, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return nil, err
	}
	var out []int
	for _, t := range tasks {
		b, err := os.ReadFile(dir + "/" + t + "/children")
		if err != nil {
			if _, e := os.Stat(dir + "/" + t); e != nil {
				continue // the thread has ended
			}
			return out, err
		}
		for _, f := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				out = append(out, n)
			}
		}
	}
	return out, nil
}

// descendants lists all that lives below pid, itself not included, parents first. Processes that have ended and wait
// for their parent are not counted.
func descendants(pid int) []proc {
	if _, err := children(pid); err != nil {
		return scanDescendants(pid) // a kernel without CONFIG_PROC_CHILDREN
	}
	var out []proc
	seen := map[int]bool{pid: true}
	queue := []int{pid}
	for len(queue) > 0 {
		kids, _ := children(queue[0])
		queue = queue[1:]
		for _, k := range kids {
			if seen[k] {
				continue
			}
			seen[k] = true
			if p, err := readProc(k); err == nil && !p.dead() {
				out = append(out, p)
			}
			queue = append(queue, k)
		}
	}
	return out
}

// scanDescendants is descendants from the parents' numbers of all processes.
func scanDescendants(pid int) []proc {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil
	}
	kids := map[int][]proc{}
	for _, n := range names {
		k, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if p, err := readProc(k); err == nil {
			kids[p.ppid] = append(kids[p.ppid], p)
		}
	}
	var out []proc
	queue := []int{pid}
	for len(queue) > 0 {
		for _, p := range kids[queue[0]] {
			if !p.dead() {
				out = append(out, p)
			}
			queue = append(queue, p.pid)
		}
		queue = queue[1:]
	}
	return out
}

// signalAll signals every descendant of this process and returns how many there were and which may not be signalled.
// Whole process groups are signalled where they are not the guard's own: that is atomic with regard to fork, so that a
// chain of forks cannot run ahead of it. A group never mixes descendants with strangers, since the command is started
// as the leader of a session of its own.
func signalAll(sig unix.Signal) (n int, denied []proc) {
	self, _ := readProc(os.Getpid())
	groups := map[int]bool{}
	list := descendants(os.Getpid())
	for _, p := range list {
		if p.sid != self.sid && !groups[p.pgid] {
			groups[p.pgid] = true
			unix.Kill(-p.pgid, sig)
		}
	}
	for _, p := range list {
		if p.sid != self.sid && sig != unix.SIGKILL {
			// Signalled with its group; TERM and INT once each. Only ask whether that was allowed.
			if err := unix.Kill(p.pid, 0); err == unix.EPERM {
				denied = append(denied, p)
			}
			continue
		}
		if err := unix.Kill(p.pid, sig); err == unix.EPERM {
			denied = append(denied, p)
		}
	}
	return len(list), denied
}

// identity is the machine's name and the boot id of its kernel.
func identity() (host, bootID string) {
	host, _ = os.Hostname()
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return host, strings.TrimSpace(string(b))
}
