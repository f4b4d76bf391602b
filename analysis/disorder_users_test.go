package analysis_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/capture/roce"
)

// A corrupt stamp, days or decades from its neighbours, neither stops the analysis nor takes memory, and the document does
// not depend on how many goroutines made it.
func TestRun_stampsFarAway(t *testing.T) {
	const day = int64(24 * time.Hour)
	for _, at := range []int64{-50 * 365 * day, -day, -int64(time.Second), 300 * day, 45 * 365 * day} {
		for _, window := range []time.Duration{0, -1} {
			var packets []packet
			for i := range 40 {
				packets = append(packets, packet{atNS: int64(i) * 1e6, bth: write(uint32(i), roce.RCWriteMiddle), payload: 1024})
			}
			stray := packet{atNS: at, bth: roce.BTH{Opcode: roce.RCWriteMiddle, DestQP: 0x22, PSN: 7}, payload: 1024}
			packets = append(packets[:20:20], append([]packet{stray}, packets[20:]...)...)
			file := pcapOf(t, packets...)
			var first []byte
			for _, workers := range []int{1, 2, 2, 2} {
				doc := run(t, analysis.Options{Workers: workers, ReorderWindow: window}, file)
				doc.Files, doc.Quality.Notes = nil, nil // they name the file
				text, err := json.Marshal(doc)
				if err != nil {
					t.Fatal(err)
				}
				if first == nil {
					first = text
				}
				if !bytes.Equal(first, text) {
					t.Errorf("stray at %v, window %v: the document of %d workers differs", time.Duration(at), window, workers)
				}
				if doc.Totals.PayloadBytes != 41*1024 || len(text) > 64<<20 {
					t.Errorf("stray at %v, window %v: %d bytes of payload, a document of %d", time.Duration(at), window, doc.Totals.PayloadBytes, len(text))
				}
			}
		}
	}
}
