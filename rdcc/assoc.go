package rdcc

import "encoding/binary"

// Capabilities are bits that say what an endpoint can use (RDCC Capability Bits); unknown ones are ignored.
type Capabilities uint32

// Capabilities that are defined.
const (
	CapPool   Capabilities = 0x00000001 // pool grants
	CapStatus Capabilities = 0x00000002 // SENDER_STATUS
	CapCRN    Capabilities = 0x00000004 // reports of on-path nodes are processed
)

// Has says that all bits of want are set.
func (c Capabilities) Has(want Capabilities) bool { return c&want == want }

// AssocRequest asks a receiver for an association, keeps it alive, or, with FlagUpdateAck, acknowledges new parameters.
// It is as long as its answer, so that nobody is flooded with answers to requests in his name.
//
//	16 Sender Nonce(64)
//	24 Capabilities(32)  Line Rate(32)
//	32 reserved(128)
type AssocRequest struct {
	SenderNonce  uint64 // of a cryptographically secure generator; binds the answer to the request
	Capabilities Capabilities
	LineRate     Mbps
}

// Type is TypeAssocRequest.
func (m *AssocRequest) Type() Type { return TypeAssocRequest }

// Append adds the message to b. Association ID and Epoch are written as zero, whatever h has (Common Header).
func (m *AssocRequest) Append(b []byte, h Header) []byte {
	if on(RuleNoAssociation) {
		h.Assoc, h.Epoch = 0, 0
	}
	b, w := h.open(b, TypeAssocRequest, assocLen)
	_ = w[assocLen-1]
	binary.BigEndian.PutUint64(w[16:], m.SenderNonce)
	binary.BigEndian.PutUint32(w[24:], uint32(m.Capabilities))
	binary.BigEndian.PutUint32(w[28:], uint32(m.LineRate))
	binary.BigEndian.PutUint64(w[32:], 0)
	binary.BigEndian.PutUint64(w[40:], 0)
	return b
}

func (m *AssocRequest) decode(b []byte) {
	_ = b[assocLen-1]
	m.SenderNonce = binary.BigEndian.Uint64(b[16:])
	m.Capabilities = Capabilities(binary.BigEndian.Uint32(b[24:]))
	m.LineRate = Mbps(binary.BigEndian.Uint32(b[28:]))
}

// AssocAccept answers an AssocRequest with the association's parameters, or, with FlagParameterUpdate, changes them.
//
//	16 Sender Nonce(64)
//	24 Capabilities(32)            Unscheduled Limit U(32)
//	32 Start Jitter J(32)          Backlog Threshold N_cu(32)
//	40 Grant Lifetime(32)          Credit Unit(32)
type AssocAccept struct {
	SenderNonce      uint64 // the request's
	Capabilities     Capabilities
	UnscheduledLimit uint32 // U, octets of a message that may be sent without credit; zero disables unscheduled mode
	StartJitter      Micros // J, bound of the random delay before unscheduled data
	BacklogThreshold uint32 // N_cu, octets of unused credit above which the sender reports
	GrantLifetime    Micros // of grants that state none
	CreditUnit       uint32 // octets, typically the payload of the path's MTU
}

// Type is TypeAssocAccept.
func (m *AssocAccept) Type() Type { return TypeAssocAccept }

// Append adds the message to b.
func (m *AssocAccept) Append(b []byte, h Header) []byte {
	b, w := h.open(b, TypeAssocAccept, assocLen)
	_ = w[assocLen-1]
	binary.BigEndian.PutUint64(w[16:], m.SenderNonce)
	binary.BigEndian.PutUint32(w[24:], uint32(m.Capabilities))
	binary.BigEndian.PutUint32(w[28:], m.UnscheduledLimit)
	binary.BigEndian.PutUint32(w[32:], uint32(m.StartJitter))
	binary.BigEndian.PutUint32(w[36:], m.BacklogThreshold)
	binary.BigEndian.PutUint32(w[40:], uint32(m.GrantLifetime))
	binary.BigEndian.PutUint32(w[44:], m.CreditUnit)
	return b
}

func (m *AssocAccept) decode(b []byte) {
	_ = b[assocLen-1]
	m.SenderNonce = binary.BigEndian.Uint64(b[16:])
	m.Capabilities = Capabilities(binary.BigEndian.Uint32(b[24:]))
	m.UnscheduledLimit = binary.BigEndian.Uint32(b[28:])
	m.StartJitter = Micros(binary.BigEndian.Uint32(b[32:]))
	m.BacklogThreshold = binary.BigEndian.Uint32(b[36:])
	m.GrantLifetime = Micros(binary.BigEndian.Uint32(b[40:]))
	m.CreditUnit = binary.BigEndian.Uint32(b[44:])
}
