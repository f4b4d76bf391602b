package roce

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/internal/fixtures"
)

// Every opcode that the fixtures do not have is written by our encoders and read by tshark, where it is installed.
func TestDecode_everyOpcodeAgreesWithTshark(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	le := binary.LittleEndian
	file := le.AppendUint32(nil, 0xa1b2c3d4)
	file = append(file, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0)
	var want []string
	for i := range 256 {
		op := Opcode(i)
		// tshark 4.0 knows RC, UC, UD and CNP.
		if !op.Known() || op.Transport() == XRC || op.Transport() == RD || op == RCFlush || op == RCAtomicWrite {
			continue
		}
		headers := make([]byte, op.HeaderLen())
		for j := range headers {
			headers[j] = byte(i + j)
		}
		if op.HasAETH() {
			headers[0] = NakSyndrome(NakRemoteAccess)
		}
		data := buildFrame(buildOptions{v6: i&1 == 1, headers: headers, payload: make([]byte, i%50), vlans: []uint16{uint16(i)},
			bth: BTH{Opcode: op, PKey: uint16(i), DestQP: uint32(0x10000 + i), PSN: uint32(0xff0000 + i), AckReq: i&2 != 0, Solicited: i&4 != 0}})
		file = append(file, make([]byte, 8)...)
		file = le.AppendUint32(le.AppendUint32(file, uint32(len(data))), uint32(len(data)))
		file = append(file, data...)

		var f Frame
		if err := f.Decode(LinkEthernet, data, 0, 0); err != nil || f.Kind != KindRoCE {
			t.Fatalf("%v: %v %v", op, f.Kind, err)
		}
		row := make([]string, 9)
		row[0], row[1], row[2], row[3] = fmt.Sprint(i), fmt.Sprintf("0x%06x", f.BTH.DestQP), fmt.Sprint(f.BTH.PSN), fmt.Sprint(f.BTH.Pad)
		if f.HasRETH {
			row[4] = fmt.Sprintf("0x%016x %d", f.RETH.VA, f.RETH.DMALen)
		}
		if f.HasAtomic {
			row[4] = fmt.Sprintf("0x%016x", f.Atomic.VA)
		}
		if f.HasAETH {
			row[5] = fmt.Sprintf("%d %d", f.AETH.Syndrome, f.AETH.MSN)
		}
		if f.HasImm {
			row[6] = fmt.Sprintf("%08x", f.Imm)
		}
		if f.HasInvalidate {
			row[7] = fmt.Sprintf("%08x", f.Invalidate)
		}
		if f.HasDETH {
			row[8] = fmt.Sprintf("0x%08x", f.DETH.SrcQP)
		}
		want = append(want, strings.Join(row, "|"))
	}
	path := filepath.Join(t.TempDir(), "opcodes.pcap")
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"-n", "-r", path, "-T", "fields", "-E", "separator=|", "-E", "occurrence=f"}
	for _, f := range []string{"bth.opcode", "bth.destqp", "bth.psn", "bth.padcnt", "reth.va", "reth.dmalen", "aeth.syndrome", "aeth.msn", "immdt", "ieth", "deth.srcqp"} {
		args = append(args, "-e", "infiniband."+f)
	}
	out, err := exec.CommandContext(t.Context(), tshark, args...).Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(want) {
		t.Fatalf("tshark read %d packets of %d", len(lines), len(want))
	}
	for i, line := range lines {
		v := strings.Split(line, "|")
		join := func(a, b string) string { return strings.TrimSpace(a + " " + b) }
		hex := func(s string) string { return strings.TrimPrefix(strings.ReplaceAll(s, ":", ""), "0x") }
		got := strings.Join([]string{v[0], v[1], v[2], v[3], join(v[4], v[5]), join(v[6], v[7]), hex(v[8]), hex(v[9]), v[10]}, "|")
		if got != want[i] {
			t.Errorf("tshark %s\n  ours %s", got, want[i])
		}
	}
	t.Logf("%d opcodes", len(want))
}

// Packet by packet, real captures show tshark and us the same opcodes, PSNs, ECN and syndromes. (tshark 4.0 has no
// names for FECN and BECN.)
func TestDecode_realCapturesAgreeWithTshark(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	dir := fixtures.Dir(t)
	seen := map[string]int{}
	for _, pattern := range []string{"send_rnr", "netem_loss1", "incast_ecn_snap128", "incast_ecn_full", "ipv6_gid", "read", "atomic_cas", "rdma_cm_rejected", "netem_loss5_ackdir"} {
		files, _ := filepath.Glob(filepath.Join(dir, "pcap", pattern, "*.pcap"))
		if len(files) == 0 {
			t.Errorf("no capture %s among the fixtures", pattern)
			continue
		}
		path := files[0]
		args := []string{"-n", "-r", path, "-Y", "infiniband.bth", "-T", "fields", "-E", "separator=|", "-E", "occurrence=f"}
		for _, f := range []string{"frame.number", "ip.dsfield.ecn", "ipv6.tclass.ecn", "infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn",
			"infiniband.aeth.syndrome", "infiniband.aeth.msn"} {
			args = append(args, "-e", f)
		}
		out, err := exec.CommandContext(t.Context(), tshark, args...).Output()
		if err != nil {
			t.Fatalf("tshark: %v", err)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		link, recs := readPcap(t, path)
		var f Frame
		for i, r := range recs {
			if err := f.Decode(link, r.data, r.origLen, 0); err != nil {
				t.Fatal(err)
			}
			if f.Kind != KindRoCE {
				continue
			}
			row := []string{fmt.Sprint(i + 1), fmt.Sprint(f.ECN()), "", fmt.Sprint(uint8(f.BTH.Opcode)), fmt.Sprintf("0x%06x", f.BTH.DestQP), fmt.Sprint(f.BTH.PSN), "", ""}
			if f.IPv6 {
				row[1], row[2] = row[2], row[1]
			}
			if f.HasAETH {
				row[6], row[7] = fmt.Sprint(f.AETH.Syndrome), fmt.Sprint(f.AETH.MSN)
				seen[f.AETH.Kind().String()]++
				if f.AETH.Kind() == Nak {
					seen["NAK "+f.AETH.Code().String()]++
				}
			}
			if f.ECN() == CE {
				seen["CE"]++
			}
			if len(lines) == 0 {
				t.Fatalf("%s: packet %d is none to tshark", path, i+1)
			}
			if got, want := strings.Join(row, "|"), lines[0]; got != want {
				t.Fatalf("%s: ours %s, tshark %s", path, got, want)
			}
			lines = lines[1:]
		}
		if len(lines) != 0 {
			t.Errorf("%s: tshark has %d packets more, such as %s", path, len(lines), lines[0])
		}
	}
	for _, want := range []string{"CE", "ACK", "NAK", "NAK sequence", "RNR NAK"} {
		if seen[want] == 0 {
			t.Errorf("no %s among the captures compared", want)
		}
	}
	t.Logf("compared %v", seen)
}
