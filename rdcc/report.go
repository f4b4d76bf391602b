package rdcc

import (
	"encoding/binary"
	"net/netip"
)

// Direction says to whom a report was sent.
type Direction uint8

// Directions of a report. What else there is on the wire is ignored by the endpoints (decision 23).
const (
	ToReceiver Direction = 1 // scheduled traffic: the grants shrink
	ToSender   Direction = 2 // unscheduled traffic: it stops
)

const (
	af4 = 4
	af6 = 6
)

// CongestionReport is what an on-path node says of a flow in a queue above its threshold. It can only slow down.
//
//	16 Reporter ID(32)      Queue Depth(32)
//	24 Queue Threshold(32)  Cong. Degree(8) Direction(8) AF(8) Protocol(8)
//	32 Source Port(16) Destination Port(16)  Suggested Rate(32)
//	40 Source Address(32 or 128)  Destination Address(32 or 128)
//
// AF is not a field here: it is that of the addresses, 4 when both are of IPv4 and 6 otherwise. An address of IPv4 in IPv6
// form (::ffff:0:0/96) counts as IPv6, as the data packet's header had it.
type CongestionReport struct {
	ReporterID       uint32 // of the node, unique in the domain
	QueueDepth       uint32 // octets
	QueueThreshold   uint32 // octets
	CongestionDegree uint8  // 0 at the threshold, 255 with the queue full
	Direction        Direction
	Protocol         uint8 // this and the following are the data packet's
	SourcePort       uint16
	DestinationPort  uint16
	SuggestedRate    Mbps // zero: none
	Source           netip.Addr
	Destination      netip.Addr
}

// Type is TypeCongestionReport.
func (m *CongestionReport) Type() Type { return TypeCongestionReport }

// AF is the address family as written: 4 or 6.
func (m *CongestionReport) AF() uint8 {
	if m.Source.Is4() && m.Destination.Is4() {
		return af4
	}
	return af6
}

// Append adds the message to b. Association ID and Epoch are written as zero, whatever h has (On-Path Congestion Reporting).
func (m *CongestionReport) Append(b []byte, h Header) []byte {
	if on(RuleNoAssociation) {
		h.Assoc, h.Epoch = 0, 0
	}
	af, n := m.AF(), reportLen4
	if af == af6 {
		n = reportLen6
	}
	b, w := h.open(b, TypeCongestionReport, n)
	_ = w[reportLen4-1]
	binary.BigEndian.PutUint32(w[16:], m.ReporterID)
	binary.BigEndian.PutUint32(w[20:], m.QueueDepth)
	binary.BigEndian.PutUint32(w[24:], m.QueueThreshold)
	w[28], w[29], w[30], w[31] = m.CongestionDegree, uint8(m.Direction), af, m.Protocol
	binary.BigEndian.PutUint16(w[32:], m.SourcePort)
	binary.BigEndian.PutUint16(w[34:], m.DestinationPort)
	binary.BigEndian.PutUint32(w[36:], uint32(m.SuggestedRate))
	if af == af4 {
		src, dst := m.Source.As4(), m.Destination.As4()
		copy(w[40:44], src[:])
		copy(w[44:48], dst[:])
		return b
	}
	src, dst := m.Source.As16(), m.Destination.As16()
	copy(w[40:56], src[:])
	copy(w[56:72], dst[:])
	return b
}

func (m *CongestionReport) decode(b []byte, length int) error {
	_ = b[reportLen4-1]
	m.ReporterID = binary.BigEndian.Uint32(b[16:])
	m.QueueDepth = binary.BigEndian.Uint32(b[20:])
	m.QueueThreshold = binary.BigEndian.Uint32(b[24:])
	m.CongestionDegree, m.Direction, m.Protocol = b[28], Direction(b[29]), b[31]
	m.SourcePort = binary.BigEndian.Uint16(b[32:])
	m.DestinationPort = binary.BigEndian.Uint16(b[34:])
	m.SuggestedRate = Mbps(binary.BigEndian.Uint32(b[36:]))
	switch b[30] {
	case af4:
		m.Source = netip.AddrFrom4([4]byte(b[40:44]))
		m.Destination = netip.AddrFrom4([4]byte(b[44:48]))
		return nil
	case af6:
		if length < reportLen6 && on(RuleLengthOfFamily) || len(b) < reportLen6 {
			return ErrShort
		}
		m.Source = netip.AddrFrom16([16]byte(b[40:56]))
		m.Destination = netip.AddrFrom16([16]byte(b[56:72]))
		return nil
	}
	return ErrAF
}
