package endpoint_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pcmlab/pcmlab/rdcc/endpoint"
)

// TestSocket: programs hand messages to the endpoint of their host, with the file beside the order.
func TestSocket(t *testing.T) {
	var mu sync.Mutex
	got := map[uint64][]byte{}
	r := newNode(t, "127.0.0.2", endpoint.Options{Accept: func(in endpoint.Incoming) (endpoint.Sink, error) {
		return &memory{data: make([]byte, in.Length), keep: func(b []byte) { mu.Lock(); got[in.Message] = b; mu.Unlock() }}, nil
	}})
	s := newNode(t, "127.0.0.1", endpoint.Options{AnyPort: true})
	path := filepath.Join(t.TempDir(), "rdcc.sock")
	socket, err := endpoint.OpenSocket(path, "")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may use it: %v %v", info.Mode(), err)
	}
	if _, err := endpoint.OpenSocket(path, ""); err == nil || !strings.Contains(err.Error(), "another endpoint listens") {
		t.Errorf("a socket that is in use: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- socket.Serve(ctx, s.Endpoint, func(m *endpoint.Outgoing) { m.Class = max(m.Class, 1) })
	}()

	data := bytes.Repeat([]byte("rdcc "), 20_000)
	name := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	res, err := endpoint.SendOver(t.Context(), path, endpoint.Order{To: r.Addr(), Length: uint64(len(data))}, f, nil)
	if err != nil || res.Err != nil || res.Octets != uint64(len(data)) || res.Elapsed <= 0 {
		t.Errorf("%+v %v", res, err)
	}
	<-r.got
	mu.Lock()
	if len(got) != 1 || !bytes.Equal(got[1], data) {
		t.Errorf("%d messages, the first of %d octets", len(got), len(got[1]))
	}
	mu.Unlock()
	for _, row := range []struct {
		order  endpoint.Order
		want   string
		reason string
	}{
		{endpoint.Order{Length: 5}, "without the receiver's address", "to nobody"},
		{endpoint.Order{To: r.Addr()}, "without octets", "nothing"},
		{endpoint.Order{To: r.Addr(), Length: 1 << 30}, "shorter than the order says", "more than the file has"},
		{endpoint.Order{To: r.Addr(), Length: 5, Class: 8}, "class 8", "a class that there is not"},
	} {
		if _, err := endpoint.SendOver(t.Context(), path, row.order, f, nil); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", row.reason, err)
		}
	}
	res, err = endpoint.SendOver(t.Context(), path, endpoint.Order{To: addrPort("127.0.0.7", port), Length: 5}, nil, nil)
	if err != nil || !errors.Is(res.Err, endpoint.ErrWithout) {
		t.Errorf("nobody there: %+v %v", res, err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := endpoint.SendOver(t.Context(), path, endpoint.Order{To: r.Addr(), Length: 5}, nil, nil); err == nil {
		t.Error("an order to nobody")
	}
}

type memory struct {
	data []byte
	keep func([]byte)
}

func (m *memory) WriteAt(p []byte, off int64) (int, error) { return copy(m.data[off:], p), nil }
func (m *memory) Close(err error) error {
	if err == nil {
		m.keep(m.data)
	}
	return nil
}
