package parquet

import (
	"io"

	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/pcmlab/pcmlab/analysis"
)

// rowsPerGroup bounds memory: a row group is held until it is full.
const rowsPerGroup = 1 << 16

// row is analysis.Row with the columns' encodings. The strings repeat in every row, so they are dictionaries.
type row struct {
	Run    string  `parquet:"run,dict"`
	Flow   string  `parquet:"flow,dict"`
	Metric string  `parquet:"metric,dict"`
	TimeNS *int64  `parquet:"time_ns,optional"`
	Value  float64 `parquet:"value"`
	Unit   string  `parquet:"unit,dict"`
}

// Write writes the document's Rows, in their order, in row groups of 65,536. run names the run in each row.
func Write(w io.Writer, d *analysis.Document, run string) error {
	out := pq.NewGenericWriter[row](w, pq.MaxRowsPerRowGroup(rowsPerGroup), pq.Compression(&zstd.Codec{Level: zstd.SpeedFastest}),
		pq.CreatedBy("pcmlab", "", ""), pq.KeyValueMetadata("schema", analysis.Schema))
	batch := make([]row, 0, 1024)
	times := make([]int64, cap(batch)) // Rows' pointers are good for the call only
	flush := func() error {
		_, err := out.Write(batch)
		batch = batch[:0]
		return err
	}
	var err error
	d.Rows(run, func(r analysis.Row) bool {
		v := row{Run: r.Run, Flow: r.Flow, Metric: r.Metric, Value: r.Value, Unit: r.Unit}
		if r.TimeNS != nil {
			times[len(batch)] = *r.TimeNS
			v.TimeNS = &times[len(batch)]
		}
		if batch = append(batch, v); len(batch) == cap(batch) {
			err = flush()
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	if err := flush(); err != nil {
		return err
	}
	return out.Close()
}
