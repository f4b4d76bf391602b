package facts

import (
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

// Facts say what a host is, each a value or why there is none. Those with the tag flat:"-" differ between any two runs.
type Facts struct {
	Hostname    Value `json:"hostname"`
	BootID      Value `json:"boot_id" flat:"-"`
	Kernel      Value `json:"kernel"`
	Machine     Value `json:"machine"`
	System      Value `json:"system"` // PRETTY_NAME of os-release
	CPUs        Value `json:"cpus"`   // online
	CPU         Value `json:"cpu"`
	Governor    Value `json:"governor,omitempty"` // of all CPUs; several where they differ
	SMT         Value `json:"smt,omitempty"`      // on, off
	NUMANodes   Value `json:"numa_nodes,omitempty"`
	ClockSource Value `json:"clock_source"`
	ClockNS     Value `json:"clock_ns" flat:"-"` // when the facts were read, by the host's clock
	ClockSync   Value `json:"clock_sync,omitempty"`
	PTP         Value `json:"ptp,omitempty" flat:"-"` // "SLAVE, offset -12 ns" of ptp4l
	HugePages   Value `json:"huge_pages,omitempty"`   // "2048kB: 0 of 512 free"
	Memlock     Value `json:"memlock,omitempty"`      // KiB, or unlimited

	RDMACore  Value `json:"rdma_core,omitempty"` // version of the package
	Perftest  Value `json:"perftest,omitempty"`  // what ib_write_bw --version says
	OFED      Value `json:"ofed,omitempty"`
	DOCA      Value `json:"doca,omitempty"`
	RDMANetns Value `json:"rdma_netns,omitempty"` // shared or exclusive

	User    Value `json:"user,omitempty"` // "lab (1000)"
	Sudo    Value `json:"sudo,omitempty"`
	Capture Value `json:"capture,omitempty"` // how packets may be captured: "root", "sudo", "dumpcap"
	DiskKB  Value `json:"disk_free_kb,omitempty" flat:"-"`
	TmpKB   Value `json:"tmp_free_kb,omitempty" flat:"-"`

	Tools   map[string]Value `json:"tools,omitempty" flat:"-"`        // name to path; what is missing is not in it
	Devices []string         `json:"rdma_devices,omitempty" flat:"-"` // all of the host
	Netdevs []string         `json:"netdevs,omitempty" flat:"-"`
	NICs    []NIC            `json:"nics,omitempty"` // in the order of the question

	Leftovers []Leftover `json:"leftovers,omitempty" flat:"-"`
	Sockets   []Socket   `json:"sockets,omitempty" flat:"-"`
	SocketsAt Value      `json:"-"`                               // whether Sockets could be read
	Offset    *Offset    `json:"clock_offset,omitempty" flat:"-"` // nil: not measured

	Cut string `json:"cut,omitempty" flat:"-"` // why the answer is not whole; "" when it is
}

// NIC is what was read of an RDMA device and its interface, or of an interface alone.
type NIC struct {
	Device string `json:"device,omitempty"` // as asked; "" for an interface alone
	Port   int    `json:"port,omitempty"`
	Name   string `json:"netdev,omitempty"` // of the interface, as asked

	Present       Value `json:"present,omitempty"` // "yes"
	State         Value `json:"state,omitempty"`   // ACTIVE, DOWN, ...
	PhysState     Value `json:"phys_state,omitempty"`
	LinkLayer     Value `json:"link_layer,omitempty"`
	RDMARate      Value `json:"rdma_rate,omitempty"` // as sysfs words it
	Model         Value `json:"model,omitempty"`
	PSID          Value `json:"psid,omitempty"`
	Firmware      Value `json:"firmware,omitempty"`
	Driver        Value `json:"driver,omitempty"`
	DriverVersion Value `json:"driver_version,omitempty"`
	PCI           Value `json:"pci,omitempty"`
	NUMA          Value `json:"numa,omitempty"`
	TrafficClass  Value `json:"traffic_class,omitempty"`
	CMTOS         Value `json:"cm_tos,omitempty"` // default ToS of RDMA CM

	GIDs     perftest.GIDTable `json:"gids,omitempty" flat:"-"`
	GIDsWhy  string            `json:"gids_unavailable,omitempty" flat:"-"` // "" when they were read
	GIDIndex Value             `json:"gid_index,omitempty"`                 // the RoCE v2 entry of the data address
	Behind   []string          `json:"device_netdevs,omitempty" flat:"-"`   // interfaces of the RDMA device

	Netdev    Value          `json:"netdev_present,omitempty"` // "yes"
	Oper      Value          `json:"operstate,omitempty"`
	MTU       Value          `json:"mtu,omitempty"`
	Speed     Value          `json:"speed_mbps,omitempty"`
	FEC       Value          `json:"fec,omitempty"`
	Offloads  Value          `json:"offloads,omitempty"` // "gro on, gso on, ..."
	Pause     Value          `json:"pause,omitempty"`
	Rings     Value          `json:"rings,omitempty"`
	Coalesce  Value          `json:"coalesce,omitempty"`
	Timestamp Value          `json:"timestamps,omitempty"` // what the hardware can stamp, and its clock
	Qdiscs    Value          `json:"qdiscs,omitempty"`
	PFC       Value          `json:"pfc,omitempty"`      // priorities with PFC: "3", "none"
	Trust     Value          `json:"trust,omitempty"`    // pcp or dscp
	DSCPMap   Value          `json:"dscp_map,omitempty"` // "26:3 48:6"; "none" when no entry was set
	PrioMap   Value          `json:"priority_map,omitempty"`
	ECN       Value          `json:"ecn,omitempty"`   // priorities for which NP and RP are on: "np 0-7, rp 3"
	DCQCN     Value          `json:"dcqcn,omitempty"` // parameters: "rp/ai_rate=5 ..."
	Addresses []netip.Prefix `json:"addresses,omitempty" flat:"-"`
	AddrsWhy  string         `json:"addresses_unavailable,omitempty" flat:"-"`
}

// Leftover is a guard of another run, at work or only its record, or a lock that somebody holds.
type Leftover struct {
	Run   string    `json:"run,omitempty"` // "" for a person's lock
	Owner string    `json:"owner"`         // user on the host; of a lock who asked for it
	At    time.Time `json:"at,omitzero"`   // when it began
	What  string    `json:"what"`          // the command
	Alive bool      `json:"alive"`
	PID   int       `json:"pid,omitempty"`
	Until time.Time `json:"until,omitzero"` // of a lock
}

// Socket is a UDP socket at port 4791, or a TCP socket that listens.
type Socket struct {
	Proto string     `json:"proto"` // tcp, udp
	Addr  netip.Addr `json:"addr"`
	Port  int        `json:"port"`
	UID   int        `json:"uid"`
}

// Offset is how far the host's clock is ahead of this machine's.
type Offset struct {
	Offset time.Duration `json:"offset_ns"`
	Error  time.Duration `json:"error_ns"` // the true offset is within this
	N      int           `json:"exchanges"`
	Why    string        `json:"unavailable,omitempty"` // why there is none
}
