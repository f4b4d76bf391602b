package remote_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/remotetest"
	"github.com/pcmlab/pcmlab/inventory/remote/sshserver"
)

// What a command under sudo changed is put back under sudo: another user could not, and would look for what is to be done in another home.
func TestHost_restoresUnderSudoWhatWasChangedUnderSudo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script(t, dir, "sudo", `shift 2; HOME=/root-of-the-fake-sudo exec "$@"`)
	s := remotetest.Start(t, home, sshserver.Options{SFTP: true, Env: []string{"HOME=" + home, "PATH=" + dir + ":" + os.Getenv("PATH")}})
	said := filepath.Join(dir, "said")
	res, err := dial(t, s.Lab(t), options(t)).Run(t.Context(), remote.Cmd{Args: []string{"sh", "-c", "echo $HOME"}, Sudo: true, Restore: []string{"sh", "-c", "echo $HOME >" + said}})
	if err != nil || strings.TrimSpace(string(res.Stdout)) != "/root-of-the-fake-sudo" {
		t.Fatalf("%+v, %v", res, err)
	}
	if got, err := os.ReadFile(said); err != nil || strings.TrimSpace(string(got)) != "/root-of-the-fake-sudo" {
		t.Errorf("the restore command ran with HOME %q, %v", got, err)
	}
}

// A command that needs longer than others to end is given that time before it is killed.
func TestHost_givesACommandItsTimeToEnd(t *testing.T) {
	t.Parallel()
	s := remotetest.Start(t, home, sshserver.Options{SFTP: true})
	h := dial(t, s.Lab(t), options(t))
	p, ended, err := remote.StartReady(t.Context(), h, remote.Cmd{Term: 20 * time.Second,
		Args: []string{"sh", "-c", `trap 'sleep 3; echo done; exit 7' TERM; echo up; while :; do sleep 0.05; done`}}, "up")
	if err != nil || ended != nil {
		t.Fatalf("%+v, %v", ended, err)
	}
	if err := p.Stop(t.Context(), "TERM"); err != nil {
		t.Fatal(err)
	}
	if res, err := p.Wait(t.Context()); err != nil || res.Code != 7 || !strings.HasSuffix(string(res.Stdout), "done\n") {
		t.Errorf("%+v, %v; it takes 3 s to end, others are killed after 2", res, err)
	}
}
