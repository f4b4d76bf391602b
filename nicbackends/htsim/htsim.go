// Package htsim writes handlers as folders that build into the uet-htsim packet simulator: senders whose window, rate and paths are the
// handler's, and pull pacers whose credit is. The simulator's own files get two lines, which make the glue a friend of its classes
// (ALGORITHMS.md, D.4). An asynchronous shell is served by an engine of each NIC, whose looks and runs take their time.
package htsim

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
	project := glue.Project{Platform: "htsim", Program: "uet-htsim", Glue: "pcm_htsim.h", Templates: own, Feeds: feeds, Obeys: obeys}
	return project.Write(p, dir)
}

var feeds = map[pcm.Source]string{
	pcm.ACK:            "packets of an acknowledgement: its bytes over the MTU, rounded up; where only paths are chosen, at least 1",
	pcm.RTO:            "the sender's retransmission timer",
	pcm.NACK:           "a packet that was trimmed, or that the sender's own recovery found missing; where only paths are chosen, not those trimmed at the last hop",
	pcm.ECN:            "an acknowledgement of a marked packet",
	pcm.RTT:            "of the packet that made the receiver acknowledge, when it was sent once, or once again",
	pcm.DataTX:         "bytes acknowledged, headers included",
	pcm.DataNACKed:     "bytes of packets that were trimmed or missing, headers included",
	pcm.InFlight:       "with every event",
	pcm.ACKEV:          "path of the packet that made the receiver acknowledge",
	pcm.ECNEV:          "path of a marked packet",
	pcm.NACKEV:         "path of a trimmed packet; after a timeout 0, as the simulator does not know it",
	pcm.TXReadyPackets: "a packet that needs a path",
	pcm.TXBacklogBytes: "with each packet that is sent, or needs a path",
	pcm.CNP:            "the first marked acknowledgement in 50 us: the transport has no CNPs",
	pcm.TXBytes:        "a packet of data that is sent, headers included",
	pcm.PullTarget:     "what the sender asks for, when it is its turn at the pull pacer, in units of 256 bytes",
}

var obeys = map[pcm.ControlKind]string{
	pcm.CWND:   "the sender's window, before it sends; never less than a packet",
	pcm.Rate:   "a gate before the window, that lets one packet through and is shut for as long as the packet takes at the rate",
	pcm.EV:     "the path of the next packet, 16 bits",
	pcm.PullNo: "credit in the next pull packet; pace, turns and credit that nobody asked for stay the simulator's",
}
