package roce

import "strconv"

// Port is the UDP destination port of RoCEv2 (IANA: "RDMA over Converged Ethernet").
const Port = 4791

// Opcode is the first byte of the BTH: three bits of transport service, five of operation (IBTA volume 1, table 38).
type Opcode uint8

// Transport is the service in the opcode's three upper bits.
type Transport uint8

// Transport services.
const (
	RC  Transport = 0
	UC  Transport = 1
	RD  Transport = 2
	UD  Transport = 3
	Cnp Transport = 4 // congestion notification
	XRC Transport = 5
	// 6 and 7 are left to manufacturers.
)

// String is the service's usual short name.
func (t Transport) String() string {
	switch t {
	case RC:
		return "RC"
	case UC:
		return "UC"
	case RD:
		return "RD"
	case UD:
		return "UD"
	case Cnp:
		return "CNP"
	case XRC:
		return "XRC"
	}
	return "manufacturer"
}

// Opcodes of the reliable connection service.
const (
	RCSendFirst           Opcode = 0x00
	RCSendMiddle          Opcode = 0x01
	RCSendLast            Opcode = 0x02
	RCSendLastImm         Opcode = 0x03
	RCSendOnly            Opcode = 0x04
	RCSendOnlyImm         Opcode = 0x05
	RCWriteFirst          Opcode = 0x06
	RCWriteMiddle         Opcode = 0x07
	RCWriteLast           Opcode = 0x08
	RCWriteLastImm        Opcode = 0x09
	RCWriteOnly           Opcode = 0x0a
	RCWriteOnlyImm        Opcode = 0x0b
	RCReadRequest         Opcode = 0x0c
	RCReadResponseFirst   Opcode = 0x0d
	RCReadResponseMiddle  Opcode = 0x0e
	RCReadResponseLast    Opcode = 0x0f
	RCReadResponseOnly    Opcode = 0x10
	RCAck                 Opcode = 0x11
	RCAtomicAck           Opcode = 0x12
	RCCompareSwap         Opcode = 0x13
	RCFetchAdd            Opcode = 0x14
	RCSendLastInvalidate  Opcode = 0x16
	RCSendOnlyInvalidate  Opcode = 0x17
	RCFlush               Opcode = 0x1c // memory placement extensions, IBTA 1.5 annex A19
	RCAtomicWrite         Opcode = 0x1d // likewise
	UCSendFirst           Opcode = 0x20
	UCSendMiddle          Opcode = 0x21
	UCSendLast            Opcode = 0x22
	UCSendLastImm         Opcode = 0x23
	UCSendOnly            Opcode = 0x24
	UCSendOnlyImm         Opcode = 0x25
	UCWriteFirst          Opcode = 0x26
	UCWriteMiddle         Opcode = 0x27
	UCWriteLast           Opcode = 0x28
	UCWriteLastImm        Opcode = 0x29
	UCWriteOnly           Opcode = 0x2a
	UCWriteOnlyImm        Opcode = 0x2b
	RDSendFirst           Opcode = 0x40
	RDWriteFirst          Opcode = 0x46
	RDReadRequest         Opcode = 0x4c
	RDReadResponseFirst   Opcode = 0x4d
	RDAck                 Opcode = 0x51
	RDResync              Opcode = 0x55
	UDSendOnly            Opcode = 0x64
	UDSendOnlyImm         Opcode = 0x65
	CNP                   Opcode = 0x81
	XRCSendFirst          Opcode = 0xa0
	XRCWriteFirst         Opcode = 0xa6
	XRCReadRequest        Opcode = 0xac
	XRCReadResponseFirst  Opcode = 0xad
	XRCAck                Opcode = 0xb1
	XRCSendOnlyInvalidate Opcode = 0xb7
)

// opcodeBits says what an opcode is and which headers follow its BTH. One table entry answers every method below.
type opcodeBits uint32

const (
	bitKnown opcodeBits = 1 << iota
	bitRequest
	bitResponse
	bitFirst // first or only
	bitLast  // last or only
	bitPayload
	bitSend
	bitWrite
	bitReadRequest
	bitReadResponse
	bitAtomic
	bitAck
	// headers, in the order in which they follow the BTH
	bitRDETH
	bitDETH
	bitXRCETH
	bitFETH
	bitRETH
	bitAtomicETH
	bitAETH
	bitAtomicAckETH
	bitImm
	bitIETH
)

