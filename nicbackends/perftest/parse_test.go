package perftest

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// table is a whole output with one result table.
func table(heading string, rows ...string) string {
	return toolRule + "                    RDMA_Write BW Test\n" + toolRule + heading + "\n" + strings.Join(rows, "\n") + "\n" + toolRule
}

const (
	headMB  = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]"
	headMiB = " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]"
	headGb  = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
)

// O01: the same speed under three headings.
func TestParse_labelDecidesTheUnit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, heading, avg string }{
		{"old_label", headMB, "11440.92"},
		{"new_label", headMiB, "11440.92"},
		{"gbits", headGb, "95.97"},
	} {
		out, err := Parse([]byte(table(tt.heading, " 65536      5000             "+tt.avg+"              "+tt.avg+"\t\t   0.183055")), nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got := out.Rows[0].AvgBps; math.Abs(got-95.97e9) > 0.01e9 {
			t.Errorf("%s: %.6g bit/s, want 95.97e9", tt.name, got)
		}
	}
	if _, err := Parse([]byte(table(strings.ReplaceAll(headMB, "MB", "KiB"), " 65536 5 1.00 1.00 0.1")), nil, nil); !errors.Is(err, ErrUnknownUnit) {
		t.Errorf("a unit that is not known: %v", err)
	}
}

// O04: by duration, above 20000 iterations, with -N and on the receiving side the peak is printed as 0.00.
func TestParse_zeroPeakIsNotMeasured(t *testing.T) {
	t.Parallel()
	out, err := Parse([]byte(table(headMB, " 65536      664644           0.00               10882.11\t\t   0.174114")), nil, nil)
	if err != nil || out.Rows[0].PeakBps != nil || out.Rows[0].Iterations != 664644 {
		t.Errorf("%v, %+v", err, out.Rows)
	}
}

// O10: the warning can stand anywhere, on either stream, or be glued to a row.
func TestParse_cpuWarningIsANote(t *testing.T) {
	t.Parallel()
	warning := "Conflicting CPU frequency values detected: 2100.000000 != 3200.000000. CPU Frequency is not max."
	row := " 65536      500              44.79              32.70  \t\t   0.000523"
	base := table(headMB, row)
	for _, tt := range []struct{ name, stdout, stderr string }{
		{"before", warning + "\n" + base, ""},
		{"inside", strings.Replace(base, row, warning+"\n"+row, 1), ""},
		{"after", base + warning + "\n", ""},
		{"glued_to_a_row", strings.Replace(base, row, row+warning, 1), ""},
		{"on_stderr", base, warning + "\n"},
	} {
		out, err := Parse([]byte(tt.stdout), []byte(tt.stderr), nil)
		if err != nil || len(out.Rows) != 1 || out.Rows[0].Iterations != 500 || *out.Rows[0].MsgRatePPS != 523 {
			t.Errorf("%s: %v %+v", tt.name, err, out)
			continue
		}
		if len(out.Notes) != 1 || !strings.HasSuffix(out.Notes[0], warning) {
			t.Errorf("%s: notes %q", tt.name, out.Notes)
		}
	}
}

