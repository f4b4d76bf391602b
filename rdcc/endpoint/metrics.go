package endpoint

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/receiver"
)

// Counted is a transport that counts; what it gives is a struct of uint64 with JSON names.
type Counted interface{ Counters() any }

// WriteMetrics writes all counters in Prometheus' text form. Metric names are rdcc_, the part, and the counter's name.
func (e *Endpoint) WriteMetrics(w io.Writer) error {
	var b strings.Builder
	if !e.Call(func(time.Duration) {
		if e.sender != nil {
			c := e.sender.Counters()
			writeCounters(&b, "rdcc_sender_", reflect.ValueOf(c))
			gauge(&b, "rdcc_sender_messages", len(e.outgoing))
		}
		if e.receiver != nil {
			writeCounters(&b, "rdcc_receiver_", reflect.ValueOf(e.receiver.Counters))
			gauge(&b, "rdcc_receiver_messages", len(e.incoming))
			gauge(&b, "rdcc_receiver_associations_alive", len(e.peers))
		}
		writeCounters(&b, "rdcc_endpoint_", reflect.ValueOf(e.stats))
		for _, t := range e.transports {
			if c, ok := t.(Counted); ok {
				writeCounters(&b, "rdcc_transport_", reflect.ValueOf(c.Counters()))
			}
		}
		gauge(&b, "rdcc_endpoint_kernel_drops", int(e.socket.Stats.Dropped))
		gauge(&b, "rdcc_endpoint_syscalls", int(e.socket.Stats.Syscalls))
	}) {
		return ErrClosed
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func gauge(b *strings.Builder, name string, v int) {
	fmt.Fprintf(b, "# TYPE %s gauge\n%s %d\n", name, name, v)
}

// labels of counters that are arrays.
var labels = map[string]struct {
	label string
	value func(int) string
}{
	"sent":             {"type", func(i int) string { return rdcc.Type(i).String() }},
	"received_by_type": {"type", func(i int) string { return rdcc.Type(i).String() }},
	"sent_by_type":     {"type", func(i int) string { return rdcc.Type(i).String() }},
	"refused":          {"reason", func(i int) string { return rdcc.Reason(i).String() }},
	"undecodable":      {"why", func(i int) string { return rdcc.DecodeError(i).Error() }},
	"faults":           {"fault", func(i int) string { return faultText(receiver.Fault(i)) }},
}

func writeCounters(b *strings.Builder, prefix string, v reflect.Value) {
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name == "" {
			name = rdcc.CounterName(v.Type().Field(i).Name)
		}
		full := prefix + name + "_total"
		f := v.Field(i)
		switch f.Kind() {
		case reflect.Uint64:
			fmt.Fprintf(b, "# TYPE %s counter\n%s %d\n", full, full, f.Uint())
		case reflect.Array:
			l := labels[name]
			fmt.Fprintf(b, "# TYPE %s counter\n", full)
			for k := 1; k < f.Len(); k++ { // zero is none of them
				fmt.Fprintf(b, "%s{%s=%q} %d\n", full, l.label, l.value(k), f.Index(k).Uint())
			}
		}
	}
}

// Metrics tells the counters on a loopback address until ctx ends. Another address is refused.
type Metrics struct {
	listener net.Listener
	server   http.Server
}

// OpenMetrics opens the address; Serve answers on it.
func OpenMetrics(addr string) (*Metrics, error) {
	a, err := loopback(addr)
	if err != nil {
		return nil, fmt.Errorf("rdcc: metrics: %w", err)
	}
	l, err := net.Listen("tcp", a.String())
	if err != nil {
		return nil, fmt.Errorf("rdcc: metrics: %w", err)
	}
	return &Metrics{listener: l}, nil
}

// Addr is where it listens.
func (m *Metrics) Addr() netip.AddrPort { return m.listener.Addr().(*net.TCPAddr).AddrPort() }

// Serve answers until ctx ends.
func (m *Metrics) Serve(ctx context.Context, e *Endpoint) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		if err := e.WriteMetrics(w); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	m.server.Handler = mux
	m.server.ReadHeaderTimeout = 5 * time.Second
	stop := context.AfterFunc(ctx, func() { m.server.Close() })
	defer stop()
	if err := m.server.Serve(m.listener); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// Close closes a Metrics that is not served.
func (m *Metrics) Close() error { return m.listener.Close() }
