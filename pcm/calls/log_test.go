package calls

import (
	"bytes"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func sample(n int) *Log {
	l := New(n)
	l.Device, l.Src, l.Handlers = "softnic0", netip.MustParseAddr("192.0.2.11"), []Handler{{"swift", []string{"NACK", "RTT", "ACKED_BYTES"}}, {Name: "pace"}}
	return l
}

var addresses = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// What is written is read, and what had no room is counted, with when that began.
func TestLog_isReadBack(t *testing.T) {
	l := sample(3)
	l.Add(Record{TimeNS: 1000, QPN: 18, Dst: [4]byte{192, 0, 2, 14}, DstQP: 20, Fired: 1<<2 | 1<<1, ACKs: 1, Packets: 16, Window: 65536, Pacer: 500_000_000})
	l.Add(Record{TimeNS: 1500, QPN: 0xffffff, Dst: [4]byte{192, 0, 2, 14}, DstQP: 1 << 31, Handler: 1, Fired: 1<<0 | 1<<4, Rate: 25e9, Pacer: 1, Failed: true})
	snapshot := l.Snapshot()
	l.Add(Record{TimeNS: 2000})
	l.Add(Record{TimeNS: 2500})
	l.Add(Record{TimeNS: 3000})

	window, rate := int64(65536), int64(25e9)
	want := []Call{
		{TimeNS: 1000, QPN: 18, DstQP: 20, Dst: netip.MustParseAddr("192.0.2.14"), Handler: "swift", Fired: "RTT+ACKED_BYTES", ACKs: 1, Packets: 16, Window: &window, Pacer: 500_000_000},
		{TimeNS: 1500, QPN: 0xffffff, DstQP: 1 << 31, Dst: netip.MustParseAddr("192.0.2.14"), Handler: "pace", Fired: "s0+s4", Rate: &rate, Pacer: 1, Failed: true},
	}
	var b bytes.Buffer
	if err := snapshot.Write(&b); err != nil {
		t.Fatal(err)
	}
	var got []Call
	h, err := Read(bytes.NewReader(b.Bytes()), func(c *Call) { got = append(got, *c) })
	if diff := cmp.Diff(want, got, addresses); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	if diff := cmp.Diff(Header{"softnic0", l.Src, 2, 2, 0}, h, addresses); diff != "" {
		t.Errorf("heading (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(Header{"softnic0", l.Src, 5, 3, 2500}, l.Header(), addresses); diff != "" {
		t.Errorf("heading of one that is full (-want +got)\n%s", diff)
	}
	for cut := range b.Len() - 1 {
		if _, err := Read(bytes.NewReader(b.Bytes()[:cut]), func(*Call) {}); err == nil {
			t.Errorf("a log cut to %d of %d bytes is read", cut, b.Len())
		}
	}
}

func TestRead_refuses(t *testing.T) {
	for text, want := range map[string]string{
		"":             "no heading",
		"# other/v1\n": "want # pcmlab/handler-calls/v1",
		"# " + Schema + " src=x calls=1 logged=0 cut_ns=0\n" + columns + "\n":                                 "src: ParseAddr",
		"# " + Schema + " src=::1 calls=1 logged=0 cut_ns=0\nt_ns\n":                                          "want the columns",
		"# " + Schema + " src=::1 calls=1 logged=1 cut_ns=0\n" + columns + "\n":                               "0 calls, the heading says 1",
		"# " + Schema + " src=::1 calls=1 logged=1 cut_ns=0\n" + columns + "\n1,2\n":                          "line 3: 2 cells, want 12",
		"# " + Schema + " src=::1 calls=1 logged=1 cut_ns=0\n" + columns + "\n1,2,x,3,h,ACK,1,1,,,1,0\n":      "line 3: ParseAddr",
		"# " + Schema + " src=::1 calls=1 logged=1 cut_ns=0\n" + columns + "\n1,2,::1,3,h,ACK,1,much,,,1,0\n": "cell 8",
	} {
		if _, err := Read(compressed(t, text), func(*Call) {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := Read(strings.NewReader("t_ns"), func(*Call) {}); err == nil {
		t.Error("what is not compressed is read")
	}
}

// Adding takes no memory.
func TestAdd_allocatesNothing(t *testing.T) {
	l := sample(2000)
	if n := testing.AllocsPerRun(3000, func() { l.Add(Record{TimeNS: 1}) }); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

func BenchmarkAdd(b *testing.B) {
	l := sample(1 << 16)
	for b.Loop() {
		if len(l.records) == cap(l.records) {
			l.records = l.records[:0]
		}
		l.Add(Record{TimeNS: 1, Window: 2})
	}
}

func BenchmarkWrite(b *testing.B) {
	l := sample(1 << 16)
	for i := range 1 << 16 {
		l.Add(Record{TimeNS: int64(i) * 12345, QPN: 18, DstQP: 20, Fired: 1 << 2, ACKs: 1, Packets: 16, Window: int64(i * 7919 % 100000)})
	}
	b.ReportAllocs()
	for b.Loop() {
		var n counter
		if err := l.Write(&n); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(n)/(1<<16), "bytes/call")
	}
}

type counter int

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

var _ io.Writer = (*counter)(nil)
