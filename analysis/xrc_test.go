package analysis_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/capture/roce"
)

// Operations of XRC, whose opcodes are not counted one by one, are counted; a packet that comes again is not.
func TestRun_operationsOfXRC(t *testing.T) {
	const us = 1000
	const xrc = 0xa0
	var packets []packet
	for i, p := range []struct {
		op  roce.Opcode
		psn uint32
	}{{roce.RCWriteFirst, 1}, {roce.RCWriteLast, 2}, {roce.RCSendOnly, 3}, {roce.RCSendOnly, 4}, {roce.RCSendOnly, 4}} {
		b := write(p.psn, xrc|p.op)
		headers := roce.RETH{DMALen: 200}.Append(make([]byte, 4))
		if p.op != roce.RCWriteFirst {
			headers = make([]byte, 4)
		}
		packets = append(packets, packet{atNS: int64(i) * 10 * us, ipID: uint16(i), bth: b, headers: headers, payload: 100})
	}
	doc := run(t, analysis.Options{}, pcapOf(t, packets...))
	if len(doc.Flows) != 1 {
		t.Fatalf("%d flows, want 1", len(doc.Flows))
	}
	if diff := cmp.Diff(analysis.Operations{Write: 1, Send: 2}, doc.Flows[0].Operations); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
}
