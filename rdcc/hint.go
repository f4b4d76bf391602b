package rdcc

import "fmt"

// Hint is what a message needs of the network (RDCC Service Hints). Unknown ones are as good as none.
type Hint uint8

// Service hints.
const (
	HintNone               Hint = 0
	HintLatencySensitive   Hint = 1
	HintThroughputOriented Hint = 2
)

// Defined says that the hint is one of those above.
func (h Hint) Defined() bool { return h <= HintThroughputOriented }

// String is the hint's name in the specification.
func (h Hint) String() string {
	if h.Defined() {
		return [...]string{"none", "latency-sensitive", "throughput-oriented"}[h]
	}
	return fmt.Sprintf("hint %d", uint8(h))
}

// BindingKind says how the data transport identifies a message (Transport Bindings).
type BindingKind uint8

// Binding kinds; zero is reserved.
const (
	BindingRoCEv2 BindingKind = 1 // the value is a RoCEBinding
	BindingOpaque BindingKind = 2 // the value is an identifier that the data transport carries itself
)

// Defined says that the kind is one of those above.
func (k BindingKind) Defined() bool { return k == BindingRoCEv2 || k == BindingOpaque }

// String is the kind's name in the specification.
func (k BindingKind) String() string {
	switch k {
	case BindingRoCEv2:
		return "RoCEv2"
	case BindingOpaque:
		return "Opaque"
	}
	return fmt.Sprintf("binding %d", uint8(k))
}

// RoCEBinding names the RDMA messages into which an RDCC message is divided: the destination queue pair, the message
// sequence number that the responder will give to the first, and how many they are.
type RoCEBinding struct {
	DestQP   uint32 // 24 bits
	MSN      uint32 // 24 bits
	Messages uint16
}

// Value is the Binding Value: queue pair in bits 63 to 40, MSN in 39 to 16, number of messages in 15 to 0.
func (r RoCEBinding) Value() uint64 {
	if r.MSN > 0xffffff && on(RuleMSN24) {
		r.MSN &= 0xffffff
	}
	return uint64(r.DestQP)<<40 | uint64(r.MSN)<<16 | uint64(r.Messages)
}

// RoCEBindingOf takes a Binding Value of kind BindingRoCEv2 apart.
func RoCEBindingOf(value uint64) RoCEBinding {
	return RoCEBinding{DestQP: uint32(value >> 40), MSN: uint32(value>>16) & 0xffffff, Messages: uint16(value)}
}
