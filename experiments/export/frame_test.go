package export

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/internal/fixtures"
)

var secret = []byte("SECRET-PAYLOAD-OF-A-TENANT")

func bytesOf(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// checksum is the plain Internet checksum (RFC 1071), written down apart from what is tested.
func checksum(b ...[]byte) uint16 {
	var s uint32
	for _, part := range b {
		for i := 0; i < len(part); i += 2 {
			w := uint32(part[i]) << 8
			if i+1 < len(part) {
				w |= uint32(part[i+1])
			}
			s += w
		}
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

const macs = "525400aabb01 525400aabb02"

// ip4 is an IPv4 packet with right checksums.
func ip4(proto byte, payload []byte) []byte {
	h := []byte{0x45, 0x6a, 0, 0, 0, 7, 0x40, 0, 64, proto, 0, 0, 192, 0, 2, 11, 192, 0, 2, 14}
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(payload)))
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return append(h, payload...)
}

func udp(t testing.TB, port uint16, payload []byte, v6 bool) []byte {
	u := binary.BigEndian.AppendUint16([]byte{0xc0, 0x01}, port)
	u = binary.BigEndian.AppendUint16(u, uint16(8+len(payload)))
	u = append(append(u, 0, 0), payload...)
	pseudo := bytesOf(t, "c000020b c000020e 0011")
	if v6 {
		pseudo = bytesOf(t, "20010db8000100000000000000000011 20010db8000100000000000000000012 0011")
	}
	binary.BigEndian.PutUint16(u[6:], checksum(append(binary.BigEndian.AppendUint16(nil, uint16(len(u))), pseudo...), u))
	return u
}

func ether(t testing.TB, kind string, payload []byte) []byte {
	return append(bytesOf(t, macs+kind), payload...)
}

// write is an RDMA WRITE ONLY with a payload that is a secret, and a right ICRC.
func writeOnly(t testing.TB, v6 bool) []byte {
	payload := append(bytes.Clone(secret), 0, 0)
	transport := append(bytesOf(t, "0a60ffff 00004f5d 80000123 000000000000aaaa 00001234 0000001a"), payload...)
	transport = append(transport, 0, 0, 0, 0)
	u := udp(t, roce.Port, transport, v6)
	u[6], u[7] = 0, 0 // RoCE's checksum is not filled in over IPv4
	if v6 {
		p := append(bytesOf(t, "60000000"), byte(len(u)>>8), byte(len(u)), 17, 64)
		p = append(p, bytesOf(t, "20010db8000100000000000000000011 20010db8000100000000000000000012")...)
		p = append(p, u...)
		roce.PutICRC(p)
		return ether(t, "86dd", p)
	}
	p := ip4(17, u)
	roce.PutICRC(p)
	return ether(t, "0800", p)
}

// sensitive are the bytes that must be nowhere in what is left: addresses, their ends, names and payload.
func sensitive(t testing.TB) map[string][]byte {
	return map[string][]byte{"IPv4 source": bytesOf(t, "c000020b"), "IPv4 destination": bytesOf(t, "c000020e"), "IPv6": bytesOf(t, "20010db800010000"), "MAC": bytesOf(t, "525400aabb"),
		"payload": secret[:8], "end of an IPv6 address": bytesOf(t, "0000000000000011")}
}

func TestFrame(t *testing.T) {
	lldp := append(bytesOf(t, "0207 04 525400aabb01"), []byte("SECRET-PAYLOAD-OF-A-TENANT")...)
	inner := writeOnly(t, false)
	mad := make([]byte, 256)
	copy(mad, bytesOf(t, "01070203 0000 0000 0000000000000001 0010 0000 00000000"))
	copy(mad[24:], bytesOf(t, "11111111 00000000 0000000001064853 525400aabb010000 00000000 00000000 00001200"))
	copy(mad[24+60:], bytesOf(t, "00000000000000000000ffffc000020b 00000000000000000000ffffc000020e"))
	datagram := append(bytesOf(t, "6460ffff 00000001 00000005 80010000 00000001"), mad...)
	cm := ip4(17, udp(t, roce.Port, append(datagram, 0, 0, 0, 0), false))
	for _, c := range []struct {
		name  string
		frame []byte
	}{
		{"write", writeOnly(t, false)},
		{"write_ipv6", writeOnly(t, true)},
		{"write_vlan", append(bytesOf(t, macs+"8100 6005"), writeOnly(t, false)[12:]...)},
		{"connection_request", ether(t, "0800", cm)},
		{"other_udp", ether(t, "0800", ip4(17, udp(t, 53, secret, false)))},
		{"other_udp_padded", append(ether(t, "0800", ip4(17, udp(t, 53, []byte{1}, false))), secret...)},
		{"tcp", ether(t, "0800", ip4(6, append(bytesOf(t, "c0010016 00000001 00000002 50180100 00000000"), secret...)))},
		{"icmp_unreachable", ether(t, "0800", ip4(1, append(bytesOf(t, "0301 0000 00000000"), ip4(17, secret)...)))},
		{"unknown_protocol", ether(t, "0800", ip4(99, secret))},
		{"arp", ether(t, "0806", bytesOf(t, "0001 0800 06 04 0001 525400aabb01 c000020b 525400aabb02 c000020e"))},
		{"lldp", append(bytesOf(t, "0180c200000e 525400aabb01 88cc"), lldp...)},
		{"pause", append(bytesOf(t, "0180c2000001 525400aabb01 8808"), bytesOf(t, "0101 0008 0000000000000000000000000000ffff")...)},
		{"unknown_ethertype", ether(t, "9999", secret)},
		{"gre", ether(t, "0800", ip4(47, append(bytesOf(t, "0000 6558"), inner...)))},
		{"erspan", ether(t, "0800", ip4(47, append(bytesOf(t, "1000 88be 00000001 10000000 00000000"), inner...)))},
		{"gre_other", ether(t, "0800", ip4(47, append(bytesOf(t, "0000 1234"), secret...)))},
		{"fragment", ether(t, "0800", append(bytesOf(t, "45000030 00010010 40110000 c000020b c000020e"), secret...))},
		{"ip_options", ether(t, "0800", append(bytesOf(t, "47000040 00010000 40110000 c000020b c000020e 0707 04 c000020e 00"), secret...))},
		{"router_solicitation", ether(t, "86dd", append(bytesOf(t, "60000000 0010 3a ff fe800000000000005054 00fffeaabb01 ff0200000000000000000001ffaabb01 8700 0000 00000000 0101 525400aabb01"), secret...))},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after roce.Frame
			before.Decode(roce.LinkEthernet, bytes.Clone(c.frame), len(c.frame), 0)
			for cut := 0; cut <= len(c.frame); cut++ { // a capture may end anywhere
				got := bytes.Clone(c.frame[:cut])
				testRedactor().frame(roce.LinkEthernet, got, len(c.frame))
				for what, b := range sensitive(t) {
					if bytes.Contains(got, b) {
						t.Fatalf("cut to %d bytes, %s is left:\n%s", cut, what, hex.Dump(got))
					}
				}
			}
			got := bytes.Clone(c.frame)
			testRedactor().frame(roce.LinkEthernet, got, len(got))
			after.Decode(roce.LinkEthernet, got, len(got), 0)
			if before.Kind != after.Kind || before.BTH != after.BTH || before.RETH != after.RETH || before.PayloadLen != after.PayloadLen || before.WireLen != after.WireLen ||
				before.TOS != after.TOS || before.VLAN != after.VLAN || before.Mirrored != after.Mirrored || before.Pause.Quanta != after.Pause.Quanta {
				t.Errorf("before %+v\nafter %+v", before, after)
			}
			if before.Kind == roce.KindRoCE && !before.IsMAD() {
				if ok, checked := after.CheckICRC(got); !ok || !checked {
					t.Errorf("ICRC: ok %v, checked %v", ok, checked)
				}
			}
			if bytes.Equal(got[12:14], []byte{8, 0}) && checksum(c.frame[14:34]) == 0 {
				ip := got[14:]
				if checksum(ip[:20]) != 0 {
					t.Errorf("IPv4 checksum is wrong: %x", ip[:20])
				}
				if l4 := ip[20:binary.BigEndian.Uint16(ip[2:])]; ip[9] == 17 && (l4[6] != 0 || l4[7] != 0) {
					if checksum(ip[12:20], []byte{0, 17}, l4[4:6], l4) != 0 {
						t.Error("UDP checksum is wrong")
					}
				}
			}
		})
	}
}

