// Package layer lets programs that use gopacket decode RDCC: it registers the messages of package rdcc as a gopacket layer
// that comes after layers.LayerTypeUDP.
//
//	layer.Register(52001) // the port of the domain: there is no default
//	p := gopacket.NewPacket(data, golayers.LayerTypeEthernet, gopacket.Default)
//	if m, ok := p.Layer(layer.LayerType).(*layer.RDCC); ok && m.Type == rdcc.TypeCreditGrant { ... m.CreditGrant ... }
//
// A datagram that must be discarded has no such layer, but an error layer. Octets behind the message are its payload.
package layer

import (
	"encoding/binary"
	"errors"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"github.com/pcmlab/pcmlab/rdcc"
)

// LayerType is RDCC's number in gopacket's registry, beside those of package capture/layers.
var LayerType = gopacket.RegisterLayerType(4798, gopacket.LayerTypeMetadata{Name: "RDCC", Decoder: gopacket.DecodeFunc(decode)})

// Register makes gopacket decode UDP to or from the port as RDCC. It changes gopacket's own table, which is not locked: call it
// before packets are decoded.
func Register(port uint16) error {
	if port == 0 {
		return errors.New("rdcc layer: port 0: give the port of the domain, there is no default")
	}
	golayers.RegisterUDPPortLayerType(golayers.UDPPort(port), LayerType)
	return nil
}

// RDCC is a message as a layer.
type RDCC struct {
	golayers.BaseLayer
	rdcc.Datagram
}

var (
	_ gopacket.DecodingLayer     = (*RDCC)(nil)
	_ gopacket.SerializableLayer = (*RDCC)(nil)
)

// LayerType implements gopacket.Layer.
func (*RDCC) LayerType() gopacket.LayerType { return LayerType }

// CanDecode implements gopacket.DecodingLayer.
func (*RDCC) CanDecode() gopacket.LayerClass { return LayerType }

// NextLayerType implements gopacket.DecodingLayer: what follows the message is nobody's.
func (m *RDCC) NextLayerType() gopacket.LayerType {
	if len(m.Payload) == 0 {
		return gopacket.LayerTypeZero
	}
	return gopacket.LayerTypePayload
}

// DecodeFromBytes implements gopacket.DecodingLayer. It does not allocate.
func (m *RDCC) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := m.Datagram.Decode(data); err != nil {
		if err == rdcc.ErrTruncated || err == rdcc.ErrLong {
			df.SetTruncated()
		}
		return err
	}
	n := int(binary.BigEndian.Uint16(data[2:]))
	m.Contents, m.Payload = data[:n], data[n:]
	return nil
}

// SerializeTo implements gopacket.SerializableLayer. The length is always right, whatever the options say.
func (m *RDCC) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	message := m.Message()
	if message == nil {
		return rdcc.ErrType
	}
	var buf [rdcc.MaxLen]byte
	encoded := message.Append(buf[:0], m.Header)
	room, err := b.PrependBytes(len(encoded))
	if err != nil {
		return err
	}
	copy(room, encoded)
	return nil
}

func decode(data []byte, p gopacket.PacketBuilder) error {
	m := &RDCC{}
	if err := m.DecodeFromBytes(data, p); err != nil {
		return err
	}
	p.AddLayer(m)
	if len(m.Payload) == 0 {
		return nil
	}
	return p.NextDecoder(m.NextLayerType())
}
