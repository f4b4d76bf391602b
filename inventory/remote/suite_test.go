package remote_test

import (
	"context"
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/guard"
	"github.com/pcmlab/pcmlab/inventory/remote/remotetest"
	"github.com/pcmlab/pcmlab/inventory/remote/sshserver"
)

// home is the HOME of the commands of all servers, so that the binary is pushed once.
var home string

// The test binary is what gets pushed as pcmlab: called as "guard ..." it is the guard.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "guard":
			os.Exit(guard.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case "orchestrate":
			os.Exit(orchestrate(os.Args[2:]))
		}
	}
	flag.Parse()
	flag.Set("test.parallel", "8") // these tests mostly wait
	os.Unsetenv("SSH_AUTH_SOCK")
	code := 1
	func() {
		var err error
		if home, err = os.MkdirTemp("", "pcmlab-home-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(home)
		code = m.Run()
	}()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

func options(t testing.TB) remote.Options {
	return remote.Options{Run: "test-" + randomName(), Home: t.TempDir(), ConfigFiles: []string{}, SameMachine: true}
}

func dial(t *testing.T, lab *inventory.Lab, o remote.Options) remote.Host {
	t.Helper()
	h, err := remote.Dial(t.Context(), lab, lab.Hosts[0].Name, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// The suites run one after the other: together they would starve each other on a small machine.

func TestHost_overOwnServer(t *testing.T) {
	remotetest.Run(t, func(t *testing.T) remote.Host {
		return dial(t, remotetest.Start(t, home, sshserver.Options{SFTP: true}).Lab(t), options(t))
	})
}

func TestHost_overOpenSSH(t *testing.T) {
	remotetest.Run(t, func(t *testing.T) remote.Host {
		return dial(t, remotetest.StartSSHD(t, home, "").Lab(t), options(t))
	})
}

func TestHost_throughTwoJumpHosts(t *testing.T) {
	remotetest.Run(t, func(t *testing.T) remote.Host {
		first := remotetest.StartSSHD(t, home, "")
		second := remotetest.Start(t, home, sshserver.Options{TCPForward: true})
		target := remotetest.Start(t, home, sshserver.Options{SFTP: true})
		lab := target.Lab(t)
		lab.Hosts[0].SSH.Jump = "bastion,inner"
		lab.Hosts = append(lab.Hosts, &inventory.Host{Name: "bastion", SSH: first.SSH(t)}, &inventory.Host{Name: "inner", SSH: second.SSH(t)})
		return dial(t, lab, options(t))
	})
}