// TestFrame_wrongStaysWrong: what a checksum or an ICRC said of the packet it still says.
func TestFrame_wrongStaysWrong(t *testing.T) {
	b := writeOnly(t, false)
	b[24]++          // IPv4 checksum
	b[len(b)-1] ^= 1 // ICRC
	testRedactor().frame(roce.LinkEthernet, b, len(b))
	var f roce.Frame
	f.Decode(roce.LinkEthernet, b, len(b), 0)
	if ok, checked := f.CheckICRC(b); ok || !checked {
		t.Errorf("ICRC ok %v, checked %v", ok, checked)
	}
	if checksum(b[14:34]) == 0 {
		t.Error("the IPv4 checksum was put right")
	}
}

var addressText = regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+\b|[0-9a-f]*:[0-9a-f:]*:[0-9a-f:.]*`)

// TestCapture_fixtures: the analysis of real captures says the same, but for addresses, after they were redacted, and none of
// their addresses is left in any byte.
func TestCapture_fixtures(t *testing.T) {
	all, _ := filepath.Glob(filepath.Join(fixtures.Dir(t), "pcap", "*", "*.pcap"))
	tested := 0
	for _, file := range all {
		var addresses [][]byte
		r := testRedactor()
		to := filepath.Join(t.TempDir(), "x.pcapng")
		if err := r.capture(file, to); err != nil {
			t.Errorf("%s: left out: %v", file, err)
			continue
		}
		tested++
		of := func(file string) *analysis.Document {
			doc, err := analysis.Run(t.Context(), []analysis.Input{{Path: file}}, analysis.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return doc
		}
		before, after := of(file), of(to)
		for _, f := range before.Flows {
			for _, a := range []string{f.Src, f.Dst} {
				addresses = append(addresses, netip.MustParseAddr(a).AsSlice())
			}
		}
		data, err := os.ReadFile(to)
		if err != nil {
			t.Fatal(err)
		}
		in, err := capture.Open(to)
		if err != nil {
			t.Fatal(err)
		}
		var p capture.Packet
		for in.Next(&p) == nil { // in frames: elsewhere four bytes of a time may look like an address
			for _, a := range addresses {
				if at := bytes.Index(p.Data, a); at >= 0 && (len(a) == 16 || at >= 14 && at < 34) {
					t.Fatalf("%s: address %v is left in a frame", file, a)
				}
			}
		}
		in.Close()
		for _, a := range addresses {
			if len(a) == 16 && bytes.Contains(data, a) {
				t.Errorf("%s: address %x is left", file, a)
			}
		}
		if was, is := numbers(t, before), numbers(t, after); !cmp.Equal(was, is) {
			t.Errorf("%s: (-before +after):\n%s", file, cmp.Diff(was, is))
		}
	}
	if tested < 10 {
		t.Errorf("%d of %d captures were tested", tested, len(all))
	}
}

// numbers are all rows of a document but those about the file, without what addresses name, sorted.
func numbers(t testing.TB, d *analysis.Document) (all []string) {
	d.Rows("", func(r analysis.Row) bool {
		if !strings.HasPrefix(r.Metric, "file.") && !strings.HasPrefix(r.Metric, "interface.") {
			at := int64(0)
			if r.TimeNS != nil {
				at = *r.TimeNS
			}
			data, err := json.Marshal([]any{r.Metric, addressText.ReplaceAllString(r.Flow, "A"), at, float32(r.Value), r.Unit})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(data))
		}
		return true
	})
	sort.Strings(all)
	return all
}
