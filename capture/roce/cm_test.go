package roce

import (
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// One real connection from REQ to DREP; the numbers are what another dissector shows for it.
func TestParseCM_realConnection(t *testing.T) {
	file, err := os.ReadFile("testdata/cm.hex")
	if err != nil {
		t.Fatal(err)
	}
	var got []CM
	for line := range strings.Lines(string(file)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		data, err := hex.DecodeString(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		var f Frame
		if err := f.Decode(LinkEthernet, data, 0, 0); err != nil || !f.IsMAD() || len(f.Payload) != MADLen {
			t.Fatalf("%v, MAD %v, %d bytes", err, f.IsMAD(), len(f.Payload))
		}
		mad, _, err := ParseMAD(f.Payload)
		if err != nil || mad.Method != 3 {
			t.Fatalf("%+v, %v", mad, err)
		}
		m, ok, err := ParseCM(mad, f.Payload)
		if !ok || err != nil {
			t.Fatalf("%+v: %v, %v", mad, ok, err)
		}
		got = append(got, m)
		for n := range 24 {
			if mad, used, err := ParseMAD(f.Payload[:n]); !errors.Is(err, ErrTruncated) || used != 0 || mad != (MAD{}) {
				t.Fatalf("MAD of %d bytes: %+v, %v", n, mad, err)
			}
		}
		for n := 24; n < 32; n++ {
			if m, ok, err := ParseCM(mad, f.Payload[:n]); ok || !errors.Is(err, ErrTruncated) || m != (CM{}) {
				t.Fatalf("CM of %d bytes: %+v, %v", n, m, err)
			}
		}
	}
	const a, b, c = 0x1e14c970, 0xc5f00c9c, 0x1f14c970
	want := []CM{
		{Kind: CMRequest, LocalID: a, QPN: 0x2e, PSN: 0x56bb5d, ServiceID: 0x01064853},
		{Kind: CMReply, LocalID: b, RemoteID: a, QPN: 0x3d, PSN: 0x52ec33},
		{Kind: CMReadyToUse, LocalID: a, RemoteID: b},
		{Kind: CMRequest, LocalID: c, QPN: 0x2f, PSN: 0xb2402e, ServiceID: 0x01064853},
		{Kind: CMReject, RemoteID: c, RejectReason: 8}, // invalid service: the listener is gone
		{Kind: CMDisconnectRequest, LocalID: a, RemoteID: b, QPN: 0x3d},
		{Kind: CMDisconnectReply, LocalID: b, RemoteID: a},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	var kinds []string
	for _, m := range got {
		kinds = append(kinds, m.Kind.String())
	}
	if got := strings.Join(kinds, " "); got != "REQ REP RTU REQ REJ DREQ DREP" {
		t.Errorf("messages %s", got)
	}
}
