package domain

import (
	"net/netip"

	"github.com/pcmlab/pcmlab/internal/units"
)

// Config configures RDCC. The zero value of each field but Port means the specification's default, or a default that is
// stated.
type Config struct {
	Off  bool   `yaml:"off" json:"off,omitzero" doc:"switches RDCC off; nothing else counts then"`
	Port uint16 `yaml:"port" json:"port,omitzero" doc:"UDP port of RDCC, the same on all senders, receivers and reporting nodes of the domain; required, there is no default" example:"52001"`

	// Protection is what the operator does against datagrams from outside (Security Considerations, decision 27).
	Protection string `yaml:"protection" json:"protection,omitzero" doc:"what keeps others' datagrams out: IPsec ESP between endpoints, or filters at the boundary of the domain" enum:"esp,filtered"`

	// The path. Who configures a machine from this knows the path itself, mostly; what is said here wins.

	LineRate  units.Rate `yaml:"line_rate" json:"line_rate,omitzero" doc:"rate of the host's link" example:"100Gbit/s" min:"1Mbit/s"`
	BaseRTT   Duration   `yaml:"base_rtt" json:"base_rtt,omitzero" doc:"round-trip time of the domain without queues" example:"15us"`
	DMax      Duration   `yaml:"dmax" json:"dmax,omitzero" doc:"largest one-way delay of the domain (D_max); base_rtt when absent" example:"1*RTT"`
	Payload   units.Size `yaml:"payload" json:"payload,omitzero" doc:"message octets in a full data packet; 4096B when absent" example:"4096B" min:"64B" max:"9216B"`
	Wire      units.Size `yaml:"wire" json:"wire,omitzero" doc:"octets that such a packet occupies on the link; payload and 82 when absent" example:"4178B" min:"64B" max:"16KiB"`
	TimeScale float64    `yaml:"time_scale" json:"time_scale,omitzero" doc:"a virtual lab's time scale; 1 when absent" min:"1" max:"1000000"`

	// The receiver.

	G               Size       `yaml:"G" json:"G,omitzero" doc:"credit budget: octets granted and not yet received; 2*BDP when absent" example:"2*BDP"`
	Gu              Size       `yaml:"Gu" json:"Gu,omitzero" doc:"its part for unscheduled data; a quarter of G when absent" example:"0.5*BDP"`
	U               Size       `yaml:"U" json:"U,omitzero" doc:"unscheduled limit of a sender; Gu / expected_senders when absent, at most a BDP" example:"16KiB"`
	MinU            Size       `yaml:"min_U" json:"min_U,omitzero" doc:"a smaller U is not worth having; a credit unit when absent" example:"4KiB"`
	J               Duration   `yaml:"J" json:"J,omitzero" doc:"start jitter limit of unscheduled data; 1*RTT when absent" example:"1*RTT"`
	Lifetime        Duration   `yaml:"lifetime" json:"lifetime,omitzero" doc:"of grants; 4*RTT when absent, at least 100us" example:"4*RTT"`
	CreditUnit      units.Size `yaml:"credit_unit" json:"credit_unit,omitzero" doc:"the payload of a full packet when absent" example:"4096B" min:"1B" max:"1MiB"`
	Backlog         Size       `yaml:"backlog" json:"backlog,omitzero" doc:"backlog threshold N_cu that senders are told; 2*BDP when absent" example:"2*BDP"`
	ExpectedSenders int        `yaml:"expected_senders" json:"expected_senders,omitzero" doc:"concurrent ones, among which Gu is divided; 8 when absent" min:"1" max:"65536"`
	Pool            bool       `yaml:"pool" json:"pool,omitzero" doc:"pool grants for senders that can use them"`
	Allocator       string     `yaml:"allocator" json:"allocator,omitzero" doc:"how rates are found; aimd when absent" enum:"aimd,bbr"`
	TargetRTT       Duration   `yaml:"target_rtt" json:"target_rtt,omitzero" doc:"above it the path counts as congested; 2*RTT when absent" example:"2*RTT"`
	Idle            Duration   `yaml:"idle" json:"idle,omitzero" doc:"without traffic until an association is removed; 10s when absent, not scaled" example:"10s"`
	MaxAssociations int        `yaml:"max_associations" json:"max_associations,omitzero" doc:"bound; 16384 when absent" min:"1" max:"65536"`
	MaxPerAddress   int        `yaml:"max_per_address" json:"max_per_address,omitzero" doc:"associations of one address; a quarter of them all when absent" min:"1" max:"65536"`
	MaxMessages     int        `yaml:"max_messages" json:"max_messages,omitzero" doc:"pending, of all associations; 262144 when absent" min:"1" max:"16777216"`
	MaxPending      int        `yaml:"max_pending" json:"max_pending,omitzero" doc:"pending of one association; 256 when absent" min:"1" max:"65536"`
	MaxCredit       Size       `yaml:"max_credit" json:"max_credit,omitzero" doc:"octets granted to one association; all that is for scheduled data when absent" example:"1*BDP"`
	MaxLength       units.Size `yaml:"max_length" json:"max_length,omitzero" doc:"of a message; 1TiB when absent" example:"64GiB"`

	// The sender.

	Class        uint8    `yaml:"class" json:"class,omitzero" doc:"traffic class of messages, 0 is served first" max:"7"`
	Weight       uint8    `yaml:"weight" json:"weight,omitzero" doc:"within the class; 1 when absent"`
	Hint         string   `yaml:"hint" json:"hint,omitzero" doc:"service hint; none when absent" enum:"none,latency-sensitive,throughput-oriented"`
	Unscheduled  *bool    `yaml:"unscheduled" json:"unscheduled,omitzero" doc:"false: a receiver offers no unscheduled window, and a sender uses none; true when absent"`
	Segment      Size     `yaml:"segment" json:"segment,omitzero" doc:"longest piece that the transport posts at once; whatever it likes when absent" example:"32KiB"`
	OnRefused    string   `yaml:"on_refused" json:"on_refused,omitzero" doc:"what becomes of messages to a receiver that refuses; fail when absent" enum:"fail,without"`
	GiveUp       Duration `yaml:"give_up" json:"give_up,omitzero" doc:"without progress until a message is cancelled; 30s when absent, not scaled" example:"30s"`
	LocalBacklog Size     `yaml:"local_backlog" json:"local_backlog,omitzero" doc:"a backlog threshold of the sender's own, where it is smaller than those of its receivers" example:"2*BDP"`
	Advertise    []string `yaml:"advertise" json:"advertise,omitzero" doc:"capabilities: pool, status, crn, or none alone; all when absent" example:"pool"`
	MaxOutgoing  int      `yaml:"max_outgoing" json:"max_outgoing,omitzero" doc:"messages of this sender at a time; 1048576 when absent" min:"1" max:"1048576"`

	// Both.

	CRNs  []netip.Addr `yaml:"crns" json:"crns,omitzero" doc:"congestion reporting nodes; reports of others are ignored" example:"192.0.2.254"`
	Local []netip.Addr `yaml:"local" json:"local,omitzero" doc:"this host's data addresses, in the flows that reports name; any when absent" example:"192.0.2.1"`
	DSCP  DSCP         `yaml:"dscp" json:"dscp,omitzero" doc:"code points of the domain; what is not said is not marked"`
}

