// Package uccl writes handlers as folders that build into UCCL's RDMA transport: a per-flow control whose window bounds the chunks that
// may leave, whose rate paces them and whose paths are queue pairs, and credit for its EQDS receiver (ALGORITHMS.md, D.3). An asynchronous
// shell is served by a thread that goes round the flows and publishes their controls on cache lines of their own.
package uccl

import (
	"embed"
	"io/fs"

	"github.com/pcmlab/pcmlab/nicbackends/cpu/glue"
	"github.com/pcmlab/pcmlab/pcm"
)

//go:embed glue
var templates embed.FS

// Write makes the folder dir, which must not be there or be empty, and lists its files.
func Write(p *pcm.Package, dir string) ([]string, error) {
	own, err := fs.Sub(templates, "glue")
	if err != nil {
		return nil, err
	}
	project := glue.Project{Platform: "uccl", Program: "UCCL", Glue: "pcm_uccl.h", Templates: own, Feeds: feeds, Obeys: obeys}
	return project.Write(p, dir)
}

var feeds = map[pcm.Source]string{
	pcm.ACK:            "packets of the chunks that an acknowledgement covers: their bytes over the MTU, rounded up",
	pcm.RTO:            "the flow's timer, once however many chunks it sends again",
	pcm.NACK:           "packets of a chunk that is sent again because later ones arrived",
	pcm.RTT:            "of the oldest chunk that is acknowledged, without the time at both ends and on the wire; none when the clocks made it negative",
	pcm.DataTX:         "bytes of those chunks",
	pcm.DataNACKed:     "bytes of a chunk that is sent again because later ones arrived",
	pcm.InFlight:       "unacknowledged bytes, with every event",
	pcm.ACKEV:          "the queue pair that the acknowledgement names",
	pcm.NACKEV:         "the queue pair of a chunk that is sent again, after a timeout, too",
	pcm.TXReadyPackets: "a chunk that needs a queue pair",
	pcm.TXBacklogBytes: "what is left of the message, with each chunk that leaves",
	pcm.TXBytes:        "a chunk that leaves",
	pcm.PullTarget:     "what the sender asks for, when it is its turn at the pacer, in units of 256 bytes",
}

var obeys = map[pcm.ControlKind]string{
	pcm.CWND:   "how much of a chunk may leave; a flow with nothing in flight may always send a packet",
	pcm.Rate:   "the timing wheel",
	pcm.EV:     "the queue pair of the next chunk, modulo their number",
	pcm.PullNo: "credit in the next pull packet, in whole quanta of 16 KiB; pace, turns and credit that nobody asked for stay the transport's",
}
