package roce

import (
	"encoding/binary"
	"fmt"
)

// MADLen is the length of a management datagram, headers included.
const MADLen = 256

// Management classes and attributes of interest.
const (
	MADClassCM = 0x07 // communication management

	madHeaderLen = 24
)

// MAD is the common header of a management datagram (IBTA volume 1, 13.4.3).
type MAD struct {
	Class, Method uint8
	Status        uint16
	TID           uint64
	Attribute     uint16
	Modifier      uint32
}

// ParseMAD reads the header at the start of a datagram to QP 0 or 1 (Frame.Payload) and returns its length.
func ParseMAD(b []byte) (MAD, int, error) {
	if len(b) < madHeaderLen {
		return MAD{}, 0, &LengthError{"MAD", madHeaderLen, len(b)}
	}
	be := binary.BigEndian
	return MAD{Class: b[1], Method: b[3], Status: be.Uint16(b[4:]), TID: be.Uint64(b[8:]), Attribute: be.Uint16(b[16:]), Modifier: be.Uint32(b[20:])},
		madHeaderLen, nil
}

// CMKind is the attribute identifier of a communication management message.
type CMKind uint16

// Messages that connect and disconnect queue pairs (IBTA volume 1, table 98).
const (
	CMRequest           CMKind = 0x0010
	CMReceived          CMKind = 0x0011 // message receipt acknowledgement
	CMReject            CMKind = 0x0012
	CMReply             CMKind = 0x0013
	CMReadyToUse        CMKind = 0x0014
	CMDisconnectRequest CMKind = 0x0015
	CMDisconnectReply   CMKind = 0x0016
)

// String is the message's name as IBTA abbreviates it.
func (k CMKind) String() string {
	switch k {
	case CMRequest:
		return "REQ"
	case CMReceived:
		return "MRA"
	case CMReject:
		return "REJ"
	case CMReply:
		return "REP"
	case CMReadyToUse:
		return "RTU"
	case CMDisconnectRequest:
		return "DREQ"
	case CMDisconnectReply:
		return "DREP"
	}
	return fmt.Sprintf("CM 0x%04x", uint16(k))
}

// CM is what a communication management message says about queue pairs (IBTA volume 1, 12.6).
type CM struct {
	Kind           CMKind
	LocalID        uint32 // the sender's communication identifier
	RemoteID       uint32 // the other side's; 0 in a request
	QPN            uint32 // REQ and REP: the sender's QP; DREQ: the receiver's
	PSN            uint32 // REQ and REP: where the sender's requests start
	ServiceID      uint64 // REQ
	RejectReason   uint16 // REJ
	RejectedByKind uint8  // REJ: which message was refused: 0 REQ, 1 REP, 2 none of them
}

// ParseCM reads a communication management message: mad is the header that ParseMAD returned, b the same bytes from their
// start. ok is false for other classes and for messages without connections in them.
func ParseCM(mad MAD, b []byte) (m CM, ok bool, err error) {
	m.Kind = CMKind(mad.Attribute)
	need := 0
	switch m.Kind {
	case CMRequest:
		need = 48
	case CMReply:
		need = 24
	case CMReject, CMDisconnectRequest:
		need = 12
	case CMReadyToUse, CMDisconnectReply, CMReceived:
		need = 8
	}
	if mad.Class != MADClassCM || need == 0 {
		return CM{}, false, nil
	}
	if len(b) < madHeaderLen+need {
		return CM{}, false, &LengthError{m.Kind.String(), madHeaderLen + need, len(b)}
	}
	b = b[madHeaderLen:]
	be := binary.BigEndian
	m.LocalID = be.Uint32(b)
	if m.Kind != CMRequest {
		m.RemoteID = be.Uint32(b[4:])
	}
	switch m.Kind {
	case CMRequest:
		m.ServiceID = be.Uint64(b[8:])
		m.QPN, m.PSN = be.Uint32(b[32:])>>8, be.Uint32(b[44:])>>8
	case CMReply:
		m.QPN, m.PSN = be.Uint32(b[12:])>>8, be.Uint32(b[20:])>>8
	case CMDisconnectRequest:
		m.QPN = be.Uint32(b[8:]) >> 8
	case CMReject:
		m.RejectedByKind, m.RejectReason = b[8]>>6, be.Uint16(b[10:])
	}
	return m, true, nil
}