func TestParse_otherTables(t *testing.T) {
	t.Parallel()
	t.Run("both_formats_in_one_table", func(t *testing.T) {
		out, err := Parse([]byte(table(headGb, " 8192       10           0.058644            0.055260            0.000843            ", " 16384      10               0.22               0.16   \t\t   0.001187")), nil, nil)
		if err != nil || describe(out) != "8192x10:peak=5.8644e+07,avg=5.526e+07,pps=843 16384x10:peak=2.2e+08,avg=1.6e+08,pps=1187" {
			t.Errorf("%v %s", err, describe(out))
		}
	})
	t.Run("qos", func(t *testing.T) {
		out, err := Parse([]byte(table(" #bytes    #sl      #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]", " 65536      3           500           0.43            0.39                  0.000749")), nil, nil)
		if err != nil || *out.Rows[0].SL != 3 || out.Rows[0].Iterations != 500 || out.Rows[0].AvgBps != 0.39e9 {
			t.Errorf("%v %+v", err, out.Rows)
		}
	})
	t.Run("per_port", func(t *testing.T) {
		head := headGb + "   BW Port1[Gb/sec]   MsgRate Port1[Mpps]   BW Port2[Gb/sec]   MsgRate Port2[Mpps]"
		out, err := Parse([]byte(table(head, " 65536      1000     0.00            10.00\t\t   0.019073        5.00            0.009537              5.00            0.009537")), nil, nil)
		if err != nil || describe(out) != "65536x1000:peak=-,avg=1e+10,pps=19073" {
			t.Errorf("%v %s", err, describe(out))
		}
	})
	t.Run("report_both", func(t *testing.T) {
		row := func(v string) string {
			return " 65536      500              " + v + "               " + v + "   \t\t   0.000749"
		}
		text := table(headGb, row("3.00")) + "\n Local results: \n" + table(headGb, row("2.00")) + "\n Remote results: \n" + table(headGb, row("1.00"))
		out, err := Parse([]byte(text), nil, nil)
		if err != nil || len(out.Rows) != 1 || out.Rows[0].AvgBps != 3e9 || out.LocalRows[0].AvgBps != 2e9 || out.RemoteRows[0].AvgBps != 1e9 {
			t.Errorf("%v %+v", err, out)
		}
	})
	t.Run("nan_is_no_result", func(t *testing.T) {
		if _, err := Parse([]byte(table(headGb, " 65536      0              nan               -nan\t\t   nan")), nil, nil); err == nil || !strings.Contains(err.Error(), "not a measured value") {
			t.Errorf("%v", err)
		}
	})
	t.Run("half_a_row_is_a_note", func(t *testing.T) {
		out, err := Parse([]byte(toolRule+headGb+"\n 65536      500              0.4"), nil, nil)
		if !errors.Is(err, ErrNoResult) || !out.Cut || len(out.Notes) != 1 {
			t.Errorf("%v %+v", err, out)
		}
	})
}

func TestParse_bareNumberNeedsTheCommandLine(t *testing.T) {
	t.Parallel()
	out, err := Parse([]byte("95.97\n"), nil, []string{"ib_write_bw", "--output=bandwidth", "--report_gbits"})
	if err != nil || out.Rows[0].AvgBps != 95.97e9 || !out.Flowed() {
		t.Errorf("%v %+v", err, out)
	}
	out, err = Parse([]byte("1.50\n"), nil, []string{"taskset", "-c", "2", "/usr/bin/ib_write_bw", "--output", "message_rate"})
	if err != nil || *out.MsgRatePPS != 1.5e6 {
		t.Errorf("%v %+v", err, out)
	}
	if _, err := Parse([]byte("95.97\n"), nil, nil); !errors.Is(err, ErrUnknownUnit) {
		t.Errorf("without a command line: %v", err)
	}
	if _, err := Parse([]byte("1.00\n2.00\n"), nil, []string{"ib_write_bw"}); !errors.Is(err, ErrNoResult) {
		t.Errorf("two numbers: %v", err)
	}
}

const goodJSON = `{
"test_info": { "test": "RDMA_Write_BW_Test", "Device": "mlx5_0", "Mtu": 4096 },
"results": { "MsgSize": 65536, "n_iterations": 5000, "BW_peak": 0.00, "BW_average": 95.97, "MsgRate": 0.183055 }
}`

// pseudoJSON is what releases before 2023 wrote (perftest issue 216).
const pseudoJSON = `{
test_info: {
test: RDMA_Write_BW_Test,
Dual_port: OFF,
},
results: {
MsgSize: 65536,
n_iterations: 5000,
BW_peak: 0.00,
BW_average: 95.97,
MsgRate: 0.183055,
},
}`

var gbits = []string{"ib_write_bw", "--report_gbits", "--out_json"}

func TestParseJSON_unitComesFromTheCommandLine(t *testing.T) {
	t.Parallel()
	out, err := ParseJSON([]byte(goodJSON), gbits, "6.20")
	if err != nil || out.Rows[0].AvgBps != 95.97e9 || out.Rows[0].PeakBps != nil || out.Rows[0].Bytes != 65536 {
		t.Errorf("%v %+v", err, out)
	}
	if out, err = ParseJSON([]byte(goodJSON), []string{"ib_write_bw"}, ""); err != nil || out.Unit != MiBPerSec {
		t.Errorf("%v %+v", err, out)
	}
	if _, err := ParseJSON([]byte(goodJSON), nil, ""); !errors.Is(err, ErrUnknownUnit) {
		t.Errorf("without a command line: %v, want %v", err, ErrUnknownUnit)
	}
}

