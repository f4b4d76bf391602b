package rdcc

// judge names what a sender that follows the specification would not have sent. The receiver overlooks it, ignores the
// message, or answers with an error; each text says which.
func (in *Inspection) judge() {
	for _, f := range in.Fields {
		if f.Reserved() && f.Value != 0 {
			in.Mistakes = append(in.Mistakes, Mistake{f.Offset, f.Name, "not zero (ignored)", false})
		}
	}
	if u := uint16(in.value("Flags")) &^ ofType[in.Type].flags; u != 0 {
		in.wrong(false, "Flags", "0x%04x is not defined for %s (ignored)", u, in.Type)
	}
	in.judgeAssociation()
	switch in.Type {
	case TypeAssocRequest, TypeAssocAccept:
		in.judgeAssoc()
	case TypeCreditRequest:
		in.judgeRequest()
	case TypeCreditGrant:
		in.judgeGrant()
	case TypeSenderStatus:
		in.judgeHint()
	case TypeCongestionReport:
		in.judgeReport()
	case TypeMsgDone:
		in.notZero("Message ID", "zero is reserved")
	case TypeCancel:
		in.notZero("Message ID", "zero is reserved")
		in.judgeReason()
	case TypeError:
		in.judgeReason()
	}
}

func (in *Inspection) notZero(field, why string) {
	if f, ok := in.Field(field); ok && f.Value == 0 {
		in.wrong(false, field, "%s", why)
	}
}

// judgeAssociation: who has no association yet, or never will, names none (Common Header).
func (in *Inspection) judgeAssociation() {
	switch in.Type {
	case TypeAssocRequest, TypeCongestionReport:
		for _, name := range []string{"Association ID", "Epoch"} {
			if f, _ := in.Field(name); f.Value != 0 {
				in.wrong(false, name, "%s: zero in %s", f.Text, in.Type)
			}
		}
	case TypeError:
		if Reason(in.value("Reason")) == ReasonAssocRefused {
			return // there is no association that it could name
		}
		in.notZero("Association ID", "zero, and only a refusal concerns no association")
	default:
		in.notZero("Association ID", "zero: the receiver assigns another one")
	}
}

func (in *Inspection) judgeAssoc() {
	if u := Capabilities(in.value("Capabilities")) &^ (CapPool | CapStatus | CapCRN); u != 0 {
		in.wrong(false, "Capabilities", "0x%08x is not defined (ignored)", uint32(u))
	}
	in.notZero("Line Rate", "zero: the receiver could grant nothing")
	in.notZero("Grant Lifetime", "zero: grants without one would never hold")
	in.notZero("Credit Unit", "zero: typically the payload of the path's MTU")
}

func (in *Inspection) judgeHint() {
	if f, _ := in.Field("Service Hint"); !Hint(f.Value).Defined() {
		in.wrong(false, "Service Hint", "%d: need 0 none, 1 latency-sensitive or 2 throughput-oriented (as good as none)", f.Value)
	}
}

func (in *Inspection) judgeRequest() {
	in.notZero("Message ID", "zero is reserved")
	if c := in.value("Class"); c > MaxClass {
		in.wrong(false, "Class", "%d: need 0 to 7 (treated as 7)", c)
	}
	in.notZero("Weight", "zero: need 1 to 255 (treated as 1)")
	in.judgeHint()
	if sent, length := in.value("Unscheduled Sent"), in.value("Message Length"); sent > length {
		in.wrong(false, "Unscheduled Sent", "%d octets of a message of %d", sent, length)
	}
	switch kind := BindingKind(in.value("Binding Kind")); {
	case kind == BindingRoCEv2:
		in.roceBinding()
	case !kind.Defined():
		in.wrong(false, "Binding Kind", "%d: need 1 RoCEv2 or 2 Opaque (answered with UNSUPPORTED_BINDING)", kind)
	}
}

// roceBinding adds the parts of a RoCEv2 Binding Value to the fields.
func (in *Inspection) roceBinding() {
	v := in.value("Binding Value")
	r := RoCEBindingOf(v)
	for _, p := range []struct {
		name, key   string
		offset, len int
		value       uint64
	}{
		{"Binding Value: destination queue pair", "dest_qp", 48, 3, uint64(r.DestQP)},
		{"Binding Value: message sequence number", "first_msn", 51, 3, uint64(r.MSN)},
		{"Binding Value: RDMA messages", "rdma_messages", 54, 2, uint64(r.Messages)},
	} {
		in.Fields = append(in.Fields, Field{Name: p.name, Offset: p.offset, Len: p.len, Value: p.value, Text: kNumber.text(p.value), key: p.key, kind: kPart})
	}
	if r.Messages == 0 && in.value("Message Length") > 0 {
		in.wrong(false, "Binding Value: RDMA messages", "none for a message of %d octets", in.value("Message Length"))
	}
}

func (in *Inspection) judgeGrant() {
	flags, id := uint16(in.value("Flags")), in.value("Message ID")
	switch {
	case flags&FlagPool == 0 && id == 0:
		in.wrong(false, "Message ID", "zero without the POOL flag")
	case flags&FlagPool != 0 && id != 0:
		in.wrong(false, "Message ID", "%d with the POOL flag: zero in a pool grant", id)
	}
	if flags&FlagPool != 0 && flags&FlagFinal != 0 {
		in.wrong(false, "Flags", "FINAL with POOL: a pool has no end")
	}
	in.notZero("Pacing Rate", "zero: the sender ignores the grant")
}

func (in *Inspection) judgeReport() {
	if d := Direction(in.value("Direction")); d != ToReceiver && d != ToSender {
		in.wrong(false, "Direction", "%d: need 1 (to the receiver) or 2 (to the sender) (the report is ignored)", d)
	}
	if q, b := in.value("Queue Depth"), in.value("Queue Threshold"); q <= b {
		in.wrong(false, "Queue Depth", "%d octets, not above the threshold of %d: nothing to report", q, b)
	}
}

func (in *Inspection) judgeReason() {
	if f, _ := in.Field("Reason"); !Reason(f.Value).Defined() {
		in.wrong(false, "Reason", "0x%04x: need 0x0000 to 0x0007", f.Value)
	}
}
