package perftest

import (
	"context"
	"fmt"
	"net/netip"
	"time"
)

// Verbs opens the RDMA devices of this host. The software NIC's client implements it; so does a test fake.
type Verbs interface {
	// Devices lists the device names, sorted. An empty list is not an error.
	Devices() ([]string, error)
	// Open opens a device by name. A device that is not there is a *NoDeviceError.
	Open(device string) (Device, error)
}

// Device is one open RDMA device (one port).
type Device interface {
	// Info describes the device as it is now.
	Info() DeviceInfo
	// CreateQP registers a buffer of o.BufferSize bytes and makes a reliable-connected queue pair over it, in the
	// state INIT: its numbers are valid at once. The queue pair can be the target of WRITEs as soon as it is connected.
	CreateQP(o QPOptions) (QP, error)
	// Close frees the device and every queue pair that was made on it.
	Close() error
}

// QP is a reliable-connected queue pair with one registered buffer. One goroutine uses it at a time, except that
// Close may be called from any and ends a waiting Completions.
type QP interface {
	// Local is what the far side must know.
	Local() QPInfo
	// Connect moves the queue pair to RTS towards remote.
	Connect(remote QPInfo) error
	// PostWrites enqueues n RDMA WRITEs of size bytes each, from the start of the own buffer to remote.VA. More than
	// QPOptions.TxDepth posted and not yet completed messages are an error, never a wait.
	PostWrites(n, size int) error
	// Completions waits until at least one posted message has completed and returns how many did since the last call.
	// (0, nil) means that the timeout passed; ctx ending gives its error. A failed message is a *WCError.
	Completions(ctx context.Context, timeout time.Duration) (n int, err error)
	Close() error
}

// ReadPoster is a QP that can also READ; ib_read_bw needs it of the client.
type ReadPoster interface {
	PostReads(n, size int) error // from remote.VA to the own buffer; completes as a write does
}

// QPOptions says how a queue pair is made. Zero values mean what the field says.
type QPOptions struct {
	BufferSize   int // bytes registered; the largest message must fit
	TxDepth      int // posted and not completed messages; 0 means 128
	MTU          int // path MTU in bytes: 256, 512, 1024, 2048 or 4096; 0 means the port's active MTU
	GIDIndex     int // index into the port's GID table
	TrafficClass int // byte of the IP header: DSCP<<2 | ECN; 0 means the device's own setting
	Timeout      int // local ACK timeout: 4.096 us * 2^Timeout; 0 means never (IBTA 9.9.2.1.4)
	RetryCount   int // 0..7
	OutReads     int // outstanding READs and atomics; 0 means 1
}

// QPInfo is what one side tells the other over TCP before the queue pairs are connected.
type QPInfo struct {
	LID      uint16
	QPN      uint32 // 24 bits
	PSN      uint32 // 24 bits: first PSN that this side sends
	RKey     uint32
	VA       uint64
	GID      [16]byte
	OutReads int
}

// DeviceInfo describes an open device.
type DeviceInfo struct {
	Name      string
	Transport string // "IB" (also for RoCE), "IW"
	LinkLayer string // "Ethernet", "IB"
	Active    bool   // port state is ACTIVE
	ActiveMTU int    // path MTU in bytes that the port allows: 1024, 4096, ...
	LID       uint16 // 0 on Ethernet
	MaxQPs    int    // 0: no limit worth naming
	GIDs      []GIDEntry
	Hardware  bool // false: a software device, which has no InfiniBand PCI device behind it
}

// GIDEntry is one row of a port's GID table.
type GIDEntry struct {
	Index  int
	GID    netip.Addr // 16 bytes; a v4-mapped address for IPv4
	Type   string     // "RoCE v2", "IB/RoCE v1", ...
	Netdev string
}

// NoDeviceError says that a named device does not exist.
type NoDeviceError struct {
	Device string
	Known  []string
}

func (e *NoDeviceError) Error() string {
	return fmt.Sprintf("RDMA device %q: not found (known: %v)", e.Device, e.Known)
}

// WCStatus is the status of a work completion, with the numbers of enum ibv_wc_status (libibverbs verbs.h).
type WCStatus int

// The statuses that a bandwidth test can meet.
const (
	WCSuccess        WCStatus = 0
	WCLocLenErr      WCStatus = 1
	WCLocQPOpErr     WCStatus = 2
	WCLocProtErr     WCStatus = 4
	WCWRFlushErr     WCStatus = 5
	WCRemInvReqErr   WCStatus = 9
	WCRemAccessErr   WCStatus = 10
	WCRemOpErr       WCStatus = 11
	WCRetryExcErr    WCStatus = 12
	WCRNRRetryExcErr WCStatus = 13
	WCFatalErr       WCStatus = 19
	WCGeneralErr     WCStatus = 21
)

// WCError is a failed completion.
type WCError struct {
	Status         WCStatus
	VendorSyndrome uint32
	WRID           uint64
}

func (e *WCError) Error() string {
	return fmt.Sprintf("completion status %d (%s), vendor syndrome 0x%x", int(e.Status), e.Status, e.VendorSyndrome)
}

var wcNames = map[WCStatus]string{
	0: "success", 1: "local length error", 2: "local QP operation error", 3: "local EE context operation error",
	4: "local protection error", 5: "work request flushed", 6: "memory window bind error", 7: "bad response",
	8: "local access error", 9: "remote invalid request", 10: "remote access error", 11: "remote operation error",
	12: "transport retry counter exceeded", 13: "RNR retry counter exceeded", 14: "local RDD violation",
	15: "remote invalid RD request", 16: "remote aborted", 17: "invalid EE context number", 18: "invalid EE context state",
	19: "fatal error", 20: "response timeout", 21: "general error",
}

// String is the status in words.
func (s WCStatus) String() string {
	if name, ok := wcNames[s]; ok {
		return name
	}
	return fmt.Sprintf("status %d", int(s))
}
