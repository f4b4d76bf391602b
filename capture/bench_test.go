package capture

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"testing"
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
