package gate

import (
	"reflect"
	"strings"

	"github.com/pcmlab/pcmlab/rdcc"
)

// CounterMap has everything that the gate and its machines count, under names in snake case: those of the sender machine
// begin with sender_, the receiver's with receiver_, and the two that must be zero stand alone.
func (g *Gate) CounterMap() map[string]uint64 {
	s, r := g.snd.Counters(), g.rcv.Counters
	m := map[string]uint64{
		"invariant_violations": r.InvariantViolations,
		"beyond_credit":        s.BeyondCredit, // octets that this side transmitted
		"excess_octets":        r.ExcessOctets, // octets that others transmitted to it
	}
	collect(m, "", reflect.ValueOf(g.count))
	collect(m, "sender_", reflect.ValueOf(s))
	collect(m, "receiver_", reflect.ValueOf(r))
	return m
}

// collect adds the fields of a struct of counters. What is counted by type of datagram has a name each, other arrays a sum.
func collect(m map[string]uint64, prefix string, v reflect.Value) {
	for i := range v.NumField() {
		f, name := v.Field(i), prefix+rdcc.CounterName(v.Type().Field(i).Name)
		if f.Kind() == reflect.Uint64 {
			m[name] = f.Uint()
			continue
		}
		byType := f.Len() == int(rdcc.TypeError)+1
		for k := range f.Len() {
			switch t := rdcc.Type(k); {
			case !byType:
				m[name] += f.Index(k).Uint()
			case t.Defined():
				m[strings.TrimSuffix(name, "_by_type")+"_"+strings.ToLower(t.String())] = f.Index(k).Uint()
			}
		}
	}
}

// PeerStatus is a peer to which messages go.
type PeerStatus struct {
	To      string `json:"to"`
	Open    bool   `json:"open"`         // it has admitted the association
	Pending int    `json:"pending"`      // messages that are not at their end
	U       uint64 `json:"U_bytes"`      // that it allows
	Unused  uint64 `json:"unused_bytes"` // credit held and not used
	RTTNS   int64  `json:"rtt_ns"`       // smoothed; 0: no sample yet
	Pool    bool   `json:"pool"`         // it gives pool credit
}

// Status is what there is to look at.
type Status struct {
	Peers     []PeerStatus `json:"peers"`     // that this host asks
	Senders   int          `json:"senders"`   // that ask this host
	Announced int          `json:"announced"` // their messages that have not arrived
}

// Status describes the gate.
func (g *Gate) Status() Status {
	s := Status{Peers: []PeerStatus{}, Senders: len(g.assocs), Announced: len(g.routes)}
	for to, p := range g.peers {
		a, _ := g.snd.Association(to)
		s.Peers = append(s.Peers, PeerStatus{To: to.String(), Open: a.Open, Pending: p.pending, U: a.U, Unused: a.Unused, RTTNS: int64(a.RTT), Pool: a.Pool})
	}
	return s
}

// Refuse answers a datagram at the port of a gate that was closed, so that senders do not wait for one that is silent: what they
// ask credit for is of an association that is gone, and no new one is admitted. Nil is no answer.
func Refuse(b []byte) []byte {
	var d rdcc.Datagram
	if d.Decode(b) != nil {
		return nil
	}
	switch d.Type {
	case rdcc.TypeCreditRequest:
		return (&rdcc.Error{Reason: rdcc.ReasonUnknownAssociation}).Append(nil, rdcc.Header{Assoc: d.Assoc})
	case rdcc.TypeAssocRequest:
		return (&rdcc.Error{Reason: rdcc.ReasonAssocRefused}).Append(nil, rdcc.Header{})
	}
	return nil
}
