package calls

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"
)

// Schema is in the first line of every log.
const Schema = "pcmlab/handler-calls/v1"

// Bound is how many invocations a log holds: 18 MiB of memory.
const Bound = 1 << 18

// Record is one invocation.
type Record struct {
	TimeNS  int64  // Unix time
	Fired   uint64 // triggers that made it run, a bit for each signal of the handler
	Window  int64  // bytes; 0: sets none
	Rate    int64  // bit/s of hardware; 0: sets none
	Pacer   int64  // bit/s as built, that the queue pair is paced with
	QPN     uint32
	Dst     [4]byte // where the flow goes
	DstQP   uint32
	ACKs    uint32 // since its last invocation
	Packets uint32 // that they acknowledged
	Handler uint16 // its place in Log.Handlers
	Failed  bool
}

// Handler is what a log calls a handler and its signals.
type Handler struct {
	Name    string
	Signals []string // in the order of the package; those without a name are s and their number
}

// Log keeps invocations. It belongs to one goroutine; Snapshot may be read by another while it goes on.
type Log struct {
	Device   string
	Src      netip.Addr // of the flows
	Handlers []Handler

	records []Record
	calls   uint64
	cutNS   int64 // time of the first invocation that found no room; 0: none
}

// New reserves a log for n invocations.
func New(n int) *Log {
	l := &Log{records: make([]Record, n)}
	for i := 0; i < n; i += 32 { // so that the kernel gives the memory now and not during the run
		l.records[i].TimeNS = 1
	}
	l.records = l.records[:0]
	return l
}

// Add notes an invocation.
func (l *Log) Add(r Record) {
	l.calls++
	if len(l.records) == cap(l.records) {
		if l.cutNS == 0 {
			l.cutNS = r.TimeNS
		}
		return
	}
	l.records = append(l.records, r)
}

// Snapshot is the log as it is now; what is added later is not in it.
func (l *Log) Snapshot() *Log { s := *l; return &s }

// Header is what a log says of itself.
type Header struct {
	Device string     `json:"device"`
	Src    netip.Addr `json:"src"`
	Calls  uint64     `json:"calls"`  // invocations
	Logged uint64     `json:"logged"` // of them in the log
	CutNS  int64      `json:"cut_ns"` // when the log was full; 0: it holds all
}

// Header is that of the log.
func (l *Log) Header() Header {
	return Header{l.Device, l.Src, l.calls, uint64(len(l.records)), l.cutNS}
}

const columns = "t_ns,qpn,dst,dst_qp,handler,fired,acks,packets,window_bytes,rate_bps,pacer_bps,failed"

// Write writes the log. The same log gives the same bytes.
func (l *Log) Write(to io.Writer) error {
	z, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(z, 64<<10)
	h := l.Header()
	fmt.Fprintf(w, "# %s device=%s src=%s calls=%d logged=%d cut_ns=%d\n%s\n", Schema, h.Device, h.Src, h.Calls, h.Logged, h.CutNS, columns)
	var b []byte
	type mask struct {
		handler uint16
		fired   uint64
	}
	fired := map[mask]string{}
	number := func(v int64) {
		b = strconv.AppendInt(b, v, 10)
		b = append(b, ',')
	}
	set := func(v int64) {
		if v != 0 {
			b = strconv.AppendInt(b, v, 10)
		}
		b = append(b, ',')
	}
	for i := range l.records {
		r := &l.records[i]
		h, m := &l.Handlers[r.Handler], mask{r.Handler, r.Fired}
		names, ok := fired[m]
		if !ok {
			names = h.fired(r.Fired)
			fired[m] = names
		}
		b = b[:0]
		number(r.TimeNS)
		number(int64(r.QPN))
		b = netip.AddrFrom4(r.Dst).AppendTo(b)
		b = append(b, ',')
		number(int64(r.DstQP))
		b = append(b, h.Name...)
		b = append(b, ',')
		b = append(b, names...)
		b = append(b, ',')
		number(int64(r.ACKs))
		number(int64(r.Packets))
		set(r.Window)
		set(r.Rate)
		number(r.Pacer)
		if r.Failed {
			b = append(b, '1', '\n')
		} else {
			b = append(b, '0', '\n')
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return z.Close()
}

// fired names the signals of a mask: ACKED_BYTES+RTT.
func (h *Handler) fired(mask uint64) string {
	var names []string
	for ; mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros64(mask)
		if i < len(h.Signals) {
			names = append(names, h.Signals[i])
		} else {
			names = append(names, fmt.Sprintf("s%d", i))
		}
	}
	return strings.Join(names, "+")
}