// S13: an exit status of 0 with one of these is no success.
func TestParseJSON_refusesWhatIsNoResult(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{
		"empty": "", "blank": " \n", "empty_object": "{}", "two_objects": goodJSON + goodJSON, "pseudo": pseudoJSON,
		"nan": strings.Replace(goodJSON, "95.97", "nan", 1), "no_average": `{"results": {"MsgSize": 1}}`, "null_results": `{"results": null}`,
		"list": "[]", "latency": `{"results": {"t_avg": 1.5}}`, "negative": strings.Replace(goodJSON, "95.97", "-1", 1),
	} {
		out, err := ParseJSON([]byte(data), gbits, "5.70")
		var jsonErr *JSONError
		if !errors.As(err, &jsonErr) || out != nil {
			t.Errorf("%s: %v %+v", name, err, out)
		}
		if err != nil && !strings.Contains(err.Error(), "perftest 5.70") {
			t.Errorf("%s: error %q does not name the version", name, err)
		}
	}
}

func TestParseRun_textOverJSON(t *testing.T) {
	t.Parallel()
	row := " 65536      5000             0.00               95.97   \t\t   0.183055"
	for _, tt := range []struct {
		name, text, json string
		rows             int
		source, note     string
		fails            bool
	}{
		{"both_agree", table(headGb, row), goodJSON, 1, "text", "", false},
		{"pseudo_json_falls_back", table(headGb, row), pseudoJSON, 1, "text", "JSON of perftest 6.06", false},
		{"json_has_the_last_size_alone", table(headGb, strings.Replace(row, "65536", "2    ", 1), strings.Replace(row, "65536", "4    ", 1), row), goodJSON, 3, "text", "last of 3 rows alone", false},
		{"json_disagrees", table(headGb, strings.Replace(row, "95.97", "47.00", 1)), goodJSON, 1, "text", "the JSON file has 9.597e+10 bit/s", false},
		{"json_alone", "", goodJSON, 1, "json", "", false},
		{"neither", "", pseudoJSON, 0, "", "", true},
		{"nan_in_the_table_is_not_hidden_by_json", table(headGb, strings.Replace(row, "95.97", "nan", 1)), goodJSON, 0, "", "", true},
	} {
		out, err := ParseRun([]byte(tt.text), nil, []byte(tt.json), gbits, "6.06")
		if (err != nil) != tt.fails {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if tt.fails {
			continue
		}
		if len(out.Rows) != tt.rows || out.Source != tt.source || (tt.note == "") != (len(out.Notes) == 0) || !strings.Contains(strings.Join(out.Notes, "\n"), tt.note) {
			t.Errorf("%s: %d rows of %s, notes %q", tt.name, len(out.Rows), out.Source, out.Notes)
		}
	}
}

func TestParse_bannerAndAddresses(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/q4_n200.client.txt")
	if err != nil {
		t.Fatal(err)
	}
	out, err := Parse(text, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"Dual-port": "OFF", "Device": "rxe0", "Number of qps": "4", "Transport type": "IB", "Connection type": "RC", "Using SRQ": "OFF",
		"PCIe relax order": "ON", "ibv_wr* API": "OFF", "TX depth": "128", "CQ Moderation": "1", "Mtu": "1024[B]", "Link type": "Ethernet",
		"GID index": "1", "Max inline data": "0[B]", "rdma_cm QPs": "OFF", "Data ex. method": "Ethernet",
	}
	if diff := cmp.Diff(want, out.Banner); diff != "" {
		t.Errorf("banner (-want +got):\n%s", diff)
	}
	if len(out.Local) != 4 || len(out.Remote) != 4 || describeAddrs(out.Local)[1] != "0/2f/233dfa/::ffff:192.0.2.11/1c40/405d0000" || len(out.Notes) != 0 {
		t.Errorf("local %v remote %v notes %q", describeAddrs(out.Local), describeAddrs(out.Remote), out.Notes)
	}
}

// What our own tool prints, the parser reads back to the same numbers.
func TestParse_readsBackEveryPrintedReport(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := toolOptions{gbits: rapid.Bool().Draw(t, "gbits")}
		r := report{
			Size:       uint64(rapid.IntRange(1, maxSize).Draw(t, "size")),
			Iterations: uint64(rapid.IntRange(5, maxIterations).Draw(t, "iterations")),
			Avg:        rapid.Float64Range(0, 1e6).Draw(t, "avg"),
			Peak:       rapid.Float64Range(0, 1e6).Draw(t, "peak"),
			MsgRate:    rapid.Float64Range(0, 1000).Draw(t, "rate"),
		}
		var b strings.Builder
		o.printHeading(&b)
		o.printReport(&b, r)
		out, err := Parse([]byte(b.String()), nil, nil)
		if err != nil {
			t.Fatalf("%q: %v", b.String(), err)
		}
		got := out.Rows[0]
		unit := map[bool]Unit{true: GbPerSec, false: MBPerSec}[o.gbits]
		if got.Bytes != int64(r.Size) || got.Iterations != int64(r.Iterations) || math.Abs(got.AvgBps-r.Avg*unit.bps()) > got.RoundBps*1.0001 {
			t.Fatalf("%q read as %+v", b.String(), got)
		}
		if got.PeakBps == nil && r.Peak >= 0.005 || got.PeakBps != nil && math.Abs(*got.PeakBps-r.Peak*unit.bps()) > 0.0051*unit.bps() {
			t.Fatalf("%q: peak %v", b.String(), got.PeakBps)
		}
	})
}

