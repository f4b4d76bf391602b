package roce

import (
	"fmt"
	"time"
)

// AETHLen is the length of an acknowledgement extended transport header.
const AETHLen = 4

// AETH is the acknowledgement extended transport header (IBTA volume 1, 9.3.5 and 9.7.5.1): syndrome(8) MSN(24).
//
//	syndrome 0 00 CCCCC  ACK, C = encoded end-to-end credits (31: none kept)
//	         0 01 TTTTT  RNR NAK, T = encoded time to wait
//	         0 11 NNNNN  NAK, N = code
type AETH struct {
	Syndrome uint8
	MSN      uint32 // 24 bits
}

// AETHKind is what an acknowledgement says.
type AETHKind uint8

// Kinds of acknowledgement.
const (
	Ack AETHKind = iota
	RNRNak
	Nak
	AETHReserved
)

// String is the kind's name.
func (k AETHKind) String() string {
	return [...]string{"ACK", "RNR NAK", "NAK", "reserved"}[min(k, AETHReserved)]
}

// NakCode is the reason in a NAK (IBTA volume 1, table 48).
type NakCode uint8

// Reasons for a NAK.
const (
	NakSequence          NakCode = 0 // PSN sequence error
	NakInvalidRequest    NakCode = 1
	NakRemoteAccess      NakCode = 2
	NakRemoteOperational NakCode = 3
	NakInvalidRDRequest  NakCode = 4
)

// String is the code's name in lower_snake, as used in result files.
func (c NakCode) String() string {
	switch c {
	case NakSequence:
		return "sequence"
	case NakInvalidRequest:
		return "invalid"
	case NakRemoteAccess:
		return "access"
	case NakRemoteOperational:
		return "remote"
	case NakInvalidRDRequest:
		return "invalid_rd"
	}
	return fmt.Sprintf("code_%d", uint8(c))
}

// CreditsUnlimited is the credit field of a responder that keeps no end-to-end credits.
const CreditsUnlimited = 31

// AckSyndrome builds the syndrome of an ACK from an encoded credit field (CreditsUnlimited where none are kept).
func AckSyndrome(credits uint8) uint8 { return credits & 0x1f }

// NakSyndrome builds the syndrome of a NAK.
func NakSyndrome(code NakCode) uint8 { return 0x60 | uint8(code)&0x1f }

// RNRSyndrome builds the syndrome of an RNR NAK from an encoded timer.
func RNRSyndrome(timer uint8) uint8 { return 0x20 | timer&0x1f }

// Kind says whether it is an ACK, an RNR NAK or a NAK.
func (a AETH) Kind() AETHKind {
	switch a.Syndrome >> 5 {
	case 0:
		return Ack
	case 1:
		return RNRNak
	case 3:
		return Nak
	}
	return AETHReserved
}

// Code is the reason of a NAK; for other kinds it means nothing.
func (a AETH) Code() NakCode { return NakCode(a.Syndrome & 0x1f) }

// Credits decodes the credit count of an ACK (IBTA volume 1, table 46). limited is false when the responder keeps none.
func (a AETH) Credits() (n int, limited bool) {
	c := int(a.Syndrome & 0x1f)
	switch {
	case c == CreditsUnlimited:
		return 0, false
	case c < 4:
		return c, true
	}
	// 4, 6, 8, 12, 16, 24, ... : two steps per power of two
	return (2 + c&1) << (c/2 - 1), true
}

// RNRTimer decodes the waiting time of an RNR NAK (IBTA volume 1, table 45).
func (a AETH) RNRTimer() time.Duration {
	const step = 10 * time.Microsecond
	c := int(a.Syndrome & 0x1f)
	switch {
	case c == 0:
		return 65536 * step
	case c < 4:
		return time.Duration(c) * step
	}
	return time.Duration((2+c&1)<<(c/2-1)) * step
}

// Append appends the header's 4 bytes.
func (a AETH) Append(dst []byte) []byte {
	return append(dst, a.Syndrome, byte(a.MSN>>16), byte(a.MSN>>8), byte(a.MSN))
}

// ParseAETH reads a header from the start of b and returns how many bytes it took.
func ParseAETH(b []byte) (AETH, int, error) {
	if len(b) < AETHLen {
		return AETH{}, 0, &LengthError{"AETH", AETHLen, len(b)}
	}
	return AETH{Syndrome: b[0], MSN: uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])}, AETHLen, nil
}
