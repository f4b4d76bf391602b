package roce

import (
	"fmt"
	"testing"
)

// packetOf builds an Ethernet frame of exactly n bytes with a WRITE FIRST in it.
func packetOf(n int, v6 bool) []byte {
	l3 := ipv4Len
	if v6 {
		l3 = ipv6Len
	}
	payload := n - ethLen - l3 - udpLen - BTHLen - RETHLen - ICRCLen
	op := RCWriteFirst
	if payload < 0 {
		op = RCWriteMiddle
		payload += RETHLen
	}
	if payload < 0 {
		op, payload = RCWriteMiddle, 0
	}
	return buildFrame(buildOptions{v6: v6, bth: BTH{Opcode: op, PKey: DefaultPKey, DestQP: 0x11, PSN: 0x1234}, payload: make([]byte, payload&^3), tos: 0x6a})
}

func BenchmarkDecode(b *testing.B) {
	for _, v6 := range []bool{false, true} {
		for _, size := range []int{64, 128, 256, 4096 + 74} {
			p := packetOf(size, v6)
			b.Run(fmt.Sprintf("v6=%v/size=%d", v6, len(p)), func(b *testing.B) {
				var f Frame
				b.ReportAllocs()
				for b.Loop() {
					if err := f.Decode(LinkEthernet, p, len(p), 0); err != nil || f.Kind != KindRoCE {
						b.Fatal(err, f.Kind)
					}
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mpkts/s")
			})
		}
	}
}

func BenchmarkDecodeAndCheckICRC(b *testing.B) {
	for _, v6 := range []bool{false, true} {
		for _, size := range []int{64, 128, 256, 4096 + 74} {
			p := packetOf(size, v6)
			b.Run(fmt.Sprintf("v6=%v/size=%d", v6, len(p)), func(b *testing.B) {
				var f Frame
				b.ReportAllocs()
				b.SetBytes(int64(len(p)))
				for b.Loop() {
					if err := f.Decode(LinkEthernet, p, len(p), 0); err != nil || f.Kind != KindRoCE {
						b.Fatal(err, f.Kind)
					}
					if ok, checked := f.CheckICRC(p); !ok || !checked {
						b.Fatal(ok, checked)
					}
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mpkts/s")
			})
		}
	}
}

func BenchmarkICRCv4Sender(b *testing.B) {
	for _, size := range []int{64, 1024, 4096} {
		p := make([]byte, BTHLen+size)
		b.Run(fmt.Sprintf("payload=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(p)))
			var sum uint32
			for b.Loop() {
				sum += ICRCv4([4]byte{192, 0, 2, 1}, [4]byte{192, 0, 2, 2}, 50000, Port, 0, true, p)
			}
			if sum == 1 {
				b.Log(sum)
			}
		})
	}
}
