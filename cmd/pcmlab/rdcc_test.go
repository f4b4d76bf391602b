package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/domain"
	"github.com/pcmlab/pcmlab/rdcc/rdcctest"
)

// rdccFiles writes what the scripts decode: a capture of an exchange beside other traffic, one that is cut, and octets.
func rdccFiles(dir string) error {
	sender, receiver := netip.MustParseAddrPort("10.0.0.1:40001"), netip.MustParseAddrPort("10.0.0.9:52001")
	crn6, sender6 := netip.MustParseAddrPort("[2001:db8::c]:52001"), netip.MustParseAddrPort("[2001:db8::1]:52001")
	h := func(seq uint32) rdcc.Header { return rdcc.Header{Assoc: 0x5a17c0de, Epoch: 3, Seq: seq} }
	type sent struct {
		from, to netip.AddrPort
		payload  []byte
	}
	grant := (&rdcc.CreditGrant{MessageID: 0x101, GrantLimit: 262144, PacingRate: 100000, Lifetime: 2000}).Append(nil, h(42))
	broken := bytes.Clone(grant)
	broken[3] = 99
	packets := []sent{
		{sender, receiver, (&rdcc.AssocRequest{SenderNonce: 7, Capabilities: rdcc.CapPool, LineRate: 100000}).Append(nil, rdcc.Header{Seq: 1})},
		{receiver, sender, (&rdcc.AssocAccept{SenderNonce: 7, UnscheduledLimit: 16384, StartJitter: 30, BacklogThreshold: 375000, GrantLifetime: 100, CreditUnit: 4096}).Append(nil, h(1))},
		{netip.MustParseAddrPort("10.0.0.1:53"), netip.MustParseAddrPort("10.0.0.2:53"), []byte("not ours")},
		{sender, receiver, (&rdcc.CreditRequest{MessageID: 0x101, MessageLength: 4 << 20, Class: 2, Weight: 4, BindingKind: rdcc.BindingOpaque}).Append(nil, h(2))},
		{receiver, sender, grant},
		{crn6, sender6, (&rdcc.CongestionReport{ReporterID: 1, QueueDepth: 2, QueueThreshold: 1, Direction: rdcc.ToSender, Source: sender6.Addr(), Destination: crn6.Addr()}).Append(nil, rdcc.Header{Seq: 5})},
		{receiver, sender, (&rdcc.MsgDone{MessageID: 0x101, OctetsReceived: 4 << 20}).Append(nil, h(43))},
	}
	write := func(name string, snaplen int, packets []sent) error {
		var b bytes.Buffer
		w := capture.NewPcapWriter(&b, roce.LinkEthernet, snaplen)
		for i, s := range packets {
			data := rdcctest.Frame(s.from, s.to, s.payload)
			p := capture.Packet{TimeNS: 1764500000_000000000 + int64(i)*10000, OrigLen: len(data), LinkType: roce.LinkEthernet}
			p.Data = data[:min(len(data), snaplen)]
			if err := w.Write(&p); err != nil {
				return err
			}
		}
		if err := w.Flush(); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644)
	}
	return errors.Join(
		write("rdcc.pcap", 65535, packets),
		write("rdcc-broken.pcap", 65535, append(packets, sent{receiver, sender, broken})),
		write("rdcc-snapped.pcap", 64, packets),
		os.WriteFile(filepath.Join(dir, "one.bin"), grant, 0o644),
		os.WriteFile(filepath.Join(dir, "three.bin"), bytes.Join([][]byte{grant, packets[6].payload, grant[:20]}, nil), 0o644),
	)
}

// rdccPorts are two ports of 127.0.0.1 that nobody has, from the dynamic ones.
func rdccPorts() (port, data uint16, err error) {
	for range 100 {
		port = uint16(domain.FirstDynamicPort + 1 + rand.IntN(domain.LastDynamicPort-domain.FirstDynamicPort-2))
		var first, second net.PacketConn
		if first, err = net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
			continue
		}
		second, err = net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port+1))
		first.Close()
		if err == nil {
			second.Close()
			return port, port + 1, nil
		}
	}
	return 0, 0, err
}

