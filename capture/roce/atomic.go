package roce

import "encoding/binary"

// Lengths of the atomic headers.
const (
	AtomicETHLen    = 28
	AtomicAckETHLen = 8
)

// AtomicETH is the atomic request header (IBTA volume 1, 9.3.6): virtual address(8) R_Key(4) swap or add(8) compare(8).
type AtomicETH struct {
	VA        uint64
	RKey      uint32
	SwapOrAdd uint64
	Compare   uint64
}

// Append appends the header's 28 bytes.
func (a AtomicETH) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, a.VA)
	dst = binary.BigEndian.AppendUint32(dst, a.RKey)
	dst = binary.BigEndian.AppendUint64(dst, a.SwapOrAdd)
	return binary.BigEndian.AppendUint64(dst, a.Compare)
}

// ParseAtomicETH reads a header from the start of b and returns how many bytes it took.
func ParseAtomicETH(b []byte) (AtomicETH, int, error) {
	if len(b) < AtomicETHLen {
		return AtomicETH{}, 0, &LengthError{"AtomicETH", AtomicETHLen, len(b)}
	}
	return AtomicETH{
		VA:        binary.BigEndian.Uint64(b),
		RKey:      binary.BigEndian.Uint32(b[8:]),
		SwapOrAdd: binary.BigEndian.Uint64(b[12:]),
		Compare:   binary.BigEndian.Uint64(b[20:]),
	}, AtomicETHLen, nil
}

// AtomicAckETH is the atomic acknowledgement header: the value that was in memory before.
type AtomicAckETH struct{ Original uint64 }

// Append appends the header's 8 bytes.
func (a AtomicAckETH) Append(dst []byte) []byte {
	return binary.BigEndian.AppendUint64(dst, a.Original)
}

// ParseAtomicAckETH reads a header from the start of b and returns how many bytes it took.
func ParseAtomicAckETH(b []byte) (AtomicAckETH, int, error) {
	if len(b) < AtomicAckETHLen {
		return AtomicAckETH{}, 0, &LengthError{"AtomicAckETH", AtomicAckETHLen, len(b)}
	}
	return AtomicAckETH{Original: binary.BigEndian.Uint64(b)}, AtomicAckETHLen, nil
}
