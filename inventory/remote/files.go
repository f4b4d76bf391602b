package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/pkg/sftp"
)

// errNoSFTP says that a host offers no sftp subsystem.
var errNoSFTP = errors.New("no sftp subsystem")

// Put writes a file on the host: into a temporary file beside it, checked there by SHA-256, then renamed. Folders on
// the way are made. A path that begins with ~/ or no slash is in the user's home directory.
func (h *sshHost) Put(ctx context.Context, file string, mode fs.FileMode, r io.Reader) error {
	return wrap(h.name, "put "+file, h.put(ctx, file, mode, r))
}

// Get reads a file from the host and checks its SHA-256. Files without a size, as in /proc and /sys, are read to
// their end and not checked.
func (h *sshHost) Get(ctx context.Context, file string, w io.Writer) error {
	return wrap(h.name, "get "+file, h.get(ctx, file, w))
}

// sftp runs f with a client for files. It ends when ctx does.
func (h *sshHost) sftp(ctx context.Context, f func(context.Context, *sftp.Client) error) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, h.pool.o.FileTimeout, fmt.Errorf("not done within %v", h.pool.o.FileTimeout))
		defer cancel()
	}
	s, err := h.session(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	in, err1 := s.StdinPipe()
	out, err2 := s.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := s.RequestSubsystem("sftp"); err != nil {
		return fault(Infrastructure, "Subsystem sftp internal-sftp in sshd_config there", "%w: %w", errNoSFTP, err)
	}
	c, err := sftp.NewClientPipe(out, in)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
			return err
		}
		return fault(Infrastructure, "", "%w: %w", errNoSFTP, err)
	}
	// The session goes first: a client whose server hangs would wait for its answer.
	defer c.Close()
	defer s.Close()
	err = f(ctx, c)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fault(Permission, "", "%w", err)
	}
	return err
}

func remotePath(p string) string { return strings.TrimPrefix(p, "~/") }

func (h *sshHost) put(ctx context.Context, file string, mode fs.FileMode, r io.Reader) error {
	file = remotePath(file)
	return h.sftp(ctx, func(ctx context.Context, c *sftp.Client) error {
		if err := c.MkdirAll(path.Dir(file)); err != nil {
			return fmt.Errorf("make folder %s: %w", path.Dir(file), err)
		}
		tmp := file + ".tmp-" + randomHex(6)
		f, err := c.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
		if err != nil {
			return fmt.Errorf("create %s: %w", tmp, err)
		}
		sum := sha256.New()
		_, err = f.ReadFromWithConcurrency(io.TeeReader(r, sum), 0)
		err = errors.Join(err, f.Close())
		if err == nil {
			err = c.Chmod(tmp, mode.Perm())
		}
		if err == nil {
			err = h.verify(ctx, c, tmp, sum)
		}
		if err == nil {
			err = c.PosixRename(tmp, file)
		}
		if err != nil {
			c.Remove(tmp)
			return fileError(err)
		}
		return nil
	})
}

// fileError names the causes that SFTP (version 3) has no code for.
func fileError(err error) error {
	var st *sftp.StatusError
	if errors.As(err, &st) && st.FxCode() == sftp.ErrSSHFxFailure {
		return fault(Infrastructure, "is the disk full?", "%w", err)
	}
	return err
}

func (h *sshHost) get(ctx context.Context, file string, w io.Writer) error {
	file = remotePath(file)
	return h.sftp(ctx, func(ctx context.Context, c *sftp.Client) error {
		f, err := c.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			return err
		}
		if st.Size() == 0 || !st.Mode().IsRegular() {
			_, err := io.Copy(w, struct{ io.Reader }{f}) // one read after the other, to the end
			return err
		}
		sum := sha256.New()
		if _, err := f.WriteTo(io.MultiWriter(w, sum)); err != nil {
			return err
		}
		return h.verify(ctx, c, file, sum)
	})
}

// verify compares the hash of what went over with that of the file on the far side, which computes it itself where it
// can; elsewhere the file is read back.
func (h *sshHost) verify(ctx context.Context, c *sftp.Client, file string, want hash.Hash) error {
	wantHex := hex.EncodeToString(want.Sum(nil))
	q := quote(file)
	out, err := h.probe(ctx, fmt.Sprintf("sha256sum -- %s || shasum -a 256 -- %s", q, q))
	var got string
	if f := strings.Fields(string(out.stdout)); err == nil && out.code == 0 && len(f) > 0 {
		got = strings.TrimPrefix(f[0], `\`) // marks escaped names
	} else {
		f, err := c.Open(file)
		if err != nil {
			return fmt.Errorf("read back: %w", err)
		}
		defer f.Close()
		sum := sha256.New()
		if _, err := f.WriteTo(sum); err != nil {
			return fmt.Errorf("read back: %w", err)
		}
		got = hex.EncodeToString(sum.Sum(nil))
	}
	if got != wantHex {
		return fault(Infrastructure, "", "SHA-256 of %s is %s on the host, %s here", file, got, wantHex)
	}
	return nil
}
