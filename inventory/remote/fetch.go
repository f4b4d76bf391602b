package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pkg/sftp"
)

// PartReader is a Host that reads a file from an offset on, so that a copy that broke off can go on.
type PartReader interface {
	GetFrom(ctx context.Context, path string, offset int64, w io.Writer) error
}

var _ PartReader = (*sshHost)(nil)

// GetFrom reads a file from an offset to its end. It is not checked: Fetch does that for the whole.
func (h *sshHost) GetFrom(ctx context.Context, file string, offset int64, w io.Writer) error {
	file = remotePath(file)
	return wrap(h.name, "get "+file, h.sftp(ctx, func(ctx context.Context, c *sftp.Client) error {
		f, err := c.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.Seek(offset, io.SeekStart); err != nil {
			return err
		}
		_, err = f.WriteTo(w)
		return err
	}))
}

// Fetched says what Fetch brought.
type Fetched struct {
	Bytes   int64  `json:"bytes"`
	SHA256  string `json:"sha256"`
	Resumed int    `json:"resumed,omitempty"` // times that it went on after it had broken off
}

// fetchTries is how often in a row a copy may break off without having brought a byte.
const fetchTries = 5

// How long a copy may bring no byte, and how slow a host may be to tell the size of a file and to hash it: one whose disk hangs must not hold up
// the end of a run.
var stallLimit = 30 * time.Second

const hashPace = 10 << 20 // bytes a second

// Fetch copies a file of a host to a file here, which appears when it is whole and has the hash that the host computed of its own before.
// What breaks off goes on where it was, as often as it gets further: in this call, and in a later one for the same file, which finds
// what was there in to + ".HASH.part". The file on the host must not change meanwhile.
func Fetch(ctx context.Context, h Host, from, to string) (Fetched, error) {
	step := "fetch " + from
	size, sum, err := Sum(ctx, h, from)
	if err != nil {
		return Fetched{}, err
	}
	out := Fetched{Bytes: size, SHA256: sum}
	reader, ok := h.(PartReader)
	if !ok {
		return out, wrap(h.Name(), step, fetchWhole(ctx, h, from, to))
	}
	part := to + "." + sum[:16] + ".part"
	for fresh := false; ; fresh = true {
		if err := out.bring(ctx, reader, from, part); err != nil {
			return out, wrap(h.Name(), step, err)
		}
		got, err := FileSHA256(part)
		switch {
		case err != nil:
			return out, wrap(h.Name(), step, err)
		case got == sum:
			return out, os.Rename(part, to)
		case fresh || out.Resumed == 0:
			os.Remove(part)
			return out, wrap(h.Name(), step, fmt.Errorf("SHA-256 is %s on the host, %s here: did the file change?", sum, got))
		}
		os.Remove(part) // what an earlier call left was not of this file: once more from its beginning
	}
}

// bring makes part as long as the file is.
func (f *Fetched) bring(ctx context.Context, h PartReader, from, part string) error {
	w, err := os.OpenFile(part, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer w.Close()
	at, err := w.Seek(0, io.SeekEnd)
	if err == nil && at > f.Bytes {
		at, err = 0, w.Truncate(0)
	}
	if err != nil {
		return err
	}
	if at > 0 {
		f.Resumed++
	}
	for n := 0; at < f.Bytes; {
		if _, err := w.Seek(at, io.SeekStart); err != nil {
			return err
		}
		here, err := attempt(ctx, h, from, at, w)
		at += here.n
		switch {
		case here.err != nil: // a full disk here gets no better
			return here.err
		case err == nil && at < f.Bytes:
			return fmt.Errorf("it has %d bytes, not %d: it was cut meanwhile", at, f.Bytes)
		case err == nil:
			return w.Sync()
		case ctx.Err() != nil:
			return errors.Join(err, context.Cause(ctx))
		}
		if n++; here.n > 0 {
			n = 1
		} else if n == fetchTries {
			return fmt.Errorf("broke off %d times in a row at byte %d of %d: %w", n, at, f.Bytes, err)
		}
		f.Resumed++
		if perr := pause(ctx, backoff(n, 0.5)); perr != nil {
			return errors.Join(err, perr)
		}
	}
	return w.Sync()
}

// counted counts what was written, and keeps the error of writing.
// attempt copies on from a byte until it breaks off, or brings nothing for too long.
func attempt(ctx context.Context, h PartReader, from string, at int64, w io.Writer) (*counted, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := stallLimit
	watch := time.AfterFunc(limit, func() { cancel(fmt.Errorf("no byte came for %v", limit)) })
	defer watch.Stop()
	here := &counted{w: w, came: func() { watch.Reset(limit) }}
	err := h.GetFrom(ctx, from, at, here)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return here, err
}

type counted struct {
	w    io.Writer
	came func()
	n    int64
	err  error
}

func (c *counted) Write(p []byte) (int, error) {
	c.came()
	n, err := c.w.Write(p)
	c.n += int64(n)
	if err != nil {
		c.err = err
	}
	return n, err
}

func fetchWhole(ctx context.Context, h Host, from, to string) error {
	f, err := os.CreateTemp(filepath.Dir(to), ".tmp-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(h.Get(ctx, from, f), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), to)
}

// Sum is the size of a file on a host and its SHA-256, which the host computes.
func Sum(ctx context.Context, h Host, file string) (size int64, sum string, err error) {
	step := "hash " + file
	ask := func(command string, within time.Duration, answer any) error {
		ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("no answer for %v: does its disk hang?", within))
		defer cancel()
		res, err := h.Run(ctx, Cmd{Args: []string{"sh", "-c", command}, Step: step, Deadline: within})
		if err != nil && ctx.Err() != nil {
			return &Error{Host: h.Name(), Step: step, Err: errors.Join(context.Cause(ctx), err)}
		}
		if err != nil {
			return err
		}
		if _, err := fmt.Sscan(string(res.Stdout), answer); err == nil && res.Code == 0 {
			return nil
		}
		said := lastLine(res.Stderr)
		e := &Error{Host: h.Name(), Step: step, Err: fmt.Errorf("exit status %d (%s)", res.Code, said)}
		if strings.Contains(said, "ermission denied") {
			e.Kind = Permission
		}
		return e
	}
	q := quote(remotePath(file))
	if err := ask("wc -c <"+q, stallLimit, &size); err != nil {
		return 0, "", err
	}
	within := stallLimit + time.Duration(size/hashPace)*time.Second
	if err := ask("sha256sum <"+q+" || shasum -a 256 <"+q, within, &sum); err != nil {
		return 0, "", err
	}
	if !isSHA256(sum) {
		return 0, "", &Error{Host: h.Name(), Step: step, Err: fmt.Errorf("%q is no SHA-256", sum)}
	}
	return size, sum, nil
}

func isSHA256(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size
}
