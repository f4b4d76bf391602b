package capture

import (
	"encoding/binary"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// UDP is a UDP datagram in a packet, for protocols beside RoCEv2.
type UDP struct {
	Payload    []byte // what was captured of it; aliases the packet's data
	Len        int    // of the payload on the wire
	NoChecksum bool   // the checksum is zero: the sender set none

	frame roce.Frame
}

// Frame has the packet's addresses, ports, tags and DSCP. What it says of RoCE means nothing here.
func (u *UDP) Frame() *roce.Frame { return &u.frame }

// Decode reads the UDP datagram in a packet, also inside VLAN tags, IPv6 extension headers and the wrappings of mirrors; ok is
// false when there is none, or only a fragment of one. The error is that of roce.Frame.Decode. u is meant to be used again.
func (u *UDP) Decode(p *Packet) (ok bool, err error) {
	f := &u.frame
	f.DstPort = 0
	if err := f.Decode(p.LinkType, p.Data, p.OrigLen, 1); err != nil || f.DstPort == 0 {
		return false, err
	}
	if f.DstPort != 1 { // the frame stops at ports that are not asked for, but says which one it saw
		if err := f.Decode(p.LinkType, p.Data, p.OrigLen, f.DstPort); err != nil {
			return false, err
		}
	}
	at := f.BTHOffset
	if at == 0 || len(p.Data) < at {
		return false, nil
	}
	if f.Kind == roce.KindMalformed && f.Problem != roce.ProblemTransport {
		return false, nil
	}
	header := p.Data[at-8 : at]
	u.Len = int(binary.BigEndian.Uint16(header[4:])) - 8
	u.NoChecksum = binary.BigEndian.Uint16(header[6:]) == 0
	u.Payload = p.Data[at:min(len(p.Data), at+u.Len)]
	return true, nil
}
