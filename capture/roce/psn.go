package roce

// PSNMask is the width of a packet sequence number (and of a message sequence number): 24 bits.
const PSNMask = 1<<24 - 1

// PSNAdd is psn + n in 24-bit arithmetic; n may be negative.
func PSNAdd(psn uint32, n int) uint32 { return uint32(int(psn)+n) & PSNMask }

// PSNDiff is a - b as a signed 24-bit number, in [-2^23, 2^23): positive when a comes after b.
func PSNDiff(a, b uint32) int { return int(int32((a-b)<<8) >> 8) }
