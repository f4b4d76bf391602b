package capture

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// rec is a packet kept beyond the next Next.
type rec struct {
	TimeNS  int64
	NoTime  bool
	Data    string
	OrigLen int
	Iface   int
	Link    int
}

// readAll reads to the first error, which io.EOF becomes nil.
func readAll(r Reader) ([]rec, error) {
	var out []rec
	var p Packet
	for {
		if err := r.Next(&p); err != nil {
			if again := r.Next(&p); again != err {
				return out, errors.Join(err, errors.New("a second Next returned another error"))
			}
			if err == io.EOF {
				err = nil
			}
			return out, err
		}
		out = append(out, rec{p.TimeNS, p.NoTime, string(p.Data), p.OrigLen, p.Iface, int(p.LinkType)})
	}
}

func readBytes(b []byte) ([]rec, Reader, error) {
	r, err := NewReader(bytes.NewReader(b), "test")
	if err != nil {
		return nil, nil, err
	}
	recs, err := readAll(r)
	return recs, r, err
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
