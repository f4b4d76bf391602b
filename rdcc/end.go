package rdcc

import (
	"encoding/binary"
	"fmt"
)

// Reason is why a message or an association ends (RDCC Reason Codes).
type Reason uint16

// Reasons, for ERROR and CANCEL alike.
const (
	ReasonNoError            Reason = 0x0000
	ReasonAssocRefused       Reason = 0x0001
	ReasonUnknownAssociation Reason = 0x0002
	ReasonBudgetExhausted    Reason = 0x0003
	ReasonUnsupportedType    Reason = 0x0004
	ReasonMessageTooLarge    Reason = 0x0005
	ReasonApplicationAbort   Reason = 0x0006
	ReasonUnsupportedBinding Reason = 0x0007
)

var reasonNames = [...]string{
	"NO_ERROR", "ASSOC_REFUSED", "UNKNOWN_ASSOCIATION", "BUDGET_EXHAUSTED", "UNSUPPORTED_TYPE", "MESSAGE_TOO_LARGE",
	"APPLICATION_ABORT", "UNSUPPORTED_BINDING",
}

// Defined says that the reason is one of those above.
func (r Reason) Defined() bool { return int(r) < len(reasonNames) }

// String is the reason's name in the specification.
func (r Reason) String() string {
	if r.Defined() {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason 0x%04x", uint16(r))
}

// Cancel abandons a message, by either side.
//
//	16 Message ID(64)
//	24 Reason(16) reserved(16)
type Cancel struct {
	MessageID uint64
	Reason    Reason
}

// Type is TypeCancel.
func (m *Cancel) Type() Type { return TypeCancel }

// Append adds the message to b.
func (m *Cancel) Append(b []byte, h Header) []byte {
	b, w := h.open(b, TypeCancel, cancelLen)
	_ = w[cancelLen-1]
	binary.BigEndian.PutUint64(w[16:], m.MessageID)
	binary.BigEndian.PutUint32(w[24:], uint32(m.Reason)<<16)
	return b
}

func (m *Cancel) decode(b []byte) {
	_ = b[cancelLen-1]
	m.MessageID = binary.BigEndian.Uint64(b[16:])
	m.Reason = Reason(binary.BigEndian.Uint16(b[24:]))
}

// Error says what was wrong with a message or with the whole association. Here the reason comes first (decision 24).
//
//	16 Reason(16) reserved(16)
//	20 Message ID(64)
type Error struct {
	Reason    Reason
	MessageID uint64 // zero: the whole association
}

// Type is TypeError.
func (m *Error) Type() Type { return TypeError }

// Append adds the message to b.
func (m *Error) Append(b []byte, h Header) []byte {
	b, w := h.open(b, TypeError, errorLen)
	_ = w[errorLen-1]
	binary.BigEndian.PutUint32(w[16:], uint32(m.Reason)<<16)
	binary.BigEndian.PutUint64(w[20:], m.MessageID)
	return b
}

func (m *Error) decode(b []byte) {
	_ = b[errorLen-1]
	m.Reason = Reason(binary.BigEndian.Uint16(b[16:]))
	m.MessageID = binary.BigEndian.Uint64(b[20:])
}
