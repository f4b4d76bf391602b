package roce

import (
	"encoding/binary"
	"errors"
	"testing"
)

// madBytes writes a management datagram by hand: the header's fields at their places (IBTA volume 1, 13.4.3), then words of
// the message from byte 24 on.
func madBytes(class uint8, attribute uint16, words map[int]uint32) []byte {
	b := make([]byte, MADLen)
	copy(b, []byte{1, class, 2, 3})
	binary.BigEndian.PutUint64(b[8:], 0x0102030405060708)
	binary.BigEndian.PutUint16(b[16:], attribute)
	for at, v := range words {
		binary.BigEndian.PutUint32(b[24+at:], v)
	}
	return b
}

// Every connection message on the wire, QP 1 to QP 1 as UD, and what is no connection message.
func TestParseCM_byHand(t *testing.T) {
	for _, tt := range []struct {
		name, why string
		class     uint8
		attribute uint16
		words     map[int]uint32
		want      CM
		ok        bool
	}{
		{"req", "12.6.5: QPN in bytes 32 to 34, starting PSN in 44 to 46", 7, 0x10,
			map[int]uint32{0: 0xa1, 8: 0x01060000, 12: 0x4853, 32: 0xabcdef << 8, 36: 0xffffffff, 44: 0x123456<<8 | 0x5a},
			CM{Kind: CMRequest, LocalID: 0xa1, ServiceID: 0x0106000000004853, QPN: 0xabcdef, PSN: 0x123456}, true},
		{"mra", "12.6.6: the other side asks for time", 7, 0x11, map[int]uint32{0: 0xb1, 4: 0xa1, 8: 0x40 << 24},
			CM{Kind: CMReceived, LocalID: 0xb1, RemoteID: 0xa1}, true},
		{"rej_of_req", "12.6.7: reason 28 is consumer reject", 7, 0x12, map[int]uint32{4: 0xa1, 8: 28}, CM{Kind: CMReject, RemoteID: 0xa1, RejectReason: 28}, true},
		{"rej_of_rep", "the two bits that say which message was refused", 7, 0x12, map[int]uint32{0: 0xa1, 4: 0xb1, 8: 1<<30 | 4},
			CM{Kind: CMReject, LocalID: 0xa1, RemoteID: 0xb1, RejectedByKind: 1, RejectReason: 4}, true},
		{"rep", "12.6.8: QPN in bytes 12 to 14, starting PSN in 20 to 22", 7, 0x13, map[int]uint32{0: 0xb1, 4: 0xa1, 12: 0x000011 << 8, 20: 0xfffffe << 8},
			CM{Kind: CMReply, LocalID: 0xb1, RemoteID: 0xa1, QPN: 0x11, PSN: 0xfffffe}, true},
		{"rtu", "12.6.9", 7, 0x14, map[int]uint32{0: 0xa1, 4: 0xb1}, CM{Kind: CMReadyToUse, LocalID: 0xa1, RemoteID: 0xb1}, true},
		{"dreq", "12.6.10: the QP that is asked to end", 7, 0x15, map[int]uint32{0: 0xa1, 4: 0xb1, 8: 0x11 << 8}, CM{Kind: CMDisconnectRequest, LocalID: 0xa1, RemoteID: 0xb1, QPN: 0x11}, true},
		{"drep", "12.6.11", 7, 0x16, map[int]uint32{0: 0xb1, 4: 0xa1}, CM{Kind: CMDisconnectReply, LocalID: 0xb1, RemoteID: 0xa1}, true},
		{"sidr", "service resolution has no connection in it", 7, 0x17, nil, CM{}, false},
		{"class_port_info", "", 7, 0x01, nil, CM{}, false},
		{"subnet_administration", "another class with the same attribute number", 3, 0x10, nil, CM{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			packet := buildFrame(buildOptions{bth: BTH{Opcode: UDSendOnly, DestQP: 1}, headers: DETH{QKey: 0x80010000, SrcQP: 1}.Append(nil),
				payload: madBytes(tt.class, tt.attribute, tt.words)})
			var f Frame
			if err := f.Decode(LinkEthernet, packet, 0, 0); err != nil || !f.IsMAD() || !f.HasDETH || f.DETH.SrcQP != 1 {
				t.Fatalf("%v, %v, MAD %v", err, f.Kind, f.IsMAD())
			}
			mad, _, err := ParseMAD(f.Payload)
			if err != nil || mad != (MAD{Class: tt.class, Method: 3, TID: 0x0102030405060708, Attribute: tt.attribute}) {
				t.Fatalf("%+v, %v", mad, err)
			}
			m, ok, err := ParseCM(mad, f.Payload)
			if err != nil || ok != tt.ok || m != tt.want {
				t.Fatalf("%+v, %v, %v; want %+v, %v", m, ok, err, tt.want, tt.ok)
			}
			if !ok {
				return
			}
			if _, ok, err := ParseCM(mad, f.Payload[:24]); ok || !errors.Is(err, ErrTruncated) {
				t.Errorf("a message without a body: %v, %v", ok, err)
			}
		})
	}
	for _, tt := range []struct {
		op  Opcode
		qp  uint32
		mad bool
	}{{UDSendOnly, 1, true}, {UDSendOnly, 2, false}, {RCSendOnly, 1, false}} {
		var f Frame
		if err := f.Decode(LinkEthernet, buildFrame(buildOptions{bth: BTH{Opcode: tt.op, DestQP: tt.qp}}), 0, 0); err != nil || f.IsMAD() != tt.mad {
			t.Errorf("%v to QP %d: MAD %v, %v", tt.op, tt.qp, f.IsMAD(), err)
		}
	}
}
