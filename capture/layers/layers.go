// Package layers lets programs that use gopacket decode RoCEv2: it registers the transport headers of capture/roce as gopacket
// layers, which come after layers.LayerTypeUDP.
//
//	layers.Register(roce.Port)
//	p := gopacket.NewPacket(data, golayers.LayerTypeEthernet, gopacket.Default)
//	if bth, ok := p.Layer(layers.LayerTypeBTH).(*layers.BTH); ok { ... }
//
// The stack of a packet is BTH, then as the opcode says RETH, AETH, DETH, AtomicETH, AtomicAckETH, Imm (immediate data, or the
// key of a SEND with invalidate), then the payload without pad, which is gopacket.LayerTypePayload. The ICRC is a field of the BTH layer.
// This is the convenient way; the fast way, without allocation, is roce.Frame.
package layers

import (
	"encoding/binary"
	"errors"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// Layer types. gopacket keeps its registry by number; 4791 and up are ours.
var (
	LayerTypeBTH          = gopacket.RegisterLayerType(4791, gopacket.LayerTypeMetadata{Name: "BTH", Decoder: gopacket.DecodeFunc(decodeBTH)})
	LayerTypeRETH         = gopacket.RegisterLayerType(4792, gopacket.LayerTypeMetadata{Name: "RETH", Decoder: gopacket.DecodeFunc(standalone)})
	LayerTypeAETH         = gopacket.RegisterLayerType(4793, gopacket.LayerTypeMetadata{Name: "AETH", Decoder: gopacket.DecodeFunc(standalone)})
	LayerTypeDETH         = gopacket.RegisterLayerType(4794, gopacket.LayerTypeMetadata{Name: "DETH", Decoder: gopacket.DecodeFunc(standalone)})
	LayerTypeAtomicETH    = gopacket.RegisterLayerType(4795, gopacket.LayerTypeMetadata{Name: "AtomicETH", Decoder: gopacket.DecodeFunc(standalone)})
	LayerTypeAtomicAckETH = gopacket.RegisterLayerType(4796, gopacket.LayerTypeMetadata{Name: "AtomicAckETH", Decoder: gopacket.DecodeFunc(standalone)})
	LayerTypeImm          = gopacket.RegisterLayerType(4797, gopacket.LayerTypeMetadata{Name: "Imm", Decoder: gopacket.DecodeFunc(standalone)})
)

// Register makes gopacket decode UDP to the port as RoCEv2. It changes gopacket's own table, which is not locked: call it before
// packets are decoded. Port 0 means roce.Port.
func Register(port uint16) {
	if port == 0 {
		port = roce.Port
	}
	golayers.RegisterUDPPortLayerType(golayers.UDPPort(port), LayerTypeBTH)
}

// BTH is the base transport header as a layer.
type BTH struct {
	golayers.BaseLayer
	roce.BTH
	ICRC    uint32 // the wire's last four bytes, lowest first
	HasICRC bool   // false when the capture was cut before it
}

// RETH, AETH and the others are the extended headers as layers.
type (
	RETH struct {
		golayers.BaseLayer
		roce.RETH
	}
	AETH struct {
		golayers.BaseLayer
		roce.AETH
	}
	DETH struct {
		golayers.BaseLayer
		roce.DETH
	}
	AtomicETH struct {
		golayers.BaseLayer
		roce.AtomicETH
	}
	AtomicAckETH struct {
		golayers.BaseLayer
		roce.AtomicAckETH
	}
	// Imm is immediate data, or with Invalidate the R_Key that a SEND with invalidate names.
	Imm struct {
		golayers.BaseLayer
		Value      uint32
		Invalidate bool
	}
)

// LayerType implements gopacket.Layer.
func (*BTH) LayerType() gopacket.LayerType          { return LayerTypeBTH }
func (*RETH) LayerType() gopacket.LayerType         { return LayerTypeRETH }         // LayerType implements gopacket.Layer.
func (*AETH) LayerType() gopacket.LayerType         { return LayerTypeAETH }         // LayerType implements gopacket.Layer.
func (*DETH) LayerType() gopacket.LayerType         { return LayerTypeDETH }         // LayerType implements gopacket.Layer.
func (*AtomicETH) LayerType() gopacket.LayerType    { return LayerTypeAtomicETH }    // LayerType implements gopacket.Layer.
func (*AtomicAckETH) LayerType() gopacket.LayerType { return LayerTypeAtomicAckETH } // LayerType implements gopacket.Layer.
func (*Imm) LayerType() gopacket.LayerType          { return LayerTypeImm }          // LayerType implements gopacket.Layer.

var (
	_ gopacket.SerializableLayer = (*BTH)(nil)
	_ gopacket.Layer             = (*Imm)(nil)
)

// SerializeTo writes the header in front of what the buffer holds; pad and ICRC are the caller's (roce.PutICRC).
func (b *BTH) SerializeTo(buf gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	p, err := buf.PrependBytes(roce.BTHLen)
	if err == nil {
		b.BTH.Append(p[:0])
	}
	return err
}

// standalone refuses a header that did not come after a BTH: its place depends on the opcode.
func standalone([]byte, gopacket.PacketBuilder) error {
	return errors.New("roce: extended headers are decoded behind their BTH")
}

// decodeBTH reads the whole transport part: what follows a BTH is told by its opcode alone.
func decodeBTH(data []byte, p gopacket.PacketBuilder) error {
	bth, n, err := roce.ParseBTH(data)
	if err != nil {
		p.SetTruncated()
		return err
	}
	b := &BTH{BTH: bth, BaseLayer: golayers.BaseLayer{Contents: data[:n], Payload: data[n:]}}
	rest := data[n:]
	if tail := int(bth.Pad) + roce.ICRCLen; !truncated(p) && len(rest) >= tail+bth.Opcode.HeaderLen() {
		b.ICRC, b.HasICRC = binary.LittleEndian.Uint32(rest[len(rest)-roce.ICRCLen:]), true
		rest = rest[:len(rest)-tail]
		b.Payload = rest
	}
	p.AddLayer(b)
	if rest, err = addExtended(bth.Opcode, rest, p); err != nil {
		p.SetTruncated()
		return err
	}
	if len(rest) == 0 || !bth.Opcode.HasPayload() && bth.Opcode.Known() {
		return nil
	}
	return p.NextDecoder(gopacket.LayerTypePayload)
}

// truncated reports that the layers below found less than their lengths promise: a snapped capture.
func truncated(p gopacket.PacketBuilder) bool {
	packet, ok := p.(gopacket.Packet)
	return ok && packet.Metadata().Truncated
}

// addExtended adds a layer for each header that the opcode has and returns what follows them.
func addExtended(op roce.Opcode, rest []byte, p gopacket.PacketBuilder) ([]byte, error) {
	steps := []struct {
		has  bool
		read func(b []byte) (gopacket.Layer, int, error)
	}{
		{op.HasDETH(), readDETH}, {op.HasRETH(), readRETH}, {op.HasAtomicETH(), readAtomicETH}, {op.HasAETH(), readAETH},
		{op.HasAtomicAckETH(), readAtomicAckETH}, {op.HasImm() || op.HasInvalidate(), func(b []byte) (gopacket.Layer, int, error) {
			return readImm(b, op.HasInvalidate())
		}},
	}
	// RD, XRC and flush put headers without a layer in front; they are stepped over.
	known := 0
	for i, n := range []int{roce.DETHLen, roce.RETHLen, roce.AtomicETHLen, roce.AETHLen, roce.AtomicAckETHLen, roce.ImmLen} {
		if steps[i].has {
			known += n
		}
	}
	skip := op.HeaderLen() - known
	if len(rest) < skip {
		return nil, &roce.LengthError{Header: op.String(), Need: skip, Have: len(rest)}
	}
	if op.Transport() == roce.RD {
		rest, skip = rest[skip:], 0 // RDETH comes before DETH
	}
	for i, s := range steps {
		if i == 1 { // XRCETH and FETH come after DETH
			rest = rest[skip:]
		}
		if !s.has {
			continue
		}
		layer, n, err := s.read(rest)
		if err != nil {
			return nil, err
		}
		p.AddLayer(layer)
		rest = rest[n:]
	}
	return rest, nil
}

func base(b []byte, n int) golayers.BaseLayer {
	return golayers.BaseLayer{Contents: b[:n:n], Payload: b[n:]}
}

func readRETH(b []byte) (gopacket.Layer, int, error) {
	h, n, err := roce.ParseRETH(b)
	return &RETH{base(b, n), h}, n, err
}

func readAETH(b []byte) (gopacket.Layer, int, error) {
	h, n, err := roce.ParseAETH(b)
	return &AETH{base(b, n), h}, n, err
}

func readDETH(b []byte) (gopacket.Layer, int, error) {
	h, n, err := roce.ParseDETH(b)
	return &DETH{base(b, n), h}, n, err
}

func readAtomicETH(b []byte) (gopacket.Layer, int, error) {
	h, n, err := roce.ParseAtomicETH(b)
	return &AtomicETH{base(b, n), h}, n, err
}

func readAtomicAckETH(b []byte) (gopacket.Layer, int, error) {
	h, n, err := roce.ParseAtomicAckETH(b)
	return &AtomicAckETH{base(b, n), h}, n, err
}

func readImm(b []byte, invalidate bool) (gopacket.Layer, int, error) {
	if len(b) < roce.ImmLen {
		return nil, 0, &roce.LengthError{Header: "immediate data", Need: roce.ImmLen, Have: len(b)}
	}
	return &Imm{base(b, roce.ImmLen), binary.BigEndian.Uint32(b), invalidate}, roce.ImmLen, nil
}
