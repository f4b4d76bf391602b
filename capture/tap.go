package capture

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// TapOptions say what RunTap takes and where it puts it. The zero value of every field but Iface and File is usable.
type TapOptions struct {
	Iface   string
	File    string        // pcapng; an existing file is replaced
	Snaplen int           // bytes kept of each packet; 0 means 262144. The kernel copies no more than that
	Filter  string        // "" takes all; "roce", "pfc", "udp port N", joined by " or "
	For     time.Duration // 0: until ctx is done

	// FileSize begins a new file before one becomes longer: NAME_00001.EXT, NAME_00002.EXT and so on; 0: one file, File itself.
	// Files bounds how many there are: the oldest is removed; 0: all stay.
	FileSize int64
	Files    int

	Ready io.Writer // gets "listening on IFACE\n" when the ring is live; nil discards
	Stats io.Writer // gets the TapStats as one line of JSON at the end; nil discards

	Description string        // of the interface, for the file
	BlockSize   int           // bytes of one ring block, a multiple of the page size; 0 means 64 KiB, or 1 MiB with a snap length that needs it
	Blocks      int           // blocks in the ring; 0 means 32 MiB of them, or an eighth of what memory is left. Fewer are taken where memory is short (TapStats.RingBytes)
	Retire      time.Duration // the kernel hands over a block that is not full after this time; 0 means 20 ms
	Buffer      int           // bytes gathered before a write to the file; 0 means 1 MiB
	// Hardware has packets stamped by the NIC's own clock in place of the host's; a NIC that cannot is an error. TapStats.Clock then says how far the
	// two are apart.
	Hardware bool
	// KeepMAC leaves the interface out of promiscuous mode. Mirrors deliver packets for other MAC addresses, so that the
	// default is promiscuous.
	KeepMAC bool
}

// TapStats are what a tap did. Received = Packets + Overwritten + Dropped + Unaccounted, and Unaccounted is 0 unless something is broken.
type TapStats struct {
	Schema        string        `json:"schema"` // "pcmlab/tap/v1"
	Iface         string        `json:"iface"`
	File          string        `json:"file"`
	LinkType      roce.LinkType `json:"link_type"`
	Snaplen       int           `json:"snaplen"`
	Filter        string        `json:"filter"`
	Files         []string      `json:"files,omitempty"` // with FileSize: the names of those that are left, oldest first
	Packets       uint64        `json:"packets"`         // in the file, or in those that are left
	Overwritten   uint64        `json:"overwritten"`     // in files that were removed for newer ones
	Bytes         uint64        `json:"bytes"`           // their length on the wire
	CapturedBytes uint64        `json:"captured_bytes"`  // what was kept of them
	Received      uint64        `json:"received"`        // passed the filter, by the kernel's count
	Dropped       uint64        `json:"dropped"`         // of those, lost because the ring was full
	Unaccounted   uint64        `json:"unaccounted"`     // of those, neither in the file nor counted as dropped
	RingFreezes   uint64        `json:"ring_freezes"`    // times that the ring ran full
	FirstNS       *int64        `json:"first_ns"`        // earliest and latest packet; null without packets
	LastNS        *int64        `json:"last_ns"`
	FileBytes     int64         `json:"file_bytes"`
	RingBytes     int           `json:"ring_bytes"`
	InterfaceDown int           `json:"interface_down_events"`

	Clock *HardwareClock `json:"hardware_clock,omitempty"` // of the NIC that stamped the packets; null: the host did
}

// Limits of the options.
const (
	defaultSnaplen = 262144
	// A block is handed over after the retire time however little is in it, so that the number of blocks is for how long the ring holds
	// what a starved tap does not read: 512 for ten seconds.
	smallBlock    = 64 << 10
	smallSnaplen  = 16 << 10
	wholeBlock    = 1 << 20 // holds any packet, also one that offloads made
	defaultRing   = 32 << 20
	memoryShare   = 8 // a ring takes at most one part in so many of the memory that is left
	defaultRetire = 20 * time.Millisecond
	minFileSize   = 64 << 10
)

// Check says what RunTap would refuse before it looks at the system.
func (o TapOptions) Check() error {
	_, err := o.withDefaults()
	return err
}

// availableMemory is what may be taken on this machine without harm to others, as far as it says (proc_meminfo(5), MemAvailable).
func availableMemory() int {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return math.MaxInt
	}
	_, rest, _ := strings.Cut(string(text), "MemAvailable:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return math.MaxInt
	}
	return kib << 10
}

// withDefaults validates a copy.
func (o TapOptions) withDefaults() (TapOptions, error) {
	if o.Iface == "" || o.File == "" {
		return o, fmt.Errorf("capture: interface %q and file %q must both be given", o.Iface, o.File)
	}
	if o.Snaplen == 0 {
		o.Snaplen = defaultSnaplen
	}
	if o.BlockSize == 0 {
		o.BlockSize = wholeBlock
		if o.Snaplen <= smallSnaplen {
			o.BlockSize = smallBlock
		}
	}
	if o.Blocks == 0 {
		o.Blocks = max(min(defaultRing, availableMemory()/memoryShare)/o.BlockSize, 2)
	}
	if o.Retire == 0 {
		o.Retire = defaultRetire
	}
	if o.Ready == nil {
		o.Ready = io.Discard
	}
	if o.Stats == nil {
		o.Stats = io.Discard
	}
	const overhead = 256 // block and packet headers of the ring
	switch {
	case o.Snaplen < 14 || o.Snaplen > defaultSnaplen:
		return o, fmt.Errorf("capture on %s: snap length %d: want 14 to %d bytes", o.Iface, o.Snaplen, defaultSnaplen)
	case o.BlockSize < o.Snaplen+overhead && o.BlockSize < wholeBlock || o.BlockSize%4096 != 0 || o.BlockSize > 1<<26:
		return o, fmt.Errorf("capture on %s: ring block of %d bytes: want a multiple of 4096 up to 64 MiB that holds the snap length %d", o.Iface, o.BlockSize, o.Snaplen)
	case o.Blocks < 2 || o.Blocks > 4096:
		return o, fmt.Errorf("capture on %s: %d ring blocks: want 2 to 4096", o.Iface, o.Blocks)
	case o.Retire < time.Millisecond || o.Retire > time.Minute:
		return o, fmt.Errorf("capture on %s: retire time %v: want 1 ms to 1 min", o.Iface, o.Retire)
	case o.FileSize != 0 && o.FileSize < minFileSize:
		return o, fmt.Errorf("capture on %s: files of %d bytes: want at least %d", o.Iface, o.FileSize, minFileSize)
	case o.Files != 0 && (o.FileSize == 0 || o.Files < 2 || o.Files > 99999):
		return o, fmt.Errorf("capture on %s: %d files: want 2 to 99999 with a file size", o.Iface, o.Files)
	case o.For < 0:
		return o, fmt.Errorf("capture on %s: duration %v is negative", o.Iface, o.For)
	}
	return o, nil
}
