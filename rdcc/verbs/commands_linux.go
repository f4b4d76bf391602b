package verbs

import (
	"context"
	"net/netip"
)

func (p *Program) open(ctx context.Context, o Options) (Device, error) {
	if len(o.Device) >= deviceLen {
		return Device{}, &Error{Command: "OPEN", Text: "device " + o.Device + ": the name is too long"}
	}
	m := openMsg{GIDIndex: int32(o.GIDIndex), Port: 1, Region: 4 << 20, MaxQPs: 64}
	copy(m.Device[:], o.Device)
	if o.Address.IsValid() {
		m.Address = o.Address.As16()
	}
	if o.Port != 0 {
		m.Port = uint32(o.Port)
	}
	if o.Region != 0 {
		m.Region = uint64(o.Region)
	}
	if o.MaxQPs != 0 {
		m.MaxQPs = uint32(o.MaxQPs)
	}
	if o.Spin {
		m.Flags |= flagSpin
	}
	if o.NoRate {
		m.Flags |= flagNoNICRate
	}
	var r openedMsg
	if err := p.ask(ctx, typeOpen, m, typeOpened, &r); err != nil {
		return Device{}, err
	}
	return Device{Name: text(r.Device[:]), GID: netip.AddrFrom16(r.GID).Unmap(), GIDIndex: int(r.GIDIndex), MTU: int(r.MTU), Region: r.Region,
		MaxQPs: int(r.MaxQPs), Depth: int(r.Depth), RateMin: int64(r.RateMin), RateMax: int64(r.RateMax), address: r.Address, rkey: r.RKey}, nil
}

// Make makes a queue pair.
func (p *Program) Make(ctx context.Context, d Device) (Half, error) {
	var r madeMsg
	if err := p.ask(ctx, typeQP, qpMsg{}, typeMade, &r); err != nil {
		return Half{}, err
	}
	return Half{QP: r.QP, PSN: r.PSN, GID: d.GID, Address: d.address, Region: d.Region, RKey: d.rkey, MTU: d.MTU}, nil
}

// Path is how a queue pair sends.
type Path struct {
	TrafficClass uint8 // DSCP and ECN
	Timeout      uint8 // 4.096 µs · 2^Timeout; 0 means 18, a second
	Retry        uint8 // 0 means 6
}

// Connect joins a queue pair to its peer.
func (p *Program) Connect(ctx context.Context, own, peer Half, path Path) error {
	if path.Timeout == 0 {
		path.Timeout = 18
	}
	if path.Retry == 0 {
		path.Retry = 6
	}
	m := connectMsg{QP: own.QP, DestQP: peer.QP, PSN: own.PSN, DestPSN: peer.PSN, GID: peer.GID.As16(), Address: peer.Address, Region: peer.Region,
		RKey: peer.RKey, MTU: uint32(min(own.MTU, peer.MTU)), TClass: path.TrafficClass, Timeout: path.Timeout, Retry: path.Retry}
	var r okMsg
	return p.ask(ctx, typeConnect, m, typeOK, &r)
}

// Range is a part of a message that may be posted.
type Range struct {
	QP         uint32
	Message    uint64
	From, UpTo uint64
	Segment    uint32
	Immediate  uint32 // of the first segment
	Empty      uint32 // RDMA messages without octets behind them
}

// Post hands over a range. It returns at once; Posted and Acked tell how it goes.
func (p *Program) Post(r Range) error {
	return p.send(typePost, 0, postMsg{QP: r.QP, Immediate: r.Immediate & 0xffffff, Message: r.Message, From: r.From, UpTo: r.UpTo, Segment: r.Segment, Empty: r.Empty})
}

// Pace sets a queue pair's rate; window are the octets that may leave within the time that they take at it. It does not wait.
func (p *Program) Pace(qp, window uint32, bps int64) error {
	return p.send(typePace, 0, paceMsg{QP: qp, Window: window, Rate: uint64(bps)})
}

// PaceAsk is Pace, and says whether the NIC holds the rate.
func (p *Program) PaceAsk(ctx context.Context, qp, window uint32, bps int64) (nic bool, err error) {
	var r okMsg
	err = p.ask(ctx, typePace, paceMsg{QP: qp, Window: window, Rate: uint64(bps)}, typeOK, &r)
	return r.Value != 0, err
}

// CloseQP destroys a queue pair.
func (p *Program) CloseQP(ctx context.Context, qp uint32) error {
	var r okMsg
	return p.ask(ctx, typeClose, closeMsg{QP: qp}, typeOK, &r)
}
