package qp

import (
	"errors"
	"fmt"
	"time"

	"github.com/pcmlab/pcmlab/capture/roce"
	"github.com/pcmlab/pcmlab/internal/units"
)

// State is the state of a queue pair. RTR is not kept apart from RTS: a connected queue pair can do both.
type State uint8

// The states.
const (
	Init State = iota
	Ready
	Error
)

// String is the state's name as verbs tools print it.
func (s State) String() string { return [...]string{"INIT", "RTS", "ERR"}[min(s, Error)] }

// Op is what a work request does.
type Op uint8

// The operations.
const (
	Write Op = iota
	Send
	Recv
)

// String is the operation's name.
func (o Op) String() string { return [...]string{"WRITE", "SEND", "RECV"}[min(o, Recv)] }

// Status is the outcome of a work request, with the numbers of enum ibv_wc_status.
type Status uint8

// The statuses that the machine gives.
const (
	Success              Status = 0
	LocalLengthError     Status = 1
	FlushError           Status = 5
	RemoteInvalidRequest Status = 9
	RemoteAccessError    Status = 10
	RemoteOperation      Status = 11
	RetryExceeded        Status = 12
	RNRRetryExceeded     Status = 13
)

// WorkRequest is one message. Local is the place of its bytes in the driver's memory; the machine only counts with it.
type WorkRequest struct {
	ID       uint64
	Op       Op
	Local    uint64
	Length   uint32
	RemoteVA uint64 // WRITE
	RKey     uint32 // WRITE
}

// RecvRequest is a buffer for one incoming SEND.
type RecvRequest struct {
	ID     uint64
	Local  uint64
	Length uint32
}

// Completion is the end of a work request.
type Completion struct {
	ID       uint64
	Op       Op
	Status   Status
	Syndrome uint8 // AETH syndrome that caused a failure; 0 when there was none
	Length   uint32
}

// Memory is what remote requests may touch.
type Memory interface {
	// Writable reports whether length bytes from va lie in a region that rkey opens for remote writes.
	Writable(rkey uint32, va uint64, length uint32) bool
	// WriteRemote stores b at va. It is called only for ranges that Writable has granted.
	WriteRemote(rkey uint32, va uint64, b []byte)
	// WriteLocal stores b at a place of a RecvRequest.
	WriteLocal(local uint64, b []byte)
}

// Config describes a queue pair. Times are those of the machine's world: the driver has applied the time scale.
type Config struct {
	QPN      uint32        // own number
	FirstPSN uint32        // of the first packet sent
	MTU      int           // path MTU: 256, 512, 1024, 2048, 4096
	Timeout  time.Duration // local ACK timeout; 0 means never
	// RetryCount bounds retries without progress, for timeouts and sequence NAKs together (IBTA 9.9.2.1.1). 7 means
	// seven, as on hardware NICs; rdma_rxe takes 7 for ever.
	RetryCount  int
	RNRRetry    int           // 7 means for ever (IBTA 9.7.5.2.8)
	MinRNRTimer uint8         // encoded time that this side asks for in RNR NAKs
	RNRScale    units.Scale   // stretches the time of a received RNR NAK
	SendDepth   int           // work requests that fit
	RecvDepth   int           // receive requests that fit
	AckEvery    int           // at least each so manieth packet asks for an ACK, and is answered
	Window      int           // packets sent and not acknowledged
	CatchUp     time.Duration // a slot overdue for longer is lost
	Overhead    int           // bytes on the wire around BTH..ICRC, for pacing
	Rate        units.Rate    // initial sending rate
}

// AckTimeout is the local ACK timeout that the five-bit field t stands for: 4.096 us * 2^t; 0 means never.
func AckTimeout(t int) time.Duration {
	if t <= 0 || t > 31 {
		return 0
	}
	return time.Duration(4096) << t
}

func (c Config) validate() error {
	switch c.MTU {
	case 256, 512, 1024, 2048, 4096:
	default:
		return fmt.Errorf("queue pair: MTU %d: want 256, 512, 1024, 2048 or 4096", c.MTU)
	}
	if c.RetryCount < 0 || c.RetryCount > 7 || c.RNRRetry < 0 || c.RNRRetry > 7 {
		return fmt.Errorf("queue pair: retry count %d, RNR retry %d: want 0 to 7", c.RetryCount, c.RNRRetry)
	}
	if c.SendDepth < 1 || c.RecvDepth < 0 || c.AckEvery < 1 || c.Window < 1 || c.Window > 1<<22 || c.Rate <= 0 {
		return fmt.Errorf("queue pair: send depth %d, receive depth %d, ack every %d, window %d, rate %v: out of range",
			c.SendDepth, c.RecvDepth, c.AckEvery, c.Window, c.Rate)
	}
	return nil
}

// In is a packet that arrived for this queue pair, already checked (ICRC, lengths). Payload is used only during the call.
type In struct {
	BTH     roce.BTH
	RETH    roce.RETH
	AETH    roce.AETH
	Payload []byte // without pad
}

// Out is a packet to send. The driver fills in PKey and payload and appends the ICRC.
type Out struct {
	BTH        roce.BTH
	RETH       roce.RETH // when the opcode has one
	AETH       roce.AETH
	Request    uint64 // number of the work request, of a data packet
	Local      uint64 // where the payload is
	Length     int    // of the payload, without pad
	Retransmit bool   // a PSN that was sent before
}

// Data reports a packet that carries a request, which is paced; others go out at once.
func (o *Out) Data() bool { return o.BTH.Opcode.IsRequest() }

// WireLen is the packet's length from BTH to ICRC.
func (o *Out) WireLen() int {
	return roce.BTHLen + o.BTH.Opcode.HeaderLen() + o.Length + int(o.BTH.Pad) + roce.ICRCLen
}

// Counters are cumulative; many queue pairs may share one.
type Counters struct {
	RxWriteRequests, RxSendRequests  uint64
	RxPayloadBytes                   uint64 // of requests taken in order: each byte once
	OutOfSequence, DuplicateRequest  uint64 // responder
	OutOfBuffer                      uint64 // RNR NAKs sent
	RespRemoteAccess, RespInvalid    uint64 // fatal NAKs sent
	RespLocalLength                  uint64
	RespCQEError, RespCQEFlush       uint64
	PacketSeqErr, LocalAckTimeoutErr uint64 // requester
	RNRNakReceived, RNRNakRetryErr   uint64
	ReqRemoteAccess, ReqInvalid      uint64
	ReqRemoteOperation               uint64
	ReqTransportRetriesExceeded      uint64
	ReqCQEError, ReqCQEFlush         uint64
	TxDataPackets, TxPayloadBytes    uint64 // all, with retransmissions
	RetransmittedPackets             uint64
	RetransmittedBytes               uint64 // payload
	TxAckPackets, TxNakPackets       uint64
	RxAckPackets, RxNakPackets       uint64
}

// Errors that a poster can meet.
var (
	ErrState = errors.New("queue pair is not in a state for this")
	ErrFull  = errors.New("queue is full")
)
