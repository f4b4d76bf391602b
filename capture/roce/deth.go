package roce

import "encoding/binary"

// Lengths of the datagram headers.
const (
	DETHLen   = 8
	RDETHLen  = 4 // reliable datagram: reserved(8) EE context(24)
	XRCETHLen = 4 // extended reliable connection: reserved(8) XRC SRQ(24)
	FETHLen   = 4 // flush: placement type and selectivity level
	ImmLen    = 4 // immediate data, and the R_Key of a SEND with invalidate
)

// DETH is the datagram extended transport header (IBTA volume 1, 9.3.2): Q_Key(4) reserved(1) source QP(3).
type DETH struct {
	QKey  uint32
	SrcQP uint32 // 24 bits
}

// Append appends the header's 8 bytes.
func (d DETH) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, d.QKey)
	return binary.BigEndian.AppendUint32(dst, d.SrcQP&0xffffff)
}

// ParseDETH reads a header from the start of b and returns how many bytes it took.
func ParseDETH(b []byte) (DETH, int, error) {
	if len(b) < DETHLen {
		return DETH{}, 0, &LengthError{"DETH", DETHLen, len(b)}
	}
	return DETH{QKey: binary.BigEndian.Uint32(b), SrcQP: binary.BigEndian.Uint32(b[4:]) & 0xffffff}, DETHLen, nil
}
