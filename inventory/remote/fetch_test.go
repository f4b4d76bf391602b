package remote_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/inventory/remote/remotetest"
)

// breaking cuts all connections each time that so many bytes more have come.
type breaking struct {
	remote.Host
	part  remote.PartReader
	every int64
	cut   func()
	began []int64 // where each part began
}

func (b *breaking) GetFrom(ctx context.Context, file string, offset int64, w io.Writer) error {
	b.began = append(b.began, offset)
	n := int64(0)
	return b.part.GetFrom(ctx, file, offset, writerFunc(func(p []byte) (int, error) {
		if n += int64(len(p)); n > b.every {
			n = -1 << 40
			b.cut()
		}
		return w.Write(p)
	}))
}

func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// A fetch goes on where it broke off, however often that happens, and what comes out has the hash that the host computed.
func TestFetch_resumes(t *testing.T) {
	t.Parallel()
	s := remotetest.StartSSHD(t, home, "")
	p := remotetest.NewProxy(t, s.Addr())
	lab := s.Lab(t)
	lab.Hosts[0].SSH.Port = p.Port()
	var known strings.Builder
	for _, k := range s.HostKeys {
		v := s
		v.Port = p.Port()
		known.WriteString(v.KnownHostsLine(k))
	}
	lab.Hosts[0].SSH.KnownHosts = filepath.Join(t.TempDir(), "known_hosts")
	writeFile(t, lab.Hosts[0].SSH.KnownHosts, known.String())
	h := dial(t, lab, options(t))
	data := noise(5<<20 + 77)
	from, to := filepath.Join(t.TempDir(), "big"), filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(from, data, 0o600); err != nil {
		t.Fatal(err)
	}
	b := &breaking{h, h.(remote.PartReader), 1 << 20, p.Cut, nil}
	got, err := remote.Fetch(t.Context(), b, from, to)
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.ReadFile(to)
	if err != nil || !bytes.Equal(here, data) || got.Bytes != int64(len(data)) || got.Resumed == 0 {
		t.Errorf("%d bytes of %d, %+v, %v", len(here), len(data), got, err)
	}
	for i := 1; i < len(b.began); i++ {
		if b.began[i] <= b.began[i-1] {
			t.Errorf("parts began at %v: bytes were fetched twice", b.began)
		}
	}
	if left, _ := filepath.Glob(to + "*"); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

// A later call goes on with what an earlier one left, unless it is of another file.
func TestFetch_goesOnLater(t *testing.T) {
	t.Parallel()
	s := remotetest.StartSSHD(t, home, "")
	h := dial(t, s.Lab(t), options(t))
	data := noise(3 << 20)
	dir := t.TempDir()
	from, to := filepath.Join(dir, "file"), filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(from, data, 0o600); err != nil {
		t.Fatal(err)
	}
	size, sum, err := remote.Sum(t.Context(), h, from)
	if err != nil || size != int64(len(data)) {
		t.Fatal(size, err)
	}
	for _, tt := range []struct {
		name    string
		left    []byte
		resumed int
	}{
		{"half", data[:len(data)/2], 1},
		{"all", data, 1},
		{"another's", noise(1 << 20)[5:], 1}, // found out by the hash, fetched anew
		{"too_long", append(noise(3<<20), 1), 0},
		{"nothing", nil, 0},
	} {
		if err := os.WriteFile(to+"."+sum[:16]+".part", tt.left, 0o600); err != nil {
			t.Fatal(err)
		}
		b := &breaking{h, h.(remote.PartReader), 1 << 40, func() {}, nil}
		got, err := remote.Fetch(t.Context(), b, from, to)
		here, rerr := os.ReadFile(to)
		if err := errors.Join(err, rerr); err != nil || !bytes.Equal(here, data) || got.Resumed != tt.resumed {
			t.Errorf("%s: %v, %d bytes, %+v", tt.name, err, len(here), got)
		}
		if tt.name == "half" && (len(b.began) != 1 || b.began[0] != int64(len(data)/2)) {
			t.Errorf("half: parts began at %v", b.began)
		}
	}
	if _, err := remote.Fetch(t.Context(), h, filepath.Join(dir, "none"), to); err == nil || !strings.Contains(err.Error(), "hash "+filepath.Join(dir, "none")) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := remote.Fetch(t.Context(), h, from, filepath.Join(dir, "no", "folder")); err == nil {
		t.Error("a folder here that is not there was no error")
	}
}
