package perftest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/internal/testwait"
)

var (
	clientGID = netip.MustParseAddr("192.0.2.11")
	serverGID = netip.MustParseAddr("192.0.2.14")
)

// freePort finds a TCP port that nothing uses now.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// listens looks into the kernel's table, since a test connection would use up the one that the server takes.
func listens(port int) bool {
	for _, f := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(f)
		for _, l := range strings.Split(string(b), "\n") {
			c := strings.Fields(l)
			if len(c) > 3 && c[3] == "0A" && strings.HasSuffix(c[1], fmt.Sprintf(":%04X", port)) {
				return true
			}
		}
	}
	return false
}

// syncBuffer is a buffer that a running tool writes while a test reads.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// ran is a tool that runs in this process.
type ran struct {
	out, err syncBuffer
	code     int
	argv     []string
	done     chan struct{}
}

func start(ctx context.Context, v Verbs, argv ...string) *ran {
	r := &ran{argv: argv, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.code = Tool(ctx, argv, v, nil, &r.out, &r.err)
	}()
	return r
}

func (r *ran) wait(t *testing.T) {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%v did not end; stdout %q stderr %q", r.argv, r.out.String(), r.err.String())
	}
}

func (r *ran) side(role Role) *Side {
	return &Side{Role: role, Argv: r.argv, Code: r.code, Stdout: []byte(r.out.String()), Stderr: []byte(r.err.String())}
}

// pair runs a server and a client of the tool against each other over loopback TCP and the fake fabric.
func pair(t *testing.T, sv, cv Verbs, tool string, flags ...string) (client, server *ran) {
	t.Helper()
	port := freePort(t)
	args := append([]string{tool, "-p", strconv.Itoa(port)}, flags...)
	server = start(t.Context(), sv, args...)
	testwait.For(t, 10*time.Second, "the server to listen", func() bool { return listens(port) })
	client = start(t.Context(), cv, append(args, "127.0.0.1")...)
	client.wait(t)
	server.wait(t)
	return client, server
}

func TestTool_clientAndServerMoveBytesAndAgree(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, why string
		tool      string
		flags     []string
		rows      int
		iters     int64 // 0: not fixed
		peak      bool
	}{
		{"iterations", "-n messages each are counted and a peak measured", WriteBW, []string{"-d", "rxe0", "-x", "1", "-n", "500", "--report_gbits", "-F"}, 1, 500, true},
		{"mebibytes", "without --report_gbits the heading is MB/sec", WriteBW, []string{"-n", "100"}, 1, 100, true},
		{"queue_pairs", "the row counts the messages of all queue pairs", WriteBW, []string{"-x", "1", "-q", "4", "-s", "32768", "-n", "50"}, 1, 200, true},
		{"duration", "a peak is not measured by duration", WriteBW, []string{"-x", "1", "-s", "1M", "-D", "1", "-f", "0", "--report_gbits"}, 1, 0, false},
		{"all_sizes", "one row for each power of two from 2 to 2^23; the server prints the last", WriteBW, []string{"-a", "-n", "5"}, 23, 5, true},
		{"many_iterations", "above 20000 messages no peak is measured", WriteBW, []string{"-n", "20001", "-s", "64"}, 1, 20001, false},
		{"read", "READ is driven where the queue pairs have it", ReadBW, []string{"-x", "1", "-n", "50"}, 1, 50, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFakeFabric()
			s, c := f.host("rxe0", serverGID), f.host("rxe0", clientGID)
			var sv, cv Verbs = s, c
			if tt.tool == ReadBW {
				sv, cv = readingVerbs{s}, readingVerbs{c}
			}
			client, server := pair(t, sv, cv, tt.tool, tt.flags...)
			out, failure := Judge(client.side(Client), server.side(Server), nil, "")
			if failure != nil {
				t.Fatalf("%s: Judge: %v\nclient %s\nserver %s", tt.why, failure, client.out.String(), server.out.String())
			}
			if len(out.Rows) != tt.rows || tt.iters != 0 && out.Rows[0].Iterations != tt.iters || (out.Rows[0].PeakBps != nil) != tt.peak {
				t.Errorf("%s: rows %s", tt.why, describe(out))
			}
			sout, err := Parse([]byte(server.out.String()), nil, nil)
			if err != nil {
				t.Fatalf("server text: %v", err)
			}
			if diff := cmp.Diff(out.Rows[len(out.Rows)-1:], sout.Rows); diff != "" {
				t.Errorf("the server prints the client's last row (-client +server):\n%s", diff)
			}
			if diff := cmp.Diff(describeAddrs(out.Local), describeAddrs(sout.Remote)); diff != "" {
				t.Errorf("addresses (-client local +server remote):\n%s", diff)
			}
			from, to := c.made, s.made
			if tt.tool == ReadBW {
				from, to = to, from
			}
			for i := range from {
				if !bytes.Equal(from[i].buffer, to[i].buffer) {
					t.Errorf("queue pair %d: the bytes did not arrive", i)
				}
			}
			for _, q := range append(c.made, s.made...) {
				if !q.closed {
					t.Error("a queue pair was left open")
				}
			}
		})
	}
}

