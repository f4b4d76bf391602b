package layer_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/layer"
	"github.com/pcmlab/pcmlab/rdcc/rdcctest"
)

const port = 52001

var (
	sender, receiver   = netip.MustParseAddrPort("10.0.0.1:40001"), netip.MustParseAddrPort("10.0.0.9:52001")
	sender6, receiver6 = netip.MustParseAddrPort("[2001:db8::1]:40001"), netip.MustParseAddrPort("[2001:db8::9]:52001")
	header             = rdcc.Header{Type: rdcc.TypeCreditGrant, Flags: rdcc.FlagFinal, Assoc: 0x5a17c0de, Epoch: 3, Seq: 42}
	grant              = rdcc.CreditGrant{MessageID: 0x101, GrantLimit: 262144, PacingRate: 100000, Lifetime: 2000}
)

func TestMain(m *testing.M) {
	if err := layer.Register(port); err != nil {
		panic(err)
	}
	m.Run()
}

func TestRegister_needsAPort(t *testing.T) {
	if layer.Register(0) == nil {
		t.Error("port 0 is taken")
	}
}

func TestLayer(t *testing.T) {
	b := grant.Append(nil, header)
	for _, pair := range [][2]netip.AddrPort{{sender, receiver}, {receiver, sender}, {sender6, receiver6}} {
		p := gopacket.NewPacket(rdcctest.Frame(pair[0], pair[1], b), golayers.LayerTypeEthernet, gopacket.Default)
		m, ok := p.Layer(layer.LayerType).(*layer.RDCC)
		if !ok || p.ErrorLayer() != nil {
			t.Fatalf("%v: layers %v, %v", pair, p.Layers(), p.ErrorLayer())
		}
		if m.Header != header || m.CreditGrant != grant || !bytes.Equal(m.Contents, b) || len(m.Payload) != 0 {
			t.Errorf("%v: got %+v", pair, m)
		}
	}
}

func TestLayer_octetsBehind(t *testing.T) {
	b := append(grant.Append(nil, header), 1, 2, 3)
	p := gopacket.NewPacket(rdcctest.Frame(sender, receiver, b), golayers.LayerTypeEthernet, gopacket.Default)
	m, ok := p.Layer(layer.LayerType).(*layer.RDCC)
	if !ok || !bytes.Equal(m.Payload, []byte{1, 2, 3}) || p.ApplicationLayer() == nil {
		t.Errorf("layers %v", p.Layers())
	}
}

func TestLayer_discards(t *testing.T) {
	b := grant.Append(nil, header)
	unknown := append([]byte{0x10, 0x63}, b[2:]...)
	for _, bad := range [][]byte{b[:39], b[:7], unknown} {
		p := gopacket.NewPacket(rdcctest.Frame(sender, receiver, bad), golayers.LayerTypeEthernet, gopacket.Default)
		if p.Layer(layer.LayerType) != nil || p.ErrorLayer() == nil {
			t.Errorf("%x: layers %v", bad, p.Layers())
		}
		if cut := len(bad) < 40; p.Metadata().Truncated != cut {
			t.Errorf("%x: truncated: %t", bad, p.Metadata().Truncated)
		}
	}
}

// TestParser decodes as fast programs do, without a layer for each packet.
func TestParser(t *testing.T) {
	var (
		eth golayers.Ethernet
		ip  golayers.IPv4
		udp golayers.UDP
		m   layer.RDCC
	)
	parser := gopacket.NewDecodingLayerParser(golayers.LayerTypeEthernet, &eth, &ip, &udp, &m)
	var found []gopacket.LayerType
	if err := parser.DecodeLayers(rdcctest.Frame(receiver, sender, grant.Append(nil, header)), &found); err != nil {
		t.Fatal(err)
	}
	if len(found) != 4 || found[3] != layer.LayerType || m.CreditGrant != grant {
		t.Errorf("found %v: %+v", found, m.CreditGrant)
	}
}

func TestSerialize(t *testing.T) {
	m := &layer.RDCC{Datagram: rdcc.Datagram{Header: header, CreditGrant: grant}}
	ip := &golayers.IPv4{Version: 4, TTL: 64, Protocol: golayers.IPProtocolUDP, SrcIP: sender.Addr().AsSlice(), DstIP: receiver.Addr().AsSlice()}
	udp := &golayers.UDP{SrcPort: 40001, DstPort: port}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip, udp, m); err != nil {
		t.Fatal(err)
	}
	got := b.Bytes()
	if want := grant.Append(nil, header); !bytes.Equal(got[28:], want) {
		t.Errorf("got %x, want %x", got[28:], want)
	}
	if got[26] == 0 && got[27] == 0 {
		t.Error("the UDP checksum, which senders must set, is zero")
	}
	m.Type = 0x63
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{}, m); err == nil {
		t.Error("an unknown type is written")
	}
}
