package qp

import "github.com/pcmlab/pcmlab/capture/roce"

// responder is the receiving half.
type responder struct {
	rq          ring[RecvRequest]
	uncollected int

	epsn    uint32 // expected PSN
	msn     uint32 // messages completed
	missing uint64 // packets found missing

	busy     bool // inside a message
	op       Op
	rkey     uint32
	va       uint64 // where the next bytes go: remote address of a WRITE, local place of a SEND
	left     int    // bytes of the WRITE, or of room for the SEND, that are left
	received uint32

	ack      bool  // an ACK of epsn-1 is owed
	nak      uint8 // syndrome of the NAK that is owed, 0: none
	nakPSN   uint32
	nakSent  bool // a NAK for epsn went out; no further one until it is received (IBTA 9.7.5.1.3)
	fatal    bool // the owed NAK ends the connection
	sinceAck int
}

// request handles a request packet (IBTA 9.7.4).
func (m *Machine) request(in *In) {
	r := &m.resp
	if r.fatal {
		return
	}
	switch d := roce.PSNDiff(in.BTH.PSN, r.epsn); {
	case d < 0:
		m.n.DuplicateRequest++
		// Its effects are there already. It is answered with the newest state when the requester asks for that.
		if in.BTH.AckReq {
			r.ack = true
		}
		return
	case d > 0:
		m.n.OutOfSequence++
		if !r.nakSent {
			r.nakSent = true
			r.missing += uint64(d)
			m.owe(roce.NakSyndrome(roce.NakSequence))
		}
		return
	}
	if !m.take(in) {
		return
	}
	r.nakSent = false
	r.epsn = roce.PSNAdd(r.epsn, 1)
	m.n.RxPayloadBytes += uint64(len(in.Payload))
	if r.sinceAck++; in.BTH.AckReq || r.sinceAck >= m.c.AckEvery {
		r.ack = true
	}
}

// take executes the packet with the expected PSN, or owes a NAK and returns false.
func (m *Machine) take(in *In) bool {
	r := &m.resp
	op, n := in.BTH.Opcode, len(in.Payload)
	first, last := op.IsFirst(), op.IsLast()
	var kind Op
	switch {
	case op >= roce.RCSendFirst && op <= roce.RCSendOnly && !op.HasImm():
		kind = Send
	case op >= roce.RCWriteFirst && op <= roce.RCWriteOnly && !op.HasImm():
		kind = Write
	default: // READ, atomics, immediate data, invalidate
		return m.reject(roce.NakInvalidRequest)
	}
	if first == r.busy || !first && kind != r.op {
		return m.reject(roce.NakInvalidRequest)
	}
	if n > m.c.MTU || !last && n != m.c.MTU || last && !first && n == 0 {
		return m.reject(roce.NakInvalidRequest)
	}
	if first && kind == Write {
		length := in.RETH.DMALen
		if last && int(length) != n || !last && int64(length) <= int64(m.c.MTU) {
			return m.reject(roce.NakInvalidRequest)
		}
		if length > 0 && !m.mem.Writable(in.RETH.RKey, in.RETH.VA, length) {
			return m.reject(roce.NakRemoteAccess)
		}
		m.n.RxWriteRequests++
		r.rkey, r.va, r.left = in.RETH.RKey, in.RETH.VA, int(length)
	}
	if first && kind == Send {
		if r.rq.len() == 0 {
			m.n.OutOfBuffer++
			r.nakSent = true
			m.owe(roce.RNRSyndrome(m.c.MinRNRTimer))
			return false
		}
		m.n.RxSendRequests++
		b := r.rq.at(r.rq.head)
		r.va, r.left = b.Local, int(b.Length)
	}
	if first {
		r.op, r.received = kind, 0
	}
	switch {
	case kind == Write && (n > r.left || last && n != r.left || !last && n == r.left):
		return m.reject(roce.NakInvalidRequest)
	case kind == Send && n > r.left:
		b, _ := r.rq.pop()
		m.n.RespLocalLength++
		m.n.RespCQEError++
		m.complete(Completion{ID: b.ID, Op: Recv, Status: LocalLengthError})
		return m.reject(roce.NakInvalidRequest)
	}
	if n > 0 && kind == Write {
		m.mem.WriteRemote(r.rkey, r.va, in.Payload)
	} else if n > 0 {
		m.mem.WriteLocal(r.va, in.Payload)
	}
	r.va += uint64(n)
	r.left -= n
	r.received += uint32(n)
	r.busy = !last
	if last {
		r.msn = (r.msn + 1) & roce.PSNMask
		if kind == Send {
			b, _ := r.rq.pop()
			m.complete(Completion{ID: b.ID, Op: Recv, Length: r.received})
		}
	}
	return true
}

// reject owes a NAK that ends the connection.
func (m *Machine) reject(code roce.NakCode) bool {
	if code == roce.NakRemoteAccess {
		m.n.RespRemoteAccess++
	} else {
		m.n.RespInvalid++
	}
	m.owe(roce.NakSyndrome(code))
	m.resp.fatal = true
	return false
}

func (m *Machine) owe(syndrome uint8) { m.resp.nak, m.resp.nakPSN = syndrome, m.resp.epsn }

// nextAck builds the acknowledgement that is owed. ACKs that pile up between two calls are one: it covers all before.
func (m *Machine) nextAck(p *Out) bool {
	r := &m.resp
	switch {
	case r.nak != 0: // also acknowledges everything before its PSN
		m.n.TxNakPackets++
		*p = Out{AETH: roce.AETH{Syndrome: r.nak, MSN: r.msn}}
		p.BTH.PSN = r.nakPSN
		// The packet it asks for may have come since; then the ACK is owed still.
		r.nak, r.ack, r.sinceAck = 0, r.ack && r.nakPSN != r.epsn, 0
		if r.fatal {
			m.Fail()
		}
	case r.ack:
		m.n.TxAckPackets++
		*p = Out{AETH: roce.AETH{Syndrome: roce.AckSyndrome(roce.CreditsUnlimited), MSN: r.msn}}
		p.BTH.PSN = roce.PSNAdd(r.epsn, -1)
		r.ack, r.sinceAck = false, 0
	default:
		return false
	}
	p.BTH.Opcode, p.BTH.DestQP, p.BTH.PKey, p.BTH.MigReq = roce.RCAck, m.peer, roce.DefaultPKey, true
	return true
}
