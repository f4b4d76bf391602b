package rdcc

import "encoding/binary"

// MaxClass is the largest Traffic Class, served last; larger values mean it (CREDIT_REQUEST).
const MaxClass = 7

// CreditRequest announces a message and asks for credit, or for its MSG_DONE.
//
//	16 Message ID(64)
//	24 Message Length(64)
//	32 Unscheduled Sent(64)
//	40 Class(8) Weight(8) Service Hint(8) Binding Kind(8)  Deadline(32)
//	48 Binding Value(64)
type CreditRequest struct {
	MessageID       uint64 // grows with each new message of the association, never used again; zero is reserved
	MessageLength   uint64
	UnscheduledSent uint64 // octets sent, or about to be, without credit
	Class           uint8  // 0 to 7, 0 first; larger values become 7
	Weight          uint8  // 1 to 255, among messages of a class; zero becomes 1
	ServiceHint     Hint
	BindingKind     BindingKind
	Deadline        Micros // from the sending of this request on; zero means none
	BindingValue    uint64
}

// Type is TypeCreditRequest.
func (m *CreditRequest) Type() Type { return TypeCreditRequest }

// Append adds the message to b.
func (m *CreditRequest) Append(b []byte, h Header) []byte {
	b, w := h.open(b, TypeCreditRequest, requestLen)
	_ = w[requestLen-1]
	binary.BigEndian.PutUint64(w[16:], m.MessageID)
	binary.BigEndian.PutUint64(w[24:], m.MessageLength)
	binary.BigEndian.PutUint64(w[32:], m.UnscheduledSent)
	w[40], w[41], w[42], w[43] = min(m.Class, MaxClass), max(m.Weight, 1), uint8(m.ServiceHint), uint8(m.BindingKind)
	binary.BigEndian.PutUint32(w[44:], uint32(m.Deadline))
	binary.BigEndian.PutUint64(w[48:], m.BindingValue)
	return b
}

func (m *CreditRequest) decode(b []byte) {
	_ = b[requestLen-1]
	m.MessageID = binary.BigEndian.Uint64(b[16:])
	m.MessageLength = binary.BigEndian.Uint64(b[24:])
	m.UnscheduledSent = binary.BigEndian.Uint64(b[32:])
	m.Class, m.Weight, m.ServiceHint, m.BindingKind = b[40], b[41], Hint(b[42]), BindingKind(b[43])
	if m.Class > MaxClass && on(RuleClassClamped) {
		m.Class = MaxClass
	}
	if m.Weight == 0 && on(RuleWeightClamped) {
		m.Weight = 1
	}
	m.Deadline = Micros(binary.BigEndian.Uint32(b[44:]))
	m.BindingValue = binary.BigEndian.Uint64(b[48:])
}

// CreditGrant permits octets of a message, or with FlagPool of the association's scheduled messages together.
//
//	16 Message ID(64)
//	24 Grant Limit(64)
//	32 Pacing Rate(32)  Lifetime(32)
type CreditGrant struct {
	MessageID  uint64 // zero with FlagPool
	GrantLimit uint64 // cumulative offset, exclusive
	PacingRate Mbps   // never zero; who gets one with zero ignores the grant
	Lifetime   Micros // from reception on; zero means the association's default
}

// Type is TypeCreditGrant.
func (m *CreditGrant) Type() Type { return TypeCreditGrant }

// Append adds the message to b.
func (m *CreditGrant) Append(b []byte, h Header) []byte {
	b, w := h.open(b, TypeCreditGrant, grantLen)
	_ = w[grantLen-1]
	binary.BigEndian.PutUint64(w[16:], m.MessageID)
	binary.BigEndian.PutUint64(w[24:], m.GrantLimit)
	binary.BigEndian.PutUint32(w[32:], uint32(m.PacingRate))
	binary.BigEndian.PutUint32(w[36:], uint32(m.Lifetime))
	return b
}

func (m *CreditGrant) decode(b []byte) {
	_ = b[grantLen-1]
	m.MessageID = binary.BigEndian.Uint64(b[16:])
	m.GrantLimit = binary.BigEndian.Uint64(b[24:])
	m.PacingRate = Mbps(binary.BigEndian.Uint32(b[32:]))
	m.Lifetime = Micros(binary.BigEndian.Uint32(b[36:]))
}

// CreditReturn gives credit back.
//
//	16 Message ID(64)
//	24 New Limit(64)
type CreditReturn struct {
	MessageID uint64 // zero for the pool (decision 4)
	NewLimit  uint64 // offset beyond which the sender will not transmit, never less than it has transmitted
}

// Type is TypeCreditReturn.
func (m *CreditReturn) Type() Type { return TypeCreditReturn }

// Append adds the message to b.
func (m *CreditReturn) Append(b []byte, h Header) []byte {
	b, w := h.open(b, TypeCreditReturn, returnLen)
	_ = w[returnLen-1]
	binary.BigEndian.PutUint64(w[16:], m.MessageID)
	binary.BigEndian.PutUint64(w[24:], m.NewLimit)
	return b
}

func (m *CreditReturn) decode(b []byte) {
	_ = b[returnLen-1]
	m.MessageID = binary.BigEndian.Uint64(b[16:])
	m.NewLimit = binary.BigEndian.Uint64(b[24:])
}

// MsgDone says that all octets of a message have arrived.
//
//	16 Message ID(64)
//	24 Octets Received(64)
type MsgDone struct {
	MessageID      uint64
	OctetsReceived uint64
}

// Type is TypeMsgDone.
func (m *MsgDone) Type() Type { return TypeMsgDone }

// Append adds the message to b.
func (m *MsgDone) Append(b []byte, h Header) []byte {
	b, w := h.open(b, TypeMsgDone, doneLen)
	_ = w[doneLen-1]
	binary.BigEndian.PutUint64(w[16:], m.MessageID)
	binary.BigEndian.PutUint64(w[24:], m.OctetsReceived)
	return b
}

func (m *MsgDone) decode(b []byte) {
	_ = b[doneLen-1]
	m.MessageID = binary.BigEndian.Uint64(b[16:])
	m.OctetsReceived = binary.BigEndian.Uint64(b[24:])
}
