package remote_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/remotetest"
	"github.com/pcmlab/pcmlab/inventory/remote/sshserver"
)

// BenchmarkFanout runs the same ten commands, one after the other, on each of twenty hosts, with Ansible and with this
// package: guarded, and plain. `make bench-fanout` installs Ansible and runs it. Ansible has what makes it fast: one
// playbook without facts, pipelining, ssh's ControlPersist (its default), as many forks as hosts.
func BenchmarkFanout(b *testing.B) {
	playbook, err := exec.LookPath("ansible-playbook")
	if err != nil {
		b.Skip("no ansible-playbook: make bench-fanout installs it")
	}
	const hosts = 20
	dir := b.TempDir()
	lab := &inventory.Lab{Name: "fanout"}
	var list bytes.Buffer
	fmt.Fprintln(&list, "[all]")
	for i := range hosts {
		s := remotetest.Start(b, home, sshserver.Options{SFTP: true})
		h := &inventory.Host{Name: fmt.Sprintf("n%d", i), SSH: s.SSH(b)}
		lab.Hosts = append(lab.Hosts, h)
		fmt.Fprintf(&list, "%s ansible_host=%s ansible_port=%d ansible_user=%s ansible_ssh_private_key_file=%s ansible_ssh_common_args='-o UserKnownHostsFile=%s -F none' ansible_python_interpreter=/usr/bin/python3\n",
			h.Name, s.Host, s.Port, s.User, s.UserKey.File, h.SSH.KnownHosts)
	}
	book := "- hosts: all\n  gather_facts: false\n  tasks:\n"
	for i := range 10 {
		book += fmt.Sprintf("  - command: echo %d\n", i)
	}
	for name, text := range map[string]string{"hosts": list.String(), "book.yaml": book} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	var ansible, guarded, plain time.Duration
	took := func(f func()) time.Duration {
		t := time.Now()
		f()
		return time.Since(t)
	}
	ours := func(isPlain bool) {
		pool, err := remote.NewPool(lab, remote.Options{Home: b.TempDir(), ConfigFiles: []string{}, SameMachine: true, Parallel: hosts})
		if err != nil {
			b.Fatal(err)
		}
		defer pool.Close()
		err = pool.Each(b.Context(), nil, func(ctx context.Context, h remote.Host) error {
			for i := range 10 {
				res, err := h.Run(ctx, remote.Cmd{Args: []string{"echo", fmt.Sprint(i)}, Plain: isPlain})
				if err != nil || string(res.Stdout) != fmt.Sprintf("%d\n", i) {
					return fmt.Errorf("%s: %q, %w", h.Name(), res.Stdout, err)
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		ansible += took(func() {
			cmd := exec.Command(playbook, "-i", filepath.Join(dir, "hosts"), "-f", fmt.Sprint(hosts), filepath.Join(dir, "book.yaml"))
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "HOME="+dir, "ANSIBLE_PIPELINING=1", "ANSIBLE_NOCOLOR=1", "ANSIBLE_SSH_CONTROL_PATH_DIR="+filepath.Join(dir, "cp"), "ANSIBLE_LOCAL_TEMP="+dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("ansible-playbook: %v\n%s", err, out)
			}
		})
		guarded += took(func() { ours(false) })
		plain += took(func() { ours(true) })
	}
	b.ReportMetric(ansible.Seconds()/float64(b.N), "s/ansible")
	b.ReportMetric(guarded.Seconds()/float64(b.N), "s/guarded")
	b.ReportMetric(plain.Seconds()/float64(b.N), "s/plain")
	b.ReportMetric(ansible.Seconds()/guarded.Seconds(), "x/guarded")
	b.ReportMetric(ansible.Seconds()/plain.Seconds(), "x/plain")
}
