package rdcc

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Version is the only version of the protocol (Common Header).
const Version = 1

const (
	// HeaderLen is the length of the common header.
	HeaderLen = 16
	// MaxLen is the length of the longest message that is defined, a CONGESTION_REPORT of an IPv6 flow.
	MaxLen = reportLen6
)

// Lengths of the messages, header included (RDCC Message Types).
const (
	assocLen   = 48
	requestLen = 56
	grantLen   = 40
	statusLen  = 32
	reportLen4 = 48
	reportLen6 = 72
	doneLen    = 32
	cancelLen  = 28
	returnLen  = 32
	errorLen   = 28
)

// Header is what all messages begin with. Version and Length are not here: Append writes them and Decode checks them.
type Header struct {
	Type  Type
	Flags uint16 // of the type; undefined ones are never sent and never seen
	Assoc uint32 // Association ID, given by the receiver; zero in ASSOC_REQUEST and in what a CRN sends
	Epoch uint16 // the receiver's incarnation; zero in ASSOC_REQUEST and in what a CRN sends
	Seq   uint32 // one more for each message of its originator on the association; compare with Newer
}

// Type says which message it is.
type Type uint8

// Message types (RDCC Message Types).
const (
	TypeAssocRequest     Type = 0x01
	TypeAssocAccept      Type = 0x02
	TypeCreditRequest    Type = 0x03
	TypeCreditGrant      Type = 0x04
	TypeSenderStatus     Type = 0x05
	TypeCongestionReport Type = 0x06
	TypeMsgDone          Type = 0x07
	TypeCancel           Type = 0x08
	TypeCreditReturn     Type = 0x09
	TypeError            Type = 0x0a

	numTypes = 0x0b
)

// Flags (RDCC Message Flags).
const (
	FlagParameterUpdate uint16 = 0x0001 // ASSOC_ACCEPT: changes the parameters of an association that exists
	FlagUpdateAck       uint16 = 0x0002 // ASSOC_REQUEST: acknowledges such a change
	FlagPool            uint16 = 0x0001 // CREDIT_GRANT: covers the association's pool, Message ID is zero
	FlagFinal           uint16 = 0x0002 // CREDIT_GRANT: Grant Limit is the message's length
)

// ofType is what the codec knows of each type; a length of zero means that the type is not defined.
var ofType = [256]struct {
	len   uint16 // the least that a message of the type has
	flags uint16 // those that are defined
}{
	TypeAssocRequest:     {assocLen, FlagUpdateAck},
	TypeAssocAccept:      {assocLen, FlagParameterUpdate},
	TypeCreditRequest:    {requestLen, 0},
	TypeCreditGrant:      {grantLen, FlagPool | FlagFinal},
	TypeSenderStatus:     {statusLen, 0},
	TypeCongestionReport: {reportLen4, 0}, // of IPv4; the body says more
	TypeMsgDone:          {doneLen, 0},
	TypeCancel:           {cancelLen, 0},
	TypeCreditReturn:     {returnLen, 0},
	TypeError:            {errorLen, 0},
}

var typeNames = [numTypes]string{
	TypeAssocRequest: "ASSOC_REQUEST", TypeAssocAccept: "ASSOC_ACCEPT", TypeCreditRequest: "CREDIT_REQUEST",
	TypeCreditGrant: "CREDIT_GRANT", TypeSenderStatus: "SENDER_STATUS", TypeCongestionReport: "CONGESTION_REPORT",
	TypeMsgDone: "MSG_DONE", TypeCancel: "CANCEL", TypeCreditReturn: "CREDIT_RETURN", TypeError: "ERROR",
}

// Defined says that the type is one of the ten.
func (t Type) Defined() bool { return ofType[t].len != 0 }

// String is the type's name in the specification, such as CREDIT_GRANT.
func (t Type) String() string {
	if t.Defined() {
		return typeNames[t]
	}
	return fmt.Sprintf("type 0x%02x", uint8(t))
}

// open makes room for n octets behind b, writes the header and returns b with that room, and the room alone. What is not
// the header is for the caller to write, all of it.
func (h *Header) open(b []byte, t Type, n int) (all, room []byte) {
	if undefined := h.Flags &^ ofType[t].flags; undefined != 0 && on(RuleFlagsNotSent) {
		h.Flags &^= undefined
	}
	all = slices.Grow(b, n)[:len(b)+n]
	room = all[len(b):]
	binary.BigEndian.PutUint64(room, uint64(Version<<4)<<56|uint64(t)<<48|uint64(n)<<32|uint64(h.Assoc))
	binary.BigEndian.PutUint64(room[8:], uint64(h.Epoch)<<48|uint64(h.Flags)<<32|uint64(h.Seq))
	return all, room
}
