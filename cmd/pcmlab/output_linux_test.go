package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pcmlab/pcmlab/analysis"
)

// TestParquet_notToATerminal: bytes of a binary format on a terminal help nobody; the error says what to do instead.
func TestParquet_notToATerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no pseudo-terminals:", err)
	}
	defer terminal.Close()
	err = (&env{stdout: terminal}).writeParquet(&analysis.Document{})
	if err == nil || exitCode(err) != exitUsage || !strings.Contains(err.Error(), "-o parquet > analysis.parquet") {
		t.Errorf("Parquet to a terminal: %v", err)
	}
	var b bytes.Buffer
	if err := (&env{stdout: &b}).writeParquet(&analysis.Document{}); err != nil || !strings.HasPrefix(b.String(), "PAR1") {
		t.Errorf("Parquet to a pipe: %v, begins %.4q", err, b.String())
	}
}

// TestTable_fits: sentences are broken into lines where a table would be wider than 100 columns, numbers never are.
func TestTable_fits(t *testing.T) {
	var b bytes.Buffer
	table := (&env{stdout: &b}).newTable()
	table.columns([]analysis.Column{{Name: "check"}, {Name: "packets", Numeric: true}, {Name: "what", Wrap: true}})
	sentence := strings.Repeat("a word or two ", 20)
	table.row("go_back_n", "123456", sentence)
	if err := table.print(); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > tableWidth {
			t.Errorf("line of %d columns: %s", n, line)
		}
	}
	if got := strings.Count(b.String(), "word"); got != 20 || !strings.Contains(b.String(), "123456") {
		t.Errorf("%d of 20 words are left:\n%s", got, b.String())
	}
}
