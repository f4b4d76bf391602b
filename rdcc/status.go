package rdcc

import "encoding/binary"

// SenderStatus tells a receiver that its sender holds more credit than it can use, and which rate it would like.
//
//	16 Unused Credit(64)
//	24 Congestion Level(8) Service Hint(8) reserved(16)  Suggested Rate(32)
type SenderStatus struct {
	UnusedCredit    uint64 // octets held and not used on this association
	CongestionLevel uint8  // 0 none to 255 saturated
	ServiceHint     Hint   // the dominant one of the pending messages
	SuggestedRate   Mbps   // zero: none
}

// Type is TypeSenderStatus.
func (m *SenderStatus) Type() Type { return TypeSenderStatus }

// Append adds the message to b.
func (m *SenderStatus) Append(b []byte, h Header) []byte {
	b, w := h.open(b, TypeSenderStatus, statusLen)
	_ = w[statusLen-1]
	binary.BigEndian.PutUint64(w[16:], m.UnusedCredit)
	binary.BigEndian.PutUint64(w[24:], uint64(m.CongestionLevel)<<56|uint64(m.ServiceHint)<<48|uint64(m.SuggestedRate))
	return b
}

func (m *SenderStatus) decode(b []byte) {
	_ = b[statusLen-1]
	m.UnusedCredit = binary.BigEndian.Uint64(b[16:])
	m.CongestionLevel, m.ServiceHint = b[24], Hint(b[25])
	m.SuggestedRate = Mbps(binary.BigEndian.Uint32(b[28:]))
}