func TestTool_durationMeasuresTheWindowBetweenTheMargins(t *testing.T) {
	t.Parallel()
	f := newFakeFabric()
	client, server := pair(t, f.host("a", serverGID), f.host("b", clientGID), WriteBW, "-s", "1M", "-D", "3", "-f", "1")
	out, failure := Judge(client.side(Client), server.side(Server), nil, "")
	if failure != nil {
		t.Fatal(failure)
	}
	// Iterations over message rate is the window: 3 s less twice 1 s.
	r := out.Rows[0]
	if window := float64(r.Iterations) / *r.MsgRatePPS; window < 0.99 || window > 1.01 {
		t.Errorf("%d iterations at %.6g/s are %.3f s, want the window of 1 s", r.Iterations, *r.MsgRatePPS, window)
	}
}

// The text must be that of the real tool to the byte, but for what was measured.
func TestTool_textIsTheRealToolsToTheByte(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, file string
		flags      []string
		server     bool
	}{
		{"client", "single_n1000.client.txt", []string{"-d", "rxe0", "-x", "1", "-n", "1000"}, false},
		{"server", "single_n1000.server.txt", []string{"-d", "rxe0", "-x", "1", "-n", "1000"}, true},
		{"four_queue_pairs", "q4_n200.client.txt", []string{"-d", "rxe0", "-x", "1", "-q", "4", "-n", "200"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile("testdata/" + tt.file)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := Parse(want, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			f := newFakeFabric()
			s, c := f.host("rxe0", serverGID), f.host("rxe0", clientGID)
			local, remote := c, s
			if tt.server {
				local, remote = s, c
			}
			local.fixed, remote.fixed = infos(parsed.Local), infos(parsed.Remote)
			client, server := pair(t, s, c, WriteBW, tt.flags...)
			got := client.out.String()
			if tt.server {
				got = server.out.String()
			}
			if diff := cmp.Diff(maskRow(string(want)), maskRow(got)); diff != "" {
				t.Errorf("text (-real +ours):\n%s", diff)
			}
		})
	}
}

func infos(as []QPAddress) (out []QPInfo) {
	for _, a := range as {
		out = append(out, QPInfo{LID: a.LID, QPN: a.QPN, PSN: a.PSN, RKey: *a.RKey, VA: *a.VA})
	}
	return out
}

var rowNumbers = regexp.MustCompile(`(?m)^( \d+ +\d+ +)[\d.]+ +[\d.]+ *\t\t   [\d.]+ *$`)

// maskRow replaces the measured numbers of a row but keeps its shape.
func maskRow(s string) string { return rowNumbers.ReplaceAllString(s, "${1}PEAK AVG RATE") }

func TestTool_rowsHaveTheRealToolsTwoFormats(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		why  string
		o    toolOptions
		r    report
		want string
	}{
		{"0.1 Gb/s and more: two decimals", toolOptions{gbits: true}, report{65536, 1088, 0, 0.19, 0.000361}, " 65536      1088             0.00               0.19   \t\t   0.000361\n"},
		{"less: six decimals", toolOptions{gbits: true}, report{65536, 725, 0, 0.094879, 0.000181}, " 65536      725           0.000000            0.094879            0.000181\n"},
		{"MB/sec: always two decimals", toolOptions{}, report{4096, 500, 11.15, 0.05, 0.002205}, " 4096       500              11.15              0.05   \t\t   0.002205\n"},
		{"a bare number", toolOptions{gbits: true, output: "bandwidth"}, report{65536, 500, 1, 0.360445, 0.1}, "0.360445\n"},
		{"a bare message rate", toolOptions{output: "message_rate"}, report{65536, 500, 1, 1, 0.000653}, "0.000653\n"},
	} {
		var b bytes.Buffer
		tt.o.printReport(&b, tt.r)
		if b.String() != tt.want {
			t.Errorf("%s:\n got %q\nwant %q", tt.why, b.String(), tt.want)
		}
	}
}

