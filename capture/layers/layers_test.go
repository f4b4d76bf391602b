package layers

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"github.com/pcmlab/pcmlab/capture/roce"
)

func TestMain(m *testing.M) {
	Register(roce.Port)
	os.Exit(m.Run())
}

// realFrames are the packets of capture/roce's testdata.
func realFrames(t testing.TB) [][]byte {
	t.Helper()
	b, err := os.ReadFile("../roce/testdata/real.hex")
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for _, block := range strings.Split(string(b), "\n\n")[1:] {
		lines := strings.Split(strings.TrimSpace(block), "\n")
		data, err := hex.DecodeString(lines[2])
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, data)
	}
	return out
}

// Through gopacket the same comes out as from roce.Frame, whole and cut at every byte, eagerly and lazily.
func TestLayers_agreeWithFrame(t *testing.T) {
	for _, data := range realFrames(t) {
		for n := len(data); n > 54; n = min(n-1, max(n*7/8, 128)) {
			for _, lazy := range []bool{false, true} {
				cut := data[:n:n]
				var f roce.Frame
				if err := f.Decode(roce.LinkEthernet, cut, len(data), 0); err != nil {
					t.Fatal(err)
				}
				p := gopacket.NewPacket(cut, golayers.LayerTypeEthernet, gopacket.DecodeOptions{Lazy: lazy})
				_ = p.Layers()
				bth, ok := p.Layer(LayerTypeBTH).(*BTH)
				if ok != (f.Kind == roce.KindRoCE) {
					t.Fatalf("%d of %d bytes: BTH layer %v, frame is %v\n%v", n, len(data), ok, f.Kind, p)
				}
				if !ok {
					continue
				}
				if bth.BTH != f.BTH || bth.HasICRC != (f.ICRCOffset >= 0) {
					t.Fatalf("%d of %d bytes: %+v, ICRC %v; frame %+v, ICRC at %d", n, len(data), bth.BTH, bth.HasICRC, f.BTH, f.ICRCOffset)
				}
				if l, ok := p.Layer(LayerTypeRETH).(*RETH); ok != f.HasRETH || ok && l.RETH != f.RETH {
					t.Fatalf("RETH %v, want %v", l, f.RETH)
				}
				if l, ok := p.Layer(LayerTypeAETH).(*AETH); ok != f.HasAETH || ok && l.AETH != f.AETH {
					t.Fatalf("AETH %v, want %v", l, f.AETH)
				}
				if l, ok := p.Layer(LayerTypeDETH).(*DETH); ok != f.HasDETH || ok && l.DETH != f.DETH {
					t.Fatalf("DETH %v, want %v", l, f.DETH)
				}
				if l, ok := p.Layer(LayerTypeAtomicETH).(*AtomicETH); ok != f.HasAtomic || ok && l.AtomicETH != f.Atomic {
					t.Fatalf("AtomicETH %v, want %v", l, f.Atomic)
				}
				if l, ok := p.Layer(LayerTypeAtomicAckETH).(*AtomicAckETH); ok != f.HasAtomicAck || ok && l.AtomicAckETH != f.AtomicAck {
					t.Fatalf("AtomicAckETH %v, want %v", l, f.AtomicAck)
				}
				var payload []byte
				if l := p.Layer(gopacket.LayerTypePayload); l != nil {
					payload = l.LayerContents()
				}
				// gopacket cannot tell pad and ICRC from payload in a packet whose end was cut off.
				if bth.HasICRC && string(payload) != string(f.Payload) || !bth.HasICRC && !strings.HasPrefix(string(payload), string(f.Payload)) {
					t.Fatalf("%d of %d bytes: payload of %d bytes, want %d", n, len(data), len(payload), len(f.Payload))
				}
			}
		}
	}
}

func TestLayers_headersThatNoRealPacketHas(t *testing.T) {
	for _, tt := range []struct {
		op   roce.Opcode
		want string
	}{
		{roce.RCWriteOnlyImm, "[BTH RETH Imm Payload]"},
		{roce.RCSendOnlyInvalidate, "[BTH Imm Payload]"},
		{roce.UDSendOnlyImm, "[BTH DETH Imm Payload]"},
		{roce.RDWriteFirst, "[BTH DETH RETH Payload]"},
		{roce.XRCWriteFirst, "[BTH RETH Payload]"},
		{roce.RCFlush, "[BTH RETH]"},
		{roce.RCAck, "[BTH AETH]"},
		{roce.RDReadResponseFirst, "[BTH AETH Payload]"},
		{roce.CNP, "[BTH]"},
	} {
		data := roce.BTH{Opcode: tt.op, Pad: 1}.Append(nil)
		data = append(data, make([]byte, tt.op.HeaderLen())...)
		data = append(data, "abc\x00ICRC"...)
		p := gopacket.NewPacket(data, LayerTypeBTH, gopacket.Default)
		var got []string
		for _, l := range p.Layers() {
			got = append(got, l.LayerType().String())
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("%v: %v, want %s (%v)", tt.op, got, tt.want, p.ErrorLayer())
		}
		if l := p.Layer(gopacket.LayerTypePayload); l != nil && string(l.LayerContents()) != "abc" {
			t.Errorf("%v: payload %q", tt.op, l.LayerContents())
		}
		for n := range data {
			_ = gopacket.NewPacket(data[:n:n], LayerTypeBTH, gopacket.Default).String() // no panic: gopacket would hide it as a layer
			if e := gopacket.NewPacket(data[:n:n], LayerTypeBTH, gopacket.Default).ErrorLayer(); e != nil && strings.Contains(e.Error().Error(), "runtime error") {
				t.Errorf("%v cut at %d: %v", tt.op, n, e.Error())
			}
		}
	}
}

func TestBTH_serialize(t *testing.T) {
	buf := gopacket.NewSerializeBuffer()
	want := roce.BTH{Opcode: roce.CNP, BECN: true, PKey: roce.DefaultPKey, DestQP: 0x11}
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{}, &BTH{BTH: want}, gopacket.Payload(make([]byte, 20))); err != nil {
		t.Fatal(err)
	}
	if got, _, err := roce.ParseBTH(buf.Bytes()); err != nil || got != want || len(buf.Bytes()) != 32 {
		t.Errorf("%x: %+v, %v", buf.Bytes(), got, err)
	}
}

func Example() {
	data := realFrames(&testing.T{})[0]
	p := gopacket.NewPacket(data, golayers.LayerTypeEthernet, gopacket.Default)
	if bth, ok := p.Layer(LayerTypeBTH).(*BTH); ok {
		fmt.Println(bth.Opcode, "to QP", bth.DestQP)
	}
	// Output: RC_SEND_FIRST to QP 42
}
