package analysis_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/capture/roce"
)

func ExampleJain() {
	fair, _ := analysis.Jain([]float64{8.1, 8.0, 7.9})
	starved, _ := analysis.Jain([]float64{24, 0, 0})
	fmt.Printf("%.3f %.3f\n", fair, starved)
	// Output: 1.000 0.333
}

// ExampleRun writes a capture of ten RDMA WRITEs of 1000 bytes, 1 us apart, one of them CE-marked, and analyses it.
func ExampleRun() {
	path := filepath.Join(os.TempDir(), "pcmlab-example.pcap")
	defer os.Remove(path)
	if err := writeExample(path); err != nil {
		fmt.Println(err)
		return
	}
	names := map[netip.Addr]string{netip.MustParseAddr("192.0.2.1"): "h1"}
	doc, err := analysis.Run(context.Background(), []analysis.Input{{Path: path}}, analysis.Options{Names: names})
	if err != nil {
		fmt.Println(err)
		return
	}
	f := doc.Flows[0]
	fmt.Println(f.Label(), f.Operations, analysis.FormatRate(*f.GoodputBps), "CE", f.CEPackets, "of", f.Packets)
	fmt.Println("CNPs measured:", f.CNPs != nil)
	// Output:
	// h1 192.0.2.1>192.0.2.2:0x000011 write 10 8.89 Gb/s CE 1 of 10
	// CNPs measured: false
}

func writeExample(path string) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	w := capture.NewPcapWriter(out, roce.LinkRaw, 0)
	for i := range 10 {
		b := roce.BTH{Opcode: roce.RCWriteOnly, DestQP: 0x11, PSN: uint32(i), AckReq: true}.Append(nil)
		b = roce.RETH{DMALen: 1000}.Append(b)
		b = append(b, make([]byte, 1000+roce.ICRCLen)...)
		n := len(b) + 28
		tos := byte(roce.ECT0)
		if i == 4 {
			tos = roce.CE
		}
		ip := []byte{0x45, tos, byte(n >> 8), byte(n), 0, byte(i), 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
			0xc0, 0, 0x12, 0xb7, byte((n - 20) >> 8), byte(n - 20), 0, 0}
		at := time.Date(2026, 11, 29, 0, 0, 0, i*1000, time.UTC).UnixNano()
		if err := w.Write(&capture.Packet{TimeNS: at, Data: append(ip, b...), OrigLen: n, LinkType: roce.LinkRaw}); err != nil {
			return err
		}
	}
	return w.Flush()
}