func TestTool_failsInTheRealToolsWords(t *testing.T) {
	t.Parallel()
	glued := "Unable to open file descriptor for socket connection Unable to init the socket connection\n"
	for _, tt := range []struct {
		name   string
		argv   []string
		verbs  func(v *fakeVerbs)
		stderr string
		class  Class
	}{
		{"no_such_device", []string{"-d", "rxe9", "192.0.2.14"}, nil, "IB device rxe9 not found\n Unable to find the Infiniband/RoCE device\n", DeviceClass},
		{"no_device", nil, func(v *fakeVerbs) { v.none = true }, " Did not detect devices \n If device exists, check if driver is up\n Unable to find the Infiniband/RoCE device\n", DeviceClass},
		{"port_down", []string{"-d", "rxe0"}, func(v *fakeVerbs) { v.info.Active = false }, " Port number 1 state is Down\n Couldn't set the link layer\n Couldn't get context for the device\n", DeviceClass},
		{"too_few_iterations", []string{"-n", "2", "192.0.2.13"}, nil, " Iteration num should be between 5 and 100000000\n Parser function exited with Error\n", BadOption},
		{"bad_size", []string{"-s", "abc", "192.0.2.13"}, nil, " Message Size should be between 1 and 2147483647\n Parser function exited with Error\n", BadOption},
		{"negative_size", []string{"-s", "-5"}, nil, " Message Size should be between 1 and 2147483647\n Parser function exited with Error\n", BadOption},
		{"duration_and_all", []string{"-a", "-D", "4"}, nil, "Duration mode currently doesn't support running on all sizes.\n", BadOption},
		{"margin", []string{"-D", "4", "-f", "2"}, nil, "please check that DURATION > 2*MARGIN\n", BadOption},
		{"unknown_long", []string{"--bogus", "192.0.2.14"}, nil, "ib_write_bw: unrecognized option '--bogus'\n Invalid Command or flag.\n Please check command line and run again.\n\n Parser function exited with Error\n", BadOption},
		{"unknown_short", []string{"-Z"}, nil, "ib_write_bw: invalid option -- 'Z'\n Invalid Command or flag.\n Please check command line and run again.\n\n Parser function exited with Error\n", BadOption},
		{"value_missing", []string{"-d"}, nil, "ib_write_bw: option requires an argument -- 'd'\n Invalid Command or flag.\n Please check command line and run again.\n\n Parser function exited with Error\n", BadOption},
		{"rdma_cm", []string{"-R"}, nil, "-R (--rdma_cm): not supported by the software NIC's ib_write_bw\n Parser function exited with Error\n", BadOption},
		{"long_unsupported", []string{"--rate_limit=5"}, nil, "--rate_limit: not supported by the software NIC's ib_write_bw\n Parser function exited with Error\n", BadOption},
		{"nothing_listens", []string{"-p", "1", "127.0.0.1"}, nil, "Couldn't connect to 127.0.0.1:1\n" + glued, StartRace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := newFakeFabric().host("rxe0", clientGID)
			if tt.verbs != nil {
				tt.verbs(v)
			}
			r := start(t.Context(), v, append([]string{WriteBW}, tt.argv...)...)
			r.wait(t)
			if diff := cmp.Diff(tt.stderr, r.err.String()); diff != "" || r.code != 1 {
				t.Errorf("exit %d, stderr (-want +got):\n%s", r.code, diff)
			}
			if f := Classify(r.side(Client), nil); f == nil || f.Class != tt.class {
				t.Errorf("Classify: %v, want %s", f, tt.class)
			}
		})
	}
}

func TestTool_portInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	r := start(t.Context(), newFakeFabric().host("rxe0", serverGID), WriteBW, "-p", strconv.Itoa(port))
	r.wait(t)
	want := fmt.Sprintf("Couldn't listen to port %d\nUnable to open file descriptor for socket connection Unable to init the socket connection\n", port)
	if r.err.String() != want || r.code != 1 {
		t.Errorf("exit %d, stderr %q, want %q", r.code, r.err.String(), want)
	}
}

func TestTool_othersAndHelp(t *testing.T) {
	t.Parallel()
	v := newFakeFabric().host("rxe0", clientGID)
	for _, tt := range []struct{ arg, tool, want string }{
		{"--help", WriteBW, "Usage:\n  ib_write_bw "},
		{"--version", WriteBW, "Version: 6.06\n"},
		{"-n5", SendBW, ""},
	} {
		r := start(t.Context(), v, tt.tool, tt.arg)
		r.wait(t)
		if r.code != 1 || !strings.HasPrefix(r.out.String(), tt.want) {
			t.Errorf("%s %s: exit %d, stdout %q", tt.tool, tt.arg, r.code, r.out.String())
		}
		if tt.tool == SendBW && !strings.Contains(r.err.String(), "not supported by the software NIC") {
			t.Errorf("%s: stderr %q", tt.tool, r.err.String())
		}
	}
}