// operation is the meaning of the five lower bits for RC; UC, RD and XRC share it as far as they have the operation.
var operation = [32]opcodeBits{
	0x00: bitRequest | bitSend | bitPayload | bitFirst,
	0x01: bitRequest | bitSend | bitPayload,
	0x02: bitRequest | bitSend | bitPayload | bitLast,
	0x03: bitRequest | bitSend | bitPayload | bitLast | bitImm,
	0x04: bitRequest | bitSend | bitPayload | bitFirst | bitLast,
	0x05: bitRequest | bitSend | bitPayload | bitFirst | bitLast | bitImm,
	0x06: bitRequest | bitWrite | bitPayload | bitFirst | bitRETH,
	0x07: bitRequest | bitWrite | bitPayload,
	0x08: bitRequest | bitWrite | bitPayload | bitLast,
	0x09: bitRequest | bitWrite | bitPayload | bitLast | bitImm,
	0x0a: bitRequest | bitWrite | bitPayload | bitFirst | bitLast | bitRETH,
	0x0b: bitRequest | bitWrite | bitPayload | bitFirst | bitLast | bitRETH | bitImm,
	0x0c: bitRequest | bitReadRequest | bitFirst | bitLast | bitRETH,
	0x0d: bitResponse | bitReadResponse | bitPayload | bitFirst | bitAETH,
	0x0e: bitResponse | bitReadResponse | bitPayload,
	0x0f: bitResponse | bitReadResponse | bitPayload | bitLast | bitAETH,
	0x10: bitResponse | bitReadResponse | bitPayload | bitFirst | bitLast | bitAETH,
	0x11: bitResponse | bitAck | bitFirst | bitLast | bitAETH,
	0x12: bitResponse | bitAtomic | bitFirst | bitLast | bitAETH | bitAtomicAckETH,
	0x13: bitRequest | bitAtomic | bitFirst | bitLast | bitAtomicETH,
	0x14: bitRequest | bitAtomic | bitFirst | bitLast | bitAtomicETH,
	0x16: bitRequest | bitSend | bitPayload | bitLast | bitIETH,
	0x17: bitRequest | bitSend | bitPayload | bitFirst | bitLast | bitIETH,
	0x1c: bitRequest | bitFirst | bitLast | bitFETH | bitRETH,
	0x1d: bitRequest | bitAtomic | bitPayload | bitFirst | bitLast | bitRETH,
}

// opcodes and headerLen are filled from operation once; they never change.
var (
	opcodes   = makeOpcodes()
	headerLen = makeHeaderLen()
)

func makeOpcodes() (t [256]opcodeBits) {
	for op, bits := range operation {
		if bits == 0 {
			continue
		}
		bits |= bitKnown
		t[op] = bits // RC
		if op <= 0x0b {
			t[0x20|op] = bits // UC: sends and writes only
		}
		if op <= 0x14 { // RD: all but invalidate
			rd := bits | bitRDETH
			if bits&bitRequest != 0 {
				rd |= bitDETH
			}
			t[0x40|op] = rd
		}
		if op <= 0x17 {
			xrc := bits
			if bits&bitRequest != 0 {
				xrc |= bitXRCETH
			}
			t[0xa0|op] = xrc
		}
	}
	t[RDResync] = bitKnown | bitRequest | bitFirst | bitLast | bitRDETH | bitDETH
	ud := bitKnown | bitRequest | bitSend | bitPayload | bitFirst | bitLast | bitDETH
	t[UDSendOnly] = ud
	t[UDSendOnlyImm] = ud | bitImm
	t[CNP] = bitKnown
	return t
}

func makeHeaderLen() (t [256]uint8) {
	for op, bits := range opcodes {
		for _, h := range []struct {
			bit opcodeBits
			n   uint8
		}{
			{bitRDETH, RDETHLen}, {bitDETH, DETHLen}, {bitXRCETH, XRCETHLen}, {bitFETH, FETHLen}, {bitRETH, RETHLen},
			{bitAtomicETH, AtomicETHLen}, {bitAETH, AETHLen}, {bitAtomicAckETH, AtomicAckETHLen}, {bitImm, ImmLen}, {bitIETH, ImmLen},
		} {
			if bits&h.bit != 0 {
				t[op] += h.n
			}
		}
	}
	return t
}

