package opaque

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"
)

// FuzzDecode: what is accepted is written again octet by octet the same, flags that mean nothing aside.
func FuzzDecode(f *testing.F) {
	d := Packet{Data: true, Assoc: 1, Stamp: 2, Value: 3, Offset: 4, Length: 100}
	b := append(d.AppendHeader(nil), "payload"...)
	Seal(b)
	f.Add(b)
	a := Packet{Assoc: 1, Value: 3, Cumulative: 10, Ranges: [MaxRanges]Range{{20, 30}, {40, 50}}, NumRanges: 2, Packets: 9, CE: 1}
	f.Add(a.AppendAck(nil))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) >= HeaderSize { // let the fuzzer past the checksum
			in = bytes.Clone(in)
			Seal(in)
		}
		var p Packet
		if p.Decode(in) != nil {
			return
		}
		var out []byte
		if p.Data {
			out = append(p.AppendHeader(nil), p.Payload...)
			out[2], out[3] = in[2], in[3]
		} else {
			out = p.AppendAck(nil)
		}
		out[1] = in[1]
		Seal(out)
		if !bytes.Equal(in, out) {
			t.Errorf("%x\nis written again as\n%x", in, out)
		}
	})
}

// FuzzMessage drives both ends of a message with arbitrary packets: no crash, octets counted as a plain map counts them,
// and the account of what is in flight never below zero.
func FuzzMessage(f *testing.F) {
	f.Add([]byte{0, 0, 10, 1, 5, 20, 2, 0, 3, 0, 30, 9})
	f.Add(bytes.Repeat([]byte{0, 200, 1, 1, 9, 3}, 40))
	f.Fuzz(func(t *testing.T, ops []byte) {
		const length = 256
		in, path := NewInbound(length), NewPath(7, 20, time.Millisecond)
		o := NewOutbound(path, 7, length)
		seen := map[uint64]bool{}
		now := time.Millisecond
		for len(ops) >= 3 {
			what, x, y := ops[0]%4, uint64(ops[1]), uint64(ops[2])
			ops = ops[3:]
			now += time.Duration(y) * time.Microsecond * 20
			switch what {
			case 0:
				p := Packet{Offset: x, Length: length, Payload: make([]byte, y)}
				fresh, _, ok := in.Take(&p, y%3 == 0, nil)
				for _, r := range fresh {
					for i := r.First; i < r.End; i++ {
						if seen[i] || !ok || i < x || i >= x+y {
							t.Fatalf("octet %d is fresh again, or was not in %d+%d", i, x, y)
						}
						seen[i] = true
					}
				}
				if in.Octets() != uint64(len(seen)) {
					t.Fatalf("%d octets counted, %d have come", in.Octets(), len(seen))
				}
			case 1:
				if r, _, ok := o.Next(now, x); ok && r.End > x && r.First >= o.sent {
					t.Fatalf("%v is beyond %d", r, x)
				}
			case 2:
				a := Packet{Cumulative: x, Packets: uint32(y), Stamp: Stamp(now) - uint32(y)}
				if y > x+1 {
					a.Ranges[0], a.NumRanges = Range{x + 1, y}, 1
				}
				o.Ack(now, &a)
			case 3:
				if binary.NativeEndian.Uint16([]byte{byte(x), byte(y)})%5 == 0 {
					o.Forget()
				} else {
					o.Timeout(now)
				}
			}
			under := uint64(0)
			for i := range o.n {
				if s := o.at(i); !s.acked && !s.lost {
					under += s.End - s.First
				}
			}
			if path.inFlight != under {
				t.Fatalf("%d octets in flight by account, %d by count", path.inFlight, under)
			}
		}
	})
}