// scriptListens waits until somebody has the UDP ports of 127.0.0.1, or with ! has them no more: `listens 52001 52002`. It looks in the
// kernel's list, since who tried to open them could be in the way of who should.
func scriptListens(ts *testscript.TestScript, neg bool, args []string) {
	for end := time.Now().Add(time.Minute); ; runtime.Gosched() {
		open, err := os.ReadFile("/proc/net/udp")
		ts.Check(err)
		all := true
		for _, port := range args {
			n, err := strconv.Atoi(port)
			ts.Check(err)
			all = all && bytes.Contains(open, fmt.Appendf(nil, " 0100007F:%04X ", n)) != neg
		}
		if all {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("not within a minute: UDP ports %v", args)
		}
	}
}

// TestRDCCHasNoDefaultPort: nobody who has an RDCC port was not given it (Port Configuration).
func TestRDCCHasNoDefaultPort(t *testing.T) {
	seen := 0
	for _, c := range allCommands(newRoot(newEnv())) {
		for _, name := range []string{"port", "rdcc-port"} {
			f := c.Flags().Lookup(name)
			if f == nil || name == "port" && !under(c, "rdcc") {
				continue
			}
			seen++
			if f.DefValue != "0" {
				t.Errorf("%s --%s: the default is %s", c.CommandPath(), name, f.DefValue)
			}
		}
	}
	if seen == 0 {
		t.Error("no verb takes an RDCC port")
	}
}

// TestRDCCZeroChecksum: senders must set the UDP checksum (Message Formats).
func TestRDCCZeroChecksum(t *testing.T) {
	grant := (&rdcc.CreditGrant{MessageID: 1, GrantLimit: 2, PacingRate: 3}).Append(nil, rdcc.Header{Assoc: 4, Seq: 5})
	frame := rdcctest.Frame(netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:52001"), grant)
	for _, zero := range []bool{false, true} {
		if zero {
			frame[40], frame[41] = 0, 0
		}
		var b bytes.Buffer
		w := capture.NewPcapWriter(&b, roce.LinkEthernet, 0)
		if err := errors.Join(w.Write(&capture.Packet{Data: frame, OrigLen: len(frame)}), w.Flush()); err != nil {
			t.Fatal(err)
		}
		var got []string
		in := &rdccInput{o: &rdccDecodeOptions{port: 52001}, give: func(d *rdccDatagram) error {
			for _, m := range d.in.Mistakes {
				got = append(got, m.String())
			}
			return nil
		}}
		if err := in.capture("x", &b); err != nil {
			t.Fatal(err)
		}
		if want := "offset -2: UDP checksum: zero: senders must set it"; zero != (len(got) == 1) || zero && got[0] != want {
			t.Errorf("checksum zero: %t: %q", zero, got)
		}
	}
}

func under(c *cobra.Command, name string) bool {
	for ; c != nil; c = c.Parent() {
		if c.Name() == name {
			return true
		}
	}
	return false
}

func TestParseHex(t *testing.T) {
	rows := []struct{ why, in, want, err string }{
		{"bare", "1004002f", "\x10\x04\x00\x2f", ""},
		{"spaced, upper case", " 10 04\t00 2F ", "\x10\x04\x00\x2f", ""},
		{"colons, as of addresses", "10:04:00", "\x10\x04\x00", ""},
		{"a C array", "0x10, 0x04, 0x00,", "\x10\x04\x00", ""},
		{"words of four digits", "1004 0028", "\x10\x04\x00\x28", ""},
		{"a line of xxd", "00000010: 0000 0000 0000 0101  ........", "\x00\x00\x00\x00\x00\x00\x01\x01", ""},
		{"a line of tcpdump -x", "\t0x0010:  1004 0028", "\x10\x04\x00\x28", ""},
		{"a comment", "10 04 # the start", "\x10\x04", ""},
		{"a comment alone", "# nothing", "", ""},
		{"half an octet", "100", "", "3 hexadecimal digits: an octet has two"},
		{"a letter", "10 0g", "", `column 5: 'g' is not hexadecimal`},
		{"0x in the middle of an octet", "10 00x4", "", `column 6: 'x' is not hexadecimal`},
		{"a control character that lower case would make a digit", "1\x10", "", `column 2: '\x10' is not hexadecimal`},
	}
	for _, r := range rows {
		got, err := parseHex(r.in)
		if string(got) != r.want && r.err == "" || (err == nil) != (r.err == "") || err != nil && err.Error() != r.err {
			t.Errorf("%s: %q: got %x, %v", r.why, r.in, got, err)
		}
	}
}
