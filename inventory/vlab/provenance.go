package vlab

// Provenance says how a lab was really made. It belongs in the bundle of each run on it.
type Provenance struct {
	Kernel    string            `json:"kernel"`
	IO        IO                `json:"io"`        // kind of wire
	FabricIO  map[string]string `json:"fabric_io"` // per switch: io_uring, readwrite or packet, as the fabric says
	Rootless  bool              `json:"rootless"`
	TimeScale float64           `json:"time_scale"`
	Offloads  []Offload         `json:"offloads"` // switched off, read back from each interface
	IPv6Off   bool              `json:"ipv6_off"` // on interfaces without an IPv6 address
	SelfTest  string            `json:"self_test"`
	Notes     []string          `json:"notes,omitempty"` // what this machine did not allow
}

// Offload is the state of one offload of one interface, read back after it was switched off.
type Offload struct {
	Host   string `json:"host"`
	Netdev string `json:"netdev"`
	End    string `json:"end"`  // "host" or, of a veth pair, "fabric"
	Name   string `json:"name"` // tx-checksum, tso, gso, gro
	Was    *bool  `json:"was"`  // null: the interface does not say
	On     *bool  `json:"on"`
}
