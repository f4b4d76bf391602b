package capture

import (
	"context"
	"encoding/binary"
	"path/filepath"
	"testing"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// S08: the kernel takes the outer VLAN tag out of a packet before a tap sees it and hands it over beside the packet. Here
// it is back in its place, with its priority, also when it carries nothing but a priority (VID 0), and an untagged packet
// beside it stays untagged.
func TestRunTap_keepsPriorityTags(t *testing.T) {
	if !inNetns(t) {
		return
	}
	vethPair(t, "tap0", "peer0")
	s := newSender(t, "peer0")
	tagged := func(tci uint16) []byte {
		b := frameTo(false, roce.Port, 0x8100)
		binary.BigEndian.PutUint16(b[14:], tci)
		return b
	}
	frames := [][]byte{frameTo(false, roce.Port), tagged(3<<13 | 100), tagged(5 << 13), tagged(7<<13 | 1<<12 | 4094)}
	o := TapOptions{Iface: "tap0", File: filepath.Join(t.TempDir(), "tap.pcapng"), Filter: "roce"}
	if _, err := runTap(t, o, func(context.Context) error { return s.send(frames) }); err != nil {
		t.Fatal(err)
	}
	got, _ := readFile(t, o.File)
	if len(got) != len(frames) {
		t.Fatalf("%d packets, sent %d", len(got), len(frames))
	}
	for i, want := range []struct {
		tags     uint8
		pcp, dei uint8
		vid      uint16
	}{{0, 0, 0, 0}, {1, 3, 0, 100}, {1, 5, 0, 0}, {1, 7, 1, 4094}} {
		if got[i].Data != string(frames[i]) || got[i].OrigLen != len(frames[i]) {
			t.Errorf("packet %d: %x (%d on the wire), sent %x", i, got[i].Data, got[i].OrigLen, frames[i])
		}
		var f roce.Frame
		if err := f.Decode(roce.LinkEthernet, []byte(got[i].Data), got[i].OrigLen, 0); err != nil {
			t.Fatal(err)
		}
		pcp, has := f.PCP()
		vid, _ := f.VID()
		if f.VLANs != want.tags || has != (want.tags > 0) || has && (pcp != want.pcp || vid != want.vid || uint8(f.VLAN[0]>>12&1) != want.dei) {
			t.Errorf("packet %d: %d tags, PCP %d, VID %d; want %+v", i, f.VLANs, pcp, vid, want)
		}
	}
}