// FuzzParse holds: no panic; what is accepted has finite, non-negative numbers and a unit; a text with a line of noise
// before it gives the same rows.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"single_n1000.client.txt", "single_n1000.server.txt", "q4_n200.client.txt"} {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, true)
	}
	f.Add([]byte("0.360445\n"), true)
	f.Add([]byte(table(headMiB, " 65536      1131             0.00               0.30   \t\t   0.000563\t    0.00")), false)
	f.Add([]byte(toolRule+" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n 2       500          145.53         6190.73      213.53   \t       287.27      \t452.58 \t\t3655.67 \t\t6190.73\n"), false)
	f.Fuzz(func(t *testing.T, text []byte, gb bool) {
		argv := []string{"ib_write_bw"}
		if gb {
			argv = append(argv, "--report_gbits")
		}
		out, err := Parse(text, nil, argv)
		if out == nil {
			t.Fatal("nil output")
		}
		if err != nil {
			return
		}
		for _, r := range out.Rows {
			for _, v := range []float64{r.AvgBps, r.RoundBps, r.BestBps()} {
				if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
					t.Fatalf("row %+v", r)
				}
			}
			if r.PeakBps != nil && !(*r.PeakBps > 0) || r.Bytes < 0 || r.Iterations < 0 || out.Unit.bps() == 0 {
				t.Fatalf("row %+v unit %q", r, out.Unit)
			}
		}
		if len(out.Rows)+len(out.Latency) == 0 && out.MsgRatePPS == nil {
			t.Fatal("accepted without a result")
		}
		again, err := Parse(append([]byte("some warning of a library\n"), text...), nil, argv)
		if err != nil || fmt.Sprint(again.Rows) == "" || len(again.Rows) != len(out.Rows) {
			t.Fatalf("with noise before: %v, %d rows, without %d", err, len(again.Rows), len(out.Rows))
		}
	})
}

// FuzzKeys holds: an accepted message prints to one that reads as the same.
func FuzzKeys(f *testing.F) {
	for _, m := range loadExchange(f, "oob_n25.hex") {
		if len(m.data) == keysLen {
			f.Add(m.data)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := parseKeys(b)
		if err != nil {
			if k != (keys{}) {
				t.Fatalf("%v with an error", k)
			}
			return
		}
		printed := appendKeys(nil, k)
		again, err := parseKeys(printed)
		if err != nil || again != k {
			t.Fatalf("%q read as %+v, printed %q, read as %+v (%v)", b, k, printed, again, err)
		}
	})
}
