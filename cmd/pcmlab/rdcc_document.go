package main

import (
	"encoding/hex"

	"github.com/pcmlab/pcmlab/rdcc"
)

// rdccDocument is a datagram in JSON. What is not there is null.
type rdccDocument struct {
	Number        int            `json:"number"` // from 1, over all inputs
	Source        string         `json:"source"`
	Packet        *int64         `json:"packet"` // of a capture, from 1
	TimeNS        *int64         `json:"time_ns"`
	From          *string        `json:"from"`
	To            *string        `json:"to"`
	Type          *string        `json:"type"`
	Bytes         int            `json:"bytes"`          // of the UDP payload
	CapturedBytes int            `json:"captured_bytes"` // of them
	Flags         []string       `json:"flags"`
	Fields        map[string]any `json:"fields"` // as far as they are there
	Discard       bool           `json:"discard"`
	Mistakes      []rdccMistake  `json:"mistakes"`
	Hex           string         `json:"hex"`
}

type rdccMistake struct {
	Offset  int    `json:"offset"`
	Field   string `json:"field"`
	Text    string `json:"text"`
	Discard bool   `json:"discard"`
}

func (d *rdccDatagram) document(n int) *rdccDocument {
	doc := &rdccDocument{
		Number: n, Source: d.source, TimeNS: d.timeNS, Bytes: d.length, CapturedBytes: len(d.octets), Fields: map[string]any{},
		Discard: d.in.Discarded(), Flags: append([]string{}, rdcc.FlagNames(d.in.Type, d.flags())...), Mistakes: []rdccMistake{}, Hex: hex.EncodeToString(d.octets),
	}
	if d.packet > 0 {
		from, to := d.from.String(), d.to.String()
		doc.Packet, doc.From, doc.To = &d.packet, &from, &to
	}
	if d.in.HasType {
		name := d.in.Type.String()
		doc.Type = &name
	}
	for _, f := range d.in.Fields {
		if !f.Reserved() {
			doc.Fields[f.Key()] = f.JSON()
		}
	}
	for _, m := range d.in.Mistakes {
		doc.Mistakes = append(doc.Mistakes, rdccMistake{m.Offset, m.Field, m.Text, m.Discard})
	}
	return doc
}
