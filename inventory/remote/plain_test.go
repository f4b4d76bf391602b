package remote_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/remotetest"
	"github.com/pcmlab/pcmlab/inventory/remote/sshserver"
)

// TestPlain_doesNotWaitForItsInput: a command that ends leaves its input alone, also one that never ends.
func TestPlain_doesNotWaitForItsInput(t *testing.T) {
	t.Parallel()
	h := dial(t, remotetest.Start(t, home, sshserver.Options{}).Lab(t), options(t))
	in, out := io.Pipe()
	defer out.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	res, err := h.Run(ctx, remote.Cmd{Args: []string{"sh", "-c", "read -r a; echo $a $PPID"}, Plain: true, Stdin: io.MultiReader(strings.NewReader("hello\n"), in)})
	if err != nil || !strings.HasPrefix(string(res.Stdout), "hello ") {
		t.Fatalf("%q, %v, want hello at once", res.Stdout, err)
	}
}

// TestPlain_pushesNothing: a host that is only looked at is left as it was.
func TestPlain_pushesNothing(t *testing.T) {
	t.Parallel()
	own := t.TempDir()
	h := dial(t, remotetest.Start(t, own, sshserver.Options{SFTP: true}).Lab(t), options(t))
	res, err := h.Run(t.Context(), remote.Cmd{Args: []string{"echo", "a b"}, Plain: true})
	if err != nil || string(res.Stdout) != "a b\n" {
		t.Fatalf("%q, %v", res.Stdout, err)
	}
	if _, err := os.Stat(filepath.Join(own, ".cache")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a plain command left %s/.cache (%v)", own, err)
	}
	_, err = h.Run(t.Context(), remote.Cmd{Args: []string{"pcmlab", "version"}, Plain: true})
	wantError(t, err, remote.Usage, "pushes nothing")
}
