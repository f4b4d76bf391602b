package parquet

import (
	"io"

	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/pcmlab/pcmlab/analysis"
)

// rowsPerGroup bounds memory: a row group is held until it is full.
const rowsPerGroup = 1 << 16

// Writer writes rows of any struct with parquet tags, in their order, in row groups of 65,536: memory does not grow with the
// number of rows.
type Writer[T any] struct {
	out   *pq.GenericWriter[T]
	batch []T
}

// NewWriter begins a file; schema names the version of its rows in the file's metadata.
func NewWriter[T any](w io.Writer, schema string) *Writer[T] {
	return &Writer[T]{batch: make([]T, 0, 1024), out: pq.NewGenericWriter[T](w, pq.MaxRowsPerRowGroup(rowsPerGroup),
		pq.Compression(&zstd.Codec{Level: zstd.SpeedFastest}), pq.CreatedBy("pcmlab", "", ""), pq.KeyValueMetadata("schema", schema))}
}

// Write adds a row. What its pointers point to must stay until 1,024 more rows were written.
func (w *Writer[T]) Write(row T) error {
	if w.batch = append(w.batch, row); len(w.batch) == cap(w.batch) {
		return w.flush()
	}
	return nil
}

func (w *Writer[T]) flush() error {
	_, err := w.out.Write(w.batch)
	w.batch = w.batch[:0]
	return err
}

// Close writes what is left and the end of the file.
func (w *Writer[T]) Close() error {
	if err := w.flush(); err != nil {
		return err
	}
	return w.out.Close()
}

// row is analysis.Row with the columns' encodings. The strings repeat in every row, so they are dictionaries.
type row struct {
	Run    string  `parquet:"run,dict"`
	Flow   string  `parquet:"flow,dict"`
	Metric string  `parquet:"metric,dict"`
	TimeNS *int64  `parquet:"time_ns,optional"`
	Value  float64 `parquet:"value"`
	Unit   string  `parquet:"unit,dict"`
}

// Write writes the document's Rows, in their order. run names the run in each row.
func Write(w io.Writer, d *analysis.Document, run string) error {
	out := NewWriter[row](w, analysis.Schema)
	times := make([]int64, cap(out.batch)) // Rows' pointers are good for the call only
	var err error
	d.Rows(run, func(r analysis.Row) bool {
		v := row{Run: r.Run, Flow: r.Flow, Metric: r.Metric, Value: r.Value, Unit: r.Unit}
		if r.TimeNS != nil {
			times[len(out.batch)] = *r.TimeNS
			v.TimeNS = &times[len(out.batch)]
		}
		err = out.Write(v)
		return err == nil
	})
	if err != nil {
		return err
	}
	return out.Close()
}
