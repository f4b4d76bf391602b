package perftest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/fixtures"
)

// textCase is one run of the text fixtures.
type textCase struct {
	name           string
	client, server *Side
}

// loadCase reads the files of one run. The exit codes are those of ssh and timeout: 124 is a deadline, 255 a signal.
func loadCase(t *testing.T, dir, name string) textCase {
	t.Helper()
	folder, index, _ := strings.Cut(name, "#")
	var meta struct {
		Runs []struct {
			ClientStart float64 `json:"client_start"`
			ClientWall  float64 `json:"client_wall_s"`
			ServerStart float64 `json:"server_start"`
			ServerWall  float64 `json:"server_wall_s"`
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, "text", folder, "meta.json"))
	if errors.Is(err, os.ErrNotExist) {
		raw = []byte(`{"runs":[{}]}`) // one case was taken by hand, without times
	} else if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &meta); err != nil {
		t.Fatal(err)
	}
	i, _ := strconv.Atoi(index)
	run := meta.Runs[i]
	side := func(role Role, start, wall float64) *Side {
		read := func(ext string) []byte {
			b, err := os.ReadFile(filepath.Join(dir, "text", folder, string(role)+index+ext))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			return b
		}
		cmd := read(".cmd")
		if cmd == nil {
			return nil
		}
		s := &Side{Role: role, Argv: strings.Fields(string(cmd)), Stdout: read(".stdout"), Stderr: read(".stderr")}
		s.Code, err = strconv.Atoi(strings.TrimSpace(string(read(".rc"))))
		if err != nil {
			t.Fatalf("%s: exit code: %v", name, err)
		}
		switch s.Code {
		case 124:
			s.TimedOut = true
		case 255:
			s.Code = -1
		}
		if wall > 0 {
			s.Ended = time.Unix(0, int64((start+wall)*1e9))
		}
		return s
	}
	return textCase{name, side(Client, run.ClientStart, run.ClientWall), side(Server, run.ServerStart, run.ServerWall)}
}

func describe(o *Output) string {
	var s []string
	for _, r := range o.Rows {
		if r.Bytes == 0 {
			s = append(s, fmt.Sprintf("bare:avg=%.6g", r.AvgBps))
			continue
		}
		peak := "-"
		if r.PeakBps != nil {
			peak = fmt.Sprintf("%.6g", *r.PeakBps)
		}
		s = append(s, fmt.Sprintf("%dx%d:peak=%s,avg=%.6g,pps=%.6g", r.Bytes, r.Iterations, peak, r.AvgBps, *r.MsgRatePPS))
	}
	for _, r := range o.Latency {
		s = append(s, fmt.Sprintf("lat:%dx%d:avg=%.2f,p99=%.2f", r.Bytes, r.Iterations, *r.AvgUS, *r.P99US))
	}
	if o.MsgRatePPS != nil {
		s = append(s, fmt.Sprintf("rate:pps=%.6g", *o.MsgRatePPS))
	}
	if s == nil {
		return "-"
	}
	return strings.Join(s, " ")
}

func TestText_everyFixtureParsesAndIsJudged(t *testing.T) {
	t.Parallel()
	dir := fixtures.Dir(t)
	want, err := os.Open("testdata/fixtures.expect")
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	seen := map[string]bool{}
	for sc := bufio.NewScanner(want); sc.Scan(); {
		if strings.HasPrefix(sc.Text(), "#") {
			continue
		}
		f := strings.SplitN(sc.Text(), " ", 4)
		name, role, verdict, rows := f[0], Role(f[1]), f[2], f[3]
		folder, _, _ := strings.Cut(name, "#")
		seen[folder] = true
		t.Run(name+"/"+string(role), func(t *testing.T) {
			c := loadCase(t, dir, name)
			side := c.client
			if role == Server {
				side = c.server
			}
			out, err := Parse(side.Stdout, side.Stderr, side.Argv)
			if got := describe(out); got != rows {
				t.Errorf("Parse rows:\n got %s\nwant %s (error %v)", got, rows, err)
			}
			if (rows == "-") != errors.Is(err, ErrNoResult) {
				t.Errorf("Parse: error %v with rows %s", err, rows)
			}
			_, failure := Judge(c.client, c.server, nil, "")
			got := "OK"
			if failure != nil {
				got = string(failure.Class) + "/" + string(failure.Side)
				if failure.Fix == "" || failure.Cause == "" {
					t.Errorf("failure without cause or fix: %v", failure)
				}
			}
			if got != verdict {
				t.Errorf("Judge: got %s, want %s (%v)", got, verdict, failure)
			}
		})
	}
	folders, err := os.ReadDir(filepath.Join(dir, "text"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		if f.IsDir() && !seen[f.Name()] {
			t.Errorf("fixture %s is not in testdata/fixtures.expect", f.Name())
		}
	}
}

// A captured exchange shows the addresses that both sides printed; each must have read the other's.
func TestText_addressesOfBothSidesAgree(t *testing.T) {
	t.Parallel()
	dir := fixtures.Dir(t)
	for _, name := range []string{"single_D5_gbits", "q4_n200", "ipv6_gid_x2", "rdma_cm_R_n500", "tool_ib_read_bw", "tool_ib_send_bw_UD"} {
		c := loadCase(t, dir, name)
		cl, _ := Parse(c.client.Stdout, nil, nil)
		sv, _ := Parse(c.server.Stdout, nil, nil)
		if len(cl.Local) == 0 || fmt.Sprint(describeAddrs(cl.Local)) != fmt.Sprint(describeAddrs(sv.Remote)) ||
			fmt.Sprint(describeAddrs(cl.Remote)) != fmt.Sprint(describeAddrs(sv.Local)) {
			t.Errorf("%s: client local %v remote %v, server local %v remote %v", name,
				describeAddrs(cl.Local), describeAddrs(cl.Remote), describeAddrs(sv.Local), describeAddrs(sv.Remote))
		}
		if !sv.Server || cl.Server {
			t.Errorf("%s: server text recognised: client %v, server %v", name, cl.Server, sv.Server)
		}
	}
}

func describeAddrs(as []QPAddress) (out []string) {
	for _, a := range as {
		s := fmt.Sprintf("%x/%x/%x/%s", a.LID, a.QPN, a.PSN, a.GID)
		if a.RKey != nil {
			s += fmt.Sprintf("/%x/%x", *a.RKey, *a.VA)
		}
		out = append(out, s)
	}
	return out
}

// What the tool prints is rounded; the best rate must lie within the rounding of both printed numbers.
func TestText_bestRateIsWithinRounding(t *testing.T) {
	t.Parallel()
	dir := fixtures.Dir(t)
	c := loadCase(t, dir, "single_D5_gbits")
	out, err := Parse(c.client.Stdout, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	// 1088 messages of 64 KiB in a window of 3 s (5 s less a margin of one each).
	want := 1088.0 * 65536 * 8 / 3
	if got := out.Rows[0].BestBps(); got < want*0.995 || got > want*1.005 {
		t.Errorf("BestBps = %.6g, want %.6g +-0.5%% (printed average %.6g)", got, want, out.Rows[0].AvgBps)
	}
}
