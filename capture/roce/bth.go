package roce

import "encoding/binary"

// BTHLen is the length of a base transport header.
const BTHLen = 12

// DefaultPKey is the partition key that RoCE uses: full member of the default partition.
const DefaultPKey = 0xffff

// BTH is the base transport header (IBTA volume 1, 9.2):
//
//	byte 0   opcode
//	byte 1   SE(1) M(1) PadCnt(2) TVer(4)
//	byte 2-3 P_Key
//	byte 4   FECN(1) BECN(1) reserved(6)   "resv8a": not covered by the ICRC
//	byte 5-7 destination QP
//	byte 8   A(1) reserved(7)
//	byte 9-11 PSN
type BTH struct {
	Opcode    Opcode
	Solicited bool  // solicited event
	MigReq    bool  // automatic path migration state
	Pad       uint8 // bytes of pad after the payload, 0 to 3
	Version   uint8 // transport version, 0
	PKey      uint16
	FECN      bool
	BECN      bool
	DestQP    uint32 // 24 bits
	AckReq    bool
	PSN       uint32 // 24 bits
}

// Append appends the header's 12 bytes. Fields wider than their place are cut to it, so that it cannot fail.
func (b BTH) Append(dst []byte) []byte {
	flags := b.Pad&3<<4 | b.Version&0xf
	if b.Solicited {
		flags |= 0x80
	}
	if b.MigReq {
		flags |= 0x40
	}
	var ecn, ack uint8
	if b.FECN {
		ecn |= 0x80
	}
	if b.BECN {
		ecn |= 0x40
	}
	if b.AckReq {
		ack = 0x80
	}
	return append(dst, byte(b.Opcode), flags, byte(b.PKey>>8), byte(b.PKey),
		ecn, byte(b.DestQP>>16), byte(b.DestQP>>8), byte(b.DestQP),
		ack, byte(b.PSN>>16), byte(b.PSN>>8), byte(b.PSN))
}

// ParseBTH reads a header from the start of b and returns how many bytes it took. Reserved bits are ignored.
func ParseBTH(b []byte) (BTH, int, error) {
	if len(b) < BTHLen {
		return BTH{}, 0, &LengthError{"BTH", BTHLen, len(b)}
	}
	var h BTH
	h.decode((*[BTHLen]byte)(b))
	return h, BTHLen, nil
}

func (h *BTH) decode(b *[BTHLen]byte) {
	qp := binary.BigEndian.Uint32(b[4:8])
	psn := binary.BigEndian.Uint32(b[8:12])
	h.Opcode = Opcode(b[0])
	h.Solicited = b[1]&0x80 != 0
	h.MigReq = b[1]&0x40 != 0
	h.Pad = b[1] >> 4 & 3
	h.Version = b[1] & 0xf
	h.PKey = binary.BigEndian.Uint16(b[2:4])
	h.FECN = qp&(1<<31) != 0
	h.BECN = qp&(1<<30) != 0
	h.DestQP = qp & 0xffffff
	h.AckReq = psn&(1<<31) != 0
	h.PSN = psn & 0xffffff
}
