package engine

import (
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/nicbackends/softnic/qp"
)

// FuzzReceive feeds datagrams whose ICRC is made valid, so that the fuzzer gets past it. Each datagram is accounted for
// once: as malformed, for no queue pair, or given to one; and what the NIC answers decodes with a valid ICRC.
func FuzzReceive(f *testing.F) {
	body := func(b roce.BTH, rest ...byte) []byte { b.PKey = 0xffff; return append(b.Append(nil), rest...) }
	f.Add(body(roce.BTH{Opcode: roce.RCWriteOnly, DestQP: 0x11, AckReq: true}, make([]byte, 24)...))
	f.Add(body(roce.BTH{Opcode: roce.CNP, DestQP: 0x11, BECN: true}, make([]byte, 16)...))
	f.Add(body(roce.BTH{Opcode: roce.RCAck, DestQP: 0x11}, 0x1f, 0, 0, 1))
	f.Add(body(roce.BTH{Opcode: roce.RCSendOnly, DestQP: 0x11, Pad: 3}, 1, 2, 3, 4))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		w := newWorld(t, 2, 1, func(c *Config) { c.Random = func() uint32 { return 0 }; c.DCQCN = true })
		for _, n := range w.nics {
			key := uint32(0)
			n.c.Random = func() uint32 { key++; return key }
		}
		x := w.connect(0, 1)
		_ = x.y.PostRecv(qp.RecvRequest{})
		n := w.nics[1]
		data := append(append([]byte(nil), b...), 0, 0, 0, 0)
		if len(b) >= roce.BTHLen {
			data = roce.AppendICRC(data[:len(b)], roce.ICRCv4(hostIP(0), hostIP(1), 0xc000, roce.Port, 0, true, b))
		}
		n.Receive(time.Second, &Header{Src: hostIP(0), SrcPort: 0xc000, TOS: 3, DF: true}, data)
		c := n.Counters()
		if c.RxRoCEPackets != 1 || c.RxICRCErrors != 0 || c.RxMalformed+c.RxUnknownQP > 1 {
			t.Fatalf("counters %+v", c)
		}
		if c.RxMalformed+c.RxUnknownQP == 1 && (c.NPECNMarked != 0 || c.RxPayloadBytes != 0 || len(n.due) != 0) {
			t.Fatalf("a refused datagram had effects: %+v", c)
		}
		buf := make([]byte, 4160)
		var d Datagram
		var r roce.Frame
		for k := 0; n.Transmit(time.Second, buf, &d); k++ {
			frame := asFrame(hostIP(1), d.Dst, d.SrcPort, d.TOS, buf[:d.Len])
			if err := r.Decode(roce.LinkEthernet, frame, len(frame), roce.Port); err != nil || r.Kind != roce.KindRoCE || k > 2 {
				t.Fatalf("answer %d: %v, kind %v", k, err, r.Kind)
			}
			if ok, checked := r.CheckICRC(frame); !ok || !checked {
				t.Fatalf("answer %v: ICRC ok=%v checked=%v", r.BTH.Opcode, ok, checked)
			}
		}
	})
}
