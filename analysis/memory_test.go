package analysis

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// heldBy is the heap that an analysis holds after its last packet.
func heldBy(tb testing.TB, o Options, data []byte) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := runOf(tb, o, data)
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(r)
	runtime.KeepAlive(data)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// TestRun_memoryIsBounded: ten times the packets of the same flows hold the same memory.
func TestRun_memoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("needs half a second")
	}
	held := func(packets int) int64 {
		return heldBy(t, Options{MaxCells: 1 << 14, Workers: 1}, benchCapture(t, packets, 200, true))
	}
	short, long := held(100_000), held(600_000)
	t.Logf("held: %d KiB after 100 k packets, %d KiB after 600 k", short>>10, long>>10)
	if long > short+short/2+1<<20 {
		t.Errorf("memory grew from %d to %d bytes with the length of the capture", short, long)
	}
}

// TestRun_memoryOfAFlow: what each further flow costs, with everything measured.
func TestRun_memoryOfAFlow(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a second")
	}
	o := Options{Workers: 1, LinkRateBps: 1e11, Bin: 1e9}
	for _, mixed := range []bool{false, true} {
		few, many := benchCapture(t, 500_000, 512, mixed), benchCapture(t, 1_500_000, 1536, mixed)
		a, b := heldBy(t, o, few), heldBy(t, o, many)
		each := (b - a) / 1024
		t.Logf("active flows of 1,000 packets, mixed %v: %d KiB for 512, %d KiB for 1536: %d bytes each", mixed, a>>10, b>>10, each)
		if each > 4096+64 {
			t.Errorf("a further active flow holds %d bytes, want at most 4 KiB and a little", each)
		}
	}
	a, b := heldBy(t, o, shortFlows(2_000)), heldBy(t, o, shortFlows(22_000))
	each := (b - a) / 20_000
	t.Logf("flows of 12 data packets and 3 answers: %d bytes each", each)
	if each > 512 {
		t.Errorf("a further flow with 15 packets, those of its answers among them, holds %d bytes, want at most 512", each)
	}
}

// shortFlows is a capture of n flows of three messages of four packets and their acknowledgements.
func shortFlows(n int) []byte {
	le, be := binary.LittleEndian, binary.BigEndian
	out := le.AppendUint32(nil, 0xa1b23c4d)
	out = append(out, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	out = le.AppendUint32(out, 65535)
	out = le.AppendUint32(out, 1)
	now := genEpoch
	put := func(src, dst uint32, qp, psn int, op byte, ack bool, rest []byte) {
		now += 500
		ib := []byte{op, 0, 0xff, 0xff}
		ib = be.AppendUint32(ib, uint32(qp))
		w := uint32(psn)
		if ack {
			w |= 1 << 31
		}
		ib = append(be.AppendUint32(ib, w), rest...)
		frame := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 106}
		frame = be.AppendUint16(frame, uint16(28+len(ib)))
		frame = append(frame, 0, 0, 0x40, 0, 64, 17, 0, 0)
		frame = be.AppendUint32(be.AppendUint32(frame, src), dst)
		frame = append(frame, 0xc0, 0, 4791>>8, 4791&0xff)
		frame = be.AppendUint16(frame, uint16(8+len(ib)))
		frame = append(append(frame, 0, 0), ib...)
		out = le.AppendUint32(out, uint32(now/1e9))
		out = le.AppendUint32(out, uint32(now%1e9))
		out = le.AppendUint32(out, uint32(len(frame)))
		out = le.AppendUint32(out, uint32(len(frame)))
		out = append(out, frame...)
	}
	reth := append(make([]byte, 14), 0x10, 0)
	for i := range n {
		src, dst := uint32(0xc0000200+i%64), uint32(0xc6336401)
		for m := range 3 {
			for k := range 4 {
				rest := make([]byte, 1028)
				if k == 0 {
					rest = append(append([]byte{}, reth...), rest...)
				}
				put(src, dst, 0x100+i, 4*m+k, []byte{6, 7, 7, 8}[k], k == 3, rest)
			}
			put(dst, src, 0x100000+i, 4*m+3, 17, false, []byte{0x1f, 0, 0, 1, 0, 0, 0, 0})
		}
	}
	return out
}

// TestRun_memoryOfALongCapture: with 1,000 flows the whole analysis, its document included, stays below 64 MiB however many
// bins the capture fills.
func TestRun_memoryOfALongCapture(t *testing.T) {
	if testing.Short() {
		t.Skip("needs two seconds")
	}
	path := filepath.Join(t.TempDir(), "long.pcap")
	if err := os.WriteFile(path, benchCapture(t, 1_000_000, 1000, false), 0o600); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before, peak := m.HeapAlloc, uint64(0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapAlloc)
			}
		}
	}()
	o := benchOptions(0)
	o.Bin = 10 * time.Microsecond
	doc, err := Run(t.Context(), []Input{{Path: path}}, o)
	close(stop)
	<-stopped
	if err != nil {
		t.Fatal(err)
	}
	if doc.Series.BinNS == int64(o.Bin) {
		t.Error("the bins were not widened: the capture is too short for this test")
	}
	t.Logf("peak %d MiB, with garbage, for %d flows; bins of %d us", (peak-before)>>20, len(doc.Flows), doc.Series.BinNS/1000)
	if peak-before > 64<<20 {
		t.Errorf("peak of %d MiB, want less than 64", (peak-before)>>20)
	}
}
