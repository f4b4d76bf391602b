package inventory

import (
	"net/netip"
	"slices"

	"github.com/pcmlab/pcmlab/internal/spec"
)

// RDCC is what the domain of receiver-driven credit control has in common: all its senders, receivers and reporting nodes are configured
// alike (the specification's Port Configuration).
type RDCC struct {
	Port       int          // UDP port of all control messages; nobody assigned one, so there is no default
	Protection Protection   // what keeps forged datagrams away from it (Security Considerations)
	DSCP       RDCCDSCP     //
	CRNs       []netip.Addr // congestion reporting nodes: reports from elsewhere are ignored
}

// Protection of the RDCC port. The specification demands one of the two; none can be seen from a host, so the lab file states it (decision 27).
type Protection string

// ESP is IPsec between the endpoints, Filtered an ingress filter at the boundary of the domain.
const (
	ESP      Protection = "esp"
	Filtered Protection = "filtered"
)

// RDCCDSCP are the code points of the domain. Nil is one that it does not configure: nothing is assumed then (decision 27).
type RDCCDSCP struct {
	Control     *int // of control messages; it must not be served after the data that they control
	Unscheduled *int // of data that is sent before there is credit
	Classes     [RDCCClasses]*int
}

// RDCCClasses is the number of Traffic Classes.
const RDCCClasses = 8

// rocePort is RoCEv2's.
const rocePort = 4791

type fileRDCC struct {
	Port       int                        `yaml:"port,required" doc:"UDP port of all control messages of the domain. None is assigned, so there is no default: take one from 49152 to 65535 that nothing else uses" min:"1" max:"65535" example:"50321"`
	Protection string                     `yaml:"protection,required" doc:"what keeps forged datagrams away from the port, which the specification demands: esp, IPsec ESP between the endpoints; filtered, a filter at the boundary of the domain" enum:"esp,filtered" example:"filtered"`
	DSCP       *fileRDCCDSCP              `yaml:"dscp" doc:"code points of the domain; what is absent is not marked"`
	CRNs       spec.OneOrMany[netip.Addr] `yaml:"crns" doc:"addresses of congestion reporting nodes: reports from elsewhere are ignored" example:"192.0.2.250"`
}

type fileRDCCDSCP struct {
	Control     *int `yaml:"control" doc:"of control messages" min:"0" max:"63" example:"48"`
	Unscheduled *int `yaml:"unscheduled" doc:"of data that is sent before there is credit" min:"0" max:"63" example:"46"`
	Class0      *int `yaml:"class0" doc:"of data of Traffic Class 0" min:"0" max:"63"`
	Class1      *int `yaml:"class1" doc:"of data of Traffic Class 1" min:"0" max:"63"`
	Class2      *int `yaml:"class2" doc:"of data of Traffic Class 2" min:"0" max:"63"`
	Class3      *int `yaml:"class3" doc:"of data of Traffic Class 3" min:"0" max:"63"`
	Class4      *int `yaml:"class4" doc:"of data of Traffic Class 4" min:"0" max:"63"`
	Class5      *int `yaml:"class5" doc:"of data of Traffic Class 5" min:"0" max:"63"`
	Class6      *int `yaml:"class6" doc:"of data of Traffic Class 6" min:"0" max:"63"`
	Class7      *int `yaml:"class7" doc:"of data of Traffic Class 7" min:"0" max:"63"`
}

func (d *fileRDCCDSCP) classes() [RDCCClasses]**int {
	return [...]**int{&d.Class0, &d.Class1, &d.Class2, &d.Class3, &d.Class4, &d.Class5, &d.Class6, &d.Class7}
}

func (b *builder) rdcc(f *fileRDCC) *RDCC {
	if f == nil {
		return nil
	}
	r := &RDCC{Port: f.Port, Protection: Protection(f.Protection), CRNs: slices.Clone([]netip.Addr(f.CRNs))}
	at := spec.P("rdcc")
	if d := f.DSCP; d != nil {
		r.DSCP.Control, r.DSCP.Unscheduled = pick(d.Control, nil), pick(d.Unscheduled, nil)
		for class, v := range d.classes() {
			r.DSCP.Classes[class] = pick(*v, nil)
		}
	}
	if r.Port == rocePort {
		b.doc.Errorf(at.With("port"), "take one from 49152 to 65535", "port %d is that of RoCEv2 data", r.Port)
	}
	for i, a := range r.CRNs {
		p := at.With("crns", i)
		switch {
		case !a.IsValid():
		case a.IsUnspecified() || a.IsMulticast() || a.Is4In6():
			b.doc.Errorf(p, "give the address that its reports come from", "%s is no address of a node", a)
		case slices.Contains(r.CRNs[:i], a):
			b.doc.Errorf(p, "name each once", "%s is here twice", a)
		}
	}
	return r
}

func rdccFile(r *RDCC) *fileRDCC {
	if r == nil {
		return nil
	}
	f := &fileRDCC{Port: r.Port, Protection: string(r.Protection), CRNs: slices.Clone(r.CRNs)}
	var d fileRDCCDSCP
	d.Control, d.Unscheduled = pick(r.DSCP.Control, nil), pick(r.DSCP.Unscheduled, nil)
	for class, v := range d.classes() {
		*v = pick(r.DSCP.Classes[class], nil)
	}
	if d != (fileRDCCDSCP{}) {
		f.DSCP = &d
	}
	return f
}