func (o Opcode) has(b opcodeBits) bool { return opcodes[o]&b != 0 }

// Transport is the service the opcode belongs to.
func (o Opcode) Transport() Transport { return Transport(o >> 5) }

// Known reports whether the opcode is defined.
func (o Opcode) Known() bool { return o.has(bitKnown) }

// IsRequest reports a packet from requester to responder. A CNP is neither request nor response.
func (o Opcode) IsRequest() bool { return o.has(bitRequest) }

// IsResponse reports a packet from responder to requester: acknowledgements and READ responses.
func (o Opcode) IsResponse() bool { return o.has(bitResponse) }

// IsSend reports any SEND.
func (o Opcode) IsSend() bool { return o.has(bitSend) }

// IsWrite reports any RDMA WRITE.
func (o Opcode) IsWrite() bool { return o.has(bitWrite) }

// IsReadRequest reports an RDMA READ request.
func (o Opcode) IsReadRequest() bool { return o.has(bitReadRequest) }

// IsReadResponse reports any RDMA READ response.
func (o Opcode) IsReadResponse() bool { return o.has(bitReadResponse) }

// IsAtomic reports compare-and-swap, fetch-and-add, atomic write, and the atomic acknowledgement.
func (o Opcode) IsAtomic() bool { return o.has(bitAtomic) }

// IsAck reports a plain acknowledgement (ACK, NAK or RNR NAK: see AETH.Kind).
func (o Opcode) IsAck() bool { return o.has(bitAck) }

// IsCNP reports a congestion notification packet.
func (o Opcode) IsCNP() bool { return o == CNP }

// IsFirst reports the first packet of a message, or its only one.
func (o Opcode) IsFirst() bool { return o.has(bitFirst) }

// IsLast reports the last packet of a message, or its only one.
func (o Opcode) IsLast() bool { return o.has(bitLast) }

// HasPayload reports that the opcode carries data (which may be empty).
func (o Opcode) HasPayload() bool { return o.has(bitPayload) }

// HasRETH reports an RDMA extended transport header.
func (o Opcode) HasRETH() bool { return o.has(bitRETH) }

// HasAETH reports an acknowledgement extended transport header.
func (o Opcode) HasAETH() bool { return o.has(bitAETH) }

// HasDETH reports a datagram extended transport header.
func (o Opcode) HasDETH() bool { return o.has(bitDETH) }

// HasAtomicETH reports an atomic request header.
func (o Opcode) HasAtomicETH() bool { return o.has(bitAtomicETH) }

// HasAtomicAckETH reports an atomic acknowledgement header.
func (o Opcode) HasAtomicAckETH() bool { return o.has(bitAtomicAckETH) }

// HasImm reports immediate data.
func (o Opcode) HasImm() bool { return o.has(bitImm) }

// HasInvalidate reports an invalidate extended transport header (an R_Key).
func (o Opcode) HasInvalidate() bool { return o.has(bitIETH) }

// HeaderLen is the number of bytes of extended headers after the BTH.
func (o Opcode) HeaderLen() int { return int(headerLen[o]) }

var operationNames = [32]string{
	"SEND_FIRST", "SEND_MIDDLE", "SEND_LAST", "SEND_LAST_IMM", "SEND_ONLY", "SEND_ONLY_IMM",
	"WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST", "WRITE_LAST_IMM", "WRITE_ONLY", "WRITE_ONLY_IMM",
	"READ_REQUEST", "READ_RESPONSE_FIRST", "READ_RESPONSE_MIDDLE", "READ_RESPONSE_LAST", "READ_RESPONSE_ONLY",
	"ACK", "ATOMIC_ACK", "CMP_SWAP", "FETCH_ADD", "RESYNC", "SEND_LAST_INV", "SEND_ONLY_INV", 0x1c: "FLUSH", 0x1d: "ATOMIC_WRITE",
}

// String is the opcode's name, such as RC_WRITE_FIRST, or its number when it is not defined.
func (o Opcode) String() string { return opcodeNames[o] }

var opcodeNames = func() (t [256]string) {
	for i := range t {
		switch o := Opcode(i); {
		case o == CNP:
			t[i] = "CNP"
		case !o.Known():
			t[i] = "opcode 0x" + strconv.FormatUint(uint64(o), 16)
		default:
			t[i] = o.Transport().String() + "_" + operationNames[o&0x1f]
		}
	}
	return t
}()
