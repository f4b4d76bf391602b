package parquet

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"testing"

	pq "github.com/parquet-go/parquet-go"

	"github.com/pcmlab/pcmlab/analysis"
)

// document has flows of a thousand bins each: some row groups and not a whole number of batches.
func document(flows int) *analysis.Document {
	d := &analysis.Document{Schema: analysis.Schema, TimeScale: 1, Totals: analysis.Totals{Packets: 1 << 40, Opcodes: map[string]int64{"RC_SEND_ONLY": 7}}}
	d.Series = analysis.Series{BinNS: 1e7, StartNS: 1_790_000_000_000_000_001, Bins: 1000}
	for i := range flows {
		id := fmt.Sprintf("192.0.2.%d>192.0.2.200:0x%06x", i%200, i)
		d.Flows = append(d.Flows, analysis.Flow{ID: id, FirstNS: d.Series.StartNS, LastNS: d.Series.StartNS + 1e10, Packets: int64(i)})
		s := analysis.FlowSeries{ID: id}
		for b := range 1000 {
			s.GoodputBps = append(s.GoodputBps, float64(b*i)/3)
			s.Packets = append(s.Packets, int64(b))
			s.CE, s.Retransmits = append(s.CE, int64(b%3)), append(s.Retransmits, 0)
		}
		d.Series.Flows = append(d.Series.Flows, s)
	}
	return d
}

// TestWrite_holdsTheRowsOfCSV: what is read back is the CSV of the same document, row by row, bit by bit.
func TestWrite_holdsTheRowsOfCSV(t *testing.T) {
	d := document(40)
	var parquet, text bytes.Buffer
	if err := Write(&parquet, d, "run-1"); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteCSV(&text, "run-1"); err != nil {
		t.Fatal(err)
	}
	file, err := pq.OpenFile(bytes.NewReader(parquet.Bytes()), int64(parquet.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(file.RowGroups()); n < 3 {
		t.Errorf("%d row groups for %d rows: memory is not bounded", n, file.NumRows())
	}
	var names []string
	for _, c := range file.Root().Columns() {
		names = append(names, c.Name())
	}
	if got, want := fmt.Sprint(names), fmt.Sprint(analysis.RowHeader); got != want {
		t.Errorf("columns %s, want those of the CSV %s", got, want)
	}
	lines := csv.NewReader(&text)
	if _, err := lines.Read(); err != nil {
		t.Fatal(err)
	}
	in := pq.NewGenericReader[row](file)
	n, got := 0, make([]row, 1)
	for ; ; n++ {
		want, err := lines.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got[0] = row{}
		if c, err := in.Read(got); c != 1 {
			t.Fatalf("row %d: %v", n, err)
		}
		r, at := got[0], ""
		if r.TimeNS != nil {
			at = strconv.FormatInt(*r.TimeNS, 10)
		}
		if have := []string{r.Run, r.Flow, r.Metric, at, strconv.FormatFloat(r.Value, 'g', -1, 64), r.Unit}; fmt.Sprintf("%q", have) != fmt.Sprintf("%q", want) {
			t.Fatalf("row %d: Parquet %q, CSV %q", n, have, want)
		}
	}
	if c, _ := in.Read(got); c != 0 || int64(n) != file.NumRows() || n < 160_000 {
		t.Errorf("%d rows in the CSV, %d in the Parquet", n, file.NumRows())
	}
}

// peak tells how large the heap was at any write.
type peak struct{ heap uint64 }

func (p *peak) Write(b []byte) (int, error) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	p.heap = max(p.heap, m.HeapInuse)
	return len(b), nil
}

// TestWrite_memoryIsBounded: ten times the rows do not take more than a little more memory.
func TestWrite_memoryIsBounded(t *testing.T) {
	used := func(flows int) uint64 {
		d := document(flows)
		runtime.GC()
		var before runtime.MemStats
		runtime.ReadMemStats(&before)
		var p peak
		if err := Write(&p, d, "run-1"); err != nil {
			t.Fatal(err)
		}
		if p.heap == 0 {
			t.Fatal("the heap was never looked at")
		}
		return p.heap - min(p.heap, before.HeapInuse)
	}
	small, large := used(50), used(500)
	if large > 2*small+16<<20 {
		t.Errorf("2,000,000 rows took %d MiB, 200,000 took %d MiB", large>>20, small>>20)
	}
	t.Logf("2,000,000 rows: %d MiB, 200,000: %d MiB", large>>20, small>>20)
}

// TestWrite_errors: what the file's writer says is what Write says.
func TestWrite_errors(t *testing.T) {
	full := errors.New("disk full")
	if err := Write(failing{full}, document(40), ""); !errors.Is(err, full) {
		t.Errorf("error %v, want %v", err, full)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
