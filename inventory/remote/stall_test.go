package remote

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// stalling is a host that gives a few bytes each time it is asked, and then none.
type stalling struct {
	gives int
	asked []int64
}

func (s *stalling) GetFrom(ctx context.Context, _ string, offset int64, w io.Writer) error {
	s.asked = append(s.asked, offset)
	if _, err := w.Write(make([]byte, s.gives)); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// A copy that brings nothing any more is begun again where it was, and given up when that does not help.
func TestFetched_stalls(t *testing.T) {
	defer func(was time.Duration) { stallLimit = was }(stallLimit)
	stallLimit = 20 * time.Millisecond
	f := Fetched{Bytes: 100}
	h := &stalling{gives: 40}
	if err := f.bring(t.Context(), h, "file", filepath.Join(t.TempDir(), "part")); err != nil { // each attempt brings something
		t.Error(err)
	}
	if len(h.asked) < 3 || h.asked[1] != 40 || h.asked[2] != 80 {
		t.Errorf("asked for bytes from %v on", h.asked)
	}
	h = &stalling{}
	err := f.bring(t.Context(), h, "file", filepath.Join(t.TempDir(), "part"))
	if err == nil || !strings.Contains(err.Error(), "broke off 5 times in a row at byte 0 of 100: no byte came for 20ms") || len(h.asked) != fetchTries {
		t.Errorf("%v after %d attempts", err, len(h.asked))
	}
}
