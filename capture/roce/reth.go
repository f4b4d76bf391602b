package roce

import "encoding/binary"

// RETHLen is the length of an RDMA extended transport header.
const RETHLen = 16

// RETH is the RDMA extended transport header (IBTA volume 1, 9.3.3): virtual address(8) R_Key(4) DMA length(4).
type RETH struct {
	VA     uint64
	RKey   uint32
	DMALen uint32 // bytes of the whole message
}

// Append appends the header's 16 bytes.
func (r RETH) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, r.VA)
	dst = binary.BigEndian.AppendUint32(dst, r.RKey)
	return binary.BigEndian.AppendUint32(dst, r.DMALen)
}

// ParseRETH reads a header from the start of b and returns how many bytes it took.
func ParseRETH(b []byte) (RETH, int, error) {
	if len(b) < RETHLen {
		return RETH{}, 0, &LengthError{"RETH", RETHLen, len(b)}
	}
	return RETH{
		VA:     binary.BigEndian.Uint64(b[0:8]),
		RKey:   binary.BigEndian.Uint32(b[8:12]),
		DMALen: binary.BigEndian.Uint32(b[12:16]),
	}, RETHLen, nil
}