// DSCP are the Differentiated Services Code Points of the domain. Nil is one that the domain does not configure: nothing
// is assumed (decision 27).
type DSCP struct {
	Control     *uint8 `yaml:"control" json:"control,omitzero" doc:"of RDCC datagrams; at least the priority of the data that they control" max:"63"`
	Unscheduled *uint8 `yaml:"unscheduled" json:"unscheduled,omitzero" doc:"of unscheduled data" max:"63"`
	Class0      *uint8 `yaml:"class0" json:"class0,omitzero" doc:"of data of class 0" max:"63"`
	Class1      *uint8 `yaml:"class1" json:"class1,omitzero" doc:"of data of class 1" max:"63"`
	Class2      *uint8 `yaml:"class2" json:"class2,omitzero" doc:"of data of class 2" max:"63"`
	Class3      *uint8 `yaml:"class3" json:"class3,omitzero" doc:"of data of class 3" max:"63"`
	Class4      *uint8 `yaml:"class4" json:"class4,omitzero" doc:"of data of class 4" max:"63"`
	Class5      *uint8 `yaml:"class5" json:"class5,omitzero" doc:"of data of class 5" max:"63"`
	Class6      *uint8 `yaml:"class6" json:"class6,omitzero" doc:"of data of class 6" max:"63"`
	Class7      *uint8 `yaml:"class7" json:"class7,omitzero" doc:"of data of class 7" max:"63"`
}

// Classes are the code points of data, by class.
func (d DSCP) Classes() [8]*uint8 {
	return [8]*uint8{d.Class0, d.Class1, d.Class2, d.Class3, d.Class4, d.Class5, d.Class6, d.Class7}
}
