package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Mode is where the two halves of a shell run.
type Mode string

// Modes: the synchronous shell; the asynchronous one with both halves in one thread; and with the control plane on a core of its own.
const (
	Sync  Mode = "sync"
	Alone Mode = "alone"
	Other Mode = "other"
)

// Row is one thing to measure.
type Row struct {
	Object string // the shared object
	Mode   Mode
	Cores  []int // one for each worker; for Other a pair, the datapath's and the control plane's
}

// Workers is how many share the flows.
func (r Row) Workers() int {
	if r.Mode == Other {
		return len(r.Cores) / 2
	}
	return len(r.Cores)
}

// Job is one run of the program: rows that take turns over one trace.
type Job struct {
	Trace, Order string // files
	Flows        int
	Least        int           // events in one measurement
	Time         time.Duration // that one is to take; 0: it has just Least events
	Repeat       int
	Rows         []Row
}

// Text is what the program reads.
func (j Job) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "trace %s\norder %s\nflows %d\nevents %d\ntime %d\nrepeat %d\n", j.Trace, j.Order, j.Flows, j.Least, j.Time.Nanoseconds(), j.Repeat)
	for _, r := range j.Rows {
		fmt.Fprintf(&b, "row %s %s", r.Mode, r.Object)
		for _, c := range r.Cores {
			fmt.Fprintf(&b, " %d", c)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Sample is one measurement of a row.
type Sample struct {
	Row, Repetition int
	NS              int64 // from the first worker's beginning to the last one's end
	Events          int64
	Calls           int64  // of the handler
	Sum             uint64 // of what the flows were to do
	Lost            int64  // ns for which a thread was not on its core although it wanted to be
	Full            int64  // how often the way to the control plane was full
}

// Parse reads what the program says.
func Parse(r io.Reader, j Job) ([]Sample, error) {
	var all []Sample
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var s Sample
		if _, err := fmt.Sscanf(lines.Text(), "sample %d %d %d %d %d %d %d %d", &s.Row, &s.Repetition, &s.NS, &s.Events, &s.Calls, &s.Sum, &s.Lost, &s.Full); err != nil {
			return all, fmt.Errorf("line %q: %w", lines.Text(), err)
		}
		if s.Row < 0 || s.Row >= len(j.Rows) || s.Repetition < 0 || s.Repetition >= j.Repeat || s.NS <= 0 || s.Events <= 0 {
			return all, fmt.Errorf("line %q is none of this measurement", lines.Text())
		}
		all = append(all, s)
	}
	if err := lines.Err(); err != nil {
		return all, err
	}
	if want := j.Repeat * len(j.Rows); len(all) != want {
		return all, fmt.Errorf("%d measurements, want %d", len(all), want)
	}
	return all, nil
}

// Run has the program do the job.
func Run(ctx context.Context, program string, j Job) ([]Sample, error) {
	if i := slices.IndexFunc(j.Rows, func(r Row) bool { return strings.ContainsAny(r.Object, " \n") }); i >= 0 {
		return nil, fmt.Errorf("benchmark: %q: a path without spaces is needed (set TMPDIR)", j.Rows[i].Object)
	}
	cmd := exec.CommandContext(ctx, program)
	var said, out bytes.Buffer
	cmd.Stdin, cmd.Stderr, cmd.Stdout = strings.NewReader(j.Text()), &said, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("benchmark: %w: %s", err, strings.TrimSpace(said.String()))
	}
	samples, err := Parse(&out, j)
	if err != nil {
		return nil, fmt.Errorf("benchmark: %w", err)
	}
	return samples, nil
}
