package rdcc

import "encoding/binary"

// DecodeError says why a datagram must be discarded. The values fit in an octet, so that discarding does not allocate: a
// flood of bad datagrams costs no more than good ones. [Inspect] says the same with numbers and offsets.
type DecodeError uint8

// Reasons to discard. After ErrType the Header is filled, since the answer to an unknown type needs it (Error Handling and
// Recovery); after all others the Datagram is not to be used.
const (
	ErrTruncated DecodeError = 1 + iota // shorter than the common header
	ErrVersion                          // not Version
	ErrType                             // a type that is not defined
	ErrShort                            // Length is less than the type has
	ErrLong                             // Length is more than the datagram has
	ErrAF                               // a report of neither IPv4 nor IPv6

	// NumDecodeErrors is one more than the largest DecodeError, for arrays of counters.
	NumDecodeErrors
)

var decodeErrors = [NumDecodeErrors]string{
	ErrTruncated: "rdcc: datagram shorter than the common header",
	ErrVersion:   "rdcc: unknown version",
	ErrType:      "rdcc: unknown type",
	ErrShort:     "rdcc: length less than the type has",
	ErrLong:      "rdcc: length more than the datagram has",
	ErrAF:        "rdcc: report of an unknown address family",
}

func (e DecodeError) Error() string { return decodeErrors[e] }

// Datagram is a message that was received, of any type. It is meant to be kept and used again.
type Datagram struct {
	Header

	// The one that Type names is filled by Decode, the others are as they were.
	AssocRequest     AssocRequest
	AssocAccept      AssocAccept
	CreditRequest    CreditRequest
	CreditGrant      CreditGrant
	SenderStatus     SenderStatus
	CongestionReport CongestionReport
	MsgDone          MsgDone
	Cancel           Cancel
	CreditReturn     CreditReturn
	Error            Error
}

// Decode reads the payload of one UDP datagram. The error is a DecodeError: what the specification says must be discarded.
// Nothing of b is kept.
func (d *Datagram) Decode(b []byte) error {
	if len(b) < HeaderLen {
		return ErrTruncated
	}
	if b[0]>>4 != Version && on(RuleVersion) {
		return ErrVersion
	}
	first, second := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	t, length := Type(first>>48), int(uint16(first>>32))
	d.Header = Header{Type: t, Flags: uint16(second >> 32), Assoc: uint32(first), Epoch: uint16(second >> 48), Seq: uint32(second)}
	of := &ofType[t]
	if d.Flags&^of.flags != 0 && on(RuleFlagsIgnored) {
		d.Flags &= of.flags
	}
	if length > len(b) && on(RuleLengthInPayload) {
		return ErrLong
	}
	if length < max(int(of.len), HeaderLen) && on(RuleLengthOfType) {
		return ErrShort
	}
	if of.len == 0 && on(RuleUnknownType) {
		return ErrType
	}
	if len(b) < int(of.len) {
		return ErrLong // cannot be while the rules hold; the bodies rely on it
	}
	switch t {
	case TypeAssocRequest:
		d.AssocRequest.decode(b)
	case TypeAssocAccept:
		d.AssocAccept.decode(b)
	case TypeCreditRequest:
		d.CreditRequest.decode(b)
	case TypeCreditGrant:
		d.CreditGrant.decode(b)
	case TypeSenderStatus:
		d.SenderStatus.decode(b)
	case TypeCongestionReport:
		return d.CongestionReport.decode(b, length)
	case TypeMsgDone:
		d.MsgDone.decode(b)
	case TypeCancel:
		d.Cancel.decode(b)
	case TypeCreditReturn:
		d.CreditReturn.decode(b)
	case TypeError:
		d.Error.decode(b)
	}
	return nil
}

// Message returns the body that Type names, nil when the type is not defined. It points into d.
func (d *Datagram) Message() Message {
	switch d.Type {
	case TypeAssocRequest:
		return &d.AssocRequest
	case TypeAssocAccept:
		return &d.AssocAccept
	case TypeCreditRequest:
		return &d.CreditRequest
	case TypeCreditGrant:
		return &d.CreditGrant
	case TypeSenderStatus:
		return &d.SenderStatus
	case TypeCongestionReport:
		return &d.CongestionReport
	case TypeMsgDone:
		return &d.MsgDone
	case TypeCancel:
		return &d.Cancel
	case TypeCreditReturn:
		return &d.CreditReturn
	case TypeError:
		return &d.Error
	}
	return nil
}

// Message is a body of one of the ten types.
type Message interface {
	// Type is the message's type.
	Type() Type
	// Append adds the message to b, its header with the type, the length and the defined flags set.
	Append(b []byte, h Header) []byte
}

var _ = []Message{
	(*AssocRequest)(nil), (*AssocAccept)(nil), (*CreditRequest)(nil), (*CreditGrant)(nil), (*SenderStatus)(nil),
	(*CongestionReport)(nil), (*MsgDone)(nil), (*Cancel)(nil), (*CreditReturn)(nil), (*Error)(nil),
}
