package capture

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"testing"

	"github.com/pcmlab/pcmlab/capture/roce"
)

func BenchmarkNext(b *testing.B) {
	o := binary.LittleEndian
	for _, size := range []int{128, 4096} {
		ng := append(ngSection(o), ngIface(o, 1, 0, ngOpt(o, optTSResolution, []byte{9}))...)
		var recs [][]uint32
		for range 8 << 20 / size {
			ng = append(ng, ngEPB(o, 0, 5, string(make([]byte, size)), uint32(size))...)
			recs = append(recs, []uint32{1, 2, uint32(size), uint32(size)})
		}
		classic := pcapBytes(o, magicMicro, recs...)
		for name, file := range map[string][]byte{"pcap": classic, "pcapng": ng} {
			b.Run(fmt.Sprintf("%s/size=%d", name, size), func(b *testing.B) {
				b.SetBytes(int64(len(file)))
				b.ReportAllocs()
				packets := 0
				for b.Loop() {
					r, err := NewReader(bytes.NewReader(file), "bench")
					if err != nil {
						b.Fatal(err)
					}
					var p Packet
					for {
						if err := r.Next(&p); err == io.EOF {
							break
						} else if err != nil {
							b.Fatal(err)
						}
						packets++
					}
				}
				b.ReportMetric(float64(packets)/b.Elapsed().Seconds()/1e6, "Mpkts/s")
			})
		}
	}
}

// What analysis starts from: every packet of a capture read and decoded.
func BenchmarkNextAndDecode(b *testing.B) {
	o := binary.LittleEndian
	for _, size := range []int{128, 4096} {
		ng := append(ngSection(o), ngIface(o, 1, 0, ngOpt(o, optTSResolution, []byte{9}))...)
		for i := range 8 << 20 / size {
			ng = append(ng, ngEPB(o, 0, uint64(i), string(frameOf(size)), 4170)...)
		}
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			b.SetBytes(int64(len(ng)))
			packets, roces := 0, 0
			for b.Loop() {
				r, err := NewReader(bytes.NewReader(ng), "bench")
				if err != nil {
					b.Fatal(err)
				}
				var p Packet
				var f roce.Frame
				for {
					if err := r.Next(&p); err == io.EOF {
						break
					} else if err != nil {
						b.Fatal(err)
					}
					_ = f.Decode(p.LinkType, p.Data, p.OrigLen, roce.Port)
					packets++
					if f.Kind == roce.KindRoCE {
						roces++
					}
				}
			}
			if roces != packets {
				b.Fatalf("%d of %d packets are RoCE", roces, packets)
			}
			b.ReportMetric(float64(packets)/b.Elapsed().Seconds()/1e6, "Mpkts/s")
		})
	}
}

// frameOf is the first size bytes of a WRITE MIDDLE of 4 KiB.
func frameOf(size int) []byte {
	b := []byte{2, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 2, 0x10, 0x2c, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
		0xc0, 0, 0x12, 0xb7, 0x10, 0x18, 0, 0}
	b = roce.BTH{Opcode: roce.RCWriteMiddle, PKey: roce.DefaultPKey, DestQP: 5, PSN: 6}.Append(b)
	return append(b, make([]byte, max(0, size-len(b)))...)
}

func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{64, 128, 4096} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			w, err := NewWriter(io.Discard, WriterOptions{Interfaces: []Interface{{LinkType: 1}}})
			if err != nil {
				b.Fatal(err)
			}
			p := Packet{TimeNS: 1, Data: make([]byte, size), OrigLen: size}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if err := w.Write(&p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
