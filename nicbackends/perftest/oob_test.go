package perftest

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/internal/testwait"
)

// oobMessage is one TCP payload of a captured exchange.
type oobMessage struct {
	server bool
	data   []byte
}

func loadExchange(t testing.TB, name string) (all []oobMessage) {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		who, text, ok := strings.Cut(sc.Text(), " ")
		if !ok || who == "#" {
			continue
		}
		data, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, oobMessage{who == "S", data})
	}
	return all
}

func TestKeys_capturedMessagesParseAndPrintTheSame(t *testing.T) {
	t.Parallel()
	n := 0
	for _, name := range []string{"oob_n25.hex", "oob_q4.hex", "oob_read.hex"} {
		for _, m := range loadExchange(t, name) {
			if len(m.data) != keysLen {
				continue
			}
			n++
			k, err := parseKeys(m.data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(m.data, appendKeys(nil, k)); diff != "" {
				t.Errorf("%s: (-captured +printed):\n%s", name, diff)
			}
		}
	}
	if n < 30 {
		t.Errorf("%d keys messages in the captures, want more", n)
	}
	for cut := range keysLen {
		if _, err := parseKeys(make([]byte, cut)); err == nil {
			t.Errorf("%d bytes accepted", cut)
		}
	}
}

// replay plays one side of a captured exchange and holds the other side's bytes against the capture. Messages flagged
// by measured are the other side's own numbers: their length alone is held.
func replay(conn net.Conn, all []oobMessage, playServer bool, measured func(i int) bool) error {
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	for i, m := range all {
		if m.server == playServer {
			if _, err := conn.Write(m.data); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
			continue
		}
		got := make([]byte, len(m.data))
		if _, err := io.ReadFull(conn, got); err != nil {
			return fmt.Errorf("message %d of the peer: %w", i, err)
		}
		if !bytes.Equal(got, m.data) && !measured(i) {
			return fmt.Errorf("message %d of the peer:\n got %q\nwant %q", i, got, m.data)
		}
	}
	return nil
}

// measuredBy finds the messages of all that carry one side's measured numbers: words of eight bytes. The client's
// first two, size and iterations, are not measured.
func measuredBy(all []oobMessage, server bool) func(int) bool {
	var idx []int
	for i, m := range all {
		if m.server == server && len(m.data) == 8 {
			idx = append(idx, i)
		}
	}
	if !server {
		idx = idx[2:]
	}
	return func(i int) bool {
		for _, k := range idx {
			if k == i {
				return true
			}
		}
		return false
	}
}

func keysOf(t *testing.T, all []oobMessage, server bool, n int) (out []QPInfo) {
	t.Helper()
	for _, m := range all {
		if m.server == server && len(m.data) == keysLen && len(out) < n {
			k, err := parseKeys(m.data)
			if err != nil {
				t.Fatal(err)
			}
			k.QPInfo.GID = [16]byte{}
			out = append(out, k.QPInfo)
		}
	}
	return out
}

var exchanges = []struct {
	file, tool string
	qps        int
	flags      []string
}{
	{"oob_n25.hex", WriteBW, 1, []string{"-d", "rxe0", "-x", "1", "-s", "65536", "-n", "25", "--report_gbits"}},
	{"oob_q4.hex", WriteBW, 4, []string{"-d", "rxe0", "-x", "1", "-q", "4", "-s", "32768", "-n", "16", "--report_gbits"}},
}

// A real client's bytes, replayed, must be answered byte for byte as the real server answered.
func TestTool_serverSpeaksWithARealClientsBytes(t *testing.T) {
	t.Parallel()
	for _, tt := range exchanges {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			all := loadExchange(t, tt.file)
			v := newFakeFabric().host("rxe0", serverGID)
			v.fixed = keysOf(t, all, true, tt.qps)
			port := freePort(t)
			server := start(t.Context(), v, append([]string{tt.tool, "-p", strconv.Itoa(port)}, tt.flags...)...)
			testwait.For(t, 10*time.Second, "the server to listen", func() bool { return listens(port) })
			conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			// A server that only waits reports what its stack held; ours reports zeros.
			if err := replay(conn, all, false, measuredBy(all, true)); err != nil {
				t.Fatal(err)
			}
			server.wait(t)
			out, err := Parse([]byte(server.out.String()), nil, nil)
			if err != nil || server.code != 0 {
				t.Fatalf("exit %d, %v, stderr %q", server.code, err, server.err.String())
			}
			want := map[string]string{
				"oob_n25.hex": "65536x25:peak=4e+08,avg=3e+08,pps=571",
				"oob_q4.hex":  "32768x64:peak=3.64394e+08,avg=8.7871e+07,pps=335",
			}[tt.file]
			if got := describe(out); got != want {
				t.Errorf("the client's report is printed as %s, want %s", got, want)
			}
		})
	}
}

// The same the other way: our client must send what the real client sent to a server that plays back its capture.
func TestTool_clientSpeaksWithARealServersBytes(t *testing.T) {
	t.Parallel()
	for _, tt := range exchanges {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			all := loadExchange(t, tt.file)
			v := newFakeFabric().host("rxe0", clientGID)
			v.fixed = keysOf(t, all, false, tt.qps)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			played := make(chan error, 1)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					played <- err
					return
				}
				defer conn.Close()
				played <- replay(conn, all, true, measuredBy(all, false))
			}()
			client := start(t.Context(), v, append(append([]string{tt.tool, "-p", strconv.Itoa(l.Addr().(*net.TCPAddr).Port)}, tt.flags...), "127.0.0.1")...)
			client.wait(t)
			if err := <-played; err != nil {
				t.Error(err)
			}
			if client.code != 0 {
				t.Errorf("exit %d, stderr %q", client.code, client.err.String())
			}
		})
	}
}

func TestTool_olderProtocolIsRefused(t *testing.T) {
	t.Parallel()
	client, server := net.Pipe()
	defer client.Close()
	go func() {
		defer server.Close()
		b := make([]byte, oobVersionLen)
		if _, err := io.ReadFull(server, b); err == nil {
			copy(b, "5.60\x00")
			_, _ = server.Write(b)
		}
	}()
	if _, err := (exchanger{client, true}).preamble(1024); !errors.Is(err, errOldVersion) {
		t.Errorf("preamble: %v, want %v", err, errOldVersion)
	}
}
