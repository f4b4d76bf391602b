package calls

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
)

// Call is one line of a log that was written.
type Call struct {
	TimeNS       int64
	QPN, DstQP   uint32
	Dst          netip.Addr
	Handler      string
	Fired        string // names of sources, joined by +
	ACKs         int64
	Packets      int64
	Window, Rate *int64 // nil: the handler sets none
	Pacer        int64
	Failed       bool
}

// Read calls f for every line of a log, in order. The call is used again for the next one.
func Read(from io.Reader, f func(*Call)) (h Header, err error) {
	z, err := gzip.NewReader(from)
	if err != nil {
		return h, fmt.Errorf("handler calls: %w", err)
	}
	lines := bufio.NewScanner(z)
	number := 0
	bad := func(format string, args ...any) error {
		return fmt.Errorf("handler calls: line %d: %w", number, fmt.Errorf(format, args...))
	}
	next := func() bool { number++; return lines.Scan() }
	if !next() {
		return h, bad("no heading: %w", orUnexpected(lines.Err()))
	}
	if h, err = parseHeader(lines.Text()); err != nil {
		return h, bad("%w", err)
	}
	if !next() || lines.Text() != columns {
		return h, bad("%q: want the columns %s", lines.Text(), columns)
	}
	var c Call
	logged := uint64(0)
	for next() {
		if err := c.parse(lines.Text()); err != nil {
			return h, bad("%w", err)
		}
		logged++
		f(&c)
	}
	if err := lines.Err(); err != nil {
		return h, bad("%w", err)
	}
	if logged != h.Logged {
		return h, bad("%d calls, the heading says %d", logged, h.Logged)
	}
	return h, nil
}

func orUnexpected(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

func parseHeader(line string) (h Header, err error) {
	rest, ok := strings.CutPrefix(line, "# "+Schema+" ")
	if !ok {
		return h, fmt.Errorf("%q: want # %s", line, Schema)
	}
	for field := range strings.FieldsSeq(rest) {
		key, value, _ := strings.Cut(field, "=")
		var e error
		switch key {
		case "device":
			h.Device = value
		case "src":
			h.Src, e = netip.ParseAddr(value)
		case "calls":
			h.Calls, e = strconv.ParseUint(value, 10, 64)
		case "logged":
			h.Logged, e = strconv.ParseUint(value, 10, 64)
		case "cut_ns":
			h.CutNS, e = strconv.ParseInt(value, 10, 64)
		}
		if e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", key, e))
		}
	}
	return h, err
}

func (c *Call) parse(line string) (err error) {
	var cells [12]string
	n := 0
	for cell := range strings.SplitSeq(line, ",") {
		if n < len(cells) {
			cells[n] = cell
		}
		n++
	}
	if n != len(cells) {
		return fmt.Errorf("%d cells, want %d", n, len(cells))
	}
	number := func(i, bits int) (v int64) {
		v, e := strconv.ParseInt(cells[i], 10, bits)
		if e != nil && err == nil {
			err = fmt.Errorf("cell %d: %w", i+1, e)
		}
		return v
	}
	set := func(i int) *int64 {
		if cells[i] == "" {
			return nil
		}
		v := number(i, 64)
		return &v
	}
	*c = Call{TimeNS: number(0, 64), QPN: uint32(number(1, 33)), DstQP: uint32(number(3, 33)), Handler: cells[4], Fired: cells[5], ACKs: number(6, 64), Packets: number(7, 64),
		Window: set(8), Rate: set(9), Pacer: number(10, 64), Failed: cells[11] == "1"}
	var e error
	if c.Dst, e = netip.ParseAddr(cells[2]); e != nil && err == nil {
		err = e
	}
	return err
}
