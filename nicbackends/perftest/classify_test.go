package perftest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func side(role Role, code int, stderr string, ended int) *Side {
	return &Side{Role: role, Host: map[Role]string{Client: "h1", Server: "r1"}[role], Argv: []string{WriteBW}, Code: code, Stderr: []byte(stderr), Ended: time.Unix(int64(ended), 0)}
}

const (
	sayWC = ` Completion with error at client
 Failed status 12: wr_id 0 syndrom 0x81
scnt=810, ccnt=682
 Failed to complete run_iter_bw function successfully
`
	sayLost = `ethernet_read_keys: Couldn't read remote address
 Unable to read to socket/rdma_cm
 Failed to exchange data between server and clients
`
	sayRefused = `Couldn't connect to 192.0.2.14:18515
Unable to open file descriptor for socket connection Unable to init the socket connection
`
)

func TestClassify_firstCauseByTime(t *testing.T) {
	t.Parallel()
	listening := side(Server, 0, "", 0)
	listening.Listened, listening.Stopped, listening.Code = true, true, -1
	for _, tt := range []struct {
		name, why      string
		client, server *Side
		class          Class
		role           Role
	}{
		{"both_well", "nothing failed", side(Client, 0, "", 1), side(Server, 0, "", 1), "", ""},
		{"wc_and_peer", "O14: the peer's loss is a consequence", side(Client, 1, sayWC, 5), side(Server, 1, sayLost, 4), Completion, Client},
		{"server_killed", "the client's failed completion is a consequence, whatever the hosts' clocks say", side(Client, 1, sayWC, 3), side(Server, 137, "", 4), PeerLost, Server},
		{"killed_by_itself", "a side that fails and is killed as it ends says why", side(Client, 137, sayWC, 3), side(Server, 1, sayLost, 4), Completion, Client},
		{"two_roots", "the one that ended first", side(Client, 1, sayWC, 5), side(Server, 1, "IB device x not found\n", 4), DeviceClass, Server},
		{"lost_alone", "nobody says why", side(Client, 0, "", 2), side(Server, 1, sayLost, 3), PeerLost, Server},
		{"refused", "no server known to listen", side(Client, 1, sayRefused, 1), nil, StartRace, Client},
		{"refused_though_listening", "the server was seen listening and waits still", side(Client, 1, sayRefused, 1), listening, Unreachable, Client},
		{"merged_lines", "O07: the words can be glued", side(Client, 1, strings.ReplaceAll(sayRefused, "\n", ""), 1), nil, StartRace, Client},
		{"killed_by_shell_convention", "128+9", side(Client, 137, "", 1), side(Server, 1, sayLost, 2), PeerLost, Client},
		{"unknown_words", "an exit status alone", side(Client, 3, "something new\n", 1), side(Server, 0, "", 2), ExitStatus, Client},
		{"shell", "127 is not found", side(Client, 127, "sh: 1: ib_write_bw: not found\n", 1), nil, ToolMissing, Client},
		{"limit", "the tool's own bar", side(Client, 1, "Error: BW result is below bw limit\n", 1), side(Server, 0, "", 1), LimitClass, Client},
	} {
		f := Classify(tt.client, tt.server)
		if tt.class == "" {
			if f != nil {
				t.Errorf("%s (%s): %v", tt.name, tt.why, f)
			}
			continue
		}
		if f == nil || f.Class != tt.class || f.Side != tt.role || f.Fix == "" {
			t.Errorf("%s (%s): %v, want %s on the %s", tt.name, tt.why, f, tt.class, tt.role)
		}
	}
}

func TestFailure_textTellsAll(t *testing.T) {
	t.Parallel()
	f := Classify(side(Client, 1, sayWC, 5), side(Server, 1, sayLost, 6))
	want := "COMPLETION on the client (host h1): completion status 12: transport retry counter exceeded (Failed status 12: wr_id 0 syndrom 0x81)"
	if got := f.Error(); !strings.HasPrefix(got, want) || !strings.Contains(got, "firewall") || !strings.Contains(got, "[server said: ethernet_read_keys: Couldn't read remote address / ") {
		t.Errorf("%s", got)
	}
	if diff := cmp.Diff([]string{"Completion with error at client", "Failed status 12: wr_id 0 syndrom 0x81", "scnt=810, ccnt=682", "Failed to complete run_iter_bw function successfully"}, f.ClientTail); diff != "" {
		t.Errorf("client tail (-want +got):\n%s", diff)
	}
}

// S13: success needs exit 0, an output that can be read, and data that moved.
func TestJudge_exitZeroIsNotEnough(t *testing.T) {
	t.Parallel()
	row := func(s string) []byte { return []byte(table(headGb, s)) }
	good := " 65536      500              0.43               0.39   \t\t   0.000749"
	for _, tt := range []struct {
		name   string
		stdout []byte
		class  Class
	}{
		{"good", row(good), ""},
		{"silent", nil, NoResult},
		{"no_row", []byte(toolRule + headGb + "\n"), NoResult},
		{"zero_flow", row(" 65536      0              0.00               0.00   \t\t   0.000000"), NoFlow},
		{"nan", row(" 65536      5              0.00               nan   \t\t   nan"), NoResult},
		{"cut", []byte(toolRule + headGb + "\n" + good), NoResult},
		{"small_rate_is_flow", row(" 2          10           0.000000            0.000000            0.000019"), ""},
	} {
		c := side(Client, 0, "", 1)
		c.Stdout = tt.stdout
		_, f := Judge(c, side(Server, 0, "", 1), nil, "")
		if (f == nil) != (tt.class == "") || f != nil && f.Class != tt.class {
			t.Errorf("%s: %v, want %q", tt.name, f, tt.class)
		}
	}
}

// What the server prints is the client's number under the server's own heading.
func TestJudge_neverTakesTheServersRow(t *testing.T) {
	t.Parallel()
	c, s := side(Client, 0, "", 1), side(Server, 0, "", 1)
	c.Argv, s.Argv = []string{WriteBW, "--report_gbits", "192.0.2.14"}, []string{WriteBW}
	c.Stdout = []byte(table(headGb, " 65536      500           0.156147            0.097774            0.000186            "))
	s.Stdout = []byte(table(headMB, " 65536      500              0.16               0.10   \t\t   0.000186"))
	out, f := Judge(c, s, nil, "")
	if f != nil || out.Rows[0].AvgBps != 0.097774e9 || len(out.Notes) != 1 || !strings.Contains(out.Notes[0], "--report_gbits: client given, server none") {
		t.Errorf("%v %+v", f, out)
	}
}
