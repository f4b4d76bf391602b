package verbs

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Version of the steering protocol.
const Version = 1

const (
	headLen   = 8
	deviceLen = 64
	textLen   = 480
	bufferLen = 1024
)

type msgType uint8

const (
	typeOpen    msgType = 1
	typeQP      msgType = 2
	typeConnect msgType = 3
	typePost    msgType = 4
	typePace    msgType = 5
	typeClose   msgType = 6

	typeOpened  msgType = 65
	typeMade    msgType = 66
	typeOK      msgType = 67
	typeError   msgType = 68
	typePosted  msgType = 69
	typeAcked   msgType = 70
	typeArrived msgType = 71
	typeFailed  msgType = 72
)

var typeNames = map[msgType]string{
	typeOpen: "OPEN", typeQP: "QP", typeConnect: "CONNECT", typePost: "POST", typePace: "PACE", typeClose: "CLOSE",
	typeOpened: "OPENED", typeMade: "MADE", typeOK: "OK", typeError: "ERROR", typePosted: "POSTED", typeAcked: "ACKED",
	typeArrived: "ARRIVED", typeFailed: "FAILED",
}

func (t msgType) String() string {
	if s := typeNames[t]; s != "" {
		return s
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// The flags of OPEN.
const (
	flagSpin      = 1
	flagNoNICRate = 2
)

// Fixed layouts, as program/steer.h has them; encoding/binary lays them out without holes.
type (
	head struct {
		Version uint8
		Type    msgType
		Length  uint16
		Tag     uint32
	}
	openMsg struct {
		Device        [deviceLen]byte
		Address       [16]byte
		GIDIndex      int32
		Port          uint32
		Region        uint64
		MaxQPs, Flags uint32
	}
	qpMsg      struct{}
	connectMsg struct {
		QP, DestQP, PSN, DestPSN         uint32
		GID                              [16]byte
		Address, Region                  uint64
		RKey, MTU                        uint32
		TClass, Timeout, Retry, HopLimit uint8
		Zero                             uint32
	}
	postMsg struct {
		QP, Immediate       uint32
		Message, From, UpTo uint64
		Segment, Empty      uint32
	}
	paceMsg struct {
		QP, Window uint32
		Rate       uint64
	}
	closeMsg  struct{ QP, Zero uint32 }
	openedMsg struct {
		Device           [deviceLen]byte
		GID              [16]byte
		GIDIndex         int32
		MTU              uint32
		Address, Region  uint64
		RKey, MaxQPs     uint32
		Depth, Zero      uint32
		RateMin, RateMax uint64
	}
	madeMsg  struct{ QP, PSN uint32 }
	okMsg    struct{ QP, Value uint32 }
	errorMsg struct {
		QP   uint32
		Code int32
		Text [textLen]byte
	}
	progressMsg struct {
		QP, Flight    uint32
		Message, UpTo uint64
		At, RTT       uint64
	}
	arrivedMsg struct {
		QP, Immediate  uint32
		Octets, At     uint64
		Messages, Zero uint32
	}
)

// encode lays out a message.
func encode(t msgType, tag uint32, body any) []byte {
	n := headLen + binary.Size(body)
	b, err := binary.Append(make([]byte, 0, n), binary.NativeEndian, head{Version, t, uint16(n), tag})
	if err == nil {
		b, err = binary.Append(b, binary.NativeEndian, body)
	}
	if err != nil {
		panic(err) // a layout above is not of fixed size
	}
	return b
}

// decodeHead takes a report's head off and checks it.
func decodeHead(b []byte) (h head, body []byte, err error) {
	if len(b) < headLen {
		return head{}, nil, fmt.Errorf("steering: %d octets, a head has %d", len(b), headLen)
	}
	if _, err := binary.Decode(b, binary.NativeEndian, &h); err != nil {
		return head{}, nil, err
	}
	if h.Version != Version {
		return head{}, nil, fmt.Errorf("steering: the program speaks version %d, this endpoint version %d: they are of different builds", h.Version, Version)
	}
	if int(h.Length) != len(b) {
		return head{}, nil, fmt.Errorf("steering: %s says that it has %d octets, and has %d", h.Type, h.Length, len(b))
	}
	return h, b[headLen:], nil
}

// decode fills body, which must be as long as what came.
func decode(t msgType, b []byte, body any) error {
	if n := binary.Size(body); n != len(b) {
		return fmt.Errorf("steering: %s of %d octets, want %d", t, headLen+len(b), headLen+n)
	}
	_, err := binary.Decode(b, binary.NativeEndian, body)
	return err
}

// text is a string of fixed room that ends with a zero.
func text(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