func TestTool_gidsThatDoNotFit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, clientX string }{{"v4_with_v6", "2"}, {"unused_index", "7"}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFakeFabric()
			port := freePort(t)
			server := start(t.Context(), f.host("a", serverGID), WriteBW, "-x", "1", "-p", strconv.Itoa(port))
			testwait.For(t, 10*time.Second, "the server to listen", func() bool { return listens(port) })
			client := start(t.Context(), f.host("b", clientGID), WriteBW, "-x", tt.clientX, "-p", strconv.Itoa(port), "127.0.0.1")
			client.wait(t)
			server.wait(t)
			want := "\n Found Incompatibility issue with GID types.\n Please Try to use a different IP version.\n\n"
			if client.err.String() != want || server.err.String() != want || client.code != 1 || server.code != 1 {
				t.Errorf("client %d %q, server %d %q", client.code, client.err.String(), server.code, server.err.String())
			}
			if f := Classify(client.side(Client), server.side(Server)); f == nil || f.Class != GIDClass {
				t.Errorf("Classify: %v", f)
			}
		})
	}
}

func TestTool_failedCompletionIsSaidOnBothSides(t *testing.T) {
	t.Parallel()
	f := newFakeFabric()
	cv := f.host("b", clientGID)
	cv.fail = func(done int) *WCError {
		if done >= 256 {
			return &WCError{Status: WCRetryExcErr, VendorSyndrome: 0x81}
		}
		return nil
	}
	client, server := pair(t, f.host("a", serverGID), cv, WriteBW, "-n", "1000")
	want := " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=384, ccnt=256\n Failed to complete run_iter_bw function successfully\n"
	if client.err.String() != want || client.code != 1 {
		t.Errorf("client exit %d, stderr %q, want %q", client.code, client.err.String(), want)
	}
	wantServer := "ethernet_read_keys: Couldn't read remote address\n Unable to read to socket/rdma_cm\n Failed to exchange data between server and clients\n"
	if server.err.String() != wantServer || server.code != 1 {
		t.Errorf("server exit %d, stderr %q, want %q", server.code, server.err.String(), wantServer)
	}
	failure := Classify(client.side(Client), server.side(Server))
	if failure == nil || failure.Class != Completion || failure.WC != WCRetryExcErr || failure.Side != Client || len(failure.Causes) == 0 {
		t.Errorf("Classify: %v", failure)
	}
}

func TestTool_serverThatVanishesIsSaidByTheClient(t *testing.T) {
	t.Parallel()
	f := newFakeFabric()
	port := freePort(t)
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	server := start(ctx, f.host("a", serverGID), WriteBW, "-s", "1M", "-p", strconv.Itoa(port))
	testwait.For(t, 10*time.Second, "the server to listen", func() bool { return listens(port) })
	client := start(t.Context(), f.host("b", clientGID), WriteBW, "-s", "1M", "-D", "1", "-f", "0", "-p", strconv.Itoa(port), "127.0.0.1")
	testwait.For(t, 10*time.Second, "the heading of the table", func() bool { return strings.Contains(client.out.String(), "#bytes") })
	kill()
	server.wait(t)
	client.wait(t)
	if server.code != ToolInterrupted || server.err.String() != "" {
		t.Errorf("server exit %d, stderr %q: want %d and nothing said", server.code, server.err.String(), ToolInterrupted)
	}
	failure := Classify(client.side(Client), server.side(Server))
	if client.code != 1 || !strings.Contains(client.err.String(), " Failed to exchange data between server and clients") || failure == nil || failure.Class != PeerLost || failure.Side != Server {
		t.Errorf("client exit %d, stderr %q; Classify: %v", client.code, client.err.String(), failure)
	}
}

func TestPeakRate_isTheBestRunOfMessages(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	posted := []time.Duration{0, 0, 0, 10 * ms, 20 * ms}
	completed := []time.Duration{10 * ms, 11 * ms, 12 * ms, 22 * ms, 22 * ms}
	// Messages 4..5: posted at 20 ms, done at 22 ms is one message in 2 ms; 3..4 two in 12 ms.
	if got := peakRate(posted, completed, 1); got != 500 {
		t.Errorf("peakRate = %v/s, want 500/s", got)
	}
	if got := peakRate(nil, nil, 1); got != 0 {
		t.Errorf("peakRate of nothing = %v", got)
	}
}
