package opaque

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// Every packet begins with 40 octets, in network byte order:
//
//	 0                   1                   2                   3
//	+-------+-------+---------------+-------------------------------+
//	|Version| Type  |     Flags     |  ranges (ACK), 0 (DATA)       |
//	+-------+-------+---------------+-------------------------------+
//	|               CRC-32C of the packet, this field zero          |
//	+---------------------------------------------------------------+
//	|               Association ID of RDCC                          |
//	+---------------------------------------------------------------+
//	|               DATA: microseconds of its sender's clock. ACK: those of the newest packet
//	+---------------------------------------------------------------+
//	|               Identifier, the Binding Value (64 bits)         |
//	+---------------------------------------------------------------+
//	|               DATA: offset of the payload (64 bits). ACK: all octets below have arrived
//	+---------------------------------------------------------------+
//	|               DATA: length of the message (64 bits).          |
//	|               ACK: packets that arrived (32), of them CE (32) |
//	+---------------------------------------------------------------+
//
// DATA goes on with the payload; ACK with ranges of 16 octets each, first octet and the one after the last, of what has
// arrived above. The range of the newest packet is first.
const (
	HeaderSize = 40
	version    = 1
	typeData   = 1
	typeAck    = 2

	rangeSize = 16
	// MaxRanges is how many ranges an acknowledgement has at most.
	MaxRanges = 16
	// MaxAck is the longest acknowledgement.
	MaxAck = HeaderSize + MaxRanges*rangeSize
)

// FlagAgain marks data that is sent again.
const FlagAgain = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Mistakes of packets, all of which are discarded.
var (
	ErrShort    = errors.New("opaque: shorter than its header or ranges")
	ErrVersion  = errors.New("opaque: another version or type")
	ErrChecksum = errors.New("opaque: wrong checksum")
	ErrLimits   = errors.New("opaque: octets outside the message, or a range that is none")
)

// Range is octets from First up to, and without, End.
type Range struct{ First, End uint64 }

// Packet is a packet in either direction.
type Packet struct {
	Data  bool // or an acknowledgement
	Again bool
	Assoc uint32
	Stamp uint32 // µs
	Value uint64

	Offset, Length uint64 // of DATA
	Payload        []byte // of DATA; part of what was decoded

	Cumulative  uint64 // of an acknowledgement
	Packets, CE uint32
	Ranges      [MaxRanges]Range
	NumRanges   int
}

// AppendHeader appends the header of a DATA packet; Seal it when the payload is behind it.
func (p *Packet) AppendHeader(b []byte) []byte {
	flags := byte(0)
	if p.Again {
		flags = FlagAgain
	}
	b = append(b, version<<4|typeData, flags, 0, 0, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, p.Assoc)
	b = binary.BigEndian.AppendUint32(b, p.Stamp)
	b = binary.BigEndian.AppendUint64(b, p.Value)
	b = binary.BigEndian.AppendUint64(b, p.Offset)
	return binary.BigEndian.AppendUint64(b, p.Length)
}

// AppendAck appends a whole acknowledgement.
func (p *Packet) AppendAck(b []byte) []byte {
	start := len(b)
	b = append(b, version<<4|typeAck, 0, 0, byte(p.NumRanges), 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, p.Assoc)
	b = binary.BigEndian.AppendUint32(b, p.Stamp)
	b = binary.BigEndian.AppendUint64(b, p.Value)
	b = binary.BigEndian.AppendUint64(b, p.Cumulative)
	b = binary.BigEndian.AppendUint32(b, p.Packets)
	b = binary.BigEndian.AppendUint32(b, p.CE)
	for _, r := range p.Ranges[:p.NumRanges] {
		b = binary.BigEndian.AppendUint64(b, r.First)
		b = binary.BigEndian.AppendUint64(b, r.End)
	}
	Seal(b[start:])
	return b
}

// Seal writes the checksum of a packet. UDP's own is weak, and some hosts let the NIC make it up.
func Seal(packet []byte) {
	clear(packet[4:8])
	binary.BigEndian.PutUint32(packet[4:], crc32.Checksum(packet, castagnoli))
}

// sum is the checksum of a packet as if its field were zero.
func sum(packet []byte) uint32 {
	var zero [4]byte
	c := crc32.Update(0, castagnoli, packet[:4])
	c = crc32.Update(c, castagnoli, zero[:])
	return crc32.Update(c, castagnoli, packet[8:])
}

// Decode reads a packet. After an error p means nothing.
func (p *Packet) Decode(b []byte) error {
	if len(b) < HeaderSize {
		return ErrShort
	}
	if b[0]>>4 != version || b[0]&15 != typeData && b[0]&15 != typeAck {
		return ErrVersion
	}
	if binary.BigEndian.Uint32(b[4:]) != sum(b) {
		return ErrChecksum
	}
	p.Data, p.Again = b[0]&15 == typeData, b[1]&FlagAgain != 0
	p.Assoc, p.Stamp = binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])
	p.Value = binary.BigEndian.Uint64(b[16:])
	if p.Data {
		p.Offset, p.Length, p.Payload = binary.BigEndian.Uint64(b[24:]), binary.BigEndian.Uint64(b[32:]), b[HeaderSize:]
		if n := uint64(len(p.Payload)); n == 0 || p.Length < n || p.Offset > p.Length-n {
			return ErrLimits
		}
		return nil
	}
	p.Cumulative, p.Packets, p.CE = binary.BigEndian.Uint64(b[24:]), binary.BigEndian.Uint32(b[32:]), binary.BigEndian.Uint32(b[36:])
	p.NumRanges = int(binary.BigEndian.Uint16(b[2:]))
	if p.NumRanges > MaxRanges || len(b) != HeaderSize+p.NumRanges*rangeSize {
		return ErrShort
	}
	for i := range p.NumRanges {
		r := Range{binary.BigEndian.Uint64(b[HeaderSize+i*rangeSize:]), binary.BigEndian.Uint64(b[HeaderSize+i*rangeSize+8:])}
		if r.First >= r.End || r.First <= p.Cumulative {
			return ErrLimits
		}
		p.Ranges[i] = r
	}
	return nil
}
